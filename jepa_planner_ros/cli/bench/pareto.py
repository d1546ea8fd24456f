"""What a search costs against how near it ends, and which searches nothing else beats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure


@dataclass(frozen=True)
class Point:
    """A search: its cost, and the mean final distance with its interval."""

    name: str
    rollouts: float
    plan_ms: float
    cm: float
    cm_low: float
    cm_high: float


def draw_pareto(points: Sequence[Point], highlighted: str, path: Path) -> None:
    """Draw rollouts and time against the final distance, with the front of the unbeaten.

    Args:
        points: the searches.
        highlighted: name of the one to mark.
        path: picture file to write.
    """
    figure = Figure(figsize=(12, 4.5), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    _draw(left, [(point.rollouts, point) for point in points], highlighted)
    _draw(right, [(point.plan_ms, point) for point in points], highlighted)
    left.set_xlabel("rollouts of a plan")
    right.set_xlabel("time of a plan [ms]")
    left.set_ylabel("final distance [cm], mean and 95 % interval")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def _draw(axes: Axes, costs: list[tuple[float, Point]], highlighted: str) -> None:
    axes.set_xscale("log")
    for cost, point in costs:
        colour = "C3" if point.name == highlighted else "C0"
        below, above = point.cm - point.cm_low, point.cm_high - point.cm
        axes.errorbar(cost, point.cm, [[below], [above]], fmt="o", color=colour, capsize=3)
        axes.annotate(point.name, (cost, point.cm), (6, 4), textcoords="offset points", fontsize=8)
    front = [
        (cost, point.cm)
        for cost, point in sorted(costs, key=lambda entry: entry[0])
        if not any(other < cost and rival.cm <= point.cm for other, rival in costs)
    ]
    axes.step(*zip(*front, strict=True), where="post", color="0.6", linewidth=1, zorder=0)
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
