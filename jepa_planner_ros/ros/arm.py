"""Where the arm is: from joint states by forward kinematics, or from a measured pose."""

from __future__ import annotations

from typing import Protocol

from geometry_msgs.msg import PoseStamped
from rclpy.callback_groups import CallbackGroup
from rclpy.node import Node
from sensor_msgs.msg import JointState

from jepa_planner_ros.control.episode import Measurement
from jepa_planner_ros.control.safety import POSE_AGE, Stream, at_pose, staleness
from jepa_planner_ros.robot.joints import ArmReading, read_arm, require_range
from jepa_planner_ros.robot.kinematics import end_effector_state
from jepa_planner_ros.robot.leaps import joint_leap, pose_leap
from jepa_planner_ros.robot.limits import LIMITS
from jepa_planner_ros.ros.description import RobotDescription
from jepa_planner_ros.ros.poses import check_frame, read_pose
from jepa_planner_ros.ros.streams import Sample, SensorStream
from jepa_planner_ros.ros.wiring import Wiring
from jepa_planner_ros.types import Float64Array

_CAMERA_LATENCY = 2.0
"""The longest that a picture takes from its exposure until it comes, s."""


class Arm(Protocol):
    """The measured end effector."""

    def newest(self) -> Measurement | None:
        """The newest measurement."""

    def nearest(self, stamp: int) -> Measurement | None:
        """The measurement taken nearest to a stamp in nanoseconds."""

    def status(self, now: float) -> Stream:
        """How fresh the measurements are."""

    @property
    def joint_prefix(self) -> str:
        """How the arm's joints are called up to their number; empty while that is not known."""


class JointStateArm:
    """The arm as `joint_states` tells, by forward kinematics."""

    def __init__(
        self,
        node: Node,
        wiring: Wiring,
        description: RobotDescription,
        max_age: float,
        group: CallbackGroup,
    ) -> None:
        prefix = wiring.joint_prefix or None
        self._description = description

        def read(message: JointState) -> ArmReading:
            reading = read_arm(message.name, message.position, prefix)
            require_range(reading.positions, LIMITS[wiring.robot])
            return reading

        def leaps(before: ArmReading, after: ArmReading, seconds: float) -> str | None:
            return joint_leap(before.positions, after.positions, seconds, description.robot)

        self._joints = SensorStream(
            node, JointState, "joint_states", max_age, _kept(wiring), read, group, leaps
        )

    def newest(self) -> Measurement | None:
        """The newest measurement."""
        return self._measurement(self._joints.newest())

    def nearest(self, stamp: int) -> Measurement | None:
        """The measurement taken nearest to a stamp in nanoseconds."""
        return self._measurement(self._joints.nearest(stamp))

    def status(self, now: float) -> Stream:
        """How fresh the measurements are."""
        return self._joints.status(now)

    @property
    def joint_prefix(self) -> str:
        """How the arm's joints are called up to their number; empty while that is not known."""
        newest = self._joints.newest()
        return "" if newest is None else newest.value.joint_prefix

    @property
    def has_gripper(self) -> bool:
        """Whether fingers have been heard of."""
        newest = self._joints.newest()
        return newest is not None and newest.value.gripper is not None

    def _measurement(self, sample: Sample[ArmReading] | None) -> Measurement | None:
        if sample is None:
            return None
        reading, chain = sample.value, self._description.robot.chain
        # An arm without a gripper counts as one whose gripper is open.
        state = end_effector_state(reading.positions, reading.gripper or 0.0, chain)
        return Measurement(state, sample.stamp, sample.time, reading.positions)


class CurrentPoseArm:
    """The arm as `current_pose` tells; only the gripper is taken from `joint_states`."""

    def __init__(
        self,
        node: Node,
        wiring: Wiring,
        description: RobotDescription,
        max_age: float,
        group: CallbackGroup,
    ) -> None:
        def read(message: PoseStamped) -> Float64Array:
            check_frame(message, wiring.base_frame)
            return read_pose(message, wiring.controller_frame)

        def leaps(before: Float64Array, after: Float64Array, seconds: float) -> str | None:
            return pose_leap(before, after, seconds, description.robot)

        self._poses = SensorStream(
            node, PoseStamped, "current_pose", max_age, _kept(wiring), read, group, leaps
        )
        self._joints = JointStateArm(node, wiring, description, max_age, group)

    def newest(self) -> Measurement | None:
        """The newest measurement."""
        return self._with_gripper(self._poses.newest(), self._joints.newest())

    def nearest(self, stamp: int) -> Measurement | None:
        """The measurement taken nearest to a stamp in nanoseconds."""
        return self._with_gripper(self._poses.nearest(stamp), self._joints.nearest(stamp))

    def status(self, now: float) -> Stream:
        """How fresh the measurements are: the pose, or the fingers when they alone are too old.

        Fingers that were never heard of are not waited for: the arm may have none.
        """
        pose, joints = self._poses.status(now), self._joints.status(now)
        fingers_lost = self._joints.has_gripper and staleness(joints, 0.0) is not None
        return joints if fingers_lost and staleness(pose, 0.0) is None else pose

    @property
    def joint_prefix(self) -> str:
        """How the arm's joints are called up to their number; empty while that is not known."""
        return self._joints.joint_prefix

    def _with_gripper(
        self, pose: Sample[Float64Array] | None, joints: Measurement | None
    ) -> Measurement | None:
        if pose is None:
            return None
        if joints is None:
            return Measurement(at_pose(pose.value, 0.0), pose.stamp, pose.time, None)
        together = abs(joints.time - pose.time) <= POSE_AGE
        positions = joints.joints if together else None
        return Measurement(
            at_pose(pose.value, float(joints.state[-1])), pose.stamp, pose.time, positions
        )


def _kept(wiring: Wiring) -> float:
    """How far back measurements are kept, s: as old as a picture of the arm may be."""
    return _CAMERA_LATENCY + wiring.freshness.camera
