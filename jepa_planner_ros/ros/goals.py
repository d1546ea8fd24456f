"""What a client asks for, checked before it is accepted."""

from __future__ import annotations

import math
from dataclasses import dataclass

from jepa_planner_msgs.action import ReachGoal
from jepa_planner_msgs.msg import SubGoal as SubGoalMessage

from jepa_planner_ros.control import CONTROL_MODES
from jepa_planner_ros.photograph import state_inside
from jepa_planner_ros.ros.clock import seconds
from jepa_planner_ros.ros.images import (
    decode_compressed_image,
    decode_file,
    decode_image,
    read_file,
)
from jepa_planner_ros.ros.settings import EpisodeDefaults
from jepa_planner_ros.types import Float64Array, RgbImage

_SAME_SHAPE = 0.03
"""Relative difference of the ratios of width to height of pictures that one camera has taken; a
picture that was scaled to few pixels has them rounded."""
_MOST_SUBGOALS = 100
"""All of their photographs are decoded before the goal is answered."""


class GoalError(ValueError):
    """A goal cannot be pursued; the message says why."""


@dataclass(frozen=True, eq=False)
class SubGoalRequest:
    """One photograph, decoded, with what it takes to reach it.

    `state` (7,) is what the arm was photographed at, where the file tells it. It is shown to
    people; no plan is made of it.
    """

    image: RgbImage
    energy_threshold: float
    step_budget: int
    close_gripper_from: int | None
    state: Float64Array | None = None


@dataclass(frozen=True, eq=False)
class ReachRequest:
    """A checked goal with the node's defaults filled in."""

    subgoals: tuple[SubGoalRequest, ...]
    time_limit: float
    control_mode: str
    defaults: EpisodeDefaults


def read_goal(goal: ReachGoal.Goal, defaults: EpisodeDefaults) -> ReachRequest:
    """Check a goal and decode its photographs.

    Raises:
        GoalError: it cannot be pursued.
    """
    if not goal.subgoals:
        raise GoalError("The goal has no sub-goal; give at least one with an image_path or image.")
    if len(goal.subgoals) > _MOST_SUBGOALS:
        raise GoalError(
            f"The goal has {len(goal.subgoals)} sub-goals; give {_MOST_SUBGOALS} at most, and the "
            "others in another goal."
        )
    time_limit = seconds(goal.time_limit)
    if time_limit < 0.0:
        raise GoalError(f"time_limit = {time_limit:g} s is negative; give 0 for the default.")
    mode = goal.control_mode or defaults.control_mode
    if mode not in CONTROL_MODES:
        raise GoalError(
            f"control_mode '{mode}' is unknown; it must be one of: {', '.join(CONTROL_MODES)}."
        )
    return ReachRequest(
        subgoals=tuple(
            _read_subgoal(index, message, defaults)
            for index, message in enumerate(goal.subgoals, start=1)
        ),
        time_limit=time_limit or defaults.time_limit,
        control_mode=mode,
        defaults=defaults,
    )


def require_shape_of(frame: RgbImage, request: ReachRequest) -> None:
    """Refuse photographs of another shape than a frame of the camera, whatever their size.

    Raises:
        GoalError: the ratio of width to height differs, so that another camera took the
            photograph or somebody cropped it.
    """
    height, width = frame.shape[:2]
    for index, subgoal in enumerate(request.subgoals, start=1):
        rows, columns = subgoal.image.shape[:2]
        if abs(math.log(columns * height / (rows * width))) > _SAME_SHAPE:
            raise GoalError(
                f"Sub-goal {index}: the photograph has {columns} x {rows} pixels and the camera "
                f"{width} x {height}, which is another shape: take it by the same camera, uncut, "
                "for instance with ~/capture_goal."
            )


def _read_subgoal(index: int, message: SubGoalMessage, defaults: EpisodeDefaults) -> SubGoalRequest:
    threshold = message.energy_threshold or defaults.energy_threshold
    budget = message.step_budget or defaults.step_budget
    closing = None if message.close_gripper_from == -1 else message.close_gripper_from
    if not math.isfinite(threshold) or threshold < 0.0:
        raise GoalError(
            f"Sub-goal {index}: energy_threshold = {threshold} must be a number above 0, or 0 for "
            "the default."
        )
    if closing is not None and not 0 <= closing < budget:
        raise GoalError(
            f"Sub-goal {index}: close_gripper_from = {closing} must be a step of the budget, 0 to "
            f"{budget - 1}, or -1 for never."
        )
    try:
        image, state = _read_photograph(message)
    except ValueError as error:
        raise GoalError(f"Sub-goal {index}: {error}") from error
    return SubGoalRequest(image, threshold, budget, closing, state)


def _read_photograph(message: SubGoalMessage) -> tuple[RgbImage, Float64Array | None]:
    raw, compressed = message.image, message.compressed_image
    given = {
        "image_path": bool(message.image_path),
        "image": bool(raw.encoding or raw.height or raw.width or len(raw.data)),
        "compressed_image": bool(compressed.format or len(compressed.data)),
    }
    names = [name for name, is_given in given.items() if is_given]
    if len(names) != 1:
        found = " and ".join(names) or "none"
        raise ValueError(
            f"exactly one of image_path, image and compressed_image must be given; {found} was."
        )
    if path := message.image_path:
        content = read_file(path)
        return decode_file(content, f"the file {path}"), state_inside(content)
    if given["image"]:
        return decode_image(raw), None
    return decode_compressed_image(compressed), state_inside(bytes(compressed.data))
