"""The vocabulary of an episode: its goal, its phases, what may happen, and what is to be done.

A control mode is one pure function, ``transition(episode, event) -> (episode, effects)``. Nothing
here reads a clock or touches a robot: times come in with the events, and effects are carried out
by `EpisodeRunner`. There are two clocks. *Times* are seconds on a steady clock and measure
durations; *stamps* are nanoseconds on the clock of the robot's messages and order measurements.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, IntEnum

from jepa_planner_ros.control.action_queue import ActionQueue
from jepa_planner_ros.control.prediction import Prediction
from jepa_planner_ros.control.safety import Stream
from jepa_planner_ros.control.settings import ControlSettings
from jepa_planner_ros.control.standstill import Standstill
from jepa_planner_ros.search import FAST_SEARCH
from jepa_planner_ros.types import (
    Float32Array,
    Float64Array,
    Plan,
    PlanRequest,
    SearchSettings,
)

NANOSECONDS = 1_000_000_000
"""In a second."""


class Outcome(IntEnum):
    """How an episode ended; the values are those of ``ReachGoal.Result``."""

    REACHED = 1
    BUDGET_SPENT = 2
    TIMED_OUT = 3
    CANCELLED = 4
    ABORTED = 5


# --- What is asked for ---------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class SubGoal:
    """One photograph to bring the arm to.

    Attributes:
        latent: the encoded photograph (tokens, dim).
        energy_threshold: the sub-goal is reached at this energy or below.
        step_budget: most steps to spend on it.
        close_gripper_from: step of this sub-goal from which the gripper is closed; None never.
    """

    latent: Float32Array
    energy_threshold: float
    step_budget: int
    close_gripper_from: int | None = None


@dataclass(frozen=True, eq=False)
class Goal:
    """The sub-goals of an episode, in order, and how to plan for them.

    Attributes:
        subgoals: at least one.
        time_limit: most time for all of them, s.
        model_fingerprint: the model that encodes frames and goals.
        search: how to plan.
        seed: fixes the noise of every plan.
        plan_deadline: time for each plan, s; None lets every search finish.
    """

    subgoals: tuple[SubGoal, ...]
    time_limit: float
    model_fingerprint: str
    search: SearchSettings = FAST_SEARCH
    seed: int = 0
    plan_deadline: float | None = None


# --- What is perceived ---------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Measurement:
    """A measured end-effector state (7,) with its stamp, and its time on the steady clock.

    `joints` (7,), rad, are known where the state comes from them.
    """

    state: Float64Array
    stamp: int
    time: float
    joints: Float64Array | None = None


@dataclass(frozen=True, eq=False)
class Observation:
    """An encoded camera frame with the end-effector state (7,) measured nearest to it.

    Attributes:
        latent: (tokens, dim).
        state: (7,), base frame.
        stamp: when the frame was taken.
        capture_age: age of the frame when it was picked up, s.
        encode_duration: time that encoding took, s.
    """

    latent: Float32Array
    state: Float64Array
    stamp: int
    capture_age: float
    encode_duration: float


# --- Events --------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Tick:
    """A regular look at the robot.

    Attributes:
        time: now, steady clock.
        arm: the newest measurement.
        frame_stamp: stamp of the newest camera frame.
        streams: how fresh the sensors are.
        fault: why the arm must not or does not move; None while it may.
    """

    time: float
    arm: Measurement | None
    frame_stamp: int | None
    streams: tuple[Stream, ...] = ()
    fault: str | None = None


@dataclass(frozen=True, eq=False)
class Observed:
    """The frame asked for with `Observe` is encoded."""

    time: float
    observation: Observation
    asked: Observe


@dataclass(frozen=True, eq=False)
class Planned:
    """The plan asked for with `Search` is there, `round_trip` seconds later."""

    time: float
    plan: Plan
    round_trip: float
    request: PlanRequest


@dataclass(frozen=True, eq=False)
class Unplanned:
    """The plan asked for with `Search` could not be made.

    Or the frame asked for with `Observe` was not encoded, since the planner encodes and is away.

    Attributes:
        time: now, steady clock.
        reason: a sentence for the operator.
        retry_after: a plan may be made this much later, s; None: this one never can.
        asked: the frame or the plan that there is none of.
    """

    time: float
    reason: str
    retry_after: float | None
    asked: Observe | PlanRequest


@dataclass(frozen=True)
class Failed:
    """An effect could not be carried out."""

    time: float
    reason: str
    asked: Observe | None = None
    """What was asked for in vain; None: something without which no episode can go on."""


@dataclass(frozen=True)
class CancelRequested:
    """The client, or whoever stops the node, wants the episode to end."""

    time: float
    reason: str


Event = Tick | Observed | Planned | Unplanned | Failed | CancelRequested


# --- Effects -------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Observe:
    """Pick up the newest camera frame and encode it. Each is told from every other."""


@dataclass(frozen=True, eq=False)
class Search:
    """Ask the planner."""

    request: PlanRequest


class GripperMotion(Enum):
    """What a gripper is told."""

    OPEN = "open"
    CLOSE = "close"


@dataclass(frozen=True, eq=False)
class Command:
    """Send the arm to a state (7,), and the gripper on its way if it is to change."""

    target: Float64Array
    gripper: GripperMotion | None = None


@dataclass(frozen=True, eq=False)
class Hold:
    """Stop the arm in motion, and hold it at or near a state (7,), where it was measured."""

    target: Float64Array


@dataclass(frozen=True)
class Warn:
    """Tell the operator something that does not end the episode."""

    text: str


@dataclass(frozen=True)
class Latency:
    """Where the time of a step went, s; each part is measured on one clock."""

    capture_age: float
    encode: float
    plan: float
    network: float


@dataclass(frozen=True, eq=False)
class Report:
    """One step: what was seen, asked, planned and commanded. Steps and sub-goals count from 0.

    `queue_length` is how many targets still wait, and `ratio` how many plans fit into the duration
    of a step, as measured; None where that is not known.
    """

    subgoal: int
    step: int
    energy: float
    observation: Observation
    request: PlanRequest
    plan: Plan
    target: Float64Array
    latency: Latency
    queue_length: int = 0
    ratio: float | None = None


Effect = Observe | Search | Command | Hold | Warn | Report


# --- Phases --------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Settling:
    """The arm moves or comes to rest.

    Attributes:
        not_before: it is not judged still before this time.
        deadline: it must be still by this time.
        origin: the state (7,) from which this episode set it in motion; None if it did not.
        anchor: the measurement since which it has not moved beyond the tolerances.
    """

    not_before: float
    deadline: float
    origin: Float64Array | None = None
    anchor: Measurement | None = None


@dataclass(frozen=True)
class Looking:
    """The arm rests; a camera frame taken after stamp `after` is awaited until `deadline`."""

    after: int
    deadline: float


@dataclass(frozen=True, eq=False)
class Encoding:
    """The frame is being encoded."""

    asked: Observe


@dataclass(frozen=True, eq=False)
class Planning:
    """The planner searches from an observation; `base` (7,) is what its action is added to."""

    observation: Observation
    base: Float64Array
    request: PlanRequest


@dataclass(frozen=True, eq=False)
class Deciding:
    """The plan is there; the next look at the robot decides whether it still holds."""

    planning: Planning
    planned: Planned


@dataclass(frozen=True, eq=False)
class Travel:
    """A motion that goes on while other things happen.

    Attributes:
        origin: the state (7,) from which it began.
        departs: when it begins, s.
        arrives: when it is over, s.
        deadline: when the arm must have come to rest after it, s.
    """

    origin: Float64Array
    departs: float
    arrives: float
    deadline: float


@dataclass(frozen=True, eq=False)
class Glance:
    """A look at where a motion ends, taken without stopping.

    Attributes:
        opens: from when on a frame counts, s.
        deadline: when one must have come, s.
        after: the arm's stamp when it opened; a frame counts that was taken later. None before.
        asked: what has the frame encoded; None before.
        seen: what it shows; None until it is encoded.
    """

    opens: float
    deadline: float
    after: int | None = None
    asked: Observe | None = None
    seen: Observation | None = None


@dataclass(frozen=True, eq=False)
class Overlapping:
    """The arm moves while the step after is planned from where it is expected to arrive.

    Attributes:
        travel: the arm's part.
        glance: the camera's part.
        expected: what the planner starts from.
        request: what the planner was asked.
        planned: the planner's part; None until its plan is there.
    """

    travel: Travel
    glance: Glance
    expected: Prediction
    request: PlanRequest
    planned: Planned | None = None


@dataclass(frozen=True, eq=False)
class ChunkSource:
    """What the newest chunk in a queue was made from.

    Attributes:
        observation: the newest arrival that it was planned from.
        first: timestep of its first target.
        planned: the plan.
        ratio: duration of a step over the time that the plan took, encoding included.
    """

    observation: Observation
    first: int
    planned: Planned
    ratio: float


@dataclass(frozen=True, eq=False)
class ChunkSearch:
    """A plan under way.

    Attributes:
        observation: the newest arrival that it starts from.
        base: the target (7,) that its actions are added to.
        first: timestep of its first target.
        subgoal: index of the sub-goal that it is for.
        request: what the planner was asked.
    """

    observation: Observation
    base: Float64Array
    first: int
    subgoal: int
    request: PlanRequest


@dataclass(frozen=True, eq=False)
class Flowing:
    """The arm goes from one queued target to the next while chunks of more are planned.

    Attributes:
        travel: the motion to the target taken last.
        glance: the look at where it ends.
        queue: the targets that wait.
        source: what the newest of them come from.
        search: the plan under way; None when there is none.
        expected: what the motion should end in; None where no plan says.
    """

    travel: Travel
    glance: Glance
    queue: ActionQueue
    source: ChunkSource
    search: ChunkSearch | None = None
    expected: Prediction | None = None


@dataclass(frozen=True)
class Ended:
    """The episode is over.

    Attributes:
        outcome: how.
        reason: a sentence for the operator.
        energy: distance of the last observation from its sub-goal; NaN without observation.
        steps: steps commanded over all sub-goals.
        elapsed: s.
    """

    outcome: Outcome
    reason: str
    energy: float
    steps: int
    elapsed: float


Phase = Settling | Looking | Encoding | Planning | Deciding | Overlapping | Flowing | Ended


@dataclass(frozen=True)
class Outage:
    """A time without a planner: since when, and why."""

    since: float
    reason: str


@dataclass(frozen=True, eq=False)
class Episode:
    """All that a transition depends on, besides the event.

    Attributes:
        goal: what is asked for.
        settings: limits and motion.
        started: when the goal was accepted.
        phase: what is going on.
        subgoal: index of the present sub-goal.
        step: steps commanded for the present sub-goal.
        steps: steps commanded over all sub-goals.
        plans: plans obeyed so far.
        energy: distance of the last observation from the present sub-goal.
        arm: the newest measurement.
        set_back: by how much it is stamped earlier than the one before, s; 0 if it is not.
        seen: the last observation.
        unchanged_since: the first of the observations that show the same picture, to the bit.
        target: the last commanded state (7,).
        previous: the last plan's actions, to warm start from.
        drifts: steps in a row whose target was missed.
        standstill: where the arm was seen to stand when the last step was taken.
        outage: set while there is no planner.
    """

    goal: Goal
    settings: ControlSettings
    started: float
    phase: Phase
    subgoal: int = 0
    step: int = 0
    steps: int = 0
    plans: int = 0
    energy: float = field(default=math.nan)
    arm: Measurement | None = None
    set_back: float = 0.0
    seen: Observation | None = None
    unchanged_since: Observation | None = None
    target: Float64Array | None = None
    previous: Float64Array | None = None
    drifts: int = 0
    standstill: Standstill | None = None
    outage: Outage | None = None

    @property
    def present(self) -> SubGoal:
        """The sub-goal being pursued."""
        return self.goal.subgoals[self.subgoal]

    @property
    def progress(self) -> str:
        """Where the episode stands, for sentences to the operator."""
        energy = "no frame seen yet" if math.isnan(self.energy) else f"energy {self.energy:.4g}"
        return (
            f"step {self.step} of sub-goal {self.subgoal + 1} of {len(self.goal.subgoals)} "
            f"({energy}, threshold {self.present.energy_threshold:.4g})"
        )


Next = tuple[Episode, tuple[Effect, ...]]
"""The episode after an event, and what is to be done about it."""

Transition = Callable[[Episode, Event], Next]
