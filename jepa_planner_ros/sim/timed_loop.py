"""Control modes in simulation, in simulated time: what they cost does not depend on the computer.

The arm, the camera, the encoder and the planner each take their time on one simulated clock; a plan
takes as long as it is said to, however long it took to compute. So a comparison of control modes is
the same from run to run, and quicker than the robot.
"""

from __future__ import annotations

import heapq
import itertools
import math
from dataclasses import dataclass, field, replace

import numpy as np

from jepa_planner_ros.control.episode import (
    NANOSECONDS,
    Command,
    Effect,
    Ended,
    Episode,
    Event,
    Flowing,
    Glance,
    Hold,
    Looking,
    Measurement,
    Observation,
    Observe,
    Observed,
    Overlapping,
    Planned,
    Report,
    Search,
    Tick,
    Transition,
)
from jepa_planner_ros.control.runner import TICK_PERIOD
from jepa_planner_ros.geometry import POSITION
from jepa_planner_ros.sim.franka import FrankaSim, Image
from jepa_planner_ros.types import Float64Array, Planner
from jepa_planner_ros.world_model import WorldModel


@dataclass(frozen=True)
class Delays:
    """How long things take, s."""

    planning: float
    encoding: float = 0.02
    camera_period: float = 0.1
    camera_delivery: float = 0.03


@dataclass(frozen=True)
class Span:
    """Something that went on from `start` to `end`, s."""

    start: float
    end: float


@dataclass(frozen=True, eq=False)
class TimedEpisode:
    """The course of an episode in simulated time.

    Attributes:
        ended: how it ended.
        motions: of the arm, one for each command; each ends when the arm has come to its target.
        searches: plans under way.
        staleness: for each command, how long ago the newest frame was taken that it depends on, s.
        path: positions (n, 3) of the end effector, one each tick, m.
        final_state: the measured state (7,) at rest after the end.
    """

    ended: Ended
    motions: tuple[Span, ...]
    searches: tuple[Span, ...]
    staleness: tuple[float, ...]
    path: Float64Array
    final_state: Float64Array

    @property
    def step_seconds(self) -> float:
        """Mean time from one command to the next, s."""
        starts = [motion.start for motion in self.motions]
        return float(np.mean(np.diff(starts))) if len(starts) > 1 else math.nan

    @property
    def idle_fraction(self) -> float:
        """Part of the time between the first command and the end in which the arm stood still."""
        first, last = self.motions[0].start, self.motions[-1].end
        moving = sum(
            min(motion.end, following) - motion.start
            for motion, following in zip(
                self.motions, [*(one.start for one in self.motions[1:]), math.inf], strict=True
            )
        )
        return 1.0 - moving / (last - first)

    @property
    def jerk(self) -> float:
        """Root mean square of the third derivative of the executed path, m/s^3."""
        third = np.diff(self.path, 3, axis=0) / TICK_PERIOD**3
        return float(np.sqrt((third**2).sum(axis=1).mean()))


@dataclass
class TimedLoop:
    """Runs an episode of a control mode against the simulated arm.

    Attributes:
        sim: at the start of a task.
        world_model: encodes the frames.
        planner: plans.
        delays: what things take in simulated time.
        motion_duration: what the arm takes for a step, s.
    """

    sim: FrankaSim
    world_model: WorldModel
    planner: Planner
    delays: Delays
    motion_duration: float
    _time: float = 0.0
    _frame: tuple[float, Float64Array, Image] | None = None
    _next_frame: float = 0.0
    _due: list[tuple[float, int, Event]] = field(default_factory=list)
    _order: itertools.count[int] = field(default_factory=itertools.count)
    _motions: list[Span] = field(default_factory=list)
    _searches: list[Span] = field(default_factory=list)
    _staleness: list[float] = field(default_factory=list)
    _path: list[Float64Array] = field(default_factory=list)

    def run(self, episode: Episode, transition: Transition) -> TimedEpisode:
        """Run an episode that begins at time 0, to its end."""
        while not isinstance(episode.phase, Ended):
            self._pass_time(episode)
            while self._due and self._due[0][0] <= self._time:
                episode = self._feed(episode, transition, heapq.heappop(self._due)[2])
            episode = self._feed(episode, transition, self._tick())
        self.sim.settle()
        return TimedEpisode(
            episode.phase,
            tuple(self._motions),
            tuple(self._searches),
            tuple(self._staleness),
            np.array(self._path),
            self.sim.state,
        )

    def _pass_time(self, episode: Episode) -> None:
        self.sim.advance(TICK_PERIOD)
        self._time += TICK_PERIOD
        self._path.append(self.sim.state[POSITION])
        if self._time >= self._next_frame:
            self._next_frame += self.delays.camera_period
            if _is_watched(episode, self._time):
                self._frame = self._time, self.sim.state, self.sim.render()

    def _tick(self) -> Tick:
        frame = self._frame
        delivered = frame is not None and frame[0] + self.delays.camera_delivery <= self._time
        return Tick(
            self._time,
            Measurement(self.sim.state, _stamp(self._time), self._time),
            _stamp(frame[0]) if frame is not None and delivered else None,
        )

    def _feed(self, episode: Episode, transition: Transition, event: Event) -> Episode:
        episode, effects = transition(episode, event)
        for effect in effects:
            self._perform(effect)
        return episode

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Observe():
                assert self._frame is not None, "a frame is asked for once there is one"
                taken, state, image = self._frame
                latent = self.world_model.encode(image)
                age, encoding = self._time - taken, self.delays.encoding
                seen = Observation(latent, state, _stamp(taken), age, encoding)
                self._later(encoding, Observed(self._time + encoding, seen, effect))
            case Search(request):
                plan, took = self.planner.plan(request), self.delays.planning
                plan = replace(plan, timing=replace(plan.timing, total=took))
                self._searches.append(Span(self._time, self._time + took))
                self._later(took, Planned(self._time + took, plan, took, effect.request))
            case Command(target):
                self.sim.set_target(target)
                self._motions.append(Span(self._time, self._time + self.motion_duration))
            case Hold(target):
                self.sim.set_target(target)
            case Report(observation=seen):
                self._staleness.append(self._time - seen.stamp / NANOSECONDS)

    def _later(self, delay: float, event: Event) -> None:
        heapq.heappush(self._due, (self._time + delay, next(self._order), event))


def _stamp(time: float) -> int:
    return round(time * NANOSECONDS)


def _is_watched(episode: Episode, time: float) -> bool:
    """Whether a frame taken now may be looked at; others need not be rendered."""
    match episode.phase:
        case Looking():
            return True
        case Overlapping(glance=Glance(opens=opens, asked=None)):
            return time >= opens
        case Flowing(glance=Glance(opens=opens, asked=None)):
            return time >= opens
        case _:
            return False
