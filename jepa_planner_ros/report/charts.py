"""Charts as small inline SVG: sharp at every size, in the page's own colours, without a library.

Colours are names of the page's CSS variables, so that the charts follow its light and dark themes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

import numpy as np

from jepa_planner_ros.types import Float64Array

_MINUS = "\u2212"
_WIDTH = 440.0
_HEIGHT = 256.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 44.0, 12.0, 26.0, 38.0


@dataclass(frozen=True)
class Line:
    """Points (n, 2) joined by a line, with a dot at each."""

    points: Float64Array
    colour: str
    dashed: bool = False
    dots: bool = True


@dataclass(frozen=True)
class Level:
    """A horizontal line that means something."""

    value: float
    label: str


@dataclass(frozen=True)
class _Scale:
    """Maps values linearly onto pixels."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    def ticks(self, wanted: int = 5) -> list[float]:
        """Round values inside the scale, about as many as `wanted`."""
        step = _round_step((self.high - self.low) / wanted)
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [index * step for index in range(first, last + 1)]


@dataclass
class _Canvas:
    """Collects the elements of one chart and draws its axes."""

    x: _Scale
    y: _Scale
    label: str
    width: float = _WIDTH
    height: float = _HEIGHT
    parts: list[str] = field(default_factory=list)

    def add(self, part: str) -> None:
        self.parts.append(part)

    def text(self, x: float, y: float, text: str, anchor: str = "middle", extra: str = "") -> None:
        self.add(
            f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{extra}>{escape(text)}</text>'
        )

    def horizontal_grid(self, unit: str) -> None:
        for tick in self.y.ticks():
            y = self.y(tick)
            self.add(f'<path class="grid" d="M{self.x.start:.1f} {y:.1f}H{self.x.end:.1f}"/>')
            self.text(self.x.start - 7, y + 4, _number(tick), "end")
        self.text(2, 11, unit, "start", ' class="unit"')

    def vertical_grid(self, unit: str) -> None:
        for tick in self.x.ticks():
            x = self.x(tick)
            self.add(f'<path class="grid" d="M{x:.1f} {self.y.start:.1f}V{self.y.end:.1f}"/>')
            self.text(x, self.y.start + 17, _number(tick))
        self.x_title(unit)

    def step_axis(self, steps: Sequence[int], title: str) -> None:
        every = math.ceil(len(steps) / 14)
        for step in steps[::every]:
            self.text(self.x(step), self.y.start + 17, str(step))
        self.x_title(title)

    def x_title(self, title: str) -> None:
        self.text(
            (self.x.start + self.x.end) / 2, self.y.start + 33, title, "middle", ' class="unit"'
        )

    def polyline(self, line: Line) -> None:
        pixels = [(self.x(x), self.y(y)) for x, y in line.points if np.isfinite((x, y)).all()]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in pixels)
        dash = ' stroke-dasharray="5 4"' if line.dashed else ""
        style = f'style="stroke:var(--{line.colour})"'
        self.add(f'<polyline class="line" points="{path}" {style}{dash}/>')
        if line.dots:
            for x, y in pixels:
                self.add(
                    f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.2" style="fill:var(--{line.colour})"/>'
                )

    def svg(self) -> str:
        size = f'viewBox="0 0 {self.width:g} {self.height:g}"'
        label = escape(self.label, quote=True)
        body = "".join(self.parts)
        return f'<svg class="chart" {size} role="img" aria-label="{label}">{body}</svg>'


def line_chart(
    lines: Sequence[Line], unit: str, label: str, levels: Sequence[Level] = (), low: float = 0.0
) -> str:
    """Values over the steps of an episode.

    Args:
        lines: points are (step, value).
        unit: written above the vertical axis.
        label: what the chart shows, for those who cannot see it.
        levels: values worth comparing with.
        low: where the vertical axis starts.
    """
    points = np.concatenate([line.points for line in lines])
    points = points[np.isfinite(points).all(axis=1)]
    last = max(1.0, float(points[:, 0].max()))
    high = max([float(points[:, 1].max()), *(level.value for level in levels)])
    high = low + 1.08 * ((high - low) or 1.0)
    canvas = _Canvas(
        _Scale(0.0, last, _LEFT, _WIDTH - _RIGHT), _Scale(low, high, _HEIGHT - _BOTTOM, _TOP), label
    )
    canvas.horizontal_grid(unit)
    canvas.step_axis(range(int(last) + 1), "step")
    canvas.add(f'<path class="cursor" d="M0 {_TOP:g}V{_HEIGHT - _BOTTOM:g}"{_cursor(canvas.x)}/>')
    for level in levels:
        y = canvas.y(level.value)
        canvas.add(f'<path class="level" d="M{canvas.x.start:.1f} {y:.1f}H{canvas.x.end:.1f}"/>')
        canvas.text(canvas.x.start + 6, y - 5, level.label, "start", ' class="note"')
    for line in lines:
        canvas.polyline(line)
    return canvas.svg()


def stacked_bars(
    parts: Sequence[tuple[str, str]], values: Float64Array, unit: str, label: str
) -> str:
    """One bar for each step, made of parts.

    Args:
        parts: (name, colour) of each part, from the bottom.
        values: (steps, parts).
        unit: written above the vertical axis.
        label: what the chart shows, for those who cannot see it.
    """
    steps = len(values)
    high = 1.08 * (float(values.sum(axis=1).max()) or 1.0)
    canvas = _Canvas(
        _Scale(-0.6, steps - 0.4, _LEFT, _WIDTH - _RIGHT),
        _Scale(0.0, high, _HEIGHT - _BOTTOM, _TOP),
        label,
    )
    canvas.horizontal_grid(unit)
    canvas.step_axis(range(steps), "step")
    width = min(26.0, 0.7 * (canvas.x(1.0) - canvas.x(0.0)))
    for step, row in enumerate(values):
        bottom = 0.0
        for (name, colour), value in zip(parts, row, strict=True):
            y = canvas.y(bottom + value)
            canvas.add(
                f'<rect x="{canvas.x(step) - width / 2:.1f}" y="{y:.1f}" width="{width:.1f}" '
                f'height="{canvas.y(bottom) - y:.2f}" style="fill:var(--{colour})">'
                f"<title>step {step}: {escape(name)} {value:.0f} {escape(unit)}</title></rect>"
            )
            bottom += value
    return canvas.svg()


def distance_chart(
    names: Sequence[str], start: Sequence[float], final: Sequence[float], level: Level
) -> str:
    """One row for each episode: from the distance at the start to the distance at the end, cm."""
    row = 17.0 if len(names) <= 40 else max(3.0, 680.0 / len(names))
    top = 6.0
    height = top + row * len(names) + _BOTTOM
    canvas = _Canvas(
        _Scale(0.0, 1.06 * max([*start, *final, level.value]), 70.0, _WIDTH - _RIGHT),
        _Scale(0.0, float(len(names)), height - _BOTTOM, top),
        "Distance to the photographed position at the start and at the end of each episode",
        height=height,
    )
    canvas.vertical_grid("cm from the photographed position")
    x = canvas.x(level.value)
    canvas.add(f'<path class="level" d="M{x:.1f} {top:g}V{canvas.y.start:.1f}"/>')
    for index, (name, before, after) in enumerate(zip(names, start, final, strict=True)):
        y = top + row * (index + 0.5)
        colour = "good" if after < level.value else "bad"
        if row >= 10.0:
            canvas.text(62.0, y + 4, name, "end")
        canvas.add(
            f'<path class="thread" d="M{canvas.x(before):.1f} {y:.1f}H{canvas.x(after):.1f}"/>'
            f'<circle class="hollow" cx="{canvas.x(before):.1f}" cy="{y:.1f}" r="3.4"/>'
            f'<circle cx="{canvas.x(after):.1f}" cy="{y:.1f}" r="4.2" style="fill:var(--{colour})">'
            f"<title>{escape(name)}: from {before:.1f} to {after:.1f} cm</title>"
            "</circle>"
        )
    return canvas.svg()


@dataclass(frozen=True)
class Lane:
    """What something was busy with over time: (start, end) in seconds, each."""

    name: str
    colour: str
    spans: Sequence[tuple[float, float]]


def timeline_chart(lanes: Sequence[Lane], last: float, label: str) -> str:
    """Lanes over one axis of time that ends at `last` s, like a Gantt chart."""
    row, bar, top, left, width = 22.0, 14.0, 4.0, 96.0, 2.0 * _WIDTH
    height = top + row * len(lanes) + _BOTTOM
    canvas = _Canvas(
        _Scale(0.0, last, left, width - _RIGHT),
        _Scale(0.0, float(len(lanes)), height - _BOTTOM, top),
        label,
        width,
        height,
    )
    canvas.vertical_grid("s")
    for index, lane in enumerate(lanes):
        y = top + row * (index + 0.5)
        canvas.text(left - 8.0, y + 4, lane.name, "end")
        for start, end in lane.spans:
            x = canvas.x(start)
            canvas.add(
                f'<rect x="{x:.1f}" y="{y - bar / 2:.1f}" width="{canvas.x(end) - x:.1f}" '
                f'height="{bar:g}" rx="2" style="fill:var(--{lane.colour})">'
                f"<title>{escape(lane.name)}: {start:.2f} to {end:.2f} s</title></rect>"
            )
    return canvas.svg()


def path_chart(
    path: Float64Array, goal: Float64Array | None, horizontal: str, vertical: str, label: str
) -> str:
    """The way of the end effector in a plane, drawn to scale.

    Args:
        path: points (n, 2), cm.
        goal: the photographed position (2,), cm.
        horizontal: title of the horizontal axis.
        vertical: title of the vertical axis.
        label: what the chart shows, for those who cannot see it.
    """
    points = path if goal is None else np.vstack((path, goal))
    width, height = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
    centre = (points.min(axis=0) + points.max(axis=0)) / 2
    extent = np.maximum(np.ptp(points, axis=0), 4.0) * 1.25
    cm_per_pixel = max(extent[0] / width, extent[1] / height)
    half_width, half_height = cm_per_pixel * width / 2, cm_per_pixel * height / 2
    canvas = _Canvas(
        _Scale(centre[0] - half_width, centre[0] + half_width, _LEFT, _WIDTH - _RIGHT),
        _Scale(centre[1] - half_height, centre[1] + half_height, _HEIGHT - _BOTTOM, _TOP),
        label,
    )
    canvas.horizontal_grid(vertical)
    canvas.vertical_grid(horizontal)
    canvas.polyline(Line(path, "distance"))
    start = canvas.x(path[0, 0]), canvas.y(path[0, 1])
    canvas.add(f'<circle class="hollow" cx="{start[0]:.1f}" cy="{start[1]:.1f}" r="5"/>')
    if goal is not None:
        x, y = canvas.x(goal[0]), canvas.y(goal[1])
        canvas.add(f'<circle class="goal" cx="{x:.1f}" cy="{y:.1f}" r="8"/>')
        canvas.add(f'<path class="goal" d="M{x - 12:.1f} {y:.1f}h24M{x:.1f} {y - 12:.1f}v24"/>')
    return canvas.svg()


def _cursor(x: _Scale) -> str:
    """Tells the page's script where step 0 is and how far apart the steps are."""
    return f' data-x0="{x(0.0):.2f}" data-dx="{x(1.0) - x(0.0):.2f}"'


def _round_step(step: float) -> float:
    power = 10.0 ** math.floor(math.log10(step))
    return next(factor * power for factor in (1.0, 2.0, 5.0, 10.0) if factor * power >= step)


def _number(value: float) -> str:
    return f"{value:.6g}".replace("-", _MINUS)
