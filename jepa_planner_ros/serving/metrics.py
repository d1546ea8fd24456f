"""Figures for Prometheus, by way of Ray's own exporter."""

from __future__ import annotations

from ray.serve import metrics

from jepa_planner_ros.serving.messages import PlannerBusyError, ServingReport
from jepa_planner_ros.types import PlannerError, PlannerUnavailableError

_SECONDS = [0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0]
# Robots tell their names themselves, and each name costs memory for as long as the planner lives.
_MOST_NAMES = 64
_OTHERS = "others"


class PlannerMetrics:
    """Counts plans and how they went. To be made in a replica of a Serve deployment."""

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._plans = metrics.Counter(
            "jepa_planner_plans",
            "Requests for a plan, by robot and by outcome: made, busy, unavailable or failed.",
            ("robot", "outcome"),  # type: ignore[arg-type]  # Declared for one only.
        )
        self._seconds = metrics.Histogram(
            "jepa_planner_plan_seconds",
            "Time from a request to its plan, the wait included, by robot.",
            _SECONDS,
            ("robot",),
        )
        self._waited = metrics.Histogram(
            "jepa_planner_wait_seconds",
            "Time that plans waited for others, by robot.",
            _SECONDS,
            ("robot",),
        )
        self._overheads = metrics.Histogram(
            "jepa_planner_round_overhead_seconds",
            "What a round takes beyond its slowest replica's work.",
            [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5],
        )
        self._rounds = metrics.Counter(
            "jepa_planner_rounds", "Rounds that plans took; plans may share one."
        )
        self._collisions = metrics.Counter(
            "jepa_planner_collisions", "Parcels that queued behind another of their round."
        )
        self._retries = metrics.Counter(
            "jepa_planner_retries", "Parcels that were sent again because a replica died."
        )
        self._asking = metrics.Gauge(
            "jepa_planner_asking", "Plans that are being made or wait for their turn."
        )

    def asking(self, plans: int) -> None:
        """So many plans are under way or wait."""
        self._asking.set(plans)

    def served(self, robot: str, report: ServingReport, seconds: float) -> None:
        """A plan was made."""
        name = self._name(robot)
        self._plans.inc(1, {"robot": name, "outcome": "made"})
        self._seconds.observe(seconds, {"robot": name})
        self._waited.observe(report.waited, {"robot": name})
        for overhead in report.overheads:
            self._overheads.observe(overhead)
        self._rounds.inc(len(report.overheads))
        # Counters cannot be increased by nothing.
        if report.collisions:
            self._collisions.inc(report.collisions)
        if report.retries:
            self._retries.inc(report.retries)

    def refused(self, robot: str, error: PlannerError) -> None:
        """A plan was not made."""
        kinds = ((PlannerBusyError, "busy"), (PlannerUnavailableError, "unavailable"))
        outcome = next((name for kind, name in kinds if isinstance(error, kind)), "failed")
        self._plans.inc(1, {"robot": self._name(robot), "outcome": outcome})

    def _name(self, robot: str) -> str:
        if robot not in self._names and len(self._names) == _MOST_NAMES:
            return _OTHERS
        self._names.add(robot)
        return robot or "unnamed"
