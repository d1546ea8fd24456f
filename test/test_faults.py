"""Faults on purpose: the judge of setpoints, and a few episodes of the campaign."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from jepa_planner_ros.cli.main import main
from jepa_planner_ros.control import SafetyLimits
from jepa_planner_ros.faults.audit import SetpointAudit
from jepa_planner_ros.faults.catalogue import FAULTS
from jepa_planner_ros.faults.scenarios import draw
from jepa_planner_ros.robot.kinematics import HOME_JOINTS, end_effector_state
from jepa_planner_ros.robot.motion import CartesianMotion

HOME = end_effector_state(HOME_JOINTS)
LIMITS = SafetyLimits()
PERIOD = 0.02


def judged(states: np.ndarray, limits: SafetyLimits = LIMITS) -> SetpointAudit:
    audit = SetpointAudit(limits, PERIOD)
    for index, state in enumerate(states):
        audit.judge(state, HOME, index, PERIOD * index)
    return audit


def motion(stretch: float = 1.0) -> np.ndarray:
    """Setpoints of a motion as fast as the limits allow, then `stretch` times slower."""
    target = HOME + np.array([0.2, 0.0, 0.0, 0.0, 0.0, 0.3, 0.0])
    fast = CartesianMotion.at_rest(HOME, 0.0).towards(target, 0.0, 0.1, LIMITS.motion)
    return np.array(
        [fast.at(time) for time in np.arange(0.0, stretch * fast.ends, PERIOD) / stretch]
    )


def test_a_motion_within_the_limits_is_found_to_be_so() -> None:
    audit = judged(motion())
    assert audit.violations == []
    assert 0.95 < audit.highest["translation_speed"] <= 1.0


@pytest.mark.parametrize("name", ["speed", "acceleration", "jerk"])
@pytest.mark.parametrize("kind", ["translation", "rotation"])
def test_each_limit_is_missed_when_it_is_lower(kind: str, name: str) -> None:
    limit = f"{kind}_{name}"
    found = judged(motion()).highest[limit]
    lower = replace(LIMITS, **{limit: 0.9 * found * getattr(LIMITS, limit)})
    assert {one.limit for one in judged(motion(), lower).violations} == {limit}


def test_setpoints_outside_the_workspace_or_far_from_the_arm_are_found() -> None:
    outside = judged(np.array([HOME + np.array([0.0, 0.0, -0.5, 0, 0, 0, 0])]))
    assert {one.limit for one in outside.violations} == {"workspace", "start"}
    box = replace(LIMITS, forbidden_boxes=(((0.0, -1.0, 0.0), (1.0, 1.0, 1.0)),))
    assert {one.limit for one in judged(np.array([HOME]), box).violations} == {"forbidden_boxes"}


def test_a_sequence_may_begin_where_the_arm_is_but_not_elsewhere() -> None:
    whole = motion()
    rest = np.repeat(whole[-1:], 30, axis=0)
    back, aside = (HOME + np.array([x, 0, 0, 0, 0, 0, 0]) for x in (0.0, 0.1))
    assert judged(np.vstack((whole, rest, back))).violations == []
    assert {one.limit for one in judged(np.vstack((whole, rest, aside))).violations} == {"start"}
    hasty = judged(np.vstack((whole, rest[:10], back)))
    assert "translation_speed" in {one.limit for one in hasty.violations}


def test_what_is_repeated_after_the_end_begins_nothing() -> None:
    whole, audit = motion(), judged(motion())
    audit.end()
    audit.judge(whole[-1], HOME, len(whole), 10.0)
    audit.judge(HOME, HOME, len(whole) + 1, 11.0)
    assert audit.violations == []


def test_another_sender_counts_from_one() -> None:
    audit = judged(motion())
    audit.end()
    for index, state in enumerate(motion()):
        audit.judge(state, HOME, index + 1, 10.0 + PERIOD * index)
    assert audit.violations == []


def test_setpoints_lost_on_their_way_are_no_violation() -> None:
    audit = SetpointAudit(LIMITS, PERIOD)
    for index, state in enumerate(motion()):
        if index % 7 not in (3, 4):
            audit.judge(state, HOME, index, PERIOD * index)
    assert audit.violations == []


def test_a_sequence_that_breaks_off_in_motion_is_found() -> None:
    whole = motion()
    broken = judged(whole[: len(whole) // 2])
    broken.end()
    assert {one.limit for one in broken.violations} == {"left in motion"}
    audit = judged(whole)
    audit.end()
    assert audit.violations == []


def test_every_fault_is_drawn_equally_often() -> None:
    drawn = [scenario.fault for scenario in draw(2 * len(FAULTS), seed=3)]
    assert all(drawn.count(name) == 2 for name in FAULTS)


def test_a_few_faults_do_no_harm(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figures = tmp_path / "faults.json"
    names = (
        "joints_not_finite",
        "clock_set_back",
        "cancelled_in_motion",
        "node_interrupted",
    )
    few = ["--episodes", str(len(names)), "--faults", *names, "--logs", str(tmp_path)]
    # The interruption comes last, so that nothing is started twice.
    assert main(["bench", "faults", *few, "--json", str(figures)]) == 0, capsys.readouterr().out
    found = json.loads(figures.read_text())
    assert found["episodes"] == len(names)
    assert found["setpoints"] > 20
    for count in ("limit_violations", "hung_episodes", "unexpected_outcomes", "leaked_processes"):
        assert found[count] == 0


def test_an_unknown_fault_is_refused_in_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "faults", "--faults", "gremlins"]) == 1
    assert "There is no fault 'gremlins'" in capsys.readouterr().err
