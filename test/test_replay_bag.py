"""The committed recording: planned anew in process, and through the real node over ROS."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jepa_planner_ros.cli.main import main

BAG = Path(__file__).parent / "data" / "replay" / "bag"
STEPS = 3
CLOSE_M = 1e-3
"""To plans of another kind of processor."""


class Course:
    """What a replay of the committed bag has left behind."""

    def __init__(self, directory: Path, *options: str) -> None:
        figures = directory / "verdict.json"
        output = ("--output", str(directory), "--json", str(figures))
        self.code = main(["replay", str(BAG), *output, "--tolerance", f"{CLOSE_M}", *options])
        self.verdict: dict[str, Any] = json.loads(figures.read_text())
        lines = (directory / "plans.jsonl").read_text().splitlines()
        self.plans: list[dict[str, Any]] = [json.loads(line) for line in lines]


@pytest.fixture(scope="module")
def in_process(tmp_path_factory: pytest.TempPathFactory) -> Course:
    return Course(tmp_path_factory.mktemp("in_process"))


def test_the_committed_bag_is_small() -> None:
    assert sum(file.stat().st_size for file in BAG.iterdir()) < 3e6


def test_its_plans_are_those_that_were_recorded(in_process: Course) -> None:
    assert in_process.code == 0
    assert in_process.verdict["plans"] == STEPS
    assert in_process.verdict["max_action_diff_m"] <= CLOSE_M
    assert in_process.verdict["energy_diff_max"] <= 1e-3
    assert in_process.verdict["skipped"] == 0
    assert in_process.verdict["reasons"] == []


def test_the_node_plans_the_same_over_ros_with_the_clock_of_the_bag(
    in_process: Course, tmp_path: Path
) -> None:
    domain = os.environ["ROS_DOMAIN_ID"]
    through_node = Course(tmp_path, "--realtime", "--rate", "5", "--domain-id", domain)
    assert through_node.verdict["plans"] == STEPS, through_node.verdict
    for one, other in zip(through_node.plans, in_process.plans, strict=True):
        for entry in ("state", "actions", "energy", "predicted_energies", "seed", "step"):
            np.testing.assert_array_equal(one[entry], other[entry], err_msg=entry)


def test_another_seed_is_noticed(tmp_path: Path) -> None:
    other = Course(tmp_path, "--seed", "1")
    assert other.code == 1
    assert other.verdict["identical"] is False
    assert other.verdict["max_action_diff_m"] > CLOSE_M
