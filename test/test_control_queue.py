"""The action queue: chunks merged by what was in fact taken, and an arm that cannot stall."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from imagined_robot import START, ImaginedRobot, ended, goal_at, straight_plan
from scipy.spatial.transform import Rotation

from jepa_planner_ros.control import ControlSettings, Outcome, QueueSettings
from jepa_planner_ros.control.action_queue import (
    MERGE_RULES,
    ActionQueue,
    _rules,
    register_merge_rule,
)
from jepa_planner_ros.control.queued import advice, transition
from jepa_planner_ros.robot.motion import between
from jepa_planner_ros.types import Plan, PlanRequest

FAR = goal_at(x=0.15, y=0.3, z=-0.1, step_budget=8)
DEFAULT = QueueSettings()


def robot(queue: QueueSettings = DEFAULT, **more: object) -> ImaginedRobot:
    settings = ControlSettings(queue=queue)
    return ImaginedRobot(transition, settings, **more)  # type: ignore[arg-type]


def target(x: float, yaw: float = 0.0) -> np.ndarray:
    return np.array([x, 0.0, 0.3, 0.0, 0.0, yaw, 0.0])


def test_taken_targets_are_dropped_from_a_chunk_that_comes_late() -> None:
    queue = ActionQueue().merged(0, [target(0), target(1), target(2)], MERGE_RULES["replace"])
    _, queue = queue.take()
    _, queue = queue.take()
    late = queue.merged(1, [target(10), target(20), target(30)], MERGE_RULES["replace"])
    assert [one[0] for one in late.targets] == [20, 30]
    assert late.taken == 1


@pytest.mark.parametrize(
    ("rule", "expected"),
    [("replace", 10.0), ("weighted", 7.0), ("average", 5.0), ("conservative", 3.0)],
)
def test_merge_rules_blend_what_both_have_and_take_the_rest(rule: str, expected: float) -> None:
    queue = ActionQueue(taken=4, targets=(target(0.0),))
    merged = queue.merged(5, [target(10.0), target(20.0)], MERGE_RULES[rule])
    np.testing.assert_allclose([one[0] for one in merged.targets], [expected, 20.0])


def test_rotations_are_blended_along_the_shortest_arc() -> None:
    middle = between(target(0.0, yaw=3.0), target(0.0, yaw=-3.0), 0.5)
    turn = Rotation.from_euler("xyz", middle[3:6])
    assert (turn * Rotation.from_euler("z", math.pi).inv()).magnitude() == pytest.approx(0.0)


def test_a_rule_of_ones_own() -> None:
    register_merge_rule("keep", lambda old, new: old)
    try:
        queue = ActionQueue(taken=0, targets=(target(1.0),))
        merged = queue.merged(1, [target(2.0), target(3.0)], MERGE_RULES["keep"])
        assert [one[0] for one in merged.targets] == [1.0, 3.0]
        with pytest.raises(ValueError, match="already"):
            register_merge_rule("keep", lambda old, new: new)
    finally:
        del _rules["keep"]


@pytest.mark.parametrize(("planning", "chunk"), [(0.2, 2), (0.86, 2), (1.5, 4)])
def test_the_arm_reaches_the_goal_without_waiting_for_plans(planning: float, chunk: int) -> None:
    arm = robot(QueueSettings(chunk=chunk), planning=lambda number: planning)
    result = ended(arm.run(arm.start(FAR)))
    assert result.outcome is Outcome.REACHED
    assert arm.step_seconds <= 1.03
    np.testing.assert_allclose(arm.state[:3] - START[:3], [0.15, 0.3, -0.1], atol=2e-3)


def test_planning_slower_than_the_queue_lasts_slows_the_arm_and_no_more() -> None:
    arm = robot(QueueSettings(chunk=2, threshold=1.0), planning=lambda number: 3.0)
    result = ended(arm.run(arm.start(FAR)))
    assert result.outcome is Outcome.REACHED
    assert 1.1 < arm.step_seconds < 3.0


@pytest.mark.parametrize(("threshold", "plans"), [(1.0, 8), (0.5, 5), (0.0, 3)])
def test_the_threshold_decides_how_often_a_plan_is_asked_for(threshold: float, plans: int) -> None:
    arm = robot(QueueSettings(chunk=3, threshold=threshold), planning=lambda number: 0.5)
    arm.run(arm.start(goal_at(x=0.15, y=0.3, step_budget=8, energy_threshold=1e-9)))
    assert len(arm.requests) == pytest.approx(plans, abs=1)


def test_one_plan_at_a_time_from_the_newest_arrival() -> None:
    arm = robot(QueueSettings(threshold=1.0), planning=lambda number: 2.5)
    arm.run(arm.start(FAR))
    asked = [time for time, _ in arm.requests]
    assert (np.diff(asked) >= 2.5).all()
    for _, request in arm.requests:
        arrivals = [START, *(command.target for _, command in arm.commands)]
        assert min(np.abs(one - request.scene.state).max() for one in arrivals) < 2e-3


def test_a_filter_that_finds_everything_similar_cannot_stall_the_arm() -> None:
    similar = QueueSettings(chunk=3, threshold=1.0, similar_distance=10.0, similar_angle=10.0)
    arm = robot(similar)
    result = ended(arm.run(arm.start(FAR)))
    assert result.outcome is Outcome.REACHED
    assert len(arm.requests) < 8, "it does filter"


def test_queue_length_and_ratio_are_reported() -> None:
    arm = robot(QueueSettings(chunk=3, threshold=0.0))
    arm.run(arm.start(FAR), until=lambda one: one.steps == 3)
    assert [one.queue_length for one in arm.reports] == [2, 1, 0]
    assert arm.reports[0].ratio == pytest.approx(1.0 / 0.88)


@pytest.mark.parametrize(
    ("ratio", "chunk", "threshold", "found"),
    [
        (1.2, 3, 0.7, "does not run empty"),
        (0.6, 4, 0.2, "raise queue.threshold to 0.5 "),
        (0.6, 3, 0.7, "raise queue.chunk to 4"),
    ],
)
def test_the_ratio_implies_advice(ratio: float, chunk: int, threshold: float, found: str) -> None:
    assert found in advice(ratio, chunk, threshold)


def test_an_arm_off_its_target_empties_the_queue() -> None:
    arm = robot()
    episode = arm.run(arm.start(FAR), until=lambda one: one.steps == 1)
    arm.target = arm.target + np.array([0.0, 0.1, 0.0, 0.0, 0.0, 0.0, 0.0])
    arm.run(episode, until=lambda one: one.steps == 2)
    assert "The queue is emptied" in arm.warnings
    second = arm.commands[1][1].target
    np.testing.assert_allclose(second[:3] - arm.origin[:3], [0.05, 0.05, -0.05], atol=1e-3)


def test_a_chunk_for_a_subgoal_that_was_reached_is_dropped() -> None:
    arm = robot(QueueSettings(threshold=1.0))
    result = ended(arm.run(arm.start(goal_at(x=0.05), goal_at(x=0.05, y=0.1))))
    assert result.outcome is Outcome.REACHED
    for _, command in arm.commands:
        assert command.target[0] <= START[0] + 0.052


def test_a_plan_that_is_not_finite_is_never_queued() -> None:
    def broken(request: PlanRequest) -> Plan:
        plan = straight_plan(request)
        return plan if request.step == 0 else replace(plan, actions=plan.actions * np.nan)

    arm = robot(planner=broken)
    result = ended(arm.run(arm.start(FAR)))
    assert result.outcome is Outcome.ABORTED
    assert "not finite" in result.reason
    assert all(np.isfinite(command.target).all() for _, command in arm.commands)


def test_settings_that_cannot_work_are_refused() -> None:
    for wrong, name in (
        ({"chunk": 0}, "queue.chunk"),
        ({"threshold": 1.5}, "queue.threshold"),
        ({"similar_distance": -1.0}, "queue.similar_distance"),
    ):
        with pytest.raises(ValueError, match=name):
            QueueSettings(**wrong)
