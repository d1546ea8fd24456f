"""What sensors and clocks do to an episode, by the node's real interfaces."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jepa_planner_msgs.action import ReachGoal
from jepa_planner_msgs.msg import Plan, SubGoal
from node_under_test import (
    HOME,
    Neighbourhood,
    image_message,
    neighbourhood,
    picture,
    wait_until,
    write_tiny_model,
)

from jepa_planner_ros.faults.catalogue import FAULTS
from jepa_planner_ros.robot.kinematics import HOME_JOINTS

ELSEWHERE = image_message(picture(HOME + np.array([0.1, 0.2, -0.1, 0, 0, 0, 0])))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("model") / "tiny.safetensors")


@pytest.fixture(scope="module")
def running(model: Path) -> Iterator[Neighbourhood]:
    with neighbourhood(model) as neighbours:
        yield neighbours


@pytest.fixture
def node(running: Neighbourhood) -> Neighbourhood:
    robot = running.robot
    robot.spoil_joints = robot.spoil_image = lambda message: None
    robot.clock_error = 0.0
    robot.place(HOME_JOINTS)
    return running


def elsewhere(budget: int = 2, **more: object) -> SubGoal:
    return SubGoal(image=ELSEWHERE, energy_threshold=1e-6, step_budget=budget, **more)


def spoiling(change: Callable[[Any], Any]) -> Callable[[Any], None]:
    """Lets a message become what a fault makes of it."""

    def spoil(message: Any) -> None:
        changed = change(message)
        for name in message.get_fields_and_field_types():
            setattr(message, name, getattr(changed, name))

    return spoil


def first_plan(node: Neighbourhood) -> Plan:
    node.robot.place(HOME_JOINTS)
    _, result = node.client.send(elsewhere(budget=1)).result()
    assert result.outcome == ReachGoal.Result.BUDGET_SPENT, result.reason
    wait_until(lambda: bool(node.client.plans), "the plan")
    return node.client.plans[0]


@pytest.mark.parametrize("fault", ["frames_padded", "frames_blue_first", "frames_with_alpha"])
def test_the_same_picture_in_another_layout_is_planned_from_alike(
    node: Neighbourhood, fault: str
) -> None:
    healthy = first_plan(node)
    node.robot.spoil_image = spoiling(FAULTS[fault].images)
    spoilt = first_plan(node)
    assert spoilt.energy == healthy.energy
    assert spoilt.actions == healthy.actions


@pytest.mark.parametrize("fault", ["frames_turned", "frames_upside_down"])
def test_a_turned_camera_shows_another_picture_and_does_no_harm(
    node: Neighbourhood, fault: str
) -> None:
    healthy = first_plan(node)
    node.robot.spoil_image = spoiling(FAULTS[fault].images)
    node.robot.place(HOME_JOINTS)
    goal = node.client.send(elsewhere(budget=3))
    _, result = goal.result()
    assert result.outcome == ReachGoal.Result.BUDGET_SPENT, result.reason
    wait_until(lambda: len(node.client.plans) == 3, "three plans")
    assert node.client.plans[0].energy != healthy.energy
    before = HOME
    for target in node.robot.targets:
        assert np.abs(target - before)[:3].max() <= 0.075 + 1e-6
        before = target


@pytest.mark.parametrize("fault", ["joints_in_any_order", "joints_without_velocities"])
def test_the_arm_is_found_in_joint_states_of_any_shape(node: Neighbourhood, fault: str) -> None:
    healthy = first_plan(node)
    node.robot.spoil_joints = spoiling(FAULTS[fault].joints)
    spoilt = first_plan(node)
    assert spoilt.state == healthy.state


def test_an_absent_gripper_counts_as_open_and_is_told_to_close_all_the_same(
    node: Neighbourhood,
) -> None:
    node.robot.spoil_joints = spoiling(FAULTS["gripper_absent"].joints)
    node.robot.place(HOME_JOINTS)
    node.robot.grippers.clear()
    goal = node.client.send(elsewhere(budget=2, close_gripper_from=0))
    _, result = goal.result()
    assert result.outcome == ReachGoal.Result.BUDGET_SPENT, result.reason
    wait_until(lambda: len(node.client.plans) == 2, "two plans")
    assert [plan.state.gripper for plan in node.client.plans] == [0.0, 0.0]
    wait_until(lambda: node.robot.grippers == [0.0], "one order to close")


def test_a_camera_that_shows_the_same_frame_for_ever_aborts(node: Neighbourhood) -> None:
    node.robot.spoil_image = spoiling(FAULTS["camera_frozen"].images)
    node.robot.place(HOME_JOINTS)
    _, result = node.client.send(elsewhere(budget=9)).result()
    assert result.outcome == ReachGoal.Result.ABORTED
    assert "its stream is frozen" in result.reason


@pytest.mark.parametrize(
    ("error", "told"),
    [(-30.0, ("clock was set back by", "s old and the limit is")), (30.0, ("in the future",))],
)
def test_a_robot_whose_clock_jumps_aborts(
    node: Neighbourhood, error: float, told: tuple[str, ...]
) -> None:
    goal = node.client.send(elsewhere(budget=50))
    wait_until(lambda: bool(goal.feedback), "the first step")
    node.robot.clock_error = error
    _, result = goal.result()
    assert result.outcome == ReachGoal.Result.ABORTED
    assert any(fragment in result.reason for fragment in told)
