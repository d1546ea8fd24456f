"""Plans made only to time their rounds, and plans made only to be compared."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from jepa_planner_ros.search import FAST_SEARCH, CrossEntropySettings
from jepa_planner_ros.serving import LocalRayPlanner
from jepa_planner_ros.types import (
    Float64Array,
    ModelDescription,
    Planner,
    PlanRequest,
    Scene,
    SearchSettings,
)

ROUNDS_OF_A_PLAN = 10
"""As the reference's plans have."""

_START = np.array([0.4, 0.0, 0.3, 3.1, 0.0, 0.1, 0.2])


@dataclass(frozen=True)
class RoundFigures:
    """How rounds went.

    Attributes:
        rounds: how many.
        overhead_ms: what a round took beyond its slowest replica's work: median and 95th
            percentile.
        collisions: parcels that queued behind another of their round.
        round_seconds: median of a plan's time for a round, s.
    """

    rounds: int
    overhead_ms: dict[str, float]
    collisions: int
    round_seconds: float


def measure_rounds(planner: LocalRayPlanner, micro_batches: int, rounds: int) -> RoundFigures:
    """Make plans whose rounds have so many micro-batches of candidates.

    Raises:
        PlannerError: a plan could not be made.
    """
    model = planner.describe()
    samples = micro_batches * model.micro_batch
    search = CrossEntropySettings(samples=samples, elites=2, rounds=ROUNDS_OF_A_PLAN, horizon=1)
    planner.plan(request(model, search, 0))  # The first plan of a handle takes longer.
    overheads: list[float] = []
    seconds: list[float] = []
    collisions = 0
    for seed in range(-(-rounds // ROUNDS_OF_A_PLAN)):
        plan = planner.plan(request(model, search, seed))
        report = planner.last_report
        assert report is not None, "set by every plan"
        # The last is the rollout of the chosen sequence alone.
        overheads.extend(report.overheads[:ROUNDS_OF_A_PLAN])
        collisions += report.collisions
        seconds.append(plan.timing.rollouts / len(report.overheads))
    median, p95 = np.percentile(1e3 * np.array(overheads), (50, 95))
    return RoundFigures(
        rounds=len(overheads),
        overhead_ms={"median": round(float(median), 2), "p95": round(float(p95), 2)},
        collisions=collisions,
        round_seconds=float(np.median(seconds)),
    )


def sample_plans(planner: Planner) -> Float64Array:
    """Actions of a few plans of the default search and of cross-entropy, to compare planners by.

    Raises:
        PlannerError: a plan could not be made.
    """
    model = planner.describe()
    searches = (
        FAST_SEARCH,
        CrossEntropySettings(samples=5 * model.micro_batch + 1, elites=8, rounds=3, horizon=1),
    )
    return np.array(
        [
            planner.plan(request(model, search, seed)).actions
            for search in searches
            for seed in range(2)
        ]
    )


def request(model: ModelDescription, search: SearchSettings, seed: int) -> PlanRequest:
    """A request between random latents, which no search finds easy."""
    draw = np.random.default_rng(seed).standard_normal
    latents = [draw((model.tokens, model.dim)).astype(np.float32) for _ in range(2)]
    return PlanRequest(Scene(latents[0], _START, latents[1]), search, seed)
