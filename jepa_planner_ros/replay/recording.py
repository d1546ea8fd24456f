"""What a bag tells about episodes: goals, the plans that were made for them, and what was seen."""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jepa_planner_ros.replay.bag import Bag, BagError, RawMessage
from jepa_planner_ros.robot.joints import read_arm
from jepa_planner_ros.robot.kinematics import end_effector_state
from jepa_planner_ros.ros.images import decode_compressed_image, decode_image
from jepa_planner_ros.ros.reading import actions_array, stamp_of, state_array, states_array
from jepa_planner_ros.types import Float32Array, Float64Array, RgbImage

GOAL_TYPE = "jepa_planner_msgs/msg/Goal"
PLAN_TYPE = "jepa_planner_msgs/msg/Plan"
OUTCOME_TYPE = "jepa_planner_msgs/msg/Outcome"
RAW_IMAGE_TYPE = "sensor_msgs/msg/Image"
COMPRESSED_IMAGE_TYPE = "sensor_msgs/msg/CompressedImage"
CAMERA_INFO_TYPE = "sensor_msgs/msg/CameraInfo"
JOINTS_TYPE = "sensor_msgs/msg/JointState"

_MISSING_FIELDS = ("goal_id", "search_settings", "search_step", "start_latents")
"""Of plans, what a version before recordings did not tell."""


@dataclass(frozen=True)
class Topics:
    """Where in a bag to look; None takes the only topic of the fitting type.

    Attributes:
        image: raw or compressed.
        joints: joint states; needed only where there are no plans.
    """

    image: str | None = None
    joints: str | None = None


@dataclass(frozen=True, eq=False)
class RecordedGoal:
    """A goal that was pursued: its photographs in order, RGB (height, width, 3)."""

    photographs: tuple[RgbImage, ...]


@dataclass(frozen=True)
class RecordedOutcome:
    """How a goal ended.

    Attributes:
        reason: the action's sentence about it.
        final_energy: of the last encoded frame; NaN where none was.
    """

    reason: str
    final_energy: float


@dataclass(frozen=True, eq=False)
class RecordedPlan:
    """A plan as the node published it; the fields are those of the message ``Plan``.

    Attributes:
        time: when it was recorded, ns.
        stamp: of the camera frame that was planned from, ns.
        start_latents: latents (tokens * dim) planned from; empty where they are the frame's own.
        previous: the sequence (horizon, 7) that the search started from; None where cold.
        deadline: s; 0 where the search was given no limit.
        close_gripper_from: None where the gripper was left free.
        latency: capture age, encode, plan and network, s.
    """

    time: int
    goal_id: bytes
    subgoal: int
    step: int
    stamp: int
    state: Float64Array
    start_latents: Float32Array
    actions: Float64Array
    predicted_states: Float64Array
    energy: float
    predicted_energies: Float64Array
    round_best_energies: Float64Array
    round_elite_energies: Float64Array
    rollouts: int
    seed: int
    search_step: int
    previous: Float64Array | None
    deadline: float
    close_gripper_from: int | None
    search: str
    search_settings: str
    model_fingerprint: str
    latency: tuple[float, float, float, float]


@dataclass(frozen=True, eq=False)
class Joints:
    """The measured states (count, 7) and their stamps (count,), ns, in ascending order."""

    stamps: NDArray[np.int64]
    states: Float64Array

    def at(self, stamp: int) -> Float64Array:
        """The state (7,) measured nearest to a stamp."""
        return self.states[int(np.abs(self.stamps - stamp).argmin())]


@dataclass(frozen=True, eq=False)
class Recording:
    """All but the pictures, which are looked up when they are needed.

    Attributes:
        path: the bag.
        topics: of every topic, its type.
        image_topic: the camera's.
        frame_stamps: stamps of the camera's frames in the order of the bag, ns.
        goals: by the goal's identifier.
        plans: in the order of the bag.
        outcomes: by the goal's identifier.
        joints: the measured states; None where the bag has no joint states.
        intrinsics: matrix (3, 3) of the camera; None where the bag has no ``CameraInfo``.
        problems: what is damaged or doubtful, in sentences.
    """

    path: Path
    topics: Mapping[str, str]
    image_topic: str
    frame_stamps: tuple[int, ...]
    goals: Mapping[bytes, RecordedGoal]
    plans: tuple[RecordedPlan, ...]
    outcomes: Mapping[bytes, RecordedOutcome]
    joints: Joints | None
    intrinsics: Float64Array | None
    problems: list[str] = field(default_factory=list)

    def frames(self, stamps: Collection[int]) -> Iterator[tuple[int, RgbImage]]:
        """Yield stamp and picture of the frames with these stamps, in the order of the bag.

        Frames that cannot be decoded become problems.
        """
        wanted = set(stamps)
        with Bag(self.path) as bag:
            for message in bag.messages([self.image_topic]):
                stamp = raw_stamp(message)
                if stamp not in wanted:
                    continue
                wanted.remove(stamp)
                try:
                    yield stamp, _decode(bag, message)
                except ValueError as error:
                    self.problems.append(f"The frame of {seconds_text(stamp)} is useless: {error}")


def read_recording(path: Path, topics: Topics = Topics()) -> Recording:
    """Read everything but pictures.

    Raises:
        BagError: nothing can be read, or there is no camera in it.
    """
    with Bag(path) as bag:
        image_topic = _camera(bag, topics.image)
        reader = _Reader(bag)
        joints = _joints(reader, topics.joints)
        stamps = tuple(raw_stamp(one) for one in bag.messages([image_topic]))
        goals = {
            bytes(goal.goal_id): RecordedGoal(
                tuple(decode_compressed_image(one.compressed_image) for one in goal.subgoals)
            )
            for _, goal in reader.all_of(GOAL_TYPE)
        }
        plans = tuple(
            plan_of(time, plan)
            for time, plan in reader.all_of(PLAN_TYPE)
            if reader.is_complete(plan)
        )
        outcomes = {
            bytes(outcome.goal_id): RecordedOutcome(
                str(outcome.reason), float(outcome.final_energy)
            )
            for _, outcome in reader.all_of(OUTCOME_TYPE)
        }
        info = next(reader.all_of(CAMERA_INFO_TYPE), None)
        return Recording(
            path=path,
            topics=dict(bag.topics),
            image_topic=image_topic,
            frame_stamps=stamps,
            goals=goals,
            plans=plans,
            outcomes=outcomes,
            joints=joints,
            intrinsics=None if info is None else np.array(info[1].k).reshape(3, 3),
            problems=[*bag.problems, *_order_problems(image_topic, stamps)],
        )


def seconds_text(stamp: int) -> str:
    """A stamp in nanoseconds, as people read it."""
    return f"{stamp / 1e9:.3f} s"


class _Reader:
    """Takes messages apart and keeps a problem for each kind of damage."""

    def __init__(self, bag: Bag) -> None:
        self._bag = bag

    def all_of(self, kind: str) -> Iterator[tuple[int, Any]]:
        """Yield the time of recording and content of all messages of a type."""
        topics = [topic for topic, one in self._bag.topics.items() if one == kind]
        return self.on(topics) if topics else iter(())

    def on(self, topics: Sequence[str]) -> Iterator[tuple[int, Any]]:
        """Yield the time of recording and content of all messages of some topics."""
        for raw in self._bag.messages(topics):
            try:
                yield raw.time, self._bag.read(raw)
            except BagError as error:
                self.complain(str(error))

    def is_complete(self, plan: Any) -> bool:
        """Whether a plan carries what it takes to make it anew."""
        missing = [name for name in _MISSING_FIELDS if not hasattr(plan, name)]
        if missing:
            self.complain(
                f"Plans were recorded by a version that did not tell their {', '.join(missing)}, "
                "and cannot be made anew; give a goal with --goal to plan from the frames."
            )
        return not missing

    def complain(self, problem: str) -> None:
        if problem not in self._bag.problems:
            self._bag.problems.append(problem)

    @property
    def topics(self) -> Mapping[str, str]:
        return self._bag.topics


def _camera(bag: Bag, asked: str | None) -> str:
    cameras = [
        topic
        for topic, kind in bag.topics.items()
        if kind in (RAW_IMAGE_TYPE, COMPRESSED_IMAGE_TYPE)
    ]
    there = ", ".join(sorted(bag.topics)) or "no topic at all"
    if asked is not None:
        if asked not in bag.topics:
            raise BagError(f"--image-topic {asked} is not in {bag.path}, which has: {there}.")
        if asked not in cameras:
            raise BagError(
                f"--image-topic {asked} has the type {bag.topics[asked]}; images are of type "
                f"{RAW_IMAGE_TYPE} or {COMPRESSED_IMAGE_TYPE}."
            )
        return asked
    # The node's own name for it, in whatever namespace.
    for name in ("image_raw", "image_raw/compressed"):
        fitting = [topic for topic in cameras if topic.endswith(f"/{name}")]
        if len(fitting) == 1:
            return fitting[0]
    if len(cameras) == 1:
        return cameras[0]
    if not cameras:
        raise BagError(f"{bag.path} has no camera: images are missing. It has: {there}.")
    raise BagError(f"{bag.path} has several cameras; choose with --image-topic: {cameras}.")


def _joints(reader: _Reader, asked: str | None) -> Joints | None:
    topics = [topic for topic, kind in reader.topics.items() if kind == JOINTS_TYPE]
    if asked is not None:
        if asked not in topics:
            found = ", ".join(topics) or "none has"
            raise BagError(f"--joints-topic {asked} has no joint states; these have: {found}.")
        topics = [asked]
    readings: list[tuple[int, Float64Array]] = []
    for _, message in reader.on(topics) if topics else ():
        try:
            arm = read_arm(message.name, message.position)
        except ValueError as error:
            reader.complain(f"Some joint states are useless: {error}")
            continue
        readings.append((stamp_of(message), end_effector_state(arm.positions, arm.gripper or 0.0)))
    if not readings:
        return None
    readings.sort(key=lambda reading: reading[0])
    stamps, states = zip(*readings, strict=True)
    return Joints(np.array(stamps, dtype=np.int64), np.stack(states))


def plan_of(time: int, message: Any) -> RecordedPlan:
    """A message ``Plan`` that was recorded at a time, ns."""
    latency = message.latency
    return RecordedPlan(
        time=time,
        goal_id=bytes(message.goal_id),
        subgoal=int(message.subgoal),
        step=int(message.step),
        stamp=stamp_of(message),
        state=state_array(message.state),
        start_latents=np.array(message.start_latents, dtype=np.float32),
        actions=actions_array(message.actions),
        predicted_states=states_array(message.predicted_states),
        energy=float(message.energy),
        predicted_energies=np.array(message.predicted_energies),
        round_best_energies=np.array(message.round_best_energies),
        round_elite_energies=np.array(message.round_elite_energies),
        rollouts=int(message.rollouts),
        seed=int(message.seed),
        search_step=int(message.search_step),
        previous=actions_array(message.previous) if len(message.previous) else None,
        deadline=float(message.deadline),
        close_gripper_from=None
        if message.close_gripper_from == -1
        else int(message.close_gripper_from),
        search=str(message.search),
        search_settings=str(message.search_settings),
        model_fingerprint=str(message.model_fingerprint),
        latency=(latency.capture_age, latency.encode, latency.plan, latency.network),
    )


def _order_problems(topic: str, stamps: Sequence[int]) -> Iterator[str]:
    backwards = sum(later < earlier for earlier, later in pairwise(stamps))
    if backwards:
        yield (
            f"{backwards} frames on {topic} are stamped before the frame that came before them; "
            "frames are found by their stamps all the same."
        )
    if 0 in stamps:
        yield f"{stamps.count(0)} frames on {topic} have no stamp and are left out."


def raw_stamp(message: RawMessage) -> int:
    """The stamp of a message that begins with a header, without taking it apart."""
    order = "<" if message.data[1] & 1 else ">"
    sec, nanosec = struct.unpack_from(f"{order}iI", message.data, 4)
    return sec * 1_000_000_000 + nanosec


def _decode(bag: Bag, message: RawMessage) -> RgbImage:
    decode = decode_image if message.type == RAW_IMAGE_TYPE else decode_compressed_image
    return decode(bag.read(message))
