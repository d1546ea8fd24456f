"""Making plans anew: the node's way from a frame to a plan, without ROS and without waiting.

A recorded plan tells all that it was made from but the pictures, so that each can be made anew by
itself. Where a bag holds no plans, frames are picked at regular times, and each plan starts from
the one before, as in an episode.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from jepa_planner_ros.replay.recording import (
    RecordedGoal,
    RecordedPlan,
    Recording,
    seconds_text,
)
from jepa_planner_ros.search.text import search_from_json
from jepa_planner_ros.types import (
    Float32Array,
    Float64Array,
    Plan,
    Planner,
    PlannerError,
    PlanRequest,
    RgbImage,
    Scene,
    SearchSettings,
)

Encode = Callable[[NDArray[np.uint8]], Float32Array]


@dataclass(frozen=True, eq=False)
class Moment:
    """A plan to be made.

    Attributes:
        episode: identifier of the goal that it belongs to.
        stamp: of the frame, ns.
        state: the end effector's state (7,), base frame.
        photograph: of the goal, RGB (height, width, 3).
        search: how to search.
        seed: of the search's noise.
        step: that the noise is drawn for.
        previous: the sequence (horizon, 7) to start from; None starts cold.
        chained: start from the plan made for the moment before instead of `previous`.
        start_latents: latents (tokens * dim) to plan from; None: those of the frame.
        close_gripper_from: action from which the gripper closes; None never.
        recorded: the plan in the bag, to compare with; None where there is none.
    """

    episode: bytes
    stamp: int
    state: Float64Array
    photograph: RgbImage
    search: SearchSettings
    seed: int = 0
    step: int = 0
    previous: Float64Array | None = None
    chained: bool = False
    start_latents: Float32Array | None = None
    close_gripper_from: int | None = None
    recorded: RecordedPlan | None = None

    @property
    def name(self) -> str:
        """What to call it in a sentence."""
        return f"The plan of step {self.step}, from the frame of {seconds_text(self.stamp)},"


@dataclass(frozen=True)
class Overrides:
    """What to do otherwise than recorded; None leaves it as it is."""

    seed: int | None = None
    search: SearchSettings | None = None


@dataclass(frozen=True, eq=False)
class Replayed:
    """A plan made anew.

    Attributes:
        moment: what it was made for.
        frame: what it was made from, RGB (height, width, 3).
        plan: the plan.
        energy: of the frame.
        encode_duration: s.
        round_trip: of the plan, s.
    """

    moment: Moment
    frame: RgbImage
    plan: Plan
    energy: float
    encode_duration: float
    round_trip: float


@dataclass(frozen=True)
class Skipped:
    """A plan that could not be made, and why."""

    reason: str


def recorded_moments(recording: Recording, overrides: Overrides) -> list[Moment | Skipped]:
    """What it takes to make every plan of a recording anew."""
    return [_recorded_moment(recording, plan, overrides) for plan in recording.plans]


def _recorded_moment(
    recording: Recording, plan: RecordedPlan, overrides: Overrides
) -> Moment | Skipped:
    name = f"The plan of step {plan.search_step} at {seconds_text(plan.stamp)}"
    goal = recording.goals.get(plan.goal_id)
    if goal is None or plan.subgoal >= len(goal.photographs):
        return Skipped(f"{name} is for a goal that the bag does not hold.")
    try:
        search = overrides.search or search_from_json(plan.search_settings)
    except ValueError as error:
        return Skipped(f"{name}: {error}; choose one with --search.")
    fits = plan.previous is not None and len(plan.previous) == search.horizon
    return Moment(
        episode=plan.goal_id,
        stamp=plan.stamp,
        state=plan.state,
        photograph=goal.photographs[plan.subgoal],
        search=search,
        seed=plan.seed if overrides.seed is None else overrides.seed,
        step=plan.search_step,
        previous=plan.previous if fits else None,
        start_latents=plan.start_latents if plan.start_latents.size else None,
        close_gripper_from=plan.close_gripper_from,
        recorded=plan,
    )


def sampled_moments(
    recording: Recording, goal: RecordedGoal, period: float, search: SearchSettings, seed: int
) -> list[Moment]:
    """Moments every `period` seconds of a recording without plans, all for one photograph.

    Raises:
        ValueError: the bag does not tell where the arm was.
    """
    joints = recording.joints
    if joints is None:
        raise ValueError(
            f"{recording.path} has no joint states of a Franka that would tell where the arm was: "
            f"name their topic with --joints-topic. {' '.join(recording.problems)}"
        )
    (photograph,) = goal.photographs
    stamps = _every(recording.frame_stamps, round(1e9 * period))
    return [
        Moment(b"", stamp, joints.at(stamp), photograph, search, seed, step, chained=step > 0)
        for step, stamp in enumerate(stamps)
    ]


def _every(stamps: Sequence[int], period: int) -> Iterator[int]:
    due = 0
    for stamp in sorted(filter(None, set(stamps))):
        if stamp >= due:
            due = stamp + period
            yield stamp


def replay(
    recording: Recording,
    moments: Sequence[Moment | Skipped],
    encode: Encode,
    planner: Planner,
) -> Iterator[Replayed | Skipped]:
    """Make the plans, one after the other, reading the bag along."""
    stamps = [moment.stamp for moment in moments if isinstance(moment, Moment)]
    coming = recording.frames(stamps)
    frames: dict[int, RgbImage] = {}
    goals: dict[int, Float32Array] = {}
    before: Replayed | None = None
    for moment in moments:
        if isinstance(moment, Skipped):
            yield moment
            continue
        while moment.stamp not in frames and (found := next(coming, None)) is not None:
            frames[found[0]] = found[1]
        # Several plans may start from one frame.
        frame = frames.get(moment.stamp)
        for passed in [stamp for stamp in frames if stamp < moment.stamp]:
            del frames[passed]
        if frame is None:
            yield Skipped(
                f"{moment.name} cannot be made: the bag holds no usable frame of that stamp."
            )
            continue
        key = id(moment.photograph)
        if key not in goals:
            goals[key] = encode(moment.photograph)
        made = _make(moment, frame, goals[key], before, encode, planner)
        before = made if isinstance(made, Replayed) else None
        yield made


def _make(
    moment: Moment,
    frame: RgbImage,
    goal: Float32Array,
    before: Replayed | None,
    encode: Encode,
    planner: Planner,
) -> Replayed | Skipped:
    begun = time.monotonic()
    latent = encode(frame)
    encoded = time.monotonic()
    start = latent
    if moment.start_latents is not None:
        if moment.start_latents.size != latent.size:
            return Skipped(
                f"{moment.name} was made from a prediction of another world model, whose latents "
                "have another size."
            )
        start = moment.start_latents.reshape(latent.shape)
    previous = moment.previous
    if moment.chained and before is not None:
        previous = before.plan.actions
    request = PlanRequest(
        Scene(start, moment.state, goal),
        moment.search,
        seed=moment.seed,
        step=moment.step,
        previous=previous,
        close_gripper_from=moment.close_gripper_from,
    )
    asked = time.monotonic()
    try:
        plan = planner.plan(request)
    except PlannerError as error:
        return Skipped(f"{moment.name} cannot be made: {error}")
    energy = float(np.abs(latent - goal).mean())
    return Replayed(moment, frame, plan, energy, encoded - begun, time.monotonic() - asked)
