"""What is known about a planner node at one moment, as told by its messages.

Times are seconds of one steady clock, the watcher's own. Positions are metres in the robot's base
frame.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from jepa_planner_ros.types import Float64Array

Span = tuple[float, float]
"""From when to when, s."""


@dataclass(frozen=True)
class Topic:
    """How often and when messages came on a topic.

    Attributes:
        name: of the topic; empty before it is known.
        arrivals: when the last few messages came.
        problem: why the last one could not be used; None when it could.
    """

    name: str = ""
    arrivals: tuple[float, ...] = ()
    problem: str | None = None

    @property
    def newest(self) -> float | None:
        """When the last message came; None before the first."""
        return self.arrivals[-1] if self.arrivals else None

    @property
    def rate(self) -> float | None:
        """Messages per second; None where too few have come."""
        if len(self.arrivals) < 3:
            return None
        return (len(self.arrivals) - 1) / max(1e-6, self.arrivals[-1] - self.arrivals[0])


@dataclass(frozen=True, eq=False)
class SubGoal:
    """One photograph that is pursued: at what energy it is reached, and within how many steps.

    `place` (3,) is where it was taken, if it tells.
    """

    energy_threshold: float
    step_budget: int
    place: Float64Array | None = None


@dataclass(frozen=True, eq=False)
class Goal:
    """A goal as it is pursued.

    Attributes:
        goal_id: of the action's protocol, hexadecimal.
        began: when the node began with it, by its stamp; when it was heard where no clock is known.
        time_limit: for the whole goal, s.
    """

    goal_id: str
    began: float
    subgoals: tuple[SubGoal, ...]
    control_mode: str
    time_limit: float


@dataclass(frozen=True)
class Outcome:
    """How a goal ended.

    Attributes:
        name: ``reached``, ``budget_spent``, ``timed_out``, ``cancelled``, ``aborted``; or ``ended``
            where only that is known.
        final_energy: of the last frame; NaN where unknown.
        elapsed: duration of the goal, s; NaN where unknown.
    """

    goal_id: str
    name: str
    reason: str
    at: float
    final_energy: float
    elapsed: float


@dataclass(frozen=True, eq=False)
class Candidates:
    """Motions that the last round of a search imagined.

    Attributes:
        ends: where they end (count, 3), the best first.
        energies: of each (count,), in the measure that the search minimises.
        elites: how many, from the first, the next round would build on.
    """

    ends: Float64Array
    energies: Float64Array
    elites: int


@dataclass(frozen=True, eq=False)
class Step:
    """One plan, and where its time went.

    Attributes:
        subgoal: index, from 0.
        step: index within the sub-goal, from 0.
        energy: of the frame that was planned from.
        predicted_energies: after each planned action.
        round_best: lowest energy in each round of the search.
        round_elites: mean energy of the elites in each round.
        rollouts: action sequences that were imagined.
        search: name of the search settings.
        latency: durations by the names of the message's fields, s.
        began: when the frame was taken up.
        told: when the plan was heard.
        path: from where the arm is to where each action leads (horizon + 1, 3).
        candidates: None where the plan tells of none.
    """

    goal_id: str
    subgoal: int
    step: int
    energy: float
    predicted_energies: tuple[float, ...]
    round_best: tuple[float, ...]
    round_elites: tuple[float, ...]
    rollouts: int
    search: str
    latency: Mapping[str, float]
    began: float
    told: float
    path: Float64Array
    candidates: Candidates | None


@dataclass(frozen=True)
class Command:
    """A pose that was commanded, as feedback tells it."""

    at: float
    position: tuple[float, float, float]
    gripper: float
    queue_length: int


@dataclass(frozen=True)
class Diagnosis:
    """One entry of ``/diagnostics``."""

    name: str
    level: int
    message: str
    values: Mapping[str, str]


@dataclass(frozen=True)
class Line:
    """A line of the node's log; levels are those of ``rcl_interfaces/msg/Log``."""

    at: float
    level: int
    text: str


@dataclass(frozen=True, eq=False)
class Posture:
    """Where the arm was measured, in units in which 1 is a noticeable change."""

    at: float
    values: Float64Array


@dataclass(frozen=True, eq=False)
class Watched:
    """All that is known; a new value takes its place with each message.

    Attributes:
        node: full name of the planner node.
        domain: ROS domain.
        present: whether the node can be seen; None before anybody has looked.
        last_present: when it was seen last; None for never.
        status: what it said last; empty for nothing.
        ended: how goals ended, by their identifiers, as far as the action remembers them; the
            present one or others.
        steps: plans of the present goal, oldest first.
        command: newest one of the present goal.
        holding: why the arm holds instead of going on; empty while it goes on.
        would_command: when a dry run last told what it would command.
        diagnosed: when `diagnoses` came.
        clock: what to add to the seconds of the robot's stamps to get the watcher's; None where
            no stamp was seen.
        postures: the last few measurements of the arm.
        moving: when the arm moved, oldest first; the last may go on.
    """

    node: str
    domain: int = 0
    present: bool | None = None
    last_present: float | None = None
    status: str = ""
    goal: Goal | None = None
    outcome: Outcome | None = None
    ended: Mapping[str, str] = field(default_factory=dict)
    steps: tuple[Step, ...] = ()
    command: Command | None = None
    holding: str = ""
    would_command: float | None = None
    diagnoses: tuple[Diagnosis, ...] = ()
    diagnosed: float | None = None
    log: tuple[Line, ...] = ()
    camera: Topic = field(default_factory=Topic)
    drawing: Topic = field(default_factory=Topic)
    arm: Topic = field(default_factory=Topic)
    clock: float | None = None
    postures: tuple[Posture, ...] = ()
    moving: tuple[Span, ...] = ()
