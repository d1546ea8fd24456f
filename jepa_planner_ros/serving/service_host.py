"""The host of the Ray, or of the connection to one, that serves robots.

Run by `jepa_planner_ros.serving.service`. Over the connection go a `ServiceSettings`, the
`RunningService` in reply, and then a sentence whenever the planner's health changes. When the owner
lets go, the planner is removed from a cluster that goes on without it.
"""

from __future__ import annotations

import logging
import socket
import time
from contextlib import ExitStack
from pathlib import Path

import ray
from ray import serve
from ray.serve.schema import LoggingConfig

from jepa_planner_ros.serving.application import grpc_options, served_application
from jepa_planner_ros.serving.deploy import APPLICATION, deploy, health
from jepa_planner_ros.serving.owner import owner
from jepa_planner_ros.serving.remote import RemotePlanner
from jepa_planner_ros.serving.remote_settings import RemoteSettings
from jepa_planner_ros.serving.service import RunningService, ServiceSettings
from jepa_planner_ros.types import PlannerError

_ANSWER_S = 30.0
_LISTENER_S = 5.0
_LOOK_EVERY_S = 1.0


def main() -> None:
    """Serve robots until the owner lets go."""
    logging.basicConfig(level=logging.WARNING)
    with owner() as (connection, directory, tidying):
        settings = connection.recv()
        assert isinstance(settings, ServiceSettings)
        connection.send(_start(settings, directory, tidying))
        told = ""
        while True:
            if (now := health()) != told:
                connection.send(now)
                told = now
            time.sleep(_LOOK_EVERY_S)


def _start(settings: ServiceSettings, directory: Path, tidying: ExitStack) -> RunningService:
    """Start the service and return when it has answered a first call.

    Args:
        settings: what to serve where.
        directory: for the files of a Ray of its own.
        tidying: is given what has to be undone, whether the start succeeds or not.

    Raises:
        PlannerError: there is no such cluster, the planner could not be started on it, or its port
            does not answer.
    """
    ours = settings.address is None
    serving = settings.serving.for_this_machine() if ours else settings.serving
    _connect(settings, directory)
    serve.start(
        http_options={"host": "127.0.0.1", "port": settings.health_port},
        grpc_options=grpc_options(settings.port),
        logging_config=LoggingConfig(log_level="WARNING", enable_access_log=False),
    )
    if not ours:
        tidying.callback(serve.delete, APPLICATION)
    deploy(served_application(serving, settings.token_file), route_prefix="/")
    # As a robot does; a port that another program holds, or another Serve, shows here.
    endpoint = f"grpc://{_proxy_host()}:{settings.port}"
    robot = RemotePlanner(
        RemoteSettings(endpoint, token_file=settings.token_file, start_timeout_s=_ANSWER_S)
    )
    model = robot.describe()
    robot.close()
    logs = directory / "session_latest" / "logs" / "serve" if ours else None
    return RunningService(endpoint, model, f"http://{_metrics()}/metrics", logs)


def _connect(settings: ServiceSettings, directory: Path) -> None:
    if settings.address is None:
        ray.init(
            address="local",
            include_dashboard=settings.dashboard,
            _metrics_export_port=settings.metrics_port or None,
            log_to_driver=False,
            configure_logging=False,
            _temp_dir=str(directory),
        )
        return
    try:
        _require_listener(settings.address)
        ray.init(address=settings.address, log_to_driver=False)
    except (OSError, RuntimeError, ValueError) as error:
        raise PlannerError(
            f"there is no Ray cluster at {settings.address!r}: {error}. Give the HOST:PORT of its "
            "head, with its token in RAY_AUTH_TOKEN where it asks for one."
        ) from error


def _require_listener(address: str) -> None:
    """Raise `OSError` where nobody listens; Ray would try for minutes."""
    host, colon, port = address.rpartition(":")
    if colon and port.isdecimal():
        socket.create_connection((host, int(port)), _LISTENER_S).close()


def _metrics() -> str:
    """Where this node's figures are exported."""
    here = ray.get_runtime_context().get_node_id()
    (node,) = (node for node in ray.nodes() if node["NodeID"] == here)
    return f"{node['NodeManagerAddress']}:{node['MetricsExportPort']}"


def _proxy_host() -> str:
    """Where a proxy of Serve's runs: on this node if there is one, else on any other."""
    here = ray.get_runtime_context().get_node_id()
    proxies = serve.status().proxies
    if here in proxies:
        return "127.0.0.1"
    return next(node["NodeManagerAddress"] for node in ray.nodes() if node["NodeID"] in proxies)


if __name__ == "__main__":
    main()
