"""Every control mode while the planner is away: the arm holds, and the goal is not given up."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pytest
from imagined_robot import ImaginedRobot, ended, goal_at

from jepa_planner_ros.control import CONTROL_MODES, Outcome
from jepa_planner_ros.control.episode import (
    Effect,
    Episode,
    Event,
    Flowing,
    Observe,
    Overlapping,
    Planned,
    Planning,
    Search,
    Unplanned,
)

FROM, RETRY_AFTER = 3.0, 0.5
AWAY = "The planner is away: no route to host."


@dataclass
class RobotWithoutPlanner(ImaginedRobot):
    """No plan arrives from a certain time on, until the planner is back."""

    back: float = 13.0

    def feed(self, episode: Episode, event: Event) -> Episode:
        if isinstance(event, Planned) and FROM <= self.time < self.back:
            event = Unplanned(self.time, AWAY, RETRY_AFTER, event.request)
        return super().feed(episode, event)


@pytest.mark.parametrize("mode", CONTROL_MODES)
def test_the_arm_holds_and_goes_on_when_the_planner_is_back(mode: str) -> None:
    robot = RobotWithoutPlanner(CONTROL_MODES[mode])
    result = ended(robot.run(robot.start(goal_at(0.25, 0.2))))
    assert result.outcome is Outcome.REACHED, result.reason
    times = [time for time, _ in robot.commands]
    assert any(time < FROM for time in times)
    # What was planned before may still be carried out: a queue is a few steps long.
    assert not any(FROM + 6.0 < time < robot.back for time in times)
    assert robot.warnings.count("The arm holds") == 1
    assert AWAY in robot.warnings
    asked = [time for time, _ in robot.requests if FROM < time < robot.back]
    pauses = [later - sooner for sooner, later in pairwise(asked)]
    assert min(pauses) >= RETRY_AFTER
    assert len(asked) > 3


@pytest.mark.parametrize("mode", CONTROL_MODES)
def test_the_time_limit_ends_the_wait_and_names_its_cause(mode: str) -> None:
    robot = RobotWithoutPlanner(CONTROL_MODES[mode], back=1e9)
    result = ended(robot.run(robot.start(goal_at(0.25, 0.2), time_limit=20.0)))
    assert result.outcome is Outcome.TIMED_OUT
    assert "The time limit of 20 s passed" in result.reason
    assert "No plan for the last 1" in result.reason
    assert result.reason.endswith(AWAY)


def is_planning(episode: Episode) -> bool:
    match episode.phase:
        case Planning() | Overlapping(planned=None):
            return True
        case Flowing(search=search):
            return search is not None
        case _:
            return False


@pytest.mark.parametrize("mode", CONTROL_MODES)
def test_a_plan_that_can_never_be_made_ends_the_goal_at_once(mode: str) -> None:
    robot = ImaginedRobot(CONTROL_MODES[mode])
    episode = robot.run(
        robot.start(goal_at(0.25, 0.2)), until=lambda one: one.plans == 1 and is_planning(one)
    )
    _, request = robot.requests[-1]
    episode = robot.feed(episode, Unplanned(robot.time, "The planner failed: NaN.", None, request))
    assert ended(episode).outcome is Outcome.ABORTED
    assert ended(episode).reason == "The planner failed: NaN."


@dataclass
class RobotTurnedDown(ImaginedRobot):
    """Of what the first step asks for while the arm moves, the planner turns one thing down."""

    refused: type[Effect] = Search
    refused_after: float = 1.1
    retry_after: float = RETRY_AFTER
    asked: Counter[type[Effect]] = field(default_factory=Counter)

    def perform(self, effect: Effect) -> None:
        self.asked[type(effect)] += 1
        if isinstance(effect, self.refused) and self.asked[self.refused] == 2:
            asked = effect.request if isinstance(effect, Search) else effect
            time = self.time + self.refused_after
            self.later(self.refused_after, Unplanned(time, AWAY, self.retry_after, asked))
        else:
            super().perform(effect)


@pytest.mark.parametrize("mode", ["non_blocking", "queue"])
def test_a_plan_that_was_given_up_is_not_taken_for_the_next(mode: str) -> None:
    robot = RobotTurnedDown(CONTROL_MODES[mode], planning=lambda number: 3.0, refused=Observe)
    result = ended(robot.run(robot.start(goal_at(0.25, 0.2))))
    assert result.outcome is Outcome.REACHED, result.reason
    assert robot.reports[1].request is robot.requests[2][1]


@pytest.mark.parametrize("mode", ["non_blocking", "queue"])
def test_a_frame_that_was_given_up_is_not_taken_for_one_at_rest(mode: str) -> None:
    robot = RobotTurnedDown(CONTROL_MODES[mode], encoding=1.5, refused=Search)
    result = ended(robot.run(robot.start(goal_at(0.25, 0.2))))
    assert result.outcome is Outcome.REACHED, result.reason
    (_, first), *_ = robot.commands
    np.testing.assert_allclose(robot.reports[1].observation.state, first.target, atol=1e-6)


@pytest.mark.parametrize("mode", ["non_blocking", "queue"])
def test_a_planner_that_is_busy_while_the_arm_moves_is_given_its_time(mode: str) -> None:
    robot = RobotTurnedDown(CONTROL_MODES[mode], refused_after=0.1, retry_after=7.0)
    result = ended(robot.run(robot.start(goal_at(0.25, 0.2))))
    assert result.outcome is Outcome.REACHED, result.reason
    (departed, _), *_ = robot.commands
    _, (asked_again, _), *_ = robot.requests
    assert asked_again >= departed + 0.1 + 7.0


@pytest.mark.parametrize("mode", ["non_blocking", "queue"])
@pytest.mark.parametrize("retry_after", [RETRY_AFTER, None])
def test_what_becomes_of_a_plan_that_was_given_up_disturbs_nothing(
    mode: str, retry_after: float | None
) -> None:
    robot = RobotTurnedDown(CONTROL_MODES[mode], planning=lambda number: 3.0, refused=Observe)
    episode = robot.run(robot.start(goal_at(0.25, 0.2)), until=lambda _: len(robot.requests) == 3)
    _, given_up = robot.requests[1]
    late = Unplanned(robot.time, AWAY, retry_after, given_up)
    assert CONTROL_MODES[mode](episode, late) == (episode, ())
