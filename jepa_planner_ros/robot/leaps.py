"""Measurements that no arm can have come to since the last one."""

from __future__ import annotations

import numpy as np

from jepa_planner_ros.robot.limits import RobotLimits
from jepa_planner_ros.robot.motion import Reference, lengths
from jepa_planner_ros.types import Float64Array

# How far away from before an arm may be: times its greatest speed, and rad of a joint or m and rad
# of the end effector, since stamps and measurements are not exact.
_SPEED = 1.5
_JOINT, _DISTANCE, _ANGLE = 0.05, 0.03, 0.1


def joint_leap(
    before: Float64Array, after: Float64Array, seconds: float, robot: RobotLimits
) -> str | None:
    """How joints (7,) in rad are too far from others so long before, or None."""
    moved = np.abs(after - before)
    too_far = moved - (_SPEED * seconds * np.array(robot.joint_speed) + _JOINT)
    worst = int(too_far.argmax())
    if too_far[worst] <= 0.0:
        return None
    when = _ago(seconds)
    return f"joint {worst + 1} is {moved[worst]:.2f} rad from where it was {when}"


def pose_leap(
    before: Float64Array, after: Float64Array, seconds: float, robot: RobotLimits
) -> str | None:
    """How a state (7,) is too far from another so long before, or None."""
    metres, radians = lengths(Reference.from_state(before).distance_to(after))
    if (
        metres <= _SPEED * seconds * robot.motion.translation_speed + _DISTANCE
        and radians <= _SPEED * seconds * robot.motion.rotation_speed + _ANGLE
    ):
        return None
    when = _ago(seconds)
    return f"the arm is {1000 * metres:.0f} mm and {radians:.2f} rad from where it was {when}"


def _ago(seconds: float) -> str:
    return f"{1000 * seconds:.0f} ms ago"
