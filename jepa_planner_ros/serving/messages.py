"""What passes between the owner of a planner, the process that hosts Ray, and the deployments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from jepa_planner_ros.serving.settings import ServingSettings
from jepa_planner_ros.types import Plan, PlannerError, PlannerUnavailableError, PlanRequest

GRACE_S = 5.0
"""How much longer than its time limit each side waits for the next one's word of a plan."""


class PlannerBusyError(PlannerUnavailableError):
    """Too many plans wait already."""


class ModelChangedError(PlannerUnavailableError):
    """A replica holds another model, or computes with it otherwise, than the planner was told."""


class WrongModelError(PlannerError):
    """The latents of a request are another model's."""


def require_model(plans_with: str, encoded_with: str) -> None:
    """Raise `WrongModelError` unless one model plans and encodes, by its fingerprints."""
    if encoded_with != plans_with:
        raise WrongModelError(
            f"the planner serves model {plans_with} but frames are encoded with model "
            f"{encoded_with}: give both the same checkpoint."
        )


@dataclass(frozen=True)
class ServingReport:
    """How a plan was shared out.

    Attributes:
        shards: how many shards each replica evaluated.
        collisions: shards that had to queue behind another of their round.
        retries: shards that were sent again because a replica died.
        overheads: of each round, what it took beyond its slowest replica's work, s.
        waited: time until the plan's turn came, s.
    """

    shards: Mapping[str, int]
    collisions: int
    retries: int
    overheads: tuple[float, ...] = ()
    waited: float = 0.0


@dataclass(frozen=True, eq=False)
class ServedPlan:
    """A plan, and how the replicas made it."""

    plan: Plan
    report: ServingReport


@dataclass(frozen=True)
class HostSettings:
    """What to serve."""

    serving: ServingSettings
    dashboard: bool


@dataclass(frozen=True, eq=False)
class HostRequest:
    """One plan to make. The reply bears the same number."""

    number: int
    request: PlanRequest
    timeout_s: float


@dataclass(frozen=True, eq=False)
class HostReply:
    """The answer to the request of the same number."""

    number: int
    answer: ServedPlan | PlannerError
