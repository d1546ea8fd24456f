"""A motion of the end effector as a path of the joints."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from jepa_planner_ros.geometry import GRIPPER, action_between
from jepa_planner_ros.robot.kinematics import InverseKinematics, end_effector_state
from jepa_planner_ros.robot.limits import RobotLimits
from jepa_planner_ros.robot.motion import CartesianMotion
from jepa_planner_ros.types import Float64Array

_TOLERANCE = 1e-3  # m and rad


@dataclass(frozen=True, eq=False)
class JointPath:
    """Points of the joints' path, the last one at rest.

    Attributes:
        times: (n,) from the motion's start, each later than the one before, s.
        positions: (n, 7), rad.
        velocities: (n, 7), rad/s.
    """

    times: Float64Array
    positions: Float64Array
    velocities: Float64Array


def joint_path(
    motion: CartesianMotion, joints: Float64Array, period: float, limits: RobotLimits
) -> JointPath:
    """The joints along a motion, about every `period` seconds and at its end.

    Velocities are central differences of the positions, and zero at the end.

    Args:
        motion: of the end effector.
        joints: (7,) where it starts, rad.
        period: s.
        limits: of the arm.

    Raises:
        ValueError: the joints cannot follow within their limits of position and speed.
    """
    inverse_kinematics = InverseKinematics(limits)
    duration = motion.ends - motion.started
    count = max(2, math.ceil(duration / period))
    times = np.linspace(0.0, duration, count + 1)
    positions = [joints]
    for time in times:
        state = motion.at(motion.started + time)
        joints = inverse_kinematics.solve(state, joints)
        missed = action_between(state, end_effector_state(joints, state[GRIPPER], limits.chain))
        if np.abs(missed).max() > _TOLERANCE:
            raise ValueError(
                f"No joint positions within the limits of robot = {limits.name} bring the end "
                f"effector to {np.round(state[:GRIPPER], 3).tolist()} (m, rad)."
            )
        positions.append(joints)
    path = np.stack(positions[1:])
    velocities = np.gradient(path, times, axis=0)
    velocities[-1] = 0.0
    fastest = np.abs(velocities) / np.array(limits.joint_speed)
    if fastest.max() > 1.0:
        joint = int(fastest.max(axis=0).argmax()) + 1
        raise ValueError(
            f"Joint {joint} would have to turn {fastest.max():.1f} times faster than robot = "
            f"{limits.name} can: lower limits.translation_speed and limits.rotation_speed."
        )
    return JointPath(times[1:], path[1:], velocities[1:])
