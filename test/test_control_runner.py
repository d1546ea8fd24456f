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
    Tick,
)
from jepa_planner_ros.control.runner import EpisodeRunner, Frame, RobotError
from jepa_planner_ros.types import ModelDescription, Plan, PlanRequest

LATENT = np.zeros((1, 1), np.float32)
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


class NoPlanner:
    def describe(self) -> ModelDescription:
        raise NotImplementedError

    def plan(self, request: PlanRequest) -> Plan:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


class Listener:
    def report(self, report: Report) -> None:
        pass

    def warn(self, text: str) -> None:
        pass


def run(transition: Callable[[Episode, Event], tuple[Episode, tuple[Effect, ...]]]) -> Ended:
    planning, seeing = Worker("planning"), Worker("seeing")
    runner = EpisodeRunner(BrokenRobot(), lambda image: LATENT, NoPlanner(), planning, seeing)
    episode = Episode(GOAL, ControlSettings(), started=0.0, phase=Looking(0, 10.0))
    try:
        return runner.run(episode, transition, Listener(), lambda: None)
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
