"""Non-blocking control: no plan in time is waited for, and none that does not fit is obeyed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from imagined_robot import START, ImaginedRobot, ended, goal_at, picture, straight_plan

from jepa_planner_ros.control import Outcome
from jepa_planner_ros.control.blocking import transition as blocking
from jepa_planner_ros.control.episode import CancelRequested, Hold, Overlapping, Tick
from jepa_planner_ros.control.non_blocking import transition
from jepa_planner_ros.types import Plan, PlanRequest

FAR = goal_at(x=0.2, y=0.25, z=-0.1, step_budget=6)


def robot(**more: object) -> ImaginedRobot:
    return ImaginedRobot(transition, **more)  # type: ignore[arg-type]


def test_planning_is_hidden_behind_the_motion() -> None:
    arm = robot()
    result = ended(arm.run(arm.start(FAR)))
    assert result.outcome is Outcome.REACHED
    assert arm.step_seconds <= 1.03
    waiting = ImaginedRobot(blocking)
    waiting.run(waiting.start(FAR))
    assert waiting.step_seconds >= 1.8
    np.testing.assert_allclose(arm.state[:3] - START[:3], [0.2, 0.25, -0.1], atol=1e-3)


@pytest.mark.parametrize(("planning", "pace"), [(0.2, 1.0), (0.86, 1.0), (1.5, 1.5), (3.0, 3.0)])
def test_the_pace_is_that_of_the_slower_and_one_plan_is_under_way(
    planning: float, pace: float
) -> None:
    arm = robot(planning=lambda number: planning)
    arm.run(arm.start(FAR))
    assert pace <= arm.step_seconds + 1e-9 <= pace + 0.05
    asked = [time for time, _ in arm.requests]
    assert (np.diff(asked) >= planning - 1e-9).all(), "never two plans at once"


def test_a_step_is_planned_from_the_predicted_outcome_of_the_one_before() -> None:
    arm = robot()
    arm.run(arm.start(FAR))
    (_, first), (_, second) = arm.requests[:2]
    plan = straight_plan(first)
    np.testing.assert_allclose(second.scene.latent, plan.predicted_latent)
    np.testing.assert_allclose(second.scene.state, plan.states[1])
    np.testing.assert_array_equal(second.previous, plan.actions)
    assert [one.step for _, one in arm.requests] == list(range(len(arm.requests)))


def test_a_prediction_is_corrected_by_what_the_last_was_wrong_by() -> None:
    offset = np.array([0.0, 0.008, 0.0, 0.0, 0.0, 0.0, 0.0])
    arm = robot(offset=offset)
    arm.run(arm.start(FAR), until=lambda one: one.steps == 2)
    (_, before), (_, after) = arm.requests[1:3]
    plan = straight_plan(before)
    np.testing.assert_allclose(after.scene.state, plan.states[1] + 0.5 * offset, atol=1e-4)
    shift = 0.7 * (picture(before.scene.state + offset) - before.scene.latent)
    np.testing.assert_allclose(after.scene.latent, plan.predicted_latent + shift, atol=1e-3)


def test_an_arm_that_arrives_beside_the_prediction_is_corrected() -> None:
    arm = robot()
    episode = arm.run(arm.start(FAR), until=lambda one: one.steps == 1)
    arm.target = arm.target + np.array([0.0, 0.02, 0.0, 0.0, 0.0, 0.0, 0.0])
    arm.run(episode, until=lambda one: one.steps == 2)
    (_, first), (_, second) = arm.commands[:2]
    np.testing.assert_allclose((second.target - first.target)[:3], [0.05, 0.03, -0.05], atol=1e-6)
    assert arm.warnings == ""


def test_an_arm_far_from_the_prediction_is_planned_for_anew_at_rest() -> None:
    arm = robot()
    episode = arm.run(arm.start(FAR), until=lambda one: one.steps == 1)
    arm.target = arm.target + np.array([0.0, 0.1, 0.0, 0.0, 0.0, 0.0, 0.0])
    arm.run(episode, until=lambda one: one.steps == 2)
    assert "planned anew: the arm rests 100 mm" in arm.warnings
    assert "Resynchronised" in arm.warnings
    _, request = arm.requests[2]
    np.testing.assert_allclose(request.scene.state, arm.origin, atol=1e-9)


def test_a_surprising_picture_is_planned_from_anew() -> None:
    def blind(request: PlanRequest) -> Plan:
        return replace(straight_plan(request), predicted_latent=request.scene.latent + 1.0)

    arm = robot(planner=blind)
    arm.run(arm.start(FAR), until=lambda one: one.steps == 2)
    assert "non_blocking.redo_latent" in arm.warnings
    _, request = arm.requests[2]
    np.testing.assert_allclose(request.scene.latent, picture(arm.origin), atol=1e-6)


def test_an_arm_that_is_to_rest_for_another_plan_is_held_when_that_is_called_off() -> None:
    def blind(request: PlanRequest) -> Plan:
        return replace(straight_plan(request), predicted_latent=request.scene.latent + 1.0)

    arm = robot(planner=blind, motion=1.2)
    episode = arm.run(arm.start(FAR), until=lambda _: "non_blocking.redo_latent" in arm.warnings)
    episode, effects = transition(episode, CancelRequested(arm.time, "Enough."))
    (hold,) = effects
    assert isinstance(hold, Hold)
    np.testing.assert_array_equal(hold.target[:6], arm.state[:6])


def test_a_plan_for_a_subgoal_that_was_reached_is_not_obeyed() -> None:
    arm = robot()
    near, then = goal_at(x=0.05), goal_at(x=0.05, y=0.1)
    result = ended(arm.run(arm.start(near, then)))
    assert result.outcome is Outcome.REACHED
    assert result.steps == 3
    ways = [one.target[:3] - START[:3] for _, one in arm.commands]
    np.testing.assert_allclose(ways, [[0.05, 0, 0], [0.05, 0.05, 0], [0.05, 0.1, 0]], atol=1e-6)


def test_a_goal_that_is_reached_does_not_wait_for_the_plan_under_way() -> None:
    arm = robot(planning=lambda number: 1.0 if number == 0 else 30.0)
    result = ended(arm.run(arm.start(goal_at(x=0.05))))
    assert result.outcome is Outcome.REACHED
    assert result.elapsed < 5.0


def test_the_last_step_of_the_budget_is_not_planned_beyond() -> None:
    arm = robot()
    result = ended(arm.run(arm.start(goal_at(x=0.3, step_budget=2))))
    assert (result.outcome, result.steps, len(arm.requests)) == (Outcome.BUDGET_SPENT, 2, 2)


def test_a_step_that_a_limit_changed_is_waited_for() -> None:
    def down(request: PlanRequest) -> Plan:
        plan = straight_plan(request)
        return replace(plan, actions=np.array([[0.0, 0.0, -0.2, 0.0, 0.0, 0.0, 0.0]]))

    arm = robot(planner=down)
    arm.run(arm.start(goal_at(z=-0.29, step_budget=3)))
    assert "limits.step_translation" in arm.warnings
    for _, request in arm.requests:
        np.testing.assert_allclose(picture(request.scene.state), request.scene.latent, atol=1e-6)


def test_a_fault_of_the_drive_ends_the_episode() -> None:
    arm = robot()

    def stopped(tick: Tick) -> Tick:
        return replace(tick, fault="The arm does not follow.") if tick.time > 4.0 else tick

    arm.change = stopped
    result = ended(arm.run(arm.start(FAR)))
    assert (result.outcome, result.reason) == (Outcome.ABORTED, "The arm does not follow.")


def test_an_arm_that_ignores_commands_is_not_pushed_on() -> None:
    arm = robot(follows=False)
    result = ended(arm.run(arm.start(FAR)))
    assert result.outcome is Outcome.ABORTED
    assert "does not follow" in result.reason
    for _, command in arm.commands:
        assert np.abs(command.target - START).max() <= 0.05 + 1e-9


def test_the_arrival_is_seen_before_the_next_step() -> None:
    arm = robot()
    arm.run(arm.start(FAR), until=lambda one: one.steps == 3)
    for report in arm.reports[1:]:
        assert np.abs(report.observation.latent - picture(report.plan.states[0])).max() < 0.02


def test_cancel_while_moving_and_planning_holds_the_arm() -> None:
    arm = robot()
    episode = arm.run(arm.start(FAR), until=lambda one: isinstance(one.phase, Overlapping))
    for _ in range(10):
        arm.time += 0.02
        episode = arm.feed(episode, arm.tick())
    episode, effects = transition(episode, CancelRequested(arm.time, "Enough."))
    (hold,) = effects
    assert isinstance(hold, Hold)
    np.testing.assert_allclose(hold.target[:6], arm.state[:6])


def test_a_model_that_is_always_wrong_by_the_same_does_not_leave_the_arm_beside_its_goal() -> None:
    wrong_by = np.float32(0.012)

    def biased(request: PlanRequest) -> Plan:
        plan = straight_plan(request)
        return replace(plan, predicted_latent=plan.predicted_latent + wrong_by)

    arm = robot(planner=biased)
    arm.run(arm.start(goal_at(x=0.1, y=0.1, step_budget=30, energy_threshold=1e-9)))
    np.testing.assert_allclose(arm.state[:3] - START[:3], [0.1, 0.1, 0.0], atol=2e-3)
