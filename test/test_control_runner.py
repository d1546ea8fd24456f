"""The runner with a robot that fails: whatever goes wrong, the episode ends with its reason."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from jepa_planner_ros.control import ControlSettings, Goal, Outcome, SubGoal, Worker
from jepa_planner_ros.control.episode import (
    Effect,
    Ended,
    Episode,
    Event,
    Failed,
    GripperMotion,
    Hold,
    Looking,
    Report,
    Search,
    Tick,
    Unplanned,
)
from jepa_planner_ros.control.runner import EpisodeRunner, Frame, RobotError
from jepa_planner_ros.search import FAST_SEARCH
from jepa_planner_ros.types import (
    ModelDescription,
    Plan,
    PlannerError,
    PlannerUnavailableError,
    PlanRequest,
    Scene,
)

LATENT = np.zeros((1, 1), np.float32)
SCENE = Scene(LATENT, np.zeros(7), LATENT)
GOAL = Goal((SubGoal(LATENT, 0.1, 1),), 10.0, "model")


class BrokenRobot:
    """Senses nothing, and cannot be commanded."""

    def begin(self, settings: ControlSettings) -> None:
        pass

    def sense(self, time: float) -> Tick:
        return Tick(time, None, None)

    def frame(self) -> Frame:
        raise RobotError("The camera is gone.")

    def command(self, target: np.ndarray, gripper: GripperMotion | None) -> None:
        raise RobotError("Nobody listens on /target_pose.")

    def hold(self, target: np.ndarray) -> None:
        raise RobotError("Nobody listens on /target_pose.")

    def finish(self) -> None:
        pass


class BrokenPlanner:
    def __init__(self, error: Exception | None) -> None:
        self._error = error or NotImplementedError()

    def describe(self) -> ModelDescription:
        raise NotImplementedError

    def plan(self, request: PlanRequest) -> Plan:
        raise self._error

    def close(self) -> None:
        raise NotImplementedError


class Listener:
    def __init__(self) -> None:
        self.failures: list[str] = []

    def report(self, report: Report) -> None:
        pass

    def planner_failed(self, reason: str) -> None:
        self.failures.append(reason)

    def warn(self, text: str) -> None:
        pass


def run(
    transition: Callable[[Episode, Event], tuple[Episode, tuple[Effect, ...]]],
    error: Exception | None = None,
    listener: Listener | None = None,
) -> Ended:
    planning, seeing = Worker("planning"), Worker("seeing")
    runner = EpisodeRunner(
        BrokenRobot(), lambda image: LATENT, BrokenPlanner(error), planning, seeing
    )
    episode = Episode(GOAL, ControlSettings(), started=0.0, phase=Looking(0, 10.0))
    try:
        return runner.run(episode, transition, listener or Listener(), lambda: None)
    finally:
        assert planning.stop(5.0)
        assert seeing.stop(5.0)


def finish(episode: Episode, reason: str) -> Episode:
    return replace(episode, phase=Ended(Outcome.ABORTED, reason, 0.0, 0, 0.0))


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (RobotError("The arm is gone."), "The arm is gone."),
        (ZeroDivisionError("division by zero"), "The control loop failed: division by zero"),
    ],
)
def test_an_error_in_the_loop_becomes_an_event(error: Exception, reason: str) -> None:
    def transition(episode: Episode, event: Event) -> tuple[Episode, tuple[Effect, ...]]:
        if isinstance(event, Failed):
            return finish(episode, event.reason), ()
        raise error

    assert run(transition).reason == reason


def test_a_hold_that_cannot_be_sent_is_told() -> None:
    def transition(episode: Episode, event: Event) -> tuple[Episode, tuple[Effect, ...]]:
        return finish(episode, "Cancelled."), (Hold(np.zeros(7)),)

    assert run(transition).reason == (
        "Cancelled. The arm could not be told to hold: Nobody listens on /target_pose."
    )


@pytest.mark.parametrize(
    ("error", "reason", "retry_after"),
    [
        (PlannerUnavailableError("no route", 2.5), "The planner is away: no route", 2.5),
        (PlannerError("NaN"), "The planner failed: NaN", None),
        (ZeroDivisionError(), "The planner failed: ZeroDivisionError", None),
    ],
)
def test_a_planner_that_fails_is_told_apart_from_one_that_is_away(
    error: Exception, reason: str, retry_after: float | None
) -> None:
    listener, seen = Listener(), []

    def transition(episode: Episode, event: Event) -> tuple[Episode, tuple[Effect, ...]]:
        if isinstance(event, Unplanned):
            seen.append(event)
            return finish(episode, event.reason), ()
        asked = episode.phase == Looking(0, 11.0)
        search = () if asked else (Search(PlanRequest(SCENE, FAST_SEARCH)),)
        return replace(episode, phase=Looking(0, 11.0)), search

    assert run(transition, error, listener).reason == reason
    assert listener.failures == [reason]
    assert seen[0].retry_after == retry_after
