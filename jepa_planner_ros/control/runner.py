"""Carry out an episode: feed events to its transition function and perform the effects."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from queue import Empty, SimpleQueue
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from jepa_planner_ros.control.episode import (
    CancelRequested,
    Command,
    Effect,
    Ended,
    Episode,
    Event,
    Failed,
    GripperMotion,
    Hold,
    Observation,
    Observe,
    Observed,
    Planned,
    Report,
    Search,
    Tick,
    Transition,
    Unplanned,
    Warn,
)
from jepa_planner_ros.control.settings import ControlSettings
from jepa_planner_ros.control.worker import Worker
from jepa_planner_ros.types import (
    Float32Array,
    Float64Array,
    Planner,
    PlannerUnavailableError,
    PlanRequest,
)

TICK_PERIOD = 0.02
"""s; how often the robot is looked at, and how late a cancel can be noticed."""

_log = logging.getLogger(__name__)

Encode = Callable[[NDArray[np.uint8]], Float32Array]


class RobotError(RuntimeError):
    """The robot cannot be seen or commanded; the message says why, for its operator."""


@dataclass(frozen=True, eq=False)
class Frame:
    """A camera frame and the arm's state when it was taken.

    Attributes:
        image: RGB, uint8, (height, width, 3).
        state: measured state (7,) nearest in time, base frame.
        stamp: when the frame was taken, ns.
        age: of the frame now, s.
    """

    image: NDArray[np.uint8]
    state: Float64Array
    stamp: int
    age: float


class Robot(Protocol):
    """The arm and its camera. The methods may be called from any thread."""

    def begin(self, settings: ControlSettings) -> None:
        """An episode begins: what stopped the one before does not count any more."""

    def sense(self, time: float) -> Tick:
        """What is known now; `time` is now."""

    def frame(self) -> Frame:
        """The newest camera frame. Raises `RobotError`."""

    def command(self, target: Float64Array, gripper: GripperMotion | None) -> None:
        """Send the arm to a state (7,) and tell the gripper. Raises `RobotError`."""

    def hold(self, target: Float64Array) -> None:
        """Stop the arm in motion, at or near a state (7,). Raises `RobotError`."""

    def finish(self) -> None:
        """An episode is over: what is still on its way stops."""


class Audience(Protocol):
    """Whoever follows the episode."""

    def report(self, report: Report) -> None:
        """A step was planned and commanded."""

    def warn(self, text: str) -> None:
        """Something noteworthy happened that does not end the episode."""

    def planner_failed(self, reason: str) -> None:
        """A plan could not be made, now or ever; what comes of it is told otherwise."""


class EpisodeRunner:
    """Runs one episode at a time, with the slow work in a thread of its own.

    Args:
        robot: to be seen and commanded.
        encode: from an image to latents.
        planner: to be asked for plans.
        planning: runs the planner.
        seeing: runs the encoder, which must not wait for a plan under way.
        clock: steady, s.
    """

    def __init__(
        self,
        robot: Robot,
        encode: Encode,
        planner: Planner,
        planning: Worker,
        seeing: Worker,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._robot = robot
        self._encode = encode
        self._planner = planner
        self._planning = planning
        self._seeing = seeing
        self._clock = clock

    def run(
        self,
        episode: Episode,
        transition: Transition,
        audience: Audience,
        cancel_reason: Callable[[], str | None],
    ) -> Ended:
        """Run an episode to its end, in the calling thread.

        Args:
            episode: where to begin.
            transition: the control mode.
            audience: is told of every step.
            cancel_reason: asked at every tick; the episode ends when it answers.
        """
        self._robot.begin(episode.settings)
        try:
            return self._run(episode, transition, audience, cancel_reason)
        finally:
            self._robot.finish()

    def _run(
        self,
        episode: Episode,
        transition: Transition,
        audience: Audience,
        cancel_reason: Callable[[], str | None],
    ) -> Ended:
        # A plan that arrives after the end goes to this episode's queue, and is forgotten with it.
        events: SimpleQueue[Event] = SimpleQueue()
        while not isinstance(episode.phase, Ended):
            try:
                event = self._next_event(events, cancel_reason)
                if isinstance(event, Unplanned):
                    audience.planner_failed(event.reason)
                episode, effects = transition(episode, event)
                for effect in effects:
                    self._perform(effect, events, audience)
            except Exception as error:
                reason = _sentence(error)
                if isinstance(episode.phase, Ended):
                    whole = f"{episode.phase.reason} The arm could not be told to hold: {reason}"
                    return replace(episode.phase, reason=whole)
                events.put(Failed(self._clock(), reason))
        return episode.phase

    def _next_event(
        self, events: SimpleQueue[Event], cancel_reason: Callable[[], str | None]
    ) -> Event:
        if reason := cancel_reason():
            return CancelRequested(self._clock(), reason)
        try:
            return events.get(timeout=TICK_PERIOD)
        except Empty:
            return self._robot.sense(self._clock())

    def _perform(self, effect: Effect, events: SimpleQueue[Event], audience: Audience) -> None:
        match effect:
            case Observe():
                self._in_background(self._seeing, lambda: self._observe(effect), events)
            case Search(request):
                self._in_background(self._planning, lambda: self._plan(request), events)
            case Command(target, gripper):
                self._robot.command(target, gripper)
            case Hold(target):
                self._robot.hold(target)
            case Report():
                audience.report(effect)
            case Warn(text):
                audience.warn(text)

    def _in_background(
        self, worker: Worker, work: Callable[[], Event], events: SimpleQueue[Event]
    ) -> None:
        worker.submit(work).add_done_callback(lambda done: events.put(done.result()))

    def _observe(self, asked: Observe) -> Observed | Unplanned | Failed:
        try:
            frame = self._robot.frame()
            begun = self._clock()
            latent = self._encode(frame.image)
        except PlannerUnavailableError as away:
            return self._without_planner(away, asked)
        except Exception as error:
            reason = _complaint("The camera frame was not encoded", error)
            return Failed(self._clock(), reason, asked)
        now = self._clock()
        seen = Observation(latent, frame.state, frame.stamp, frame.age, now - begun)
        return Observed(now, seen, asked)

    def _plan(self, request: PlanRequest) -> Planned | Unplanned:
        begun = self._clock()
        try:
            plan = self._planner.plan(request)
        except PlannerUnavailableError as away:
            return self._without_planner(away, request)
        except Exception as error:
            return Unplanned(self._clock(), _complaint("The planner failed", error), None, request)
        now = self._clock()
        return Planned(now, plan, now - begun, request)

    def _without_planner(
        self, away: PlannerUnavailableError, asked: Observe | PlanRequest
    ) -> Unplanned:
        reason = f"The planner is away: {away}"
        return Unplanned(self._clock(), reason, away.retry_after, asked)


def _complaint(what: str, error: Exception) -> str:
    _log.debug(what, exc_info=error)
    return f"{what}: {str(error) or type(error).__name__}"


def _sentence(error: Exception) -> str:
    """What an operator is told of an error; what only a developer can mend goes to the log, too."""
    if isinstance(error, RobotError):
        return str(error)
    _log.error("The control loop failed", exc_info=error)
    return f"The control loop failed: {str(error) or type(error).__name__}"
