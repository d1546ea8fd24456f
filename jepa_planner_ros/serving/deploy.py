"""Applications on the Ray that this process is connected to."""

from __future__ import annotations

import re
import time

from ray import serve
from ray.serve import Application, RunTarget
from ray.serve.handle import DeploymentHandle
from ray.serve.schema import ApplicationStatus

from jepa_planner_ros.types import PlannerError

APPLICATION = "jepa_planner"
"""The name under which Serve knows the planner."""


def deploy(application: Application, route_prefix: str | None) -> DeploymentHandle:
    """Start the planner and return when every replica is warm.

    Args:
        application: the planner.
        route_prefix: where Serve's proxies look for it; None hides it from them, gRPC included.

    Raises:
        PlannerError: a replica could not load or run the model.
    """
    serve.run_many(
        [RunTarget(application, name=APPLICATION, route_prefix=route_prefix)],
        wait_for_applications_running=False,
    )
    while (status := serve.status().applications[APPLICATION]).status is not (
        ApplicationStatus.RUNNING
    ):
        for deployment in status.deployments.values():
            if deployment.status.value == "DEPLOY_FAILED":
                raise PlannerError(_root_cause(deployment.message))
        time.sleep(0.1)
    return serve.get_app_handle(APPLICATION)


def health() -> str:
    """How the planner is, in a few words that change only when its health does."""
    application = serve.status().applications.get(APPLICATION)
    if application is None:
        return "not running"
    counts = (
        f"{name} {count} {state.lower()}"
        for name, deployment in application.deployments.items()
        for state, count in sorted(deployment.replica_states.items())
    )
    return f"{application.status.value.lower()} ({', '.join(counts)})"


def _root_cause(traceback: str) -> str:
    """What the last exception of a formatted traceback says."""
    return re.split(r"^[\w.]+(?:Error|Exception): ", traceback, flags=re.MULTILINE)[-1].strip()
