"""Commands to the robot's gripper, each by the conventions of its own family.

A gripper is told only when it is to open or to close, never again and again.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from action_msgs.msg import GoalStatus
from rclpy.action.client import ActionClient
from rclpy.node import Node
from rclpy.qos import QoSProfile
from rclpy.qos_overriding_options import QoSOverridingOptions
from rclpy.task import Future
from std_msgs.msg import Float64MultiArray

from jepa_planner_ros.control import GripperMotion
from jepa_planner_ros.robot.limits import PANDA

_OPEN_WIDTH = 2.0 * PANDA.finger_travel  # m
_SPEED = 0.1  # m/s
_FORCE = 20.0  # N
_ENDINGS: Mapping[int, str] = {
    GoalStatus.STATUS_CANCELED: "was cancelled",
    GoalStatus.STATUS_ABORTED: "failed",
}
_POSITIONS = {GripperMotion.OPEN: 1.0, GripperMotion.CLOSE: 0.0}

POSITION_TOPIC = "gripper/gripper_position_controller/commands"
"""Of the gripper that is commanded by a position."""


class GripperError(RuntimeError):
    """A gripper cannot be commanded; the message says why."""


class Gripper(Protocol):
    """One family of grippers."""

    def grip(self, motion: GripperMotion) -> None:
        """The gripper is to open or close."""


class PositionGripper:
    """CRISP's gripper: 1 is open, 0 is closed."""

    def __init__(self, node: Node) -> None:
        self._commands = node.create_publisher(
            Float64MultiArray,
            POSITION_TOPIC,
            QoSProfile(depth=10),
            qos_overriding_options=QoSOverridingOptions.with_default_policies(),
        )

    def grip(self, motion: GripperMotion) -> None:
        """The gripper is to open or close."""
        self._commands.publish(Float64MultiArray(data=[_POSITIONS[motion]]))


class FrankaGripper:
    """The actions of Franka's own gripper node: it moves to open, and grasps to close.

    To grasp is to close until something is held, whatever its width.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        actions = _required("franka_msgs", "franka_gripper")
        self._move_type, self._grasp_type = actions.Move, actions.Grasp
        self._move: Any = ActionClient(node, actions.Move, "franka_gripper/move")
        self._grasp: Any = ActionClient(node, actions.Grasp, "franka_gripper/grasp")

    def grip(self, motion: GripperMotion) -> None:
        """The gripper is to open or close."""
        if motion is GripperMotion.OPEN:
            goal = self._move_type.Goal(width=_OPEN_WIDTH, speed=_SPEED)
            _send(self._node, self._move, goal, "franka_gripper/move")
            return
        goal = self._grasp_type.Goal(width=0.0, speed=_SPEED, force=_FORCE)
        goal.epsilon.inner = goal.epsilon.outer = _OPEN_WIDTH
        _send(self._node, self._grasp, goal, "franka_gripper/grasp")


class CommandGripper:
    """The action of control_msgs, whose position is that of one finger: half the width."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._type = _required("control_msgs", "gripper_command").GripperCommand
        self._action: Any = ActionClient(node, self._type, "franka_gripper/gripper_action")

    def grip(self, motion: GripperMotion) -> None:
        """The gripper is to open or close."""
        goal = self._type.Goal()
        goal.command.position = _POSITIONS[motion] * PANDA.finger_travel
        goal.command.max_effort = _FORCE
        _send(self._node, self._action, goal, "franka_gripper/gripper_action")


class NoGripper:
    """Tells what a gripper would do."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def grip(self, motion: GripperMotion) -> None:
        """Tell it."""
        self._node.get_logger().info(f"No gripper is commanded; it would {motion.value}.")


GRIPPERS: Mapping[str, Callable[[Node], Gripper]] = {
    "position": PositionGripper,
    "franka_gripper": FrankaGripper,
    "gripper_command": CommandGripper,
    "none": NoGripper,
}
"""By the parameter ``gripper``."""


def _required(package: str, gripper: str) -> Any:
    try:
        return importlib.import_module(f"{package}.action")
    except ImportError as error:
        raise GripperError(
            f"Parameter gripper = {gripper} needs the package {package}, which is not installed "
            f"({error}): install ros-$ROS_DISTRO-{package.replace('_', '-')}, or set another "
            "gripper."
        ) from error


def _send(node: Node, client: Any, goal: Any, name: str) -> None:
    """Send a goal without waiting for it; the arm goes on meanwhile, and what fails is logged."""
    if not client.server_is_ready():
        node.get_logger().error(
            f"The gripper was not told: no action server answers on {name}. Start the gripper's "
            "node, or remap the action."
        )
        return

    def heed_answer(answered: Future) -> None:
        handle: Any = answered.result()
        if handle.accepted:
            handle.get_result_async().add_done_callback(heed_result)
            return
        node.get_logger().error(
            f"The gripper does not do what it was told: {name} rejected the command. It may be "
            "busy, or not homed; the log of the gripper's node says more."
        )

    def heed_result(ended: Future) -> None:
        answer: Any = ended.result()
        if answer.status == GoalStatus.STATUS_SUCCEEDED:
            return
        reason = getattr(answer.result, "error", "") or "the log of the gripper's node says why"
        node.get_logger().error(
            f"The gripper has not done what it was told: the command to {name} "
            f"{_ENDINGS.get(answer.status, 'ended without a result')}: {reason}. It may be neither "
            "open nor closed."
        )

    client.send_goal_async(goal).add_done_callback(heed_answer)
