"""What was seen against what is asked for; which plan to ask for, and whether it still holds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from jepa_planner_ros.control.ending import end
from jepa_planner_ros.control.episode import (
    Deciding,
    Effect,
    Episode,
    Next,
    Observation,
    Outcome,
    Planning,
    Search,
    SubGoal,
    Tick,
    Warn,
)
from jepa_planner_ros.control.looking import rest_again
from jepa_planner_ros.control.safety import (
    UnsafeCommandError,
    at_pose,
    drift,
    require_finite,
    require_live,
    require_model,
)
from jepa_planner_ros.control.standstill import CHECK_ARM
from jepa_planner_ros.geometry import GRIPPER
from jepa_planner_ros.types import Plan, PlanRequest, Scene, SearchSettings


def judge(episode: Episode, time: float, seen: Observation) -> Next:
    """Compare an observation with the sub-goal; the episode ends if all is reached or spent."""
    before = episode.unchanged_since
    if before is None or not np.array_equal(before.latent, seen.latent):
        before = seen
    try:
        require_finite("The encoded camera frame", seen.latent)
        require_finite("The measured state", seen.state)
        require_live(before.state, seen.state)
    except UnsafeCommandError as refusal:
        return end(episode, time, Outcome.ABORTED, str(refusal))
    energy = _energy(seen, episode.present)
    episode = replace(episode, seen=seen, unchanged_since=before, energy=energy)
    while _reached(episode):
        if episode.subgoal + 1 == len(episode.goal.subgoals):
            reason = f"Reached the goal at {episode.progress}."
            return end(episode, time, Outcome.REACHED, reason)
        episode = replace(episode, subgoal=episode.subgoal + 1, step=0, previous=None)
        episode = replace(episode, energy=_energy(seen, episode.present))
    if episode.step >= episode.present.step_budget:
        reason = (
            f"The budget was spent at {episode.progress}: raise step_budget or energy_threshold, "
            "or give a photograph nearer to where the arm is."
        )
        target, limits = episode.target, episode.settings.safety
        if target is not None and (missed := drift(target, seen.state, limits)):
            reason += f" The arm does not follow: {missed}."
        return end(episode, time, Outcome.BUDGET_SPENT, reason)
    return episode, ()


def _reached(episode: Episode) -> bool:
    closing = episode.present.close_gripper_from
    gripper_done = closing is None or episode.step > closing
    return gripper_done and episode.energy <= episode.present.energy_threshold


def _energy(seen: Observation, subgoal: SubGoal) -> float:
    return float(np.abs(seen.latent - subgoal.latent).mean())


def plan(episode: Episode, time: float, seen: Observation, search: SearchSettings) -> Next:
    """Ask for a plan from where the arm rests; its action is added to the last target.

    To the measured pose instead where the arm has drifted from its last target.
    """
    limits, base = episode.settings.safety, episode.target
    effects: tuple[Effect, ...] = ()
    if base is None:
        base = seen.state
    elif missed := drift(base, seen.state, limits):
        if episode.drifts == limits.drift_patience:
            reason = (
                f"The arm does not follow: {missed}, as after the {episode.drifts} steps before. "
                f"{CHECK_ARM}"
            )
            return end(episode, time, Outcome.ABORTED, reason)
        base = at_pose(seen.state, gripper=base[GRIPPER])
        effects = (Warn(f"Resynchronised: {missed}."),)
        episode = replace(episode, drifts=episode.drifts + 1)
    else:
        episode = replace(episode, drifts=0)
    scene = Scene(seen.latent, seen.state, episode.present.latent)
    asking = Search(request(episode, scene, search))
    return replace(episode, phase=Planning(seen, base, asking.request)), (*effects, asking)


def goal_search(episode: Episode) -> SearchSettings:
    """The search that the goal asks for."""
    return episode.goal.search


def request(episode: Episode, scene: Scene, search: SearchSettings | None = None) -> PlanRequest:
    """The question for the episode's next plan, from a scene."""
    goal, closing = episode.goal, episode.present.close_gripper_from
    return PlanRequest(
        scene,
        search or goal.search,
        seed=goal.seed,
        step=episode.plans,
        previous=episode.previous,
        close_gripper_from=None if closing is None else max(0, closing - episode.step),
        deadline=goal.plan_deadline,
    )


def decide(episode: Episode, deciding: Deciding, tick: Tick) -> Next | None:
    """Look and plan again if the arm is not where it was planned from; else None."""
    assert tick.arm is not None
    state = deciding.planning.observation.state
    if drift(state, tick.arm.state, episode.settings.safety) is None:
        return None
    warning = Warn("The arm was moved while a plan was made; planning again from where it rests.")
    return rest_again(episode, tick.time), (warning,)


def accept(episode: Episode, plan: Plan) -> Episode:
    """The episode with a plan counted, and its actions kept to start the next search from.

    Raises:
        UnsafeCommandError: it was made by another model, or is not finite.
    """
    require_model(plan.model_fingerprint, episode.goal.model_fingerprint)
    require_finite("The planned action", plan.actions)
    return replace(episode, plans=episode.plans + 1, previous=plan.actions, outage=None)
