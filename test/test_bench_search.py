"""The benchmarks of searches, as small as they go."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from jepa_planner_ros.cli.bench.bootstrap import mean_interval
from jepa_planner_ros.cli.bench.contest import (
    AS_PHOTOGRAPHED,
    HARDER,
    REFERENCE,
    contestants,
    final_cm,
    run_episodes,
)
from jepa_planner_ros.cli.main import main
from jepa_planner_ros.search import FAST_SEARCH, REFERENCE_SEARCH
from jepa_planner_ros.sim.franka import FrankaSim
from jepa_planner_ros.world_model import load_world_model

STATE = [0.45, 0.0, 0.3, 0.0, 0.0, 0.0, 0.0]


def photograph(path: Path, seed: int, state: list[float] | None) -> Path:
    pixels = np.random.default_rng(seed).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    texts = PngInfo()
    if state is not None:
        texts.add_text("end_effector_state", json.dumps(state))
    Image.fromarray(pixels).save(path, pnginfo=texts)
    return path


def test_an_interval_contains_the_mean_and_narrows_with_the_number_of_values():
    values = np.random.default_rng(1).normal(2.0, 1.0, 400)
    low, high = mean_interval(values)
    assert low < values.mean() < high
    fewer_low, fewer_high = mean_interval(values[:25])
    assert fewer_high - fewer_low > 2 * (high - low)
    assert mean_interval(np.full(5, 3.0)) == (3.0, 3.0)


def test_the_default_and_the_reference_are_among_the_contestants():
    assert contestants()["fast"] == FAST_SEARCH
    assert contestants()[REFERENCE] == REFERENCE_SEARCH


def test_all_searches_get_the_same_episodes():
    searches = {"first": FAST_SEARCH, "again": FAST_SEARCH}
    courses = run_episodes(
        load_world_model(), searches, {"first": 2, "again": 1}, 1, AS_PHOTOGRAPHED
    )
    assert len(courses["first"]) == 2
    np.testing.assert_array_equal(final_cm(courses["again"]), final_cm(courses["first"])[:1])


def test_a_changed_world_has_the_same_start_and_another_object():
    changed = next(condition for condition in HARDER if condition.world_changes)
    with FrankaSim(changed.settings) as sim:
        start, cube = sim.reset(1000), sim.cube_position
        again, moved = sim.reset(1000, world_seed=7), sim.cube_position
    np.testing.assert_array_equal(start, again)
    assert np.linalg.norm(cube - moved) > 0.01


def test_an_unknown_contestant_is_refused_with_those_there_are(capsys):
    assert main(["bench", "search", "--searches", "annealing"]) == 1
    assert "no search is called 'annealing'; there are: reference, fast" in capsys.readouterr().err


def test_a_landscape_is_drawn_from_two_photographs(tmp_path, capsys):
    goal = photograph(tmp_path / "goal.png", 0, None)
    frame = photograph(tmp_path / "frame.png", 1, STATE)
    picture = tmp_path / "landscape.png"
    call = ["bench", "landscape", str(goal), str(frame), "--points", "3", "--rollouts", "8"]
    assert main([*call, "--output", str(picture)]) == 0
    assert "xy: rank correlation of surrogate and exact energies" in capsys.readouterr().out
    assert Image.open(picture).width > 1000


@pytest.mark.parametrize("state", [None, "not a list"])
def test_a_photograph_without_its_state_asks_for_it(tmp_path, capsys, state):
    frame = photograph(tmp_path / "frame.png", 1, state)
    assert main(["bench", "landscape", str(frame), str(frame)]) == 1
    complaint = capsys.readouterr().err
    assert "--state" in complaint or "cannot be read as a photograph" in complaint
