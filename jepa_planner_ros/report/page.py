"""A run as one HTML page that needs no network and no other file."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from PIL import Image as Picture

from jepa_planner_ros.geometry import POSITION
from jepa_planner_ros.report.charts import (
    Level,
    Line,
    distance_chart,
    line_chart,
    path_chart,
    stacked_bars,
)
from jepa_planner_ros.report.records import (
    REACHED_CM,
    Camera,
    EpisodeRecord,
    Image,
    RunRecord,
    StepRecord,
)
from jepa_planner_ros.report.summary import summarise
from jepa_planner_ros.types import Float64Array

LATENCY_PARTS = (
    ("capture age", "capture"),
    ("encode", "encode"),
    ("plan", "plan"),
    ("network", "network"),
)
"""Name in the legend and colour of each part of the latency."""

_NEAR = Level(REACHED_CM, f"{REACHED_CM:g} cm")
_WEBP_QUALITY = 86
_NO_BREAK, _UNKNOWN = "\u00a0", "\u2013"


def write_report(run: RunRecord, path: Path) -> None:
    """Write the page of a run, making the directory where it does not exist.

    Raises:
        OSError: the file cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(render_report(run), encoding="utf-8")


def render_report(run: RunRecord) -> str:
    """The page of a run as HTML."""
    environment = Environment(
        loader=PackageLoader("jepa_planner_ros.report", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "picture": _picture,
        "energy": _energy,
        "cm": _cm,
        "ms": _milliseconds,
        "mm": _mm,
    }
    return environment.get_template("page.html").render(
        run=run,
        headline=headline(run),
        summary=summarise(run),
        worst_cm=max((e.final_cm for e in run.episodes if e.goal_state is not None), default=None),
        rollouts=_rollouts(run),
        overview=_overview(run),
        episodes=[_episode_view(episode, run.camera) for episode in run.episodes],
        latency_parts=LATENCY_PARTS,
    )


def headline(run: RunRecord) -> str:
    """The outcome in one line."""
    if run.headline is not None:
        return run.headline
    if len(run.episodes) > 1:
        reached = sum(episode.reached for episode in run.episodes)
        median = summarise(run)["median_final_cm"]
        accuracy = "" if median is None else f": {_cm(median)} away at the end (median)"
        return f"{reached} of {len(run.episodes)} goals reached{accuracy}"
    episode = run.episodes[0]
    steps = f"in {len(episode.steps)} step{'s' if len(episode.steps) != 1 else ''}"
    verdict = "Reached" if episode.reached else "Not reached"
    if episode.goal_state is None:
        return f"{verdict} {steps}"
    return f"{verdict}: {_cm(episode.final_cm)} from the photographed pose {steps}"


def _rollouts(run: RunRecord) -> str:
    """How many motions a plan imagined, in words."""
    counts = [step.rollouts for episode in run.episodes for step in episode.steps]
    return f"{round(np.median(counts))}" if any(counts) else "many"


def _overview(run: RunRecord) -> Markup | None:
    """The chart over all episodes, where there are several with known distances."""
    known = [episode for episode in run.episodes if episode.goal_state is not None]
    if len(known) < 2:
        return None
    return Markup(
        distance_chart(
            [episode.name for episode in known],
            [episode.start_cm for episode in known],
            [episode.final_cm for episode in known],
            _NEAR,
        )
    )


def _episode_view(episode: EpisodeRecord, camera: Camera | None) -> Mapping[str, Any]:
    """What the template shows of an episode."""
    return {
        "record": episode,
        "frames": list(_frames(episode, camera)),
        "charts": {name: Markup(svg) for name, svg in _charts(episode).items() if svg is not None},
    }


def _charts(episode: EpisodeRecord) -> dict[str, str | None]:
    if not episode.steps:
        return {}
    known, threshold = episode.goal_state is not None, episode.energy_threshold
    steps = len(episode.steps)
    energies = Line(_over_steps(episode.energies), "energy")
    expected = [
        Line(
            _over_steps((step.energy, *step.predicted_energies), index)[: steps + 1 - index],
            "energy",
            dashed=True,
            dots=False,
        )
        for index, step in enumerate(episode.steps)
    ]
    recorded = [
        Line(
            _over_steps((was.energy, *was.predicted_energies), index)[: steps + 1 - index],
            "muted",
            dashed=True,
            dots=False,
        )
        for index, step in enumerate(episode.steps)
        if (was := step.recorded) is not None
    ]
    latency = np.array(
        [
            (step.latency.capture_age, step.latency.encode, step.latency.plan, step.latency.network)
            for step in episode.steps
        ]
    )
    states = np.stack([*(step.state for step in episode.steps), episode.final_state])
    path = 100.0 * states[:, POSITION]
    goal = None if episode.goal_state is None else 100.0 * episode.goal_state[POSITION]
    return {
        "distance": line_chart(
            [Line(_over_steps(episode.distances_cm), "distance")],
            "cm",
            "Distance from the photographed position over the steps",
            [_NEAR],
        )
        if known
        else None,
        "energy": line_chart(
            [*recorded, *expected, energies],
            "energy",
            "Energy over the steps",
            () if threshold is None else [Level(threshold, f"reached at {_energy(threshold)}")],
        ),
        "latency": stacked_bars(
            LATENCY_PARTS, 1000.0 * latency, "ms", "Where the time of each step went"
        ),
        # Seen from above with the robot's base at the bottom, forward is up and left is left.
        "above": path_chart(
            path[:, [1, 0]] * (-1.0, 1.0),
            None if goal is None else goal[[1, 0]] * (-1.0, 1.0),
            "to the right, cm",
            "forward, cm",
            "The end effector's way from above",
        ),
        "side": path_chart(
            path[:, [0, 2]],
            None if goal is None else goal[[0, 2]],
            "forward, cm",
            "up, cm",
            "The end effector's way from the side",
        ),
    }


def _over_steps(values: tuple[float, ...], first: int = 0) -> Float64Array:
    """Points (n, 2) of values at consecutive steps."""
    return np.array(list(enumerate(values, first)), dtype=np.float64)


def _frames(episode: EpisodeRecord, camera: Camera | None) -> Iterator[Mapping[str, Any]]:
    """The pictures of the animation: one for each step and the final one."""
    for index, step in enumerate(episode.steps):
        distance = episode.distance_cm(step.state)
        yield {
            "image": step.frame,
            "overlay": _overlay(episode, index, step, camera),
            "caption": _caption(f"step {index}", distance, step.energy),
        }
    yield {
        "image": episode.final_image,
        "overlay": _overlay(episode, len(episode.steps), None, camera),
        "caption": _caption("the end", episode.final_cm, episode.final_energy),
    }


def _caption(when: str, distance_cm: float, energy: float) -> str:
    where = "" if math.isnan(distance_cm) else f" · {distance_cm:.1f} cm away"
    level = "" if math.isnan(energy) else f" · energy {energy:.3f}"
    return f"{when}{where}{level}"


def _overlay(
    episode: EpisodeRecord, index: int, step: StepRecord | None, camera: Camera | None
) -> Markup:
    """The way so far, the plan from here and the goal, drawn over a frame."""
    if camera is None:
        return Markup("")
    states = [past.state for past in episode.steps[:index]]
    states.append(episode.final_state if step is None else step.state)
    height, width = episode.final_image.shape[:2]
    parts = [_polyline("trail", camera, states)]
    if episode.goal_state is not None:
        (x, y), *_ = camera.pixels(episode.goal_state[None, POSITION])
        parts.append(f'<circle class="goal" cx="{x:.1f}" cy="{y:.1f}" r="{width / 42:.1f}"/>')
    if step is not None and step.recorded is not None:
        recorded = [step.state, *step.recorded.predicted_states]
        parts.append(_polyline("recorded", camera, recorded))
    if step is not None:
        planned = [step.state, *step.predicted_states]
        parts.append(_polyline("planned", camera, planned))
        for x, y in camera.pixels(step.predicted_states[:, POSITION]):
            parts.append(
                f'<circle class="planned" cx="{x:.1f}" cy="{y:.1f}" r="{width / 90:.1f}"/>'
            )
    return Markup(f'<svg viewBox="0 0 {width} {height}" aria-hidden="true">{"".join(parts)}</svg>')


def _polyline(kind: str, camera: Camera, states: list[Float64Array]) -> str:
    pixels = camera.pixels(np.stack(states)[:, POSITION])
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in pixels)
    return f'<polyline class="{kind}" points="{points}"/>'


def _picture(image: Image, width: int | None = None) -> str:
    """An image as a data URL, scaled to `width` pixels where given."""
    picture = Picture.fromarray(image)
    if width is not None and width < picture.width:
        picture = picture.resize((width, round(width * picture.height / picture.width)))
    buffer = io.BytesIO()
    picture.save(buffer, "WEBP", quality=_WEBP_QUALITY)
    return "data:image/webp;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


def _cm(value: float | None) -> str:
    return _UNKNOWN if value is None or math.isnan(value) else f"{value:.1f}{_NO_BREAK}cm"


def _mm(value: float) -> str:
    return _UNKNOWN if math.isnan(value) else f"{value:.3g}{_NO_BREAK}mm"


def _energy(value: float) -> str:
    return _UNKNOWN if math.isnan(value) else f"{value:.3f}"


def _milliseconds(seconds: float) -> str:
    return f"{1000.0 * seconds:.0f}"
