"""What stands between a plan and the arm, and how to stop it: by the node's real interfaces."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from jepa_planner_msgs.action import ReachGoal
from jepa_planner_msgs.msg import SubGoal
from node_under_test import (
    HOME,
    Neighbourhood,
    answer,
    image_message,
    neighbourhood,
    picture,
    wait_until,
    write_tiny_model,
)
from rclpy.parameter import Parameter
from std_srvs.srv import SetBool

from jepa_planner_ros.control import SafetyLimits
from jepa_planner_ros.robot.kinematics import HOME_JOINTS

ELSEWHERE = image_message(picture(HOME + np.array([0.1, 0.2, -0.1, 0, 0, 0, 0])))
LIMITS = SafetyLimits()
ROUNDING = 1.0 + 1e-6
SMOOTH = (
    "setpoint_rate:=50.0",
    f"limits.translation_speed:={LIMITS.translation_speed}",
    f"limits.translation_acceleration:={LIMITS.translation_acceleration}",
    f"limits.translation_jerk:={LIMITS.translation_jerk}",
)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("model") / "tiny.safetensors")


@pytest.fixture(scope="module")
def smooth(model: Path) -> Iterator[Neighbourhood]:
    with neighbourhood(model, *SMOOTH) as neighbours:
        yield neighbours


@pytest.fixture
def node(smooth: Neighbourhood) -> Neighbourhood:
    smooth.robot.duration = 0.1
    smooth.robot.place(HOME_JOINTS)
    time.sleep(0.2)
    return smooth


def elsewhere(budget: int = 2) -> SubGoal:
    return SubGoal(image=ELSEWHERE, energy_threshold=1e-6, step_budget=budget)


def highest_speed(positions: np.ndarray) -> float:
    """m/s from setpoint to setpoint at their rate."""
    return float(np.linalg.norm(np.diff(positions, axis=0), axis=1).max() * 50.0)


def at_rest(node: Neighbourhood) -> bool:
    last = np.array(node.robot.targets[-5:])
    return bool(np.ptp(last, axis=0).max() < 1e-6)


def is_quiet(node: Neighbourhood) -> bool:
    sent = len(node.robot.targets)
    time.sleep(0.5)
    return len(node.robot.targets) == sent


def enable(node: Neighbourhood, enabled: bool) -> SetBool.Response:
    client = node.client.create_client(SetBool, "jepa_planner/enable")
    assert client.wait_for_service(10.0)
    return answer(client.call_async(SetBool.Request(data=enabled)))


def test_a_target_is_sent_as_setpoints_within_the_limits(node: Neighbourhood) -> None:
    goal = node.client.send(elsewhere(budget=1))
    _, result = goal.result()
    assert result.outcome == ReachGoal.Result.BUDGET_SPENT, result.reason
    positions = np.array([target[:3] for target in node.robot.targets])
    assert len(positions) > 10
    assert highest_speed(positions) <= ROUNDING * LIMITS.translation_speed
    target = goal.feedback[0].target_pose.pose.position
    np.testing.assert_allclose(positions[-1], [target.x, target.y, target.z], atol=1e-9)
    way = positions[-1] - HOME[:3]
    along = (positions - HOME[:3]) @ way / (way @ way)
    assert (np.diff(along) >= -1e-9).all(), "straight on"


@pytest.mark.parametrize("mode", ["blocking", "non_blocking", "queue"])
def test_every_mode_spends_its_budget_and_ends(node: Neighbourhood, mode: str) -> None:
    goal = node.client.send(elsewhere(budget=3), mode=mode)
    _, result = goal.result()
    assert (result.outcome, result.steps) == (ReachGoal.Result.BUDGET_SPENT, 3), result.reason
    wait_until(lambda: len(goal.feedback) == 3 and len(node.client.plans) == 3, "three steps")
    assert [one.step for one in goal.feedback] == [0, 1, 2]
    assert (goal.feedback[0].queue_length == 1) == (mode == "queue")


def test_disabling_stops_the_arm_and_refuses_goals_until_enabled(node: Neighbourhood) -> None:
    goal = node.client.send(elsewhere(budget=20))
    wait_until(lambda: len(node.robot.targets) > 5, "motion")
    assert enable(node, False).message == "Motion is disabled."
    _, result = goal.result()
    assert result.outcome == ReachGoal.Result.ABORTED
    assert "Motion is disabled: enable it by the service /jepa_planner/enable" in result.reason
    wait_until(lambda: at_rest(node), "setpoints that stay")
    wait_until(lambda: is_quiet(node), "no more setpoints")
    sent = len(node.robot.targets)
    assert not node.client.send(elsewhere()).handle.accepted
    time.sleep(0.5)
    assert len(node.robot.targets) == sent
    assert enable(node, True).success
    _, result = node.client.send(elsewhere(budget=1)).result()
    assert result.outcome == ReachGoal.Result.BUDGET_SPENT


def disable_for_a_moment(node: Neighbourhood) -> None:
    client = node.client.create_client(SetBool, "jepa_planner/enable")
    assert client.wait_for_service(10.0)
    for done in [client.call_async(SetBool.Request(data=enabled)) for enabled in (False, True)]:
        assert answer(done).success


def test_an_episode_ends_however_short_motion_was_disabled(node: Neighbourhood) -> None:
    goal = node.client.send(elsewhere(budget=20))
    wait_until(lambda: len(node.robot.targets) > 5, "motion")
    disable_for_a_moment(node)
    _, result = goal.result()
    assert result.outcome == ReachGoal.Result.ABORTED
    assert "Motion was disabled" in result.reason or "Motion is disabled" in result.reason
    wait_until(lambda: at_rest(node), "setpoints that stay")


def test_a_goal_that_waits_ends_when_motion_is_disabled(node: Neighbourhood) -> None:
    wait_until(lambda: is_quiet(node), "the end of an earlier goal's setpoints")
    node.robot.targets.clear()
    patience = node.planner.get_parameter("ready_timeout")
    node.planner.set_parameters([Parameter("ready_timeout", value=60.0)])
    node.robot.stop_listening()
    try:
        wait_until(lambda: node.planner.count_subscribers("target_pose") == 0, "nobody listening")
        goal = node.client.send(elsewhere(budget=1))
        node.client.wait_for_status("Waiting to begin. No controller listens")
        disable_for_a_moment(node)
    finally:
        node.robot.listen_again()
        wait_until(lambda: node.planner.count_subscribers("target_pose") == 1, "the controller")
    _, result = goal.result()
    assert result.outcome == ReachGoal.Result.ABORTED
    assert "Motion was disabled" in result.reason or "Motion is disabled" in result.reason
    assert node.robot.targets == []
    node.planner.set_parameters([patience])


def test_cancel_brakes_within_the_limits(node: Neighbourhood) -> None:
    goal = node.client.send(elsewhere(budget=20))
    wait_until(lambda: len(node.robot.targets) > 10, "motion")
    answer(goal.handle.cancel_goal_async())
    assert goal.result()[1].outcome == ReachGoal.Result.CANCELLED
    wait_until(lambda: at_rest(node), "setpoints that stay")
    positions = np.array([target[:3] for target in node.robot.targets])
    assert highest_speed(positions) <= ROUNDING * LIMITS.translation_speed


def test_a_goal_may_follow_a_cancelled_one_at_once(node: Neighbourhood) -> None:
    first = node.client.send(elsewhere(budget=20))
    wait_until(lambda: len(node.robot.targets) > 10, "motion")
    answer(first.handle.cancel_goal_async())
    assert first.result()[1].outcome == ReachGoal.Result.CANCELLED
    _, result = node.client.send(elsewhere(budget=1)).result()
    assert result.outcome == ReachGoal.Result.BUDGET_SPENT, result.reason
