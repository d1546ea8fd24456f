"""What an operator may set about motion, freshness and safety. Checked when it is made."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np

from jepa_planner_ros.robot.limits import PANDA, RobotLimits
from jepa_planner_ros.robot.motion import MotionLimits

Point = tuple[float, float, float]
Box = tuple[Point, Point]
"""Lowest and highest corner, base frame, m."""


def _require_positive(settings: Any, section: str) -> None:
    for field in fields(settings):
        value = getattr(settings, field.name)
        if isinstance(value, int | float) and not (math.isfinite(value) and value > 0):
            raise ValueError(f"{section}.{field.name} = {value} must be greater than 0.")


@dataclass(frozen=True)
class MotionSettings:
    """When a commanded step counts as executed."""

    duration: float = 1.0
    """Time that the controller takes for one step, s. The arm is not judged still before."""
    still_time: float = 0.2
    """How long the measured pose must stay within the tolerances to count as still, s."""
    still_distance: float = 0.001
    """Largest movement of a still end effector, m."""
    still_angle: float = 0.01
    """Largest rotation of a still end effector, rad."""
    time_limit: float = 5.0
    """The arm must be still this long after a command, s; otherwise the episode is aborted."""
    watchdog: float = 0.5
    """The setpoints brake when the control loop has not been heard of for this long, s."""

    def __post_init__(self) -> None:
        _require_positive(self, "motion")
        if self.time_limit <= self.duration + self.still_time:
            raise ValueError(
                f"motion.time_limit = {self.time_limit} s leaves no time for motion.duration + "
                f"motion.still_time = {self.duration + self.still_time} s; raise it."
            )


@dataclass(frozen=True)
class FreshnessLimits:
    """How old what the arm is steered by may be."""

    camera: float = 1.0
    """Largest age of the newest camera frame, s."""
    joints: float = 1.0
    """Largest age of the newest measured pose, s."""

    def __post_init__(self) -> None:
        _require_positive(self, "max_age")


@dataclass(frozen=True)
class SafetyLimits:
    """What a command to the arm may ask for."""

    step_translation: float = 0.075
    """Largest translation of one step along each axis, m."""
    step_rotation: float = 0.2
    """Largest rotation of one step, rad."""
    workspace_min: Point = (0.2, -0.5, 0.005)
    """Lowest corner of the box that targets are kept in, base frame, m."""
    workspace_max: Point = (0.8, 0.5, 0.9)
    """Highest corner of that box, base frame, m."""
    forbidden_boxes: tuple[Box, ...] = ()
    """Boxes that the end effector keeps out of, with what it passes on its way."""
    clearance: float = 0.01
    """How far from a forbidden box a target is kept, m."""
    translation_speed: float = 0.25
    """m/s; ISO 10218-1 calls it reduced speed."""
    translation_acceleration: float = 1.0
    """m/s^2"""
    translation_jerk: float = 10.0
    """m/s^3"""
    rotation_speed: float = 0.5
    """rad/s"""
    rotation_acceleration: float = 2.0
    """rad/s^2"""
    rotation_jerk: float = 20.0
    """rad/s^3"""
    joint_margin: float = 0.05
    """How far from its limits every joint stays, rad."""
    lag_distance: float = 0.08
    """Distance of the moving arm from its setpoint at which it is no longer pushed on, m."""
    lag_angle: float = 0.5
    """Angle of the moving arm from its setpoint at which it is no longer pushed on, rad."""
    drift_distance: float = 0.03
    """Distance between the last target and the arm at rest that makes them resynchronise, m."""
    drift_angle: float = 0.2
    """Angle between the last target and the arm at rest that makes them resynchronise, rad."""
    drift_patience: int = 3
    """Steps in a row that may end in drift, or leave the arm standing, before an episode ends."""
    robot: RobotLimits = PANDA
    """The arm, whose own limits none of these may exceed."""

    def __post_init__(self) -> None:
        _require_positive(self, "limits")
        most = asdict(self.robot.motion)
        for name, own in asdict(self.motion).items():
            if own > most[name]:
                raise ValueError(
                    f"limits.{name} = {own} exceeds what robot = {self.robot.name} can do, "
                    f"{most[name]}."
                )
        for lowest, highest in self.forbidden_boxes:
            if not np.less(lowest, highest).all():
                raise ValueError(
                    f"limits.forbidden_boxes: the lowest corner {lowest} must be below the highest "
                    f"{highest} on every axis."
                )
        for name, low, high in zip("xyz", self.workspace_min, self.workspace_max, strict=True):
            if not low < high:
                raise ValueError(
                    f"limits.workspace_min {name} = {low} must be below limits.workspace_max "
                    f"{name} = {high}."
                )

    @property
    def motion(self) -> MotionLimits:
        """The part that concerns the motion from target to target."""
        return MotionLimits(
            self.translation_speed,
            self.translation_acceleration,
            self.translation_jerk,
            self.rotation_speed,
            self.rotation_acceleration,
            self.rotation_jerk,
        )


@dataclass(frozen=True)
class LookAheadSettings:
    """When a plan that was made from a prediction is used."""

    look_from: float = 0.85
    """Part of a motion's duration after which frames count as showing the arrival; a smooth motion
    has little way left then, and a frame has time to come and be encoded."""
    use_distance: float = 0.01
    """A plan is used as it is when the arm arrives within this distance of the prediction, m."""
    use_angle: float = 0.05
    """A plan is used as it is when the arm arrives within this angle of the prediction, rad."""
    redo_latent: float = 0.3
    """Mean absolute difference between predicted and seen latents from which a plan is redone."""

    def __post_init__(self) -> None:
        _require_positive(self, "non_blocking")
        if self.look_from > 1.0:
            raise ValueError(f"non_blocking.look_from = {self.look_from} must not be above 1.")


@dataclass(frozen=True)
class QueueSettings:
    """How chunks of actions are asked for, filtered and merged."""

    chunk: int = 2
    """Actions that a plan looks ahead."""
    threshold: float = 0.7
    """A plan is asked for when the queue holds this part of a chunk or less, 0 to 1."""
    merge: str = "replace"
    """Rule for targets of one timestep in the queue and in a new chunk."""
    similar_distance: float = 0.0
    """An observation nearer than this to the one last planned from is not planned from, m; 0 plans
    from all."""
    similar_angle: float = 0.0
    """The same for the angle, rad; both must be nearer."""

    def __post_init__(self) -> None:
        if self.chunk < 1:
            raise ValueError(f"queue.chunk = {self.chunk} must be at least 1.")
        if not 0.0 <= self.threshold <= 1.0:
            raise ValueError(f"queue.threshold = {self.threshold} must lie between 0 and 1.")
        if self.similar_distance < 0.0 or self.similar_angle < 0.0:
            raise ValueError("queue.similar_distance and queue.similar_angle must not be negative.")


@dataclass(frozen=True)
class ControlSettings:
    """Everything that the control loop is told about the arm."""

    motion: MotionSettings = MotionSettings()
    freshness: FreshnessLimits = FreshnessLimits()
    safety: SafetyLimits = SafetyLimits()
    look_ahead: LookAheadSettings = LookAheadSettings()
    queue: QueueSettings = QueueSettings()
