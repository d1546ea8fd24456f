"""Checks between a plan and the arm. Each is a pure function of one limit.

A check either bounds a value and says so in a note, or refuses it with `UnsafeCommandError`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from jepa_planner_ros.control.settings import SafetyLimits
from jepa_planner_ros.geometry import GRIPPER, POSITION, ROTATION, apply_action
from jepa_planner_ros.types import Float64Array

_ROUNDING = 1e-9


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


def bounded_translation(action: Float64Array, limit: float) -> tuple[Float64Array, str | None]:
    """An action (7,) with each axis of its translation within `limit` metres, and a note."""
    asked = action[POSITION]
    bounded = action.copy()
    bounded[POSITION] = asked.clip(-limit, limit)
    if (bounded == action).all():
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


def drift(target: Float64Array, measured: Float64Array, limits: SafetyLimits) -> str | None:
    """How the arm at rest misses its last target by more than the limits, or None."""
    metres, radians = distance(target, measured)
    if metres <= limits.drift_distance and radians <= limits.drift_angle:
        return None
    return f"the arm rests {1000 * metres:.0f} mm and {radians:.2f} rad from its last target"


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
    notes = (translation_note, rotation_note, workspace_note)
    return target, tuple(note for note in notes if note is not None)


def _millimetres(position: Float64Array) -> str:
    return ", ".join(f"{1000 * value:.0f}" for value in position)
