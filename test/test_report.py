from __future__ import annotations

import json
import math
import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from jepa_planner_ros.report import (
    Camera,
    EpisodeRecord,
    LatencyRecord,
    RunRecord,
    StepRecord,
    headline,
    reached_fraction,
    summarise,
    write_report,
)

GOAL = np.array([0.5, 0.1, 0.3, 0.0, 0.0, 0.0, 0.0])


def state_at(distance_cm: float) -> np.ndarray:
    """A state that far from the goal."""
    state = GOAL.copy()
    state[1] += distance_cm / 100.0
    return state


def picture(shade: int) -> np.ndarray:
    return np.full((32, 32, 3), shade, dtype=np.uint8)


def episode(name: str = "seed 0", final_cm: float = 1.0) -> EpisodeRecord:
    distances = np.linspace(20.0, final_cm, 5)
    steps = tuple(
        StepRecord(
            frame=picture(40 * index),
            state=state_at(distance),
            actions=np.zeros((2, 7)),
            predicted_states=np.stack([state_at(distance - 4.0), state_at(distance - 8.0)]),
            energy=distance / 100.0,
            predicted_energies=np.array([distance - 4.0, distance - 8.0]) / 100.0,
            latency=LatencyRecord(capture_age=0.02, encode=0.03, plan=0.25, network=0.01),
            rollouts=193,
            model_fingerprint="abc",
        )
        for index, distance in enumerate(distances[:-1])
    )
    return EpisodeRecord(
        name=name,
        start_image=picture(0),
        goal_image=picture(200),
        final_image=picture(190),
        start_state=steps[0].state,
        final_state=state_at(final_cm),
        goal_state=GOAL,
        steps=steps,
        outcome="budget_spent",
        reason="The budget of 4 steps is spent.",
        final_energy=final_cm / 100.0,
        elapsed_s=4.2,
    )


def run_of(*episodes: EpisodeRecord, camera: Camera | None = None) -> RunRecord:
    return RunRecord("a test", "jepa-planner demo", {"Seed": "0"}, episodes, camera)


def looking_down() -> Camera:
    """A camera 1 m above the base frame's origin, with 100 pixels focal length."""
    intrinsics = np.array([[100.0, 0.0, 16.0], [0.0, 100.0, 16.0], [0.0, 0.0, 1.0]])
    pose = np.array([[1.0, 0.0, 0.0, 0.0], [0.0, -1.0, 0.0, 0.0], [0.0, 0.0, -1.0, 1.0]])
    return Camera(intrinsics @ pose)


class Page(HTMLParser):
    """Collects what a page would load, its scripts apart, and checks that elements are closed."""

    VOID = frozenset({"meta", "img", "input", "br", "hr", "link"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.sources: list[str] = []
        self.ids: list[str] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in self.VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name in ("src", "href", "data", "poster", "srcset"):
                self.sources.append(value or "")
            if name == "id":
                self.ids.append(value or "")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def page_of(run: RunRecord, directory: Path) -> str:
    path = directory / "new" / "report.html"
    write_report(run, path)
    return path.read_text(encoding="utf-8")


def test_the_summary_has_exactly_the_promised_figures() -> None:
    run = run_of(episode("seed 0", 1.0), episode("seed 1", 6.0), episode("seed 2", 2.0))

    summary = json.loads(json.dumps(summarise(run)))

    assert list(summary) == ["median_final_cm", "reached_fraction", "plan_ms_median", "episodes"]
    assert summary["median_final_cm"] == pytest.approx(2.0)
    assert summary["reached_fraction"] == pytest.approx(2 / 3)
    assert summary["plan_ms_median"] == pytest.approx(250.0)
    assert summary["episodes"][1] == {
        "start_cm": 20.0,
        "final_cm": 6.0,
        "steps": 4,
        "outcome": "budget_spent",
        "elapsed_s": 4.2,
    }


def test_without_a_known_goal_the_outcome_decides_and_distances_are_null() -> None:
    unknown = replace(episode(), goal_state=None)
    run = run_of(unknown, replace(unknown, outcome="reached"))

    summary = json.loads(json.dumps(summarise(run), allow_nan=False))

    assert reached_fraction(run) == 0.5
    assert summary["median_final_cm"] is None
    assert summary["episodes"][0]["final_cm"] is None


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        (run_of(episode()), "Reached: 1.0 cm from the photographed pose in 4 steps"),
        (
            run_of(episode(final_cm=9.04)),
            "Not reached: 9.0 cm from the photographed pose in 4 steps",
        ),
        (run_of(replace(episode(), goal_state=None, outcome="reached")), "Reached in 4 steps"),
        (
            run_of(episode(), episode(final_cm=8.0), episode(final_cm=3.0)),
            "2 of 3 goals reached: 3.0 cm away at the end (median)",
        ),
    ],
)
def test_the_headline_tells_the_outcome(run: RunRecord, expected: str) -> None:
    assert headline(run).replace("\u00a0", " ") == expected


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("camera", [None, looking_down()], ids=["no camera", "camera"])
def test_the_page_is_whole_and_needs_nothing_else(
    count: int, camera: Camera | None, tmp_path: Path
) -> None:
    run = run_of(*(episode(f"seed {index}") for index in range(count)), camera=camera)

    text = page_of(run, tmp_path)

    page = Page(text)
    assert page.open == []
    assert all(source.startswith(("data:image/webp;base64,", "#")) for source in page.sources)
    assert not re.search(r"https?://|@import|url\(", text)
    assert {source[1:] for source in page.sources if source.startswith("#")} <= set(page.ids)
    assert len(page.ids) == len(set(page.ids)) == count
    for svg in re.findall(r"<svg.*?</svg>", text, flags=re.DOTALL):
        ElementTree.fromstring(svg)
        assert "nan" not in svg


@pytest.mark.parametrize(
    "unusual",
    [
        replace(episode(), goal_state=None),
        replace(episode(), steps=(), outcome="aborted", final_energy=math.nan),
        replace(episode(), outcome="aborted", final_energy=math.nan),
        replace(episode(), steps=episode().steps[:1]),
        replace(episode(), start_state=GOAL, final_state=GOAL),
    ],
    ids=["goal unknown", "no step", "no energy", "one step", "already there"],
)
def test_unusual_episodes_have_a_page_too(unusual: EpisodeRecord, tmp_path: Path) -> None:
    text = page_of(run_of(unusual, episode("seed 1")), tmp_path)

    assert Page(text).open == []
    assert ">nan" not in re.sub(r"base64,[^\"]*", "", text)


def test_the_energy_threshold_is_drawn_and_near_is_not_called_reached(tmp_path: Path) -> None:
    text = page_of(run_of(replace(episode(), energy_threshold=0.04)), tmp_path)

    assert 'class="note">reached at 0.040<' in text
    assert 'class="note">5 cm<' in text


def test_what_a_page_quotes_cannot_break_it(tmp_path: Path) -> None:
    nasty = '<script>alert("&")</script>'
    run = run_of(replace(episode(nasty), reason=nasty), episode("seed 1"))

    text = page_of(replace(run, title=nasty, settings={nasty: nasty}), tmp_path)

    assert nasty not in text
    assert "&lt;script&gt;" in text


def test_the_overlay_draws_the_plan_where_the_camera_sees_it(tmp_path: Path) -> None:
    camera = looking_down()
    run = run_of(episode(), camera=camera)

    text = page_of(run, tmp_path)

    (x, y), *_ = camera.pixels(GOAL[None, :3])
    assert (x, y) == pytest.approx((16 + 100 * 0.5 / 0.7, 16 - 100 * 0.1 / 0.7))
    assert f'<circle class="goal" cx="{x:.1f}" cy="{y:.1f}"' in text
    assert text.count('<polyline class="planned"') == len(run.episodes[0].steps)
