"""What an operator may set about motion, freshness and safety. Checked when it is made."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

Point = tuple[float, float, float]


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
    drift_distance: float = 0.03
    """Distance between the last target and the arm at rest that makes them resynchronise, m."""
    drift_angle: float = 0.2
    """Angle between the last target and the arm at rest that makes them resynchronise, rad."""
    drift_patience: int = 3
    """Steps in a row that may end in drift before the episode is aborted."""

    def __post_init__(self) -> None:
        _require_positive(self, "limits")
        for name, low, high in zip("xyz", self.workspace_min, self.workspace_max, strict=True):
            if not low < high:
                raise ValueError(
                    f"limits.workspace_min {name} = {low} must be below limits.workspace_max "
                    f"{name} = {high}."
                )


@dataclass(frozen=True)
class ControlSettings:
    """Everything that the control loop is told about the arm."""

    motion: MotionSettings = MotionSettings()
    freshness: FreshnessLimits = FreshnessLimits()
    safety: SafetyLimits = SafetyLimits()
