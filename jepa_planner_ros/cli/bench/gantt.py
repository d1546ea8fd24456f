"""What the arm and the planner did when, one band for each control mode."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

from matplotlib.figure import Figure

from jepa_planner_ros.sim.timed_loop import Span, TimedEpisode

_MOTION, _SEARCH = "#2a78d6", "#eda100"
_ROW = 0.8


def draw_gantt(episodes: Mapping[str, TimedEpisode], path: Path) -> None:
    """Draw an episode of each mode over one axis of time.

    Args:
        episodes: by mode.
        path: of the picture; its suffix chooses the format.
    """
    figure = Figure(figsize=(11.0, 0.6 + 0.9 * len(episodes)), layout="constrained")
    axes = figure.add_subplot()
    ticks, names = [], []
    for index, (mode, episode) in enumerate(episodes.items()):
        for row, (name, spans, colour) in enumerate(
            (("arm", _cut(episode.motions), _MOTION), ("planner", episode.searches, _SEARCH))
        ):
            y = -(2.4 * index + row)
            bars = [(span.start, span.end - span.start) for span in spans]
            axes.broken_barh(bars, (y - _ROW / 2, _ROW), facecolor=colour, edgecolor="white")
            ticks.append(y)
            names.append(f"{mode}: {name}")
    axes.set_yticks(ticks, names)
    axes.set_xlabel("s")
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    figure.savefig(path, dpi=150)


def _cut(motions: tuple[Span, ...]) -> list[Span]:
    """Motions, each ending where the next begins at the latest."""
    cut = [Span(one.start, min(one.end, after.start)) for one, after in pairwise(motions)]
    return [*cut, *motions[-1:]]
