"""The limits of Franka's arms, as the manufacturer states them (Franka Control Interface docs).

An arm stops with a reflex when a command breaks one of them, so the planner keeps well inside.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from jepa_planner_ros.robot.chain import FRANKA, Chain
from jepa_planner_ros.robot.motion import MotionLimits


@dataclass(frozen=True)
class RobotLimits:
    """Geometry and limits of one model of arm; SI units throughout."""

    name: str
    joint_prefix: str
    """The arm's joints are called ``<joint_prefix>1`` to ``<joint_prefix>7``."""
    joint_min: tuple[float, ...]
    """Lower joint limits, rad, base to flange."""
    joint_max: tuple[float, ...]
    """Upper joint limits, rad, base to flange."""
    joint_speed: tuple[float, ...]
    """rad/s, base to flange."""
    motion: MotionLimits
    """Of the end effector."""
    chain: Chain = FRANKA
    """Its geometry."""
    finger_travel: float = 0.04
    """How far one finger of the Franka Hand opens from the middle, m."""


PANDA = RobotLimits(
    name="panda",
    joint_prefix="panda_joint",
    joint_min=(-2.8973, -1.7628, -2.8973, -3.0718, -2.8973, -0.0175, -2.8973),
    joint_max=(2.8973, 1.7628, 2.8973, -0.0698, 2.8973, 3.7525, 2.8973),
    joint_speed=(2.175, 2.175, 2.175, 2.175, 2.61, 2.61, 2.61),
    motion=MotionLimits(
        translation_speed=1.7,
        translation_acceleration=13.0,
        translation_jerk=6500.0,
        rotation_speed=2.5,
        rotation_acceleration=25.0,
        rotation_jerk=12500.0,
    ),
)

FR3 = RobotLimits(
    name="fr3",
    joint_prefix="fr3_joint",
    joint_min=(-2.7437, -1.7837, -2.9007, -3.0421, -2.8065, 0.5445, -3.0159),
    joint_max=(2.7437, 1.7837, 2.9007, -0.1518, 2.8065, 4.5169, 3.0159),
    joint_speed=(2.62, 2.62, 2.62, 2.62, 5.26, 4.18, 5.26),
    motion=MotionLimits(
        translation_speed=3.0,
        translation_acceleration=9.0,
        translation_jerk=4500.0,
        rotation_speed=2.5,
        rotation_acceleration=17.0,
        rotation_jerk=8500.0,
    ),
)

LIMITS: Mapping[str, RobotLimits] = {limits.name: limits for limits in (PANDA, FR3)}
