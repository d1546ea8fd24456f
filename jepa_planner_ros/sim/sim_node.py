"""The simulated Franka as a ROS 2 node, with the topics of a real robot under CRISP controllers.

Published: ``image_raw``, ``image_raw/compressed``, ``camera_info``, ``joint_states`` and
``current_pose``. Obeyed: ``target_pose`` and ``gripper/gripper_position_controller/commands``;
``servo_node/pose_target_cmds`` and ``servo_node/delta_twist_cmds`` as by MoveIt Servo, which stops
when commands are old or stay away; and ``joint_trajectory_controller/joint_trajectory``. Offered:
``~/reset``, which puts the arm at a seeded start and photographs a seeded goal.

Poses are of the upright fingertip frame (see `jepa_planner_ros.robot.kinematics`) in the base
frame. Like CRISP's Cartesian controller the node ignores stamp and frame of a target, holds the
last one for ever, and obeys nobody while two publishers share the topic.

Everything runs in one thread, since an OpenGL context belongs to one; rendering takes some tens of
milliseconds, the longest that a service waits.

In lockstep the robot does not move in real time. A command is carried out completely, until all is
at rest, before anything else is published, so that the same commands give the same images, bit by
bit, however busy the computer is. A pose and a gripper command of the same moment count as one.
"""

from __future__ import annotations

import math
import sys
import time
from contextlib import suppress
from dataclasses import fields
from typing import Any

import numpy as np
import rclpy
from geometry_msgs.msg import PoseStamped, TwistStamped
from jepa_planner_msgs.srv import ResetSimulation
from numpy.typing import NDArray
from rclpy.clock import Clock
from rclpy.clock_type import ClockType
from rclpy.node import Node
from rclpy.qos import QoSProfile, ReliabilityPolicy
from rclpy.qos_overriding_options import QoSOverridingOptions
from rclpy.time import Time
from sensor_msgs.msg import CameraInfo, CompressedImage, Image, JointState
from std_msgs.msg import Float64MultiArray, Header
from trajectory_msgs.msg import JointTrajectory

from jepa_planner_ros.geometry import GRIPPER
from jepa_planner_ros.robot.motion import Reference
from jepa_planner_ros.ros.declaration import unknown_parameters
from jepa_planner_ros.ros.interrupt import heed_first_interrupt
from jepa_planner_ros.ros.poses import state_message
from jepa_planner_ros.ros.startup import given_parameters, ros_started
from jepa_planner_ros.sim import messages
from jepa_planner_ros.sim.episodes import sample_reach_task
from jepa_planner_ros.sim.franka import CONTROL_PERIOD, FrankaSim
from jepa_planner_ros.sim.parameters import SimNodeParameters, declare_parameters

NAME = "franka_sim"
GRIPPER_TOPIC = "gripper/gripper_position_controller/commands"
SERVO_TOPIC = "servo_node/pose_target_cmds"
TWIST_TOPIC = "servo_node/delta_twist_cmds"
TRAJECTORY_TOPIC = "joint_trajectory_controller/joint_trajectory"

# A pose and a gripper command that belong together arrive within this time, s.
_COMMAND_GATHERING = 0.03
# After a longer pause (s) simulated time falls behind instead of catching up.
_LONGEST_CATCH_UP = 0.2
_WARNING_PERIOD = 5.0
# Servo's default incoming_command_timeout, s.
_SERVO_TIMEOUT = 0.1


class SimNode(Node):
    """Publishes what the simulated robot senses and moves it as commanded.

    The options are those of rclpy's class.

    Raises:
        ParameterError: a given value is of the wrong type or out of range.
        ValueError: values that do not go together.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(NAME, **options)
        self._settings = declare_parameters(self)
        for sentence in unknown_parameters(self, [one.name for one in fields(SimNodeParameters)]):
            self.get_logger().warning(sentence)
        self._sim = FrankaSim(self._settings.settings(), self._settings.seed)
        self._picture: NDArray[np.uint8] | None = None
        self._command: NDArray[np.float64] | None = None
        self._commanded_at = 0.0
        self._simulated_until = time.monotonic()

        qos = QoSProfile(depth=1, reliability=ReliabilityPolicy.RELIABLE)
        overridable = QoSOverridingOptions.with_default_policies()
        self._image, self._compressed, self._camera_info, self._joints, self._pose = (
            self.create_publisher(kind, topic, qos, qos_overriding_options=overridable)
            for kind, topic in (
                (Image, "image_raw"),
                (CompressedImage, "image_raw/compressed"),
                (CameraInfo, "camera_info"),
                (JointState, "joint_states"),
                (PoseStamped, "current_pose"),
            )
        )
        self._target_pose = self.create_subscription(
            PoseStamped, "target_pose", self._receive_pose, qos, qos_overriding_options=overridable
        )
        self._servo_heard = math.inf
        self.create_subscription(PoseStamped, SERVO_TOPIC, self._receive_servo, qos)
        self._twist: NDArray[np.float64] | None = None
        self._twisted_until = 0.0
        self.create_subscription(TwistStamped, TWIST_TOPIC, self._receive_twist, qos)
        self.create_subscription(JointTrajectory, TRAJECTORY_TOPIC, self._receive_trajectory, qos)
        self.create_subscription(Float64MultiArray, GRIPPER_TOPIC, self._receive_gripper, qos)
        self.create_service(ResetSimulation, "~/reset", self._reset)

        # The node's own clock may be simulated and stop or jump; the robot goes on.
        steady = Clock(clock_type=ClockType.STEADY_TIME)
        for period, callback in (
            (CONTROL_PERIOD, self._simulate),
            (1.0 / self._settings.image_rate, self._publish_image),
            (1.0 / self._settings.joint_rate, self._publish_joints),
            (1.0 / self._settings.pose_rate, self._publish_pose),
        ):
            self.create_timer(period, callback, clock=steady)
        self.get_logger().info(
            f"The simulated Franka is ready, with seed {self._settings.seed}; "
            f"{self.resolve_service_name('~/reset')} puts it elsewhere, and photographs a goal."
        )

    def close(self) -> None:
        """Free the simulation's graphics context and the node."""
        self._sim.close()
        self.destroy_node()

    def _receive_pose(self, message: PoseStamped) -> None:
        topic = self._target_pose.topic_name
        publishers = self.count_publishers(topic)
        if publishers > 1:
            self.get_logger().warning(
                f"{publishers} nodes publish on {topic}: none is obeyed until all but one stop.",
                throttle_duration_sec=_WARNING_PERIOD,
            )
            return
        self._order_pose(message, topic)

    def _receive_servo(self, message: PoseStamped) -> None:
        if self._is_fresh(message.header):
            self._servo_heard = time.monotonic()
            self._order_pose(message, SERVO_TOPIC)

    def _receive_twist(self, message: TwistStamped) -> None:
        if not self._is_fresh(message.header):
            return
        linear, angular = message.twist.linear, message.twist.angular
        twist = np.array([linear.x, linear.y, linear.z, angular.x, angular.y, angular.z])
        if not np.isfinite(twist).all():
            self._ignore(f"A twist on {TWIST_TOPIC}", ValueError("an entry is not finite"))
            return
        self._servo_heard = now = time.monotonic()
        if self._twist is None:
            self._twisted_until = now
        self._twist = twist

    def _is_fresh(self, header: Header) -> bool:
        age = self.get_clock().now() - Time.from_msg(header.stamp)
        return bool(age.nanoseconds < 1e9 * _SERVO_TIMEOUT)

    def _order_pose(self, message: PoseStamped, topic: str) -> None:
        try:
            pose = messages.position_and_rotation(message.pose)
        except ValueError as error:
            self._ignore(f"A pose on {topic}", error)
            return
        self._order(np.append(pose, self._wanted[GRIPPER]))

    def _receive_trajectory(self, message: JointTrajectory) -> None:
        try:
            self._sim.follow_joints(*messages.joint_path(message))
        except ValueError as error:
            self._ignore(f"A trajectory on {TRAJECTORY_TOPIC}", error)

    def _ignore(self, what: str, error: ValueError) -> None:
        self.get_logger().warning(
            f"{what} is ignored: {error}. The arm holds its last target.",
            throttle_duration_sec=_WARNING_PERIOD,
        )

    def _receive_gripper(self, message: Float64MultiArray) -> None:
        if len(message.data) != 1 or not 0.0 <= message.data[0] <= 1.0:
            self.get_logger().warning(
                f"A command on {GRIPPER_TOPIC} is ignored: expected is one number from 0 (closed) "
                f"to 1 (open), not {list(message.data)}.",
                throttle_duration_sec=_WARNING_PERIOD,
            )
            return
        self._order(np.append(self._wanted[:GRIPPER], 1.0 - message.data[0]))

    @property
    def _wanted(self) -> NDArray[np.float64]:
        """The newest state (7,) that was commanded, whether carried out or not."""
        return self._sim.target if self._command is None else self._command

    def _order(self, state: NDArray[np.float64]) -> None:
        """Have a state (7,) carried out; repeating the last one changes nothing."""
        if not np.array_equal(state, self._wanted):
            self._command = state
            self._commanded_at = time.monotonic()

    def _simulate(self) -> None:
        now = time.monotonic()
        if now - self._servo_heard > _SERVO_TIMEOUT:
            self._servo_heard = math.inf
            self._twist = None
            self._order(self._sim.state)
        if self._twist is not None:
            passed, self._twisted_until = now - self._twisted_until, now
            way = np.append(self._twist * passed * self._settings.real_time_factor, 0.0)
            self._order(Reference.from_state(self._wanted).moved(way).as_state())
        if self._command is not None:
            if self._settings.lockstep and now - self._commanded_at < _COMMAND_GATHERING:
                return
            self._sim.set_target(self._command)
            self._command = None
        if self._sim.moving:
            self._picture = None
            if self._settings.lockstep:
                self._sim.settle()
            else:
                self._catch_up(now)
        else:
            self._simulated_until = now

    def _catch_up(self, now: float) -> None:
        """Simulate the whole control periods that have passed in real time."""
        self._simulated_until = max(self._simulated_until, now - _LONGEST_CATCH_UP)
        factor = self._settings.real_time_factor
        periods = math.floor((now - self._simulated_until) * factor / CONTROL_PERIOD)
        self._sim.advance(periods * CONTROL_PERIOD)
        self._simulated_until += periods * CONTROL_PERIOD / factor

    @property
    def _between_states(self) -> bool:
        """Whether what could be published now will not last, which lockstep must not show."""
        return self._settings.lockstep and self._command is not None

    def _publish_image(self) -> None:
        if self._between_states:
            return
        settings = self._settings
        width, height = settings.image_width, settings.image_height
        header = self._header(settings.camera_frame)
        if self._picture is None:
            self._picture = self._sim.render(width=width, height=height)
        self._image.publish(messages.image_message(self._picture, settings.image_encoding, header))
        if self._compressed.get_subscription_count():
            self._compressed.publish(messages.compressed_message(self._picture, header))
        focal_length = self._sim.focal_length(height)
        self._camera_info.publish(messages.camera_info_message(focal_length, width, height, header))

    def _publish_joints(self) -> None:
        if not self._between_states:
            header = self._header("")
            self._joints.publish(messages.joint_state_message(self._sim.joints, header))

    def _publish_pose(self) -> None:
        if not self._between_states:
            header = self._header(self._settings.base_frame)
            self._pose.publish(messages.pose_message(self._sim.state, header))

    def _reset(
        self, request: ResetSimulation.Request, response: ResetSimulation.Response
    ) -> ResetSimulation.Response:
        settings = self._settings
        try:
            task = sample_reach_task(
                self._sim,
                request.seed,
                (settings.goal_distance_min, settings.goal_distance_max),
                settings.image_width,
                settings.image_height,
            )
        except (ValueError, RuntimeError) as error:
            response.success, response.message = False, str(error)
            return response
        finally:
            self._command = None
            self._picture = None
        header = self._header(settings.camera_frame)
        response.goal_image = messages.image_message(
            task.goal_image, settings.image_encoding, header
        )
        response.start_state = state_message(task.start_state)
        response.goal_state = state_message(task.goal_state)
        response.success = True
        response.message = (
            f"The arm is at the start of seed {request.seed}, "
            f"{100.0 * task.distance:.1f} cm from the goal."
        )
        self.get_logger().info(response.message)
        return response

    def _header(self, frame: str) -> Header:
        return messages.stamped(self.get_clock().now().to_msg(), frame)


def main(arguments: list[str] | None = None) -> None:
    """Run the node until it is interrupted. Exits with another code than 0 if it cannot start."""
    heed_first_interrupt()
    with suppress(KeyboardInterrupt), ros_started("sim_node", arguments) as checked:
        _run(checked)


def _run(arguments: list[str]) -> None:
    try:
        node = SimNode(parameter_overrides=given_parameters(NAME, arguments))
    except (ValueError, RuntimeError, FileNotFoundError) as error:
        sys.exit(f"sim_node: {error}")
    # Python's signal handlers come between two bytecodes, and timers wake the executor soon enough.
    try:
        rclpy.spin(node)
    finally:
        node.close()


if __name__ == "__main__":
    main()
