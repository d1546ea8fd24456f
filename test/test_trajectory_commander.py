"""What a ``joint_trajectory_controller`` is sent."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import rclpy
from rclpy.node import Node
from trajectory_msgs.msg import JointTrajectory

from jepa_planner_ros.control import RobotError, SafetyLimits
from jepa_planner_ros.control.episode import Measurement
from jepa_planner_ros.robot.kinematics import HOME_JOINTS, end_effector_state
from jepa_planner_ros.robot.limits import PANDA
from jepa_planner_ros.robot.motion import CartesianMotion
from jepa_planner_ros.ros.commander import TrajectoryCommander
from jepa_planner_ros.ros.parameters import PARAMETERS
from jepa_planner_ros.ros.settings import read_wiring

HOME = end_effector_state(HOME_JOINTS)
LIMITS = SafetyLimits()
STEP = CartesianMotion.at_rest(HOME, 0.0).towards(
    HOME + np.array([0.05, 0, 0, 0, 0, 0, 0]), 0.0, 1.0, LIMITS.motion
)


class AtHome:
    """An arm whose joints may fall silent."""

    joint_prefix = "panda_joint"
    joints: np.ndarray | None = HOME_JOINTS

    def newest(self) -> Measurement:
        return Measurement(HOME, 0, time.monotonic(), self.joints)


class Description:
    robot = PANDA


class Controller:
    """A commander, its arm, and what it sends."""

    def __init__(self, node: Node, rate: float) -> None:
        defaults = {parameter.name: parameter.default for parameter in PARAMETERS}
        wiring = read_wiring(
            defaults | {"commander": "joint_trajectory", "setpoint_rate": rate}, "/jepa_planner"
        )
        self._node = node
        self._sent: list[JointTrajectory] = []
        self.arm = AtHome()
        arm: Any = self.arm
        description: Any = Description()
        self.commander = TrajectoryCommander(node, wiring, arm, description)
        topic = "joint_trajectory_controller/joint_trajectory"
        node.create_subscription(JointTrajectory, topic, self._sent.append, 10)

    def received(self) -> JointTrajectory:
        """The next trajectory."""
        deadline = time.monotonic() + 10.0
        while not self._sent:
            assert time.monotonic() < deadline, "nothing was sent"
            rclpy.spin_once(self._node, timeout_sec=0.1)
        return self._sent.pop(0)


@pytest.fixture
def node() -> Iterator[Node]:
    rclpy.init()
    node = Node("commander")
    yield node
    node.destroy_node()
    rclpy.try_shutdown()


@pytest.mark.parametrize(("rate", "points"), [(25.0, 25), (50.0, 50), (1000.0, 50)])
def test_a_trajectory_has_no_more_points_than_an_arm_need_wait_for(
    node: Node, rate: float, points: int
) -> None:
    controller = Controller(node, rate)
    controller.commander.begin(STEP, LIMITS)
    assert len(controller.received().points) == points


def test_an_arm_whose_joints_fall_silent_on_the_way_is_halted_there(node: Node) -> None:
    controller = Controller(node, 50.0)
    controller.commander.begin(STEP, LIMITS)
    way = controller.received()
    time.sleep(0.2)
    controller.arm.joints = None
    with pytest.raises(RobotError, match="joints are not known"):
        controller.commander.begin(STEP, LIMITS)
    controller.commander.halt()
    (stop,) = controller.received().points
    tip, end = (end_effector_state(np.array(one.positions)) for one in (stop, way.points[-1]))
    assert list(stop.velocities) == [0.0] * 7
    assert HOME[0] < tip[0] < end[0] - 0.01
    assert stop.time_from_start.sec + 1e-9 * stop.time_from_start.nanosec < 0.5
