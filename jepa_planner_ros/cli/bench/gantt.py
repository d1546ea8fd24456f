"""What the arm and the planner did when: a band for each control mode, or a page of them all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.figure import Figure

from jepa_planner_ros.report.charts import Lane, timeline_chart
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


def write_page(
    drawn: Mapping[tuple[float, str], TimedEpisode], path: Path, **figures: object
) -> None:
    """Write a page of HTML with the figures and a time line for each mode.

    Args:
        drawn: an episode for each duration of planning (s) and mode; those of one duration share
            their axis of time.
        path: of the page.
        figures: what else its template wants.
    """
    environment = Environment(
        loader=PackageLoader("jepa_planner_ros.cli.bench", ""),
        autoescape=True,
        undefined=StrictUndefined,
    )
    timelines = [
        (planning, mode, _timeline(mode, episode, _last(drawn, planning)))
        for (planning, mode), episode in drawn.items()
    ]
    page = environment.get_template("control_page.html").render(timelines=timelines, **figures)
    path.write_text(page, encoding="utf-8")


def _last(drawn: Mapping[tuple[float, str], TimedEpisode], planning: float) -> float:
    return max(episode.ended.elapsed for (one, _), episode in drawn.items() if one == planning)


def _timeline(mode: str, episode: TimedEpisode, last: float) -> Markup:
    lanes = (
        Lane("arm", "arm", _pairs(_cut(episode.motions))),
        Lane("planner", "planner", _pairs(episode.searches)),
    )
    return Markup(timeline_chart(lanes, last, f"When arm and planner were busy in mode {mode}"))


def _pairs(spans: Sequence[Span]) -> list[tuple[float, float]]:
    return [(span.start, span.end) for span in spans]


def _cut(motions: tuple[Span, ...]) -> list[Span]:
    """Motions, each ending where the next begins at the latest."""
    cut = [Span(one.start, min(one.end, after.start)) for one, after in pairwise(motions)]
    return [*cut, *motions[-1:]]
