"""Checks between a plan and the arm. Each is a pure function of one limit.

A check either bounds a value and says so in a note, or refuses it with `UnsafeCommandError`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from jepa_planner_ros.control.settings import MotionSettings, SafetyLimits
from jepa_planner_ros.geometry import (
    GRIPPER,
    POSITION,
    ROTATION,
    action_between,
    apply_action,
)
from jepa_planner_ros.robot.kinematics import HOME_JOINTS, InverseKinematics, end_effector_state
from jepa_planner_ros.robot.limits import RobotLimits
from jepa_planner_ros.robot.motion import between, travel_time
from jepa_planner_ros.types import Float64Array

POSE_AGE = 0.2
"""A pose older than this, s, says nothing about where a moving arm is."""

_ROUNDING = 1e-9
# Error of the inverse kinematics (m and rad) above which a state counts as out of reach.
_REACH_TOLERANCE = 1e-3
_REACH_BISECTIONS = 6
# A motion of this length, m, changes some pixel of any camera that sees the arm.
_VISIBLE_MOTION = 0.02


class UnsafeCommandError(ValueError):
    """A command must not be given; the message says why."""


@dataclass(frozen=True)
class Stream:
    """What is known about one stream of sensor messages.

    Attributes:
        topic: resolved name of the topic.
        age: time since the newest usable message was taken, s; None when there was none yet.
        max_age: the limit on that, s.
        fault: why the last message could not be used, if it could not.
    """

    topic: str
    age: float | None
    max_age: float
    fault: str | None = None


def staleness(stream: Stream, waited: float) -> str | None:
    """Why a stream is too old to steer by, or None.

    Args:
        stream: the stream.
        waited: time since its messages were first needed, s. A stream that has not begun is given
            as long as one that has paused.
    """
    age = waited if stream.age is None else stream.age
    if age <= stream.max_age:
        return None
    if stream.fault is not None:
        return f"Messages on {stream.topic} cannot be used: {stream.fault}"
    if stream.age is None:
        return (
            f"Nothing has been received on {stream.topic} in {age:.1f} s: check that its publisher "
            "runs and that the topic is remapped to it."
        )
    return (
        f"The newest message on {stream.topic} is {age:.1f} s old and the limit is "
        f"{stream.max_age:g} s: check that its publisher still runs."
    )


def require_finite(name: str, values: NDArray[np.floating]) -> None:
    """Refuse values that are not all finite."""
    if not np.isfinite(values).all():
        raise UnsafeCommandError(f"{name} holds a value that is not finite (NaN or infinity).")


def require_model(planned_with: str, encoded_with: str) -> None:
    """Refuse a plan made by another model than the one that encoded the frames."""
    if planned_with != encoded_with:
        raise UnsafeCommandError(
            f"The plan was made with model {planned_with} but frames are encoded with model "
            f"{encoded_with}: give the planner and the node the same world_model.checkpoint."
        )


def require_live(before: Float64Array, now: Float64Array) -> None:
    """Refuse a picture that is the same to the bit though the arm has moved since it was new.

    Args:
        before: the state (7,) at which it was seen first.
        now: the present one.
    """
    metres, _ = distance(before, now)
    if metres > _VISIBLE_MOTION:
        raise UnsafeCommandError(
            f"The camera shows the very same picture though the arm has moved {1000 * metres:.0f} "
            "mm: its stream is frozen. Restart its driver."
        )


def bounded_translation(action: Float64Array, limit: float) -> tuple[Float64Array, str | None]:
    """An action (7,) with each axis of its translation within `limit` metres, and a note."""
    asked = action[POSITION]
    bounded = action.copy()
    bounded[POSITION] = asked.clip(-limit, limit)
    if np.abs(bounded - action).max() <= _ROUNDING:
        return action, None
    return bounded, (
        f"a step of ({_millimetres(asked)}) mm was cut to limits.step_translation = {limit:g} m"
    )


def bounded_rotation(action: Float64Array, limit: float) -> tuple[Float64Array, str | None]:
    """An action (7,) that turns by at most `limit` rad about the same axis, and a note."""
    turn = Rotation.from_euler("xyz", action[ROTATION])
    angle = turn.magnitude()
    if angle <= limit:
        return action, None
    bounded = action.copy()
    bounded[ROTATION] = (turn ** (limit / angle)).as_euler("xyz")
    return bounded, (
        f"a rotation of {angle:.3f} rad was cut to limits.step_rotation = {limit:g} rad"
    )


def inside_workspace(state: Float64Array, limits: SafetyLimits) -> tuple[Float64Array, str | None]:
    """A state (7,) with its position moved to the nearest point of the workspace, and a note."""
    inside = state.copy()
    inside[POSITION] = state[POSITION].clip(limits.workspace_min, limits.workspace_max)
    if (inside == state).all():
        return state, None
    return inside, (
        f"a target at ({_millimetres(state[POSITION])}) mm was moved into the workspace, to "
        f"({_millimetres(inside[POSITION])}) mm"
    )


def entering_share(
    start: Float64Array, end: Float64Array, low: Float64Array, high: Float64Array
) -> float | None:
    """How much of the straight way from `start` (3,) to `end` (3,) leads up to a box, 0 to 1.

    None where the way does not touch the box, from corner `low` (3,) to corner `high` (3,).
    """
    way = end - start
    enter, leave = 0.0, 1.0
    for position, length, lowest, highest in zip(start, way, low, high, strict=True):
        if abs(length) < _ROUNDING:
            if not lowest < position < highest:
                return None
            continue
        first, second = sorted(((lowest - position) / length, (highest - position) / length))
        enter, leave = max(enter, first), min(leave, second)
    return enter if enter < leave else None


def enters_box(start: Float64Array, end: Float64Array, limits: SafetyLimits) -> bool:
    """Whether the straight way from a state (7,) to another touches a forbidden box."""
    return any(
        entering_share(start[POSITION], end[POSITION], *np.array(box)) is not None
        for box in limits.forbidden_boxes
    )


def outside_boxes(
    base: Float64Array, target: Float64Array, limits: SafetyLimits
) -> tuple[Float64Array, str | None]:
    """A target (7,) drawn back on the straight way to it until it keeps clear of forbidden boxes.

    A way that starts within the clearance of a box comes no nearer to it.

    Raises:
        UnsafeCommandError: the way starts inside a box.
    """
    note, start = None, base[POSITION]
    for number, box in enumerate(limits.forbidden_boxes, start=1):
        low, high = np.array(box)
        room = float(np.maximum(low - start, start - high).max())
        if room < 0.0:
            raise UnsafeCommandError(
                f"The arm is at ({_millimetres(start)}) mm, inside box {number} of "
                "limits.forbidden_boxes: move it out."
            )
        # A start at just that distance is outside, whatever the rounding.
        margin = min(limits.clearance, room) - _ROUNDING
        share = entering_share(start, target[POSITION], low - margin, high + margin)
        if share is None:
            continue
        bounded = target.copy()
        bounded[POSITION] = start + share * (target[POSITION] - start)
        note = (
            f"a target at ({_millimetres(target[POSITION])}) mm was drawn back to "
            f"({_millimetres(bounded[POSITION])}) mm, before box {number} of limits.forbidden_boxes"
        )
        target = bounded
    return target, note


def within_reach(
    base: Float64Array,
    target: Float64Array,
    limits: SafetyLimits,
    joints: Float64Array | None = None,
) -> tuple[Float64Array, str | None]:
    """A target (7,) drawn back towards `base` until the joints reach it within their limits.

    The gripper is told what was planned: it closes however far the arm comes.

    Args:
        base: where the step starts.
        target: where it leads.
        limits: joints stay `joint_margin` inside the limits of `robot`.
        joints: measured (7,), rad; the solution is looked for near them.

    Raises:
        UnsafeCommandError: not even the start is within reach.
    """
    start = HOME_JOINTS if joints is None else joints
    inverse_kinematics = InverseKinematics(_with_margin(limits))

    def reached(share: float) -> bool:
        state = between(base, target, share)
        solution = inverse_kinematics.solve(state, start)
        reached_state = end_effector_state(solution, state[GRIPPER], limits.robot.chain)
        missed = action_between(state, reached_state)
        return bool(np.abs(missed).max() < _REACH_TOLERANCE)

    if reached(1.0):
        return target, None
    low, high = 0.0, 1.0
    for _ in range(_REACH_BISECTIONS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if reached(middle) else (low, middle)
    if low == 0.0 and not reached(0.0):
        raise UnsafeCommandError(
            f"No joint positions within the limits of robot = {limits.robot.name}, less "
            f"limits.joint_margin = {limits.joint_margin:g} rad, bring the end effector to "
            f"({_millimetres(base[POSITION])}) mm, where the step begins: move the arm away from "
            "its joint limits."
        )
    return at_pose(between(base, target, low), gripper=target[GRIPPER]), (
        f"a target at ({_millimetres(target[POSITION])}) mm was drawn back to {100 * low:.0f} % "
        f"of the way, as far as the joints of robot = {limits.robot.name} reach"
    )


def _with_margin(limits: SafetyLimits) -> RobotLimits:
    robot, margin = limits.robot, limits.joint_margin
    return replace(
        robot,
        joint_min=tuple(low + margin for low in robot.joint_min),
        joint_max=tuple(high - margin for high in robot.joint_max),
    )


def require_step(base: Float64Array, target: Float64Array, limits: SafetyLimits) -> None:
    """Refuse a target farther than a step, into which an arm outside the workspace would leap."""
    if np.abs(target[POSITION] - base[POSITION]).max() > limits.step_translation + _ROUNDING:
        raise UnsafeCommandError(
            f"The arm is at ({_millimetres(base[POSITION])}) mm, more than a step outside the box "
            "of limits.workspace_min and limits.workspace_max: move it inside or widen the box."
        )


def distance(start: Float64Array, end: Float64Array) -> tuple[float, float]:
    """How far (m) and by what angle (rad) two states (7,) differ."""
    turn = (
        Rotation.from_euler("xyz", end[ROTATION])
        * Rotation.from_euler("xyz", start[ROTATION]).inv()
    )
    return float(np.linalg.norm(end[POSITION] - start[POSITION])), float(turn.magnitude())


def has_moved(start: Float64Array, end: Float64Array, motion: MotionSettings) -> bool:
    """Whether two measured states (7,) differ by more than those of an arm at rest do."""
    metres, radians = distance(start, end)
    return metres > motion.still_distance or radians > motion.still_angle


def drift(target: Float64Array, measured: Float64Array, limits: SafetyLimits) -> str | None:
    """How the arm at rest misses its last target by more than the limits, or None."""
    metres, radians = distance(target, measured)
    if metres <= limits.drift_distance and radians <= limits.drift_angle:
        return None
    return f"the arm rests {1000 * metres:.0f} mm and {radians:.2f} rad from its last target"


def lag(setpoint: Float64Array, measured: Float64Array, limits: SafetyLimits) -> str | None:
    """How a moving arm falls behind its setpoint by more than the limits, or None."""
    metres, radians = distance(setpoint, measured)
    if metres <= limits.lag_distance and radians <= limits.lag_angle:
        return None
    return (
        f"The arm does not follow: it is {1000 * metres:.0f} mm and {radians:.2f} rad from its "
        "setpoint. Check that it is not in reflex or stopped by its user, that the controller is "
        "active, and limits.lag_distance and limits.lag_angle."
    )


def motion_time(
    start: Float64Array, target: Float64Array, least: float, limits: SafetyLimits
) -> float:
    """Seconds from rest at `start` to rest at `target` within the limits, `least` at least."""
    return max(least, travel_time(*distance(start, target), limits.motion))


def at_pose(pose: Float64Array, gripper: float) -> Float64Array:
    """The state (7,) at the pose of one state with the gripper closed by `gripper`."""
    state = pose.copy()
    state[GRIPPER] = gripper
    return state


def next_target(
    base: Float64Array, action: Float64Array, limits: SafetyLimits
) -> tuple[Float64Array, tuple[str, ...]]:
    """The state (7,) to command for an action (7,) from a base state (7,), and notes on the limits.

    Raises:
        UnsafeCommandError: the command must not be given.
    """
    require_finite("The planned action", action)
    require_finite("The state that the action starts from", base)
    action, translation_note = bounded_translation(action, limits.step_translation)
    action, rotation_note = bounded_rotation(action, limits.step_rotation)
    target, workspace_note = inside_workspace(apply_action(base, action), limits)
    require_step(base, target, limits)
    target, box_note = outside_boxes(base, target, limits)
    notes = (translation_note, rotation_note, workspace_note, box_note)
    return target, tuple(note for note in notes if note is not None)


def _millimetres(position: Float64Array) -> str:
    return ", ".join(f"{1000 * value:.0f}" for value in position)
