"""The parameters of the simulation's node: one field each, with description, unit and range."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from rcl_interfaces.msg import FloatingPointRange, IntegerRange, ParameterDescriptor
from rclpy.node import Node

from jepa_planner_ros.ros.declaration import declare
from jepa_planner_ros.sim import messages, scene
from jepa_planner_ros.sim.franka import SimSettings


def _number(default: float, description: str, low: float, high: float) -> Any:
    limits = [FloatingPointRange(from_value=low, to_value=high)]
    descriptor = ParameterDescriptor(description=description, floating_point_range=limits)
    return field(default=default, metadata={"descriptor": descriptor})


def _count(default: int, description: str, low: int, high: int) -> Any:
    limits = [IntegerRange(from_value=low, to_value=high)]
    descriptor = ParameterDescriptor(description=description, integer_range=limits)
    return field(default=default, metadata={"descriptor": descriptor})


def _choice(default: bool | str, description: str) -> Any:
    return field(
        default=default, metadata={"descriptor": ParameterDescriptor(description=description)}
    )


@dataclass(frozen=True)
class SimNodeParameters:
    """What can be set when the node starts; none of it changes while it runs."""

    seed: int = _count(0, "Seed of the first start pose and scene.", 0, 2**62)
    lockstep: bool = _choice(
        False,
        "Carry out each command at once and completely, as fast as the computer can, instead of in "
        "real time. Whatever is published is then at rest and the same from run to run.",
    )
    real_time_factor: float = _number(
        1.0, "Simulated seconds per second; without effect in lockstep.", 0.1, 10.0
    )
    motion_duration: float = _number(
        0.25, "Time from one target to the next, s; more where a limit asks.", 0.05, 10.0
    )
    execution_noise: float = _number(
        0.0, "Standard deviation of the error of each new target along each axis, m.", 0.0, 0.05
    )
    translation_speed: float = _number(0.8, "Limit of the fingertips' speed, m/s.", 0.01, 1.7)
    translation_acceleration: float = _number(
        8.0, "Limit of the fingertips' acceleration, m/s^2.", 0.1, 13.0
    )
    rotation_speed: float = _number(2.0, "Limit of the hand's rotation, rad/s.", 0.01, 2.5)
    rotation_acceleration: float = _number(
        20.0, "Limit of the hand's angular acceleration, rad/s^2.", 0.1, 25.0
    )
    camera_jitter: float = _number(
        0.0, "Standard deviation of the camera's position at a reset, m.", 0.0, 0.1
    )
    light_jitter: float = _number(
        0.0, "Largest relative change of the lamp's brightness at a reset.", 0.0, 0.8
    )
    goal_distance_min: float = _number(0.15, "Least distance from start to goal, m.", 0.0, 0.5)
    goal_distance_max: float = _number(0.25, "Greatest distance from start to goal, m.", 0.01, 0.6)
    base_frame: str = _choice("panda_link0", "Name of the robot's base frame.")
    camera_frame: str = _choice("camera", "Name of the camera's optical frame.")
    image_width: int = _count(
        256, "Width of the camera's image, pixels.", 16, scene.LARGEST_PICTURE
    )
    image_height: int = _count(
        256, "Height of the camera's image, pixels.", 16, scene.LARGEST_PICTURE
    )
    image_encoding: str = _choice(
        "rgb8", f"Encoding of image_raw: {', '.join(messages.ENCODINGS)}."
    )
    image_rate: float = _number(10.0, "Images per second.", 0.1, 60.0)
    joint_rate: float = _number(30.0, "Joint states per second.", 0.1, 200.0)
    pose_rate: float = _number(50.0, "End-effector poses per second.", 0.1, 200.0)

    def __post_init__(self) -> None:
        if self.image_encoding not in messages.ENCODINGS:
            raise ValueError(
                f"The parameter image_encoding is '{self.image_encoding}'; the simulated camera "
                f"knows {', '.join(messages.ENCODINGS)}."
            )
        if not self.goal_distance_min < self.goal_distance_max:
            raise ValueError(
                f"The parameter goal_distance_min ({self.goal_distance_min} m) must be below "
                f"goal_distance_max ({self.goal_distance_max} m)."
            )

    def settings(self) -> SimSettings:
        """The part that concerns physics and randomisation."""
        return SimSettings(
            motion_duration_s=self.motion_duration,
            execution_noise_m=self.execution_noise,
            translation_speed=self.translation_speed,
            translation_acceleration=self.translation_acceleration,
            rotation_speed=self.rotation_speed,
            rotation_acceleration=self.rotation_acceleration,
            camera_jitter_m=self.camera_jitter,
            light_jitter=self.light_jitter,
        )


def declare_parameters(node: Node) -> SimNodeParameters:
    """Declare the parameters on a node and read them.

    Raises:
        ParameterError: a given value is of the wrong type or out of range.
        ValueError: values that do not go together.
    """
    values = {}
    for parameter in fields(SimNodeParameters):
        descriptor: ParameterDescriptor = parameter.metadata["descriptor"]
        descriptor.read_only = True
        values[parameter.name] = declare(node, parameter.name, parameter.default, descriptor)
    return SimNodeParameters(**values)
