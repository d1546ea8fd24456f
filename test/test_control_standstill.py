"""Every control mode with an arm that is held, and with one that only seems to be."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from imagined_robot import START, ImaginedRobot, ended, goal_at, straight_plan

from jepa_planner_ros.control import CONTROL_MODES, ControlSettings, Outcome
from jepa_planner_ros.control.standstill import Standstill
from jepa_planner_ros.geometry import apply_action
from jepa_planner_ros.types import Plan, PlanRequest

LIMITS = ControlSettings().safety
FAR = goal_at(x=0.25, step_budget=40)


def small_steps(request: PlanRequest) -> Plan:
    """Straight towards the goal, but by 9 mm at most: a third of what counts as drift."""
    plan = straight_plan(request)
    actions = plan.actions.clip(-0.009, 0.009)
    states = [request.scene.state]
    for action in actions:
        states.append(apply_action(states[-1], action))
    latent = request.scene.latent + actions[0][:3].astype(np.float32)
    return replace(plan, actions=actions, states=np.array(states), predicted_latent=latent)


@dataclass
class HeldBack(ImaginedRobot):
    """An arm that goes only a part of every way."""

    part: float = 0.1

    def go_to(self, target: np.ndarray) -> None:
        super().go_to(self.state + self.part * (target - self.state))


@pytest.mark.parametrize("mode", CONTROL_MODES)
def test_an_arm_that_small_steps_do_not_move_ends_the_episode(mode: str) -> None:
    arm = ImaginedRobot(CONTROL_MODES[mode], planner=small_steps, follows=False)
    result = ended(arm.run(arm.start(FAR)))
    assert result.outcome is Outcome.ABORTED
    assert "does not follow: 4 steps that should have moved it have not" in result.reason
    assert result.steps == LIMITS.drift_patience + 1


@pytest.mark.parametrize("mode", CONTROL_MODES)
def test_targets_do_not_run_away_from_an_arm_that_is_held_back(mode: str) -> None:
    arm = HeldBack(CONTROL_MODES[mode], planner=small_steps)
    ahead = []

    def watch(episode: object) -> bool:
        ahead.append(np.abs(arm.commands[-1][1].target - arm.state).max() if arm.commands else 0.0)
        return False

    arm.run(arm.start(FAR), until=watch)
    assert max(ahead) <= LIMITS.drift_distance + 0.02
    assert arm.state[0] > START[0] + 0.05, "it does move"


@pytest.mark.parametrize("mode", CONTROL_MODES)
def test_an_arm_that_rests_beside_its_goal_is_not_taken_for_one_that_is_held(mode: str) -> None:
    """It keeps 8 mm from its targets. These do not change any more, and so it stays."""
    offset = np.array([0.0, 0.008, 0.0, 0.0, 0.0, 0.0, 0.0])
    arm = ImaginedRobot(CONTROL_MODES[mode], offset=offset)
    goal = goal_at(x=0.1, y=0.008, step_budget=12, energy_threshold=-1.0)
    result = ended(arm.run(arm.start(goal)))
    assert (result.outcome, result.steps) == (Outcome.BUDGET_SPENT, 12)
    np.testing.assert_allclose(arm.state[:3] - START[:3], [0.1, 0.008, 0.0], atol=1e-3)


def test_only_steps_that_move_any_arm_count() -> None:
    base = START + np.array([0.0, 0.008, 0.0, 0.0, 0.0, 0.0, 0.0])
    stands = Standstill(START, base)
    assert stands.told(base).steps == 0, "the target has not changed"
    assert stands.told(START).steps == 0, "it is there"
    assert stands.told(base + np.array([0.006, 0, 0, 0, 0, 0, 0])).told(base).steps == 1
