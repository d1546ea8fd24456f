"""Between the robot and the planner: passes on what they tell each other, and meddles with it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from geometry_msgs.msg import PoseStamped
from rclpy.node import Node
from rclpy.qos import QoSProfile, qos_profile_sensor_data
from sensor_msgs.msg import Image, JointState
from std_msgs.msg import Float64MultiArray

from jepa_planner_ros.faults.audit import SetpointAudit
from jepa_planner_ros.faults.catalogue import FAULTS, Fault
from jepa_planner_ros.ros.gripper import POSITION_TOPIC
from jepa_planner_ros.ros.poses import ControllerFrame, read_pose
from jepa_planner_ros.types import Float64Array

ROBOT = "robot"
"""Namespace of the robot's own topics; those without it are the planner's."""

TOPICS = ("image_raw", "joint_states", "current_pose", "target_pose", POSITION_TOPIC)
"""What the relay stands between, or listens to."""

# Deep enough that no setpoint is lost, whatever this process waits for.
_EVERY_ONE = QoSProfile(depth=1000)


class Relay:
    """Publishes the robot's topics for the planner and the planner's for the robot.

    Args:
        node: has the topics.
        audit: is shown every setpoint that the controller is sent, obeyed or not.
    """

    def __init__(self, node: Node, audit: SetpointAudit) -> None:
        self.fault: Fault = FAULTS["none"]
        """What to do to the messages."""
        self.frames = self.joint_states = 0
        """How many have been passed on or withheld."""
        self._audit = audit
        self._measured: Float64Array | None = None
        self._heard = -1.0e9
        newest = QoSProfile(depth=1)
        self._images = node.create_publisher(Image, "image_raw", qos_profile_sensor_data)
        self._joints = node.create_publisher(JointState, "joint_states", qos_profile_sensor_data)
        self._targets = node.create_publisher(PoseStamped, f"{ROBOT}/target_pose", newest)
        self._grippers = node.create_publisher(
            Float64MultiArray, f"{ROBOT}/{POSITION_TOPIC}", newest
        )
        for kind, topic, receive, qos in (
            (Image, f"{ROBOT}/image_raw", self._pass_image, newest),
            (JointState, f"{ROBOT}/joint_states", self._pass_joints, newest),
            (PoseStamped, f"{ROBOT}/current_pose", self._measure, newest),
            (PoseStamped, "target_pose", self._pass_target, _EVERY_ONE),
            (Float64MultiArray, POSITION_TOPIC, self._pass_gripper, _EVERY_ONE),
        ):
            node.create_subscription(kind, topic, receive, qos)

    @property
    def silence(self) -> float:
        """How long no setpoint has been sent, s."""
        return time.monotonic() - self._heard

    def _pass_image(self, message: Image) -> None:
        self.frames += 1
        if (changed := self.fault.images(message)) is not None:
            self._images.publish(changed)

    def _pass_joints(self, message: JointState) -> None:
        self.joint_states += 1
        if (changed := self.fault.joints(message)) is not None:
            self._joints.publish(changed)

    def _measure(self, message: PoseStamped) -> None:
        self._measured = read_pose(message, ControllerFrame.UPRIGHT)

    def _pass_target(self, message: PoseStamped, info: Mapping[str, Any]) -> None:
        setpoint = read_pose(message, ControllerFrame.UPRIGHT)
        self._heard = time.monotonic()
        self._audit.judge(
            setpoint, self._measured, info["publication_sequence_number"], self._heard
        )
        if self.fault.obeyed:
            self._targets.publish(message)

    def _pass_gripper(self, message: Float64MultiArray) -> None:
        self._grippers.publish(message)
