"""The planner as a service: behind Serve's gRPC proxy, for robots anywhere."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import ray
from ray import serve
from ray.serve import Application
from ray.serve.config import gRPCOptions
from ray.serve.handle import DeploymentHandle

from jepa_planner_ros.serving.deployments import (
    HEALTH_CHECK_PERIOD_S,
    PLANNER_OPTIONS,
    ClusterPlanner,
    world_models,
)
from jepa_planner_ros.serving.endpoint import JepaPlannerMethods, PlannerEndpoint
from jepa_planner_ros.serving.settings import ServingSettings
from jepa_planner_ros.serving.token import read_token
from jepa_planner_ros.serving.wire import jepa_planner_pb2_grpc

SERVICER = (
    f"{jepa_planner_pb2_grpc.__name__}."
    f"{jepa_planner_pb2_grpc.add_JepaPlannerServicer_to_server.__name__}"
)
"""What Serve's proxies must be told of to know the service."""

_MAX_SESSIONS = 256
"""Robots that are served at once; a session counts for as long as it is open."""

# Those that come while a lost search process is started again. Any more are told, and come back.
_MAX_QUEUED = 16


class ServedPlanner(JepaPlannerMethods):
    """The search, behind the wire.

    Raises:
        PlannerError: the token cannot be read.
    """

    def __init__(
        self, world_models: DeploymentHandle, replicas: int, token_file: Path | None
    ) -> None:
        _log_with_serve()
        planner = ClusterPlanner(world_models, replicas)
        token = None if token_file is None else read_token(token_file)
        self.endpoint = PlannerEndpoint(planner, token)


def _log_with_serve() -> None:
    """Write what this package logs, each plan included, to the log of the Serve replica."""
    package = logging.getLogger("jepa_planner_ros")
    package.setLevel(logging.INFO)
    package.handlers = logging.getLogger("ray.serve").handlers


def grpc_options(port: int) -> gRPCOptions:
    """What Serve has to be started with."""
    return gRPCOptions(port=port, grpc_servicer_functions=[SERVICER])


def served_application(settings: ServingSettings, token_file: Path | None) -> Application:
    """The planner for robots, on the cluster that this process is connected to.

    Args:
        settings: what to serve. Device and replicas that are left open are decided by the GPUs
            that the cluster has now; where both are given, Serve waits for GPUs that have yet to
            join.
        token_file: file on the cluster's nodes with the token that robots must know; None serves
            only what runs on the proxy's own node.

    Raises:
        PlannerError: there are fewer GPUs than replicas.
    """
    if settings.device == "auto" or settings.replicas is None:
        settings = settings.decided(int(ray.cluster_resources().get("GPU", 0)))
    planner = serve.deployment(
        name="Planner",
        health_check_period_s=HEALTH_CHECK_PERIOD_S,
        max_ongoing_requests=_MAX_SESSIONS,
        max_queued_requests=_MAX_QUEUED,
        ray_actor_options=PLANNER_OPTIONS,
    )(ServedPlanner)
    return planner.bind(world_models(settings), settings.replicas, token_file)


def build(arguments: Mapping[str, Any]) -> Application:
    """The planner from the ``args`` of a Serve config file: `ServingSettings`, and ``token_file``.

    Raises:
        ValueError: an argument is unknown or out of its range.
        PlannerError: there are fewer GPUs than replicas.
    """
    given = dict(arguments)
    token_file = given.pop("token_file", None)
    if token_file is not None:
        token_file = Path(token_file)
    known = [field.name for field in fields(ServingSettings)]
    if unknown := sorted(set(given) - set(known)):
        raise ValueError(
            f"args.{unknown[0]} is unknown; the planner knows {', '.join(known)} and token_file."
        )
    return served_application(replace(ServingSettings(), **given), token_file)
