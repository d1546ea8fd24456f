"""Commands to the robot's controllers, each by the conventions of its own family.

A commander is told of every motion once and of its setpoints at a steady rate, and passes on what
its controller wants. Whatever it is, poses are in the base frame, and a controller that is told
nothing more holds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np
from geometry_msgs.msg import PoseStamped, Twist, TwistStamped, Vector3
from rclpy.node import Node
from rclpy.publisher import Publisher
from rclpy.qos import QoSProfile
from rclpy.qos_overriding_options import QoSOverridingOptions
from trajectory_msgs.msg import JointTrajectory, JointTrajectoryPoint

from jepa_planner_ros.control import RobotError, SafetyLimits
from jepa_planner_ros.control.setpoints import accelerated
from jepa_planner_ros.geometry import POSITION
from jepa_planner_ros.robot.motion import CartesianMotion
from jepa_planner_ros.robot.trajectory import JointPath, halted, held, joint_path
from jepa_planner_ros.ros.arm import Arm
from jepa_planner_ros.ros.clock import duration_message, ros_now, stamp_message
from jepa_planner_ros.ros.description import RobotDescription
from jepa_planner_ros.ros.poses import pose_stamped_message
from jepa_planner_ros.ros.wiring import Wiring
from jepa_planner_ros.types import Float64Array

_RELIABLE = QoSProfile(depth=10)
_STILL = np.zeros(6)
# Least time between a trajectory's points, s: each takes an inverse kinematics to compute, during
# which the arm waits, and a controller's splines between them need no more.
_POINT_PERIOD = 0.02


class Commander(Protocol):
    """One family of controllers."""

    keeps_time: bool
    """Whether the controller is given whole motions, and keeps their time itself."""

    def missing(self) -> str | None:
        """That no controller has been found, in a sentence; None when one listens."""

    def require_controller(self) -> None:
        """Raise `RobotError` if no controller would act on a command."""

    def begin(self, motion: CartesianMotion, limits: SafetyLimits) -> None:
        """A motion begins now, in place of the one under way. Raises `RobotError`."""

    def follow(self, setpoint: Float64Array, velocity: Float64Array) -> None:
        """The motion is at a state (7,) now, or goes there at once where it has no other.

        `velocity` keeps the arm there, linear and angular (6,), m/s and rad/s.
        """

    def rest(self) -> None:
        """The motion has ended, and no setpoint follows."""

    def halt(self) -> None:
        """Stop the motion under way about where the arm is, since none was found that stops it."""


class PoseCommander:
    """Every setpoint as a pose: CRISP's ``target_pose``, or MoveIt Servo's pose commands.

    CRISP ignores stamp and frame, holds the last pose for ever, and obeys nobody while the topic
    has two publishers. Servo wants fresh stamps above its time-out's rate, and halts without them.
    """

    keeps_time = False

    def __init__(self, node: Node, wiring: Wiring, topic: str) -> None:
        self._node = node
        self._wiring = wiring
        self._targets = node.create_publisher(
            PoseStamped,
            topic,
            _RELIABLE,
            qos_overriding_options=QoSOverridingOptions.with_default_policies(),
        )

    def missing(self) -> str | None:
        """That no controller has been found, in a sentence; None when one listens."""
        return _missing(self._targets, "Cartesian controller")

    def require_controller(self) -> None:
        """Raise `RobotError` if no controller would act on a command."""
        if missing := self.missing():
            raise RobotError(missing)
        topic = self._targets.topic_name
        publishers = self._node.count_publishers(topic)
        if publishers > 1:
            raise RobotError(
                f"{publishers} publishers send to {topic}, and the controller ignores them all "
                "while there is more than one: stop the others."
            )

    def begin(self, motion: CartesianMotion, limits: SafetyLimits) -> None:
        """Nothing is sent but setpoints."""

    def follow(self, setpoint: Float64Array, velocity: Float64Array) -> None:
        """Publish a setpoint (7,)."""
        wiring, stamp = self._wiring, ros_now(self._node)
        self._targets.publish(
            pose_stamped_message(setpoint, wiring.controller_frame, wiring.base_frame, stamp)
        )

    def rest(self) -> None:
        """The controller holds the last pose."""

    def halt(self) -> None:
        """No motion is under way but setpoint by setpoint."""


class TwistCommander:
    """The velocity of every setpoint for MoveIt Servo, corrected towards where it should be.

    Servo wants fresh stamps above its time-out's rate, and halts without them.
    """

    keeps_time = False

    def __init__(self, node: Node, wiring: Wiring) -> None:
        self._node = node
        self._wiring = wiring
        self._limits = SafetyLimits()
        self._period = 1.0 / wiring.setpoint_rate
        self._twist = _STILL
        self._twists = node.create_publisher(
            TwistStamped,
            "servo_node/delta_twist_cmds",
            _RELIABLE,
            qos_overriding_options=QoSOverridingOptions.with_default_policies(),
        )

    def missing(self) -> str | None:
        """That no controller has been found, in a sentence; None when one listens."""
        return _missing(self._twists, "MoveIt Servo")

    def require_controller(self) -> None:
        """Raise `RobotError` if no controller would act on a command."""
        if missing := self.missing():
            raise RobotError(missing)

    def begin(self, motion: CartesianMotion, limits: SafetyLimits) -> None:
        """The limits hold for the twists, too."""
        self._limits = limits

    def follow(self, setpoint: Float64Array, velocity: Float64Array) -> None:
        """Publish a velocity (6,) that keeps the arm at the setpoint (7,)."""
        self._publish(accelerated(self._twist, velocity, self._period, self._limits))

    def rest(self) -> None:
        """Stop."""
        self._publish(_STILL)

    def halt(self) -> None:
        """Stop."""
        self._publish(_STILL)

    def _publish(self, twist: Float64Array) -> None:
        self._twist = twist
        x, y, z, roll, pitch, yaw = map(float, twist)
        message = TwistStamped(
            twist=Twist(linear=Vector3(x=x, y=y, z=z), angular=Vector3(x=roll, y=pitch, z=yaw))
        )
        message.header.frame_id = self._wiring.base_frame
        message.header.stamp = stamp_message(ros_now(self._node))
        self._twists.publish(message)


class DryRunCommander:
    """Tells on ``~/would_command`` and in the log what would be commanded, which moves nothing."""

    keeps_time = False

    def __init__(self, node: Node, wiring: Wiring) -> None:
        self._node = node
        self._wiring = wiring
        self._targets = node.create_publisher(PoseStamped, "~/would_command", _RELIABLE)

    def missing(self) -> str | None:
        """Nobody needs to listen."""
        return None

    def require_controller(self) -> None:
        """Nobody needs to listen."""

    def begin(self, motion: CartesianMotion, limits: SafetyLimits) -> None:
        """Nothing is sent but setpoints."""

    def follow(self, setpoint: Float64Array, velocity: Float64Array) -> None:
        """Publish a setpoint (7,)."""
        x, y, z = setpoint[POSITION]
        self._node.get_logger().info(f"Would send the arm to ({x:.3f}, {y:.3f}, {z:.3f}) m.")
        wiring, stamp = self._wiring, ros_now(self._node)
        self._targets.publish(
            pose_stamped_message(setpoint, wiring.controller_frame, wiring.base_frame, stamp)
        )

    def rest(self) -> None:
        """Nothing moves."""

    def halt(self) -> None:
        """Nothing moves."""


class TrajectoryCommander:
    """Every motion as one trajectory of all joints, for a ``joint_trajectory_controller``.

    It begins where the arm is measured. Its points have the velocities of the motion, the last is
    at rest; of a motion that is called off there is but the point where it comes to rest.
    """

    keeps_time = True

    def __init__(self, node: Node, wiring: Wiring, arm: Arm, description: RobotDescription) -> None:
        self._arm = arm
        self._description = description
        self._period = max(1.0 / wiring.setpoint_rate, _POINT_PERIOD)
        self._path: JointPath | None = None
        """Published last."""
        self._begun = 0.0
        """When that was, on the steady clock, s."""
        self._trajectories = node.create_publisher(
            JointTrajectory,
            "joint_trajectory_controller/joint_trajectory",
            _RELIABLE,
            qos_overriding_options=QoSOverridingOptions.with_default_policies(),
        )

    def missing(self) -> str | None:
        """That no controller has been found, in a sentence; None when one listens."""
        return _missing(self._trajectories, "joint_trajectory_controller")

    def require_controller(self) -> None:
        """Raise `RobotError` if no controller would act on a command."""
        if missing := self.missing():
            raise RobotError(missing)

    def begin(self, motion: CartesianMotion, limits: SafetyLimits) -> None:
        """Publish a motion as a trajectory, from the joints that the arm is measured at."""
        measured = self._arm.newest()
        if measured is None or measured.joints is None:
            raise RobotError(
                "The arm's joints are not known, but commander = joint_trajectory needs them: "
                "check that joint_states is published and names the arm's joints."
            )
        try:
            path = joint_path(
                motion, measured.joints, self._period, self._description.robot, limits.motion
            )
        except ValueError as error:
            raise RobotError(str(error)) from error
        self._publish(path)

    def follow(self, setpoint: Float64Array, velocity: Float64Array) -> None:
        """The controller finds its way along the trajectory."""

    def rest(self) -> None:
        """The trajectory has ended by itself."""

    def halt(self) -> None:
        """Hold the joints where they were measured last, or else on their way soon."""
        measured, now = self._arm.newest(), time.monotonic()
        if measured is not None and measured.joints is not None:
            self._publish(held(measured.joints, now - measured.time))
        elif self._path is not None:
            self._publish(halted(self._path, now - self._begun))

    def _publish(self, path: JointPath) -> None:
        self._path, self._begun = path, time.monotonic()
        points = [
            JointTrajectoryPoint(
                positions=positions.tolist(),
                velocities=velocities.tolist(),
                time_from_start=duration_message(after),
            )
            for after, positions, velocities in zip(
                path.times, path.positions, path.velocities, strict=True
            )
        ]
        names = [f"{self._arm.joint_prefix}{index}" for index in range(1, 8)]
        # A zero stamp means: from now on.
        self._trajectories.publish(JointTrajectory(joint_names=names, points=points))


def _missing(commands: Publisher, controller: str) -> str | None:
    if commands.get_subscription_count():
        return None
    return (
        f"No controller listens to {commands.topic_name}: start and activate the {controller}, or "
        "remap the topic to its own."
    )


COMMANDERS: Mapping[str, Callable[[Node, Wiring, Arm, RobotDescription], Commander]] = {
    "crisp": lambda node, wiring, *_: PoseCommander(node, wiring, "target_pose"),
    "servo": lambda node, wiring, *_: PoseCommander(node, wiring, "servo_node/pose_target_cmds"),
    "servo_twist": lambda node, wiring, *_: TwistCommander(node, wiring),
    "joint_trajectory": TrajectoryCommander,
    "dry_run": lambda node, wiring, *_: DryRunCommander(node, wiring),
}
"""By the parameter ``commander``."""
