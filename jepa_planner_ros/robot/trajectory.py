"""A motion of the end effector as a path of the joints, from where they are measured."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from jepa_planner_ros.geometry import GRIPPER, action_between
from jepa_planner_ros.robot.kinematics import HOME_JOINTS, InverseKinematics, end_effector_state
from jepa_planner_ros.robot.limits import RobotLimits
from jepa_planner_ros.robot.motion import CartesianMotion, MotionLimits, Reference, lengths
from jepa_planner_ros.types import Float64Array

_TOLERANCE = 1e-3  # m and rad
# So near, in m and rad, the arm is where a motion ends: as far as it goes between measurements.
_NEAR = 0.01
# Time for an arm in motion to come to rest where it was measured, s.
_HALT = 0.2
# Peak of the speed of a cubic from rest to rest over its mean. With a mean so much below a limit,
# one that begins in motion towards its end keeps the limit, too.
_CUBIC_PEAK = 1.5
# Part of the joints' greatest speed at which they may return to their posture at home.
_RETURN = 0.1
_STAY = np.zeros(7)
# Of that, what an iteration goes: some few lead there.
_REST_GAIN = 0.5


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

    def at(self, time: float) -> Float64Array:
        """The joints (7,) at a moment, rad: between the points on straight lines."""
        return np.array([np.interp(time, self.times, joint) for joint in self.positions.T])

    def then(self, following: JointPath) -> JointPath:
        """This path, and after its end another."""
        return JointPath(
            np.concatenate((self.times, self.times[-1] + following.times)),
            np.concatenate((self.positions, following.positions)),
            np.concatenate((self.velocities, following.velocities)),
        )


def held(joints: Float64Array, age: float) -> JointPath:
    """The path of joints in motion that are to rest where they were (7,), rad, `age` s ago.

    They come back no faster than they may have gone on since.
    """
    return _arriving(joints, _HALT + _CUBIC_PEAK * max(0.0, age))


def halted(path: JointPath, time: float) -> JointPath:
    """The path of joints that are to leave another at a moment `time` and rest on it soon, s.

    It is for joints that are not measured. A controller's cubic slows them down evenly, since the
    way to their rest takes half as long at their speed.
    """
    return _arriving(path.at(time + 0.5 * _HALT), max(_HALT, float(path.times[0]) - time))


def joint_path(
    motion: CartesianMotion,
    joints: Float64Array,
    period: float,
    robot: RobotLimits,
    limits: MotionLimits,
) -> JointPath:
    """The joints along a motion, from where they are measured.

    A motion from rest leads straight from there to its end, in points about every `period` seconds.
    One that begins in motion is braked first, in a single point at rest: how the joints get there
    is left to the controller, which knows how fast they are. Where it leads back to the arm, as
    when the arm does not follow, they stay. All this takes as much longer than the motion as the
    limits ask.

    Args:
        motion: of the end effector.
        joints: measured (7,), rad.
        period: s.
        robot: the arm.
        limits: of the motion.

    Raises:
        ValueError: the joints cannot follow within their limits of position and speed.
    """
    here = end_effector_state(joints, 0.0, robot.chain)
    started, ends = motion.started, motion.ends
    if ends <= started:
        return _arriving(joints, _HALT)
    end = motion.at(ends)
    if not motion.velocity(started).any():
        resting = CartesianMotion.at_rest(here, started)
        straight = resting.towards(end, started, ends - started, limits)
        return _sampled(straight, joints, period, robot)
    stop = replace(motion, following=None)
    returns = max(lengths(Reference.from_state(here).distance_to(end))) < _NEAR
    rest = _solved(end if returns else stop.at(stop.ends), joints, robot)
    least = _least_time(joints, rest, robot, limits)
    braking = _arriving(rest, max(stop.pace.duration, least))
    if returns or motion.following is None:
        return braking
    return braking.then(_sampled(motion.following, rest, period, robot))


def _arriving(joints: Float64Array, time: float) -> JointPath:
    """At rest at joints (7,) after a time, however they get there."""
    return JointPath(np.array([time]), joints[None], np.zeros((1, len(joints))))


def _sampled(
    motion: CartesianMotion, joints: Float64Array, period: float, robot: RobotLimits
) -> JointPath:
    """The path along a motion that begins at joints (7,) at rest.

    Velocities are central differences of the positions, and zero at the end. The elbow comes back
    from where it is turned, but slowly, and with the motion.
    """
    duration = motion.ends - motion.started
    times = np.linspace(0.0, duration, max(2, math.ceil(duration / period)) + 1)
    done = times / duration
    drawn = _RETURN * times[1] * np.outer((4.0 * done * (1.0 - done)) ** 2, robot.joint_speed)
    positions = [joints]
    for time, most in zip(times[1:], drawn[1:], strict=True):
        joints = _solved(motion.at(motion.started + time), joints, robot, most)
        positions.append(joints)
    path = np.stack(positions)
    velocities = np.gradient(path, times, axis=0)
    velocities[-1] = 0.0
    legs = np.diff(path, axis=0) / np.diff(times)[:, None]
    parts = np.abs(np.concatenate((velocities, legs))).max(axis=0) / np.array(robot.joint_speed)
    if not parts.max() <= 1.0:
        raise ValueError(
            f"Joint {int(parts.argmax()) + 1} would have to turn {parts.max():.1f} times faster "
            f"than robot = {robot.name} can: lower limits.translation_speed and "
            "limits.rotation_speed."
        )
    return JointPath(times[1:], path[1:], velocities[1:])


def _solved(
    state: Float64Array, joints: Float64Array, robot: RobotLimits, drawn: Float64Array = _STAY
) -> Float64Array:
    """Joints (7,) near others that bring the end effector to a state (7,).

    Where that leaves a choice they are drawn to the posture at home, by so much (7,) at most, rad.
    """
    rest = joints + np.clip(HOME_JOINTS - joints, -drawn, drawn)
    solution = InverseKinematics(robot, rest, rest_gain=_REST_GAIN).solve(state, joints)
    missed = action_between(state, end_effector_state(solution, state[GRIPPER], robot.chain))
    if not np.abs(missed).max() <= _TOLERANCE:
        raise ValueError(
            f"No joint positions within the limits of robot = {robot.name} bring the end "
            f"effector to {np.round(state[:GRIPPER], 3).tolist()} (m, rad)."
        )
    return solution


def _least_time(
    start: Float64Array, end: Float64Array, robot: RobotLimits, limits: MotionLimits
) -> float:
    """Seconds that a controller's cubic needs from joints to others, at rest, within the limits."""
    here, there = end_effector_state(np.stack((start, end)), 0.0, robot.chain)
    metres, radians = lengths(Reference.from_state(here).distance_to(there))
    turning = float((np.abs(end - start) / np.array(robot.joint_speed)).max())
    mean = max(metres / limits.translation_speed, radians / limits.rotation_speed, turning)
    return _CUBIC_PEAK * mean
