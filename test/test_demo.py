"""The whole loop, in processes of its own. A demo takes long to start, so few are started."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from jepa_planner_ros.cli.main import main

STEPS = 4
"""Enough to come near the goal of seed 0."""

LONGEST_END = 5.0
"""Seconds in which everything has to end."""


@dataclass(frozen=True)
class Course:
    """What a demo has left behind."""

    output: str
    figures: dict[str, Any]
    page: Path

    @property
    def frames(self) -> str:
        """The pictures of the first episode, with its way and its plans drawn in."""
        text = self.page.read_text()
        return text.split('<div class="frames">')[1].split('<div class="player">')[0]


def start(directory: Path, *options: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "jepa_planner_ros.cli.main", "demo"]
    return subprocess.Popen(
        [*command, "--output", str(directory), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def play(directory: Path, *options: str) -> Course:
    """Run a demo to its end."""
    figures = directory / "demo.json"
    demo = start(directory, "--json", str(figures), "--steps", f"{STEPS}", *options)
    output, errors = demo.communicate(timeout=400)
    assert demo.returncode == 0, output + errors
    return Course(output, json.loads(figures.read_text()), directory / "report.html")


@pytest.fixture(scope="module")
def planned_by(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Course]:
    """An episode by each kind of planner, both at once, since they mostly wait for their nodes.

    That one replica plans what two do is seen in test_serving.py.
    """
    directory = tmp_path_factory.mktemp("planned_by")
    recording = ("--record", str(directory / "bag"))
    planners = {
        "two replicas": ("--replicas", "2", "--watch", *recording),
        "in process": ("--planner", "in_process"),
    }
    with ThreadPoolExecutor(len(planners)) as demos:
        courses = demos.map(lambda one: play(directory / one, *planners[one]), planners)
        return dict(zip(planners, courses, strict=True))


@pytest.fixture(scope="module")
def on_ray(planned_by: dict[str, Course]) -> Course:
    """An episode planned by a local Ray cluster of two replicas."""
    return planned_by["two replicas"]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "demo"


@pytest.fixture
def moving(directory: Path) -> Iterator[subprocess.Popen[str]]:
    """A demo whose arm moves; what is left of it is ended."""
    demo = start(directory, "--planner", "in_process", "--steps", "100")
    try:
        wait_for_log(demo, directory / "logs" / "planner.log", "Pursuing a goal")
        time.sleep(1.0)
        yield demo
    finally:
        if demo.poll() is None:
            for process in family(demo):
                process.kill()


def wait_for_log(
    demo: subprocess.Popen[str], log: Path, words: str, patience_s: float = 300.0
) -> None:
    deadline = time.monotonic() + patience_s
    while not (log.exists() and words in log.read_text()):
        assert demo.poll() is None, demo.communicate()
        assert time.monotonic() < deadline, f"no '{words}' in {log}"
        time.sleep(0.05)


def family(demo: subprocess.Popen[str]) -> list[psutil.Process]:
    """The demo and all that it has started, directly or not."""
    process = psutil.Process(demo.pid)
    return [process, *process.children(recursive=True)]


def test_a_watched_demo_tells_where_its_page_is(on_ray: Course) -> None:
    assert re.search(r"The page is at http://127\.0\.0\.1:\d+/", on_ray.output)


def test_the_arm_reaches_the_photographed_pose_by_plans_of_a_local_ray_cluster(
    on_ray: Course,
) -> None:
    (episode,) = on_ray.figures["episodes"]
    assert 15.0 <= episode["start_cm"] <= 25.0
    assert episode["final_cm"] < 5.0
    assert on_ray.figures["reached_fraction"] == 1.0
    assert 1 <= episode["steps"] <= STEPS


def test_every_family_of_controllers_moves_the_arm_there(directory: Path) -> None:
    real_time = ("--planner", "in_process", "--real-time-factor", "1")

    def final_cm(commander: str) -> float:
        course = play(directory / commander, *real_time, "--commander", commander)
        return course.figures["episodes"][0]["final_cm"]

    # At once, since real time is mostly waited for.
    commanders = ("servo", "servo_twist", "joint_trajectory")
    with ThreadPoolExecutor(len(commanders)) as demos:
        found = dict(zip(commanders, demos.map(final_cm, commanders), strict=True))
    assert max(found.values()) < 5.0, found


def test_controllers_that_move_in_real_time_are_not_put_in_lockstep(directory: Path) -> None:
    demo = start(directory, "--commander", "servo")
    _, errors = demo.communicate(timeout=60)
    assert demo.returncode == 1
    assert "--real-time-factor" in errors


def test_the_report_shows_the_episode(on_ray: Course) -> None:
    (episode,) = on_ray.figures["episodes"]
    assert on_ray.page.as_uri() in on_ray.output
    assert (
        f"{episode['final_cm']:.1f}\u00a0cm from the photographed pose" in on_ray.page.read_text()
    )
    # A frame for each step and the end, each step's with the plan drawn in.
    assert on_ray.frames.count('<figure class="frame') == episode["steps"] + 1
    assert on_ray.frames.count('<polyline class="planned"') == episode["steps"]


def test_its_recording_is_planned_again_bit_for_bit_in_one_process(
    on_ray: Course, tmp_path: Path
) -> None:
    bag, figures = on_ray.page.parents[1] / "bag", tmp_path / "verdict.json"
    code = main(["replay", str(bag), "--json", str(figures), "--output", str(tmp_path)])
    verdict = json.loads(figures.read_text())
    assert code == 0
    assert verdict["identical"] is True
    assert verdict["plans"] == on_ray.figures["episodes"][0]["steps"]


def test_plans_and_frames_are_the_same_by_every_planner(planned_by: dict[str, Course]) -> None:
    assert len({course.frames for course in planned_by.values()}) == 1
    episodes = [course.figures["episodes"][0] for course in planned_by.values()]
    assert len({episode["final_cm"] for episode in episodes}) == 1


def test_ctrl_c_while_the_arm_moves_ends_everything_within_five_seconds(
    moving: subprocess.Popen[str],
) -> None:
    processes = family(moving)
    assert len(processes) >= 3  # the demo, the simulation and the planner

    interrupted_at = time.monotonic()
    moving.send_signal(signal.SIGINT)
    code = moving.wait(timeout=LONGEST_END)
    _, left = psutil.wait_procs(processes, LONGEST_END - (time.monotonic() - interrupted_at))

    assert code == 130
    assert left == []
