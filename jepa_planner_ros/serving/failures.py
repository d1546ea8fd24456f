"""Ray's failures in the words of whoever operates the robot."""

from __future__ import annotations

from ray.exceptions import RayTaskError

from jepa_planner_ros.types import PlannerError, PlannerUnavailableError


def planner_error(error: RayTaskError) -> PlannerError:
    """What went wrong in a replica, without Ray's traceback."""
    cause = error.cause
    if isinstance(cause, PlannerError):
        return cause
    if isinstance(cause, ValueError):
        return PlannerError(str(cause))
    return PlannerError(f"{type(cause).__name__} in a replica: {cause}")


def all_dead(attempts: int, work: str) -> PlannerUnavailableError:
    """Replicas died one after the other while they were at the same work."""
    return PlannerUnavailableError(
        f"world model replicas died {attempts} times while {work}; the machine may be out of "
        "memory."
    )
