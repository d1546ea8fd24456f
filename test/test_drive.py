"""What was stopped stays stopped, whoever asks for more."""

from __future__ import annotations

import time
from collections.abc import Iterator
from threading import Event, Timer
from typing import Any

import numpy as np
import pytest
import rclpy
from rclpy.callback_groups import MutuallyExclusiveCallbackGroup
from rclpy.node import Node

from jepa_planner_ros.control import (
    ControlSettings,
    GripperMotion,
    MotionSettings,
    RobotError,
    SafetyLimits,
)
from jepa_planner_ros.control.episode import Measurement
from jepa_planner_ros.robot.kinematics import HOME_JOINTS, end_effector_state
from jepa_planner_ros.robot.motion import CartesianMotion
from jepa_planner_ros.ros.drive import DirectDrive, Drive, Refusal, SmoothDrive

HOME = end_effector_state(HOME_JOINTS)
USUAL = ControlSettings()
TARGET = HOME + np.array([0.05, 0, 0, 0, 0, 0, 0])


class Controller:
    """A commander that notes what it is told; what stops a motion can be made impossible."""

    def __init__(self, keeps_time: bool) -> None:
        self.keeps_time = keeps_time
        self.motions: list[CartesianMotion] = []
        self.setpoints: list[np.ndarray] = []
        self.halts = 0
        self.broken = False
        self.takes = 0.0  # s, to find a way

    def missing(self) -> str | None:
        return None

    def require_controller(self) -> None: ...

    def begin(self, motion: CartesianMotion, limits: SafetyLimits) -> None:
        if self.broken:
            raise RobotError("No joint positions within the limits.")
        time.sleep(self.takes)
        self.motions.append(motion)

    def follow(self, setpoint: np.ndarray, velocity: np.ndarray) -> None:
        self.setpoints.append(setpoint)

    def rest(self) -> None: ...

    def halt(self) -> None:
        self.halts += 1


class Grip:
    """A gripper that notes what it is told."""

    def __init__(self) -> None:
        self.motions: list[GripperMotion] = []

    def grip(self, motion: GripperMotion) -> None:
        self.motions.append(motion)


class AtHome:
    """An arm that nothing moves; its encoders are never still to the last bit."""

    def newest(self) -> Measurement:
        now = time.monotonic()
        return Measurement(HOME + 1e-9 * np.sin(now), 0, now)


@pytest.fixture
def node() -> Iterator[Node]:
    rclpy.init()
    node = Node("driver")
    yield node
    node.destroy_node()
    rclpy.try_shutdown()


def prepared(
    node: Node,
    controller: Controller,
    settings: ControlSettings = USUAL,
    refusal: Refusal = lambda: None,
    gripper: Any = None,
) -> SmoothDrive:
    """A drive whose timer the test is."""
    arm: Any = AtHome()
    group = MutuallyExclusiveCallbackGroup()
    drive = SmoothDrive(node, controller, gripper, arm, refusal, 50.0, group)
    drive.prepare(settings)
    return drive


def driven(
    node: Node,
    controller: Controller,
    settings: ControlSettings = USUAL,
    target: np.ndarray = TARGET,
) -> SmoothDrive:
    """One that is on its way."""
    drive = prepared(node, controller, settings)
    drive.command(target, None, HOME)
    drive._send()
    return drive


@pytest.mark.parametrize("keeps_time", [False, True])
def test_a_drive_that_has_stopped_takes_no_command_until_another_episode(
    node: Node, keeps_time: bool
) -> None:
    controller = Controller(keeps_time)
    drive = driven(node, controller)
    drive._heard -= 10.0
    drive._send()
    assert len(controller.motions) == 2, "the way, and the stop"

    with pytest.raises(RobotError, match="control loop was not heard of"):
        drive.command(TARGET, None, HOME)
    drive.hold(HOME)
    assert len(controller.motions) == 2, "a stop under way is not begun again"
    while drive.moving:
        drive._send()
    assert np.linalg.norm(controller.setpoints[-1] - HOME) < 0.01

    drive.prepare(ControlSettings())
    drive.command(TARGET, None, HOME)
    assert len(controller.motions) == 3


def test_a_controller_that_keeps_the_time_is_stopped_where_it_is_by_its_own_clock(
    node: Node,
) -> None:
    controller = Controller(keeps_time=True)
    drive = driven(node, controller)
    # The timer was late: the controller is on its way for longer than setpoints were counted.
    time.sleep(0.3)
    drive.stop()
    way, stop = controller.motions
    assert stop.started - way.started >= 0.3


def test_a_motion_whose_way_takes_long_to_find_is_watched_to_its_end(node: Node) -> None:
    controller = Controller(keeps_time=True)
    controller.takes = 0.6
    drive = driven(node, controller, ControlSettings(MotionSettings(duration=0.3, watchdog=0.2)))
    assert drive.moving, "the arm has but begun"
    assert drive.fault() is None, "the loop that waited was not silent"
    controller.takes = 0.0
    drive.stop()
    assert len(controller.motions) == 2, "the way, and the stop"


def test_where_no_way_to_stop_is_found_the_arm_is_halted(node: Node) -> None:
    controller = Controller(keeps_time=True)
    drive = driven(node, controller)
    time.sleep(0.1)
    controller.broken = True
    drive.stop()
    assert controller.halts == 1


def test_a_motion_begins_where_the_loop_saw_the_arm(node: Node) -> None:
    controller = Controller(keeps_time=False)
    drive = prepared(node, controller)
    seen = HOME + np.array([0.0, 0.04, 0, 0, 0, 0, 0])
    drive.command(TARGET, None, seen)
    drive._send()
    np.testing.assert_allclose(controller.setpoints[0], seen, atol=1e-4)


def test_a_goal_begins_where_the_arm_was_moved_to_since_the_last(node: Node) -> None:
    controller = Controller(keeps_time=False)
    drive = driven(node, controller, target=HOME + np.array([0.01, 0, 0, 0, 0, 0, 0]))
    while drive._under_way:
        drive._send()
    drive.prepare(ControlSettings())
    guided = HOME + np.array([0.0, 0.02, 0, 0, 0, 0, 0])
    drive.command(TARGET, None, guided)
    drive._send()
    np.testing.assert_allclose(controller.setpoints[-1], guided, atol=1e-4)


def test_an_arm_that_is_late_stops_before_a_box_on_its_straight_way(node: Node) -> None:
    (x, y, _), beyond = HOME[:3], np.array([0.05, 0.05, 0, 0, 0, 0, 0])
    box = ((x + 0.02, y + 0.015, 0.0), (x + 0.042, y + 0.045, 1.0))
    settings = ControlSettings(safety=SafetyLimits(forbidden_boxes=(box,)))
    drive = driven(node, Controller(keeps_time=False), settings)
    for _ in range(20):
        drive._send()
    with pytest.raises(RobotError, match="leads through a box"):
        drive.command(HOME + beyond, GripperMotion.CLOSE, HOME)
    assert drive.fault() is not None


def test_setpoints_that_go_back_to_the_arm_are_only_stopped_by_who_wants_it_to_stand_still(
    node: Node,
) -> None:
    controller = Controller(keeps_time=False)
    drive = driven(node, controller)
    drive.prepare(ControlSettings(safety=SafetyLimits(lag_distance=0.02)))
    while drive.fault() is None:
        drive._send()
    motions = len(controller.motions)
    drive.settle()
    drive.hold(HOME)
    assert len(controller.motions) == motions, "an episode's end lets them"
    drive.stop()
    assert len(controller.motions) == motions + 1
    assert controller.motions[-1].ends < controller.motions[-2].ends


def test_a_controller_that_keeps_the_time_is_known_to_move_as_long_as_it_does(node: Node) -> None:
    controller = Controller(keeps_time=True)
    drive = prepared(node, controller)
    drive.command(HOME, None, HOME)
    sagging = HOME - np.array([0, 0, 0.025, 0, 0, 0, 0])
    while drive.moving:
        time.sleep(0.01)
    drive.command(TARGET, None, sagging)
    motion = controller.motions[-1]
    np.testing.assert_allclose(motion.at(motion.started), sagging, atol=1e-9)


@pytest.mark.parametrize("smooth", [True, False])
def test_nothing_moves_once_motion_was_disabled(node: Node, smooth: bool) -> None:
    controller, gripper = Controller(keeps_time=False), Grip()

    def refusal() -> str:
        return "Motion is disabled."

    drive: Drive = (
        prepared(node, controller, refusal=refusal, gripper=gripper)
        if smooth
        else DirectDrive(controller, gripper, refusal)
    )
    with pytest.raises(RobotError, match="Motion is disabled"):
        drive.command(TARGET, GripperMotion.CLOSE, HOME)
    assert (controller.motions, controller.setpoints, gripper.motions) == ([], [], [])


def test_motion_that_is_disabled_while_the_way_is_computed_moves_no_gripper(node: Node) -> None:
    controller, gripper = Controller(keeps_time=True), Grip()
    controller.takes = 0.3
    disabled = Event()
    drive = prepared(
        node,
        controller,
        refusal=lambda: "Motion is disabled." if disabled.is_set() else None,
        gripper=gripper,
    )

    def disable() -> None:
        disabled.set()
        drive.stop()

    switch = Timer(0.1, disable)
    switch.start()
    with pytest.raises(RobotError, match="Motion is disabled"):
        drive.command(TARGET, GripperMotion.CLOSE, HOME)
    switch.join()
    assert gripper.motions == []
    assert len(controller.motions) == 2, "the way, and the stop"
