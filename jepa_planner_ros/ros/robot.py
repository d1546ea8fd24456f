"""The robot as the control loop knows it, made of ROS topics."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rclpy.callback_groups import CallbackGroup
from rclpy.node import Node
from sensor_msgs.msg import CompressedImage, Image

from jepa_planner_ros.control import ControlSettings, Frame, GripperMotion, RobotError
from jepa_planner_ros.control.episode import Measurement, Tick
from jepa_planner_ros.control.runner import TICK_PERIOD
from jepa_planner_ros.control.safety import Stream, staleness
from jepa_planner_ros.robot.limits import RobotLimits
from jepa_planner_ros.ros.arm import Arm, CurrentPoseArm, JointStateArm
from jepa_planner_ros.ros.commander import COMMANDERS, Commander
from jepa_planner_ros.ros.description import RobotDescription
from jepa_planner_ros.ros.drive import DirectDrive, Drive, Refusal, SmoothDrive
from jepa_planner_ros.ros.driver import DriverState
from jepa_planner_ros.ros.enable import EnableSwitch
from jepa_planner_ros.ros.gripper import GRIPPERS, NoGripper
from jepa_planner_ros.ros.images import (
    check_compressed_image,
    check_image,
    decode_compressed_image,
    decode_image,
)
from jepa_planner_ros.ros.streams import SensorStream
from jepa_planner_ros.ros.wiring import Wiring
from jepa_planner_ros.types import Float64Array

# Time for the last message to leave before its publisher does, s.
_DELIVERY = 0.1


@dataclass(frozen=True)
class Missing:
    """What is waited for, and a sentence for the operator."""

    what: str
    reason: str


class RosRobot:
    """Camera, measured end effector and drive.

    Args:
        node: has the topics.
        wiring: which they are.
        group: of the sensors.
        motion_group: of what moves the arm and stops it, in which nothing may run long.
    """

    def __init__(
        self, node: Node, wiring: Wiring, group: CallbackGroup, motion_group: CallbackGroup
    ) -> None:
        limits = wiring.freshness
        measure = JointStateArm if wiring.pose_source == "joint_states" else CurrentPoseArm
        self._description = RobotDescription(node, wiring, group)
        self.arm: Arm = measure(node, wiring, self._description, limits.joints, group)
        self._decode: Callable[[Any], NDArray[np.uint8]]
        self.camera: SensorStream[Any]
        if wiring.image_transport == "raw":
            self._decode = decode_image
            self.camera = SensorStream(
                node, Image, "image_raw", limits.camera, 0.0, _checked(check_image), group
            )
        else:
            self._decode = decode_compressed_image
            self.camera = SensorStream(
                node,
                CompressedImage,
                "image_raw/compressed",
                limits.camera,
                0.0,
                _checked(check_compressed_image),
                group,
            )
        self._commander = COMMANDERS[wiring.commander](node, wiring, self.arm, self._description)
        self.switch = EnableSwitch(node, lambda: self._drive.stop(), wiring.enabled, motion_group)
        self._drive = _make_drive(
            node, wiring, self._commander, self.arm, lambda: self.switch.refusal, motion_group
        )
        self._driver = DriverState(node, group)
        self._sensed: Measurement | None = None
        self._begun = time.monotonic()

    @property
    def model(self) -> RobotLimits:
        """Geometry and limits of the arm."""
        return self._description.robot

    def streams(self, now: float) -> tuple[Stream, Stream]:
        """How fresh the camera and the measured pose are, `now` on the steady clock."""
        return self.camera.status(now), self.arm.status(now)

    def complaints(self, now: float) -> dict[str, str]:
        """By topic, why a stream is too old to steer by; empty when all are fresh."""
        waited = now - self._begun
        return {
            stream.topic: reason
            for stream in self.streams(now)
            if (reason := staleness(stream, waited))
        }

    def missing(self) -> Missing | None:
        """What no episode can begin without and time may bring, or None.

        Messages that come and cannot be used are no such thing.
        """
        for stream in self.streams(time.monotonic()):
            if stream.fault is not None:
                continue
            if stream.age is None:
                return Missing(stream.topic, str(_nothing_yet(stream.topic)))
            if reason := staleness(stream, 0.0):
                return Missing(stream.topic, reason)
        reason = self._commander.missing()
        return None if reason is None else Missing("the controller", reason)

    def sense(self, time: float) -> Tick:
        """What is known now; `time` is now on the steady clock."""
        frame = self.camera.newest()
        self._sensed = self.arm.newest()
        return Tick(
            time,
            self._sensed,
            None if frame is None else frame.stamp,
            self.streams(time),
            self.switch.refusal or self._driver.fault or self._drive.fault(),
        )

    def begin(self, settings: ControlSettings) -> None:
        """An episode begins: what stopped the one before does not count any more."""
        self._drive.prepare(settings)

    def frame(self) -> Frame:
        """The newest camera frame and the arm's state when it was taken.

        Raises:
            RobotError: there is none, it is too old, or it cannot be decoded.
        """
        now = time.monotonic()
        if complaints := self.complaints(now):
            raise RobotError(" ".join(complaints.values()))
        sample = self.camera.newest()
        if sample is None:
            raise _nothing_yet(self.camera.topic)
        arm = self.arm.nearest(sample.stamp)
        if arm is None:
            raise _nothing_yet(self.arm.status(now).topic)
        try:
            image = self._decode(sample.value)
        except ValueError as error:
            raise RobotError(f"A frame on {self.camera.topic} cannot be used: {error}") from error
        return Frame(image, arm.state, sample.stamp, now - sample.time)

    def command(self, target: Float64Array, gripper: GripperMotion | None) -> None:
        """Send the arm to a state (7,), and the gripper on its way. Raises `RobotError`.

        It leaves from where it was sensed last: that is what the target was checked for.
        """
        if self._sensed is None:
            raise RobotError("The arm's pose is not known, so it cannot be set in motion.")
        self._drive.command(target, gripper, self._sensed.state)

    def hold(self, target: Float64Array) -> None:
        """Stop the arm in motion, at or near a state (7,). Raises `RobotError`."""
        self._drive.hold(target)

    def finish(self) -> None:
        """An episode is over: what is still on its way stops."""
        self._drive.settle()

    def rest(self, timeout: float) -> None:
        """Stop the arm for good, and wait until its setpoints have come to rest and left.

        For `timeout` s at most.
        """
        self._drive.settle()
        deadline = time.monotonic() + timeout
        while self._drive.moving and time.monotonic() < deadline:
            time.sleep(TICK_PERIOD)
        self._drive.end()
        time.sleep(_DELIVERY)


def _make_drive(
    node: Node,
    wiring: Wiring,
    commander: Commander,
    arm: Arm,
    refusal: Refusal,
    group: CallbackGroup,
) -> Drive:
    if wiring.commander == "dry_run":
        return DirectDrive(commander, NoGripper(node), refusal)
    gripper = GRIPPERS[wiring.gripper](node)
    if wiring.setpoint_rate == 0.0:
        return DirectDrive(commander, gripper, refusal)
    return SmoothDrive(node, commander, gripper, arm, refusal, wiring.setpoint_rate, group)


def _nothing_yet(topic: str) -> RobotError:
    return RobotError(
        f"Nothing has been received on {topic} yet: try again in a moment, or check that its "
        "publisher runs and that the topic is remapped to it."
    )


def _checked(check: Callable[[Any], None]) -> Callable[[Any], Any]:
    """Keeps a message that passes a check; it is decoded only when it is planned from."""

    def read(message: Any) -> Any:
        check(message)
        return message

    return read
