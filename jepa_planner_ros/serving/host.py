"""The host of a private Ray that plans for the one process that owns it.

Run by `jepa_planner_ros.serving.local`. Over the connection go, one after the other, a
`HostSettings`, the `ModelDescription` in reply, and then a `HostRequest` for each `HostReply`.
Failures are sent as `PlannerError`.
"""

from __future__ import annotations

import logging
from pathlib import Path

import ray
from ray import serve
from ray.exceptions import RayActorError, RayTaskError
from ray.serve.config import ProxyLocation
from ray.serve.handle import DeploymentHandle
from ray.serve.schema import LoggingConfig

from jepa_planner_ros.serving.deploy import deploy
from jepa_planner_ros.serving.deployments import planner_application
from jepa_planner_ros.serving.failures import planner_error
from jepa_planner_ros.serving.messages import (
    GRACE_S,
    HostReply,
    HostRequest,
    HostSettings,
    ServedPlan,
)
from jepa_planner_ros.serving.owner import owner
from jepa_planner_ros.types import ModelDescription, PlannerError, PlannerUnavailableError

# Latents of one plan, a few times over; Ray's own default is a third of the memory.
_OBJECT_STORE_BYTES = 128 * 2**20


def main() -> None:
    """Serve the owner of the connection until it lets go."""
    with owner() as (connection, directory, _):
        settings = connection.recv()
        assert isinstance(settings, HostSettings)
        handle = _start(settings, directory)
        model: ModelDescription = handle.describe.remote().result()
        connection.send(model)
        while True:
            request = connection.recv()
            assert isinstance(request, HostRequest)
            connection.send(HostReply(request.number, _answer(handle, request, model)))


def _start(settings: HostSettings, directory: Path) -> DeploymentHandle:
    """Start Ray and return when every replica is warm.

    Raises:
        PlannerError: a replica could not load or run the model, or there are too few GPUs.
    """
    serving = settings.serving.for_this_machine()
    logging.basicConfig(level=logging.WARNING)
    ray.init(
        address="local",
        include_dashboard=settings.dashboard,
        log_to_driver=False,
        configure_logging=False,
        object_store_memory=_OBJECT_STORE_BYTES,
        # Nothing of this cluster is for the network.
        _node_ip_address="127.0.0.1",
        _temp_dir=str(directory),
    )
    serve.start(
        proxy_location=ProxyLocation.Disabled,
        logging_config=LoggingConfig(log_level="WARNING", enable_access_log=False),
    )
    return deploy(planner_application(serving), route_prefix=None)


def _answer(
    handle: DeploymentHandle, request: HostRequest, model: ModelDescription
) -> ServedPlan | PlannerError:
    response = handle.plan.remote(
        request.request, request.timeout_s, robot="", encoded_with=model.fingerprint
    )
    # The deployment keeps the time limit itself, and is late only when it cannot run at all.
    patience_s = request.timeout_s + GRACE_S
    try:
        plan: ServedPlan = response.result(timeout_s=patience_s)
    except TimeoutError:
        return PlannerUnavailableError(
            f"the process that searches has not answered for {patience_s:g} s; Ray may be starting "
            "it again."
        )
    except RayTaskError as error:
        return planner_error(error)
    except RayActorError:
        return PlannerUnavailableError("the process that searches died; Ray is starting it again.")
    except Exception as error:  # Ray's and Serve's have no common base.
        return PlannerError(f"Ray failed: {type(error).__name__}: {error}")
    return plan


if __name__ == "__main__":
    main()
