"""The process that Ray lives under, so that it does not live under the robot's node.

Ray takes over the process that starts it: it replaces signal handlers, ends the process when its
control service is lost, and dies with the *thread* it was started from. Here all of that meets a
process that may go at any time. It leads a session of its own, out of reach of a terminal's Ctrl-C.

Run by `jepa_planner_ros.serving.local` as ``python -m jepa_planner_ros.serving.host FD``. Standard
input is the lifeline: when the owner closes it, or dies in any way, the whole session ends.
Over the connection ``FD`` go, one after the other, a `HostSettings`, the `ModelDescription` in
reply, and then a `HostRequest` for each `HostReply`. Failures are sent as `PlannerError`.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import threading
import time
from multiprocessing.connection import Connection
from pathlib import Path

import ray
from ray import serve
from ray.exceptions import RayActorError, RayTaskError
from ray.serve import RunTarget
from ray.serve.config import ProxyLocation
from ray.serve.handle import DeploymentHandle
from ray.serve.schema import ApplicationStatus, LoggingConfig

from jepa_planner_ros.serving import session
from jepa_planner_ros.serving.deployments import planner_application, sentence
from jepa_planner_ros.serving.messages import (
    GRACE_S,
    HostReply,
    HostRequest,
    HostSettings,
    ServedPlan,
)
from jepa_planner_ros.types import ModelDescription, PlannerError

_APPLICATION = "jepa_planner"
# Latents of one plan, a few times over; Ray's own default is a third of the memory.
_OBJECT_STORE_BYTES = 128 * 2**20


def main() -> None:
    """Serve the owner of the connection until it lets go."""
    descriptor = int(sys.argv[1])
    os.set_inheritable(descriptor, False)
    owner: Connection[HostReply | ModelDescription | PlannerError, HostSettings | HostRequest]
    owner = Connection(descriptor)
    settings = owner.recv()
    assert isinstance(settings, HostSettings)
    lifeline = threading.Thread(target=_end_with_owner, args=(settings.directory,))
    lifeline.start()
    try:
        handle = _deploy(settings)
        owner.send(handle.describe.remote().result())
        while True:
            request = owner.recv()
            assert isinstance(request, HostRequest)
            owner.send(HostReply(request.number, _answer(handle, request)))
    except (EOFError, BrokenPipeError):
        pass  # The owner has let go; the lifeline ends this process.
    except PlannerError as error:
        owner.send(error)
    except Exception as error:  # Whatever it is, the owner must hear of it.
        owner.send(PlannerError(f"Ray could not be started: {type(error).__name__}: {error}"))
    lifeline.join()


def _end_with_owner(directory: Path) -> None:
    sys.stdin.buffer.read()
    # Ray ends a process that finds its daemons dead, so Ray must be out of this one first.
    os.execv(sys.executable, [sys.executable, "-IS", session.__file__, str(directory)])


def _deploy(settings: HostSettings) -> DeploymentHandle:
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
        _temp_dir=str(settings.directory),
    )
    serve.start(
        proxy_location=ProxyLocation.Disabled,
        logging_config=LoggingConfig(log_level="WARNING", enable_access_log=False),
    )
    serve.run_many(
        [RunTarget(planner_application(serving), name=_APPLICATION, route_prefix=None)],
        wait_for_applications_running=False,
    )
    while (application := serve.status().applications[_APPLICATION]).status is not (
        ApplicationStatus.RUNNING
    ):
        for deployment in application.deployments.values():
            if deployment.status.value == "DEPLOY_FAILED":
                raise PlannerError(_root_cause(deployment.message))
        time.sleep(0.1)
    return serve.get_app_handle(_APPLICATION)


def _root_cause(traceback: str) -> str:
    """What the last exception of a formatted traceback says."""
    return re.split(r"^[\w.]+(?:Error|Exception): ", traceback, flags=re.MULTILINE)[-1].strip()


def _answer(handle: DeploymentHandle, request: HostRequest) -> ServedPlan | PlannerError:
    response = handle.plan.remote(request.request, request.timeout_s)
    # The deployment keeps the time limit itself, and is late only when it cannot run at all.
    patience_s = request.timeout_s + GRACE_S
    try:
        plan: ServedPlan = response.result(timeout_s=patience_s)
    except TimeoutError:
        return PlannerError(
            f"the process that searches has not answered for {patience_s:g} s; Ray may be starting "
            "it again."
        )
    except RayTaskError as error:
        return PlannerError(sentence(error))
    except RayActorError:
        return PlannerError("the process that searches died; Ray is starting it again.")
    except Exception as error:  # Ray's and Serve's have no common base.
        return PlannerError(f"Ray failed: {type(error).__name__}: {error}")
    return plan


if __name__ == "__main__":
    main()
