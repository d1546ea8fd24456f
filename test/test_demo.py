from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

LONGEST_END = 5.0
"""Seconds in which everything has to end."""


@dataclass(frozen=True)
class Demo:
    """A running demo and the directory that it writes to."""

    process: subprocess.Popen[str]
    directory: Path

    def family(self) -> list[psutil.Process]:
        """The demo and all that it has started, directly or not."""
        demo = psutil.Process(self.process.pid)
        return [demo, *demo.children(recursive=True)]

    def wait_for_log(self, name: str, words: str, patience_s: float = 300.0) -> None:
        log = self.directory / "logs" / f"{name}.log"
        deadline = time.monotonic() + patience_s
        while not (log.exists() and words in log.read_text()):
            assert self.process.poll() is None, self.process.communicate()
            assert time.monotonic() < deadline, f"no '{words}' in {log}"
            time.sleep(0.05)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "demo"


def start(directory: Path, *options: str) -> Demo:
    command = [sys.executable, "-m", "jepa_planner_ros.cli.main", "demo"]
    process = subprocess.Popen(
        [*command, "--output", str(directory), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    return Demo(process, directory)


@dataclass(frozen=True)
class Course:
    """What a demo has left behind."""

    code: int
    output: str
    figures: dict[str, Any]
    page: Path

    @property
    def frames(self) -> str:
        """The pictures of the first episode, with its way and its plans drawn in."""
        text = self.page.read_text()
        return text.split('<div class="frames">')[1].split('<div class="player">')[0]


def play(directory: Path, *options: str) -> Course:
    """Run a demo to its end."""
    demo = start(directory, "--json", str(directory / "demo.json"), *options)
    output, errors = demo.process.communicate(timeout=400)
    figures = directory / "demo.json"
    assert figures.exists(), output + errors
    return Course(
        demo.process.returncode, output, json.loads(figures.read_text()), directory / "report.html"
    )


@pytest.fixture(scope="module")
def on_ray(tmp_path_factory: pytest.TempPathFactory) -> Course:
    """An episode planned by a local Ray cluster of two replicas."""
    return play(tmp_path_factory.mktemp("on_ray") / "new")


@pytest.fixture
def interrupted(directory: Path) -> Iterator[list[Demo]]:
    """Demos that a test starts and interrupts; what is left of them is ended."""
    demos: list[Demo] = []
    yield demos
    for demo in demos:
        if demo.process.poll() is None:
            for process in demo.family():
                process.kill()


def running(processes: list[psutil.Process]) -> list[psutil.Process]:
    def runs(process: psutil.Process) -> bool:
        try:
            return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False

    return [process for process in processes if runs(process)]


def wait_until_gone(processes: list[psutil.Process], patience_s: float) -> None:
    deadline = time.monotonic() + patience_s
    while left := running(processes):
        assert time.monotonic() < deadline, [process.cmdline() for process in left]
        time.sleep(0.05)


def test_the_arm_reaches_the_photographed_pose_by_plans_of_a_local_ray_cluster(
    on_ray: Course,
) -> None:
    assert on_ray.code == 0
    (episode,) = on_ray.figures["episodes"]
    assert 15.0 <= episode["start_cm"] <= 25.0
    assert episode["final_cm"] < 5.0
    assert on_ray.figures["reached_fraction"] == 1.0
    assert 1 <= episode["steps"] <= 12


def test_the_report_shows_the_episode(on_ray: Course) -> None:
    (episode,) = on_ray.figures["episodes"]
    assert on_ray.page.as_uri() in on_ray.output
    assert (
        f"{episode['final_cm']:.1f}\u00a0cm from the photographed pose" in on_ray.page.read_text()
    )
    # A frame for each step and the end, each step's with the plan drawn in.
    assert on_ray.frames.count('<figure class="frame') == episode["steps"] + 1
    assert on_ray.frames.count('<polyline class="planned"') == episode["steps"]


def test_plans_and_frames_are_the_same_without_ray(on_ray: Course, directory: Path) -> None:
    in_process = play(directory, "--planner", "in_process")

    assert (
        in_process.figures["episodes"][0]["final_cm"] == (on_ray.figures["episodes"][0]["final_cm"])
    )
    assert in_process.frames == on_ray.frames


@pytest.mark.parametrize(
    ("moment", "log", "words"),
    [
        ("at once", None, None),
        ("while Ray starts", "planner", "Starting the planner"),
        ("while the arm moves", "planner", "Pursuing a goal"),
    ],
)
def test_ctrl_c_ends_everything_within_five_seconds(
    moment: str, log: str | None, words: str | None, directory: Path, interrupted: list[Demo]
) -> None:
    demo = start(directory, "--steps", "100")
    interrupted.append(demo)
    if log is None or words is None:
        time.sleep(0.5)
    else:
        demo.wait_for_log(log, words)
        time.sleep(1.0)
    family = demo.family()

    interrupted_at = time.monotonic()
    demo.process.send_signal(signal.SIGINT)
    code = demo.process.wait(timeout=2 * LONGEST_END)
    wait_until_gone(family, LONGEST_END)

    assert time.monotonic() - interrupted_at < LONGEST_END
    assert code == 130 or moment == "at once"


def test_a_killed_demo_leaves_nothing_behind(directory: Path, interrupted: list[Demo]) -> None:
    demo = start(directory, "--steps", "100")
    interrupted.append(demo)
    demo.wait_for_log("planner", "Pursuing a goal")
    family = demo.family()
    assert any("ray" in process.name() for process in family)

    os.kill(demo.process.pid, signal.SIGKILL)
    demo.process.wait()

    # Ray's workers notice by themselves that their node has gone.
    wait_until_gone(family, 20.0)


def test_a_node_that_dies_is_reported_with_its_last_words(
    directory: Path, interrupted: list[Demo]
) -> None:
    demo = start(directory, "--planner", "in_process", "--steps", "100")
    interrupted.append(demo)
    demo.wait_for_log("planner", "Pursuing a goal")
    family = demo.family()
    planner = next(p for p in family if "jepa_planner_ros.ros.planner_node" in p.cmdline())

    planner.kill()
    _, errors = demo.process.communicate(timeout=20)

    assert demo.process.returncode == 1
    assert "the planner ended unexpectedly with signal SIGKILL" in errors
    assert "Pursuing a goal" in errors
    assert running(family) == []
