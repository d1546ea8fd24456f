r"""Non-blocking control: while a step moves the arm, the next one is planned from its outcome.

::

    start -> Settling -> Looking -> Encoding -> Planning -> Deciding     as in blocking control,
                ^                                              |         for the first step
                |                                           Command
                |                                              v
                |                        +---------------> Overlapping <---------------+
                |                        |   the arm moves, the planner searches from  |
                |                        |   the prediction, the camera sees it arrive |
                |                        |                     |                       |
                |                        |             all three are done              |
                |                        |                     v                       |
                |                  used: as predicted     compared with      corrected: arrived
                |                        +---------------- what is seen ----- beside it --+
                |                                              |
                +---- redone: another sub-goal, far from ------+---- reached, spent ----> Ended
                      prediction or target, cut by a limit

A plan made from a prediction is

- *used* when the arm arrives within ``non_blocking.use_distance`` and ``use_angle`` of where it was
  expected: its action is added to the last target;
- *corrected* when it arrives beside that, but within ``limits.drift_distance`` and ``drift_angle``:
  the target is moved against the error, so that the end of the step is where it was planned to be;
- *redone* when the arm is farther away from there or from its target, when the latents seen differ
  from those predicted by ``non_blocking.redo_latent`` or more, or when the sub-goal was reached in
  between.

What was seen corrects the next prediction, too (see `Prediction.corrected`), so that errors of the
world model neither grow from step to step nor last.

There is never more than one plan under way. When planning takes longer than the motion, the arm
waits at its target and the loop runs at the planner's pace.
"""

from __future__ import annotations

from dataclasses import replace

from jepa_planner_ros.control import acting, ending, judging, looking, stages
from jepa_planner_ros.control.episode import (
    Deciding,
    Effect,
    Ended,
    Episode,
    Event,
    Measurement,
    Next,
    Observation,
    Observed,
    Outcome,
    Overlapping,
    Planned,
    Search,
    Tick,
    Warn,
)
from jepa_planner_ros.control.prediction import Prediction
from jepa_planner_ros.control.safety import UnsafeCommandError, distance, drift
from jepa_planner_ros.geometry import POSITION
from jepa_planner_ros.types import Float64Array, Scene


def transition(episode: Episode, event: Event) -> Next:
    """What an event makes of an episode, and what is to be done about it."""
    episode = ending.sensed(episode, event)
    if (interruption := ending.interrupted(episode, event)) is not None:
        return interruption
    match episode.phase, event:
        case Overlapping() as overlapping, Planned():
            return replace(episode, phase=replace(overlapping, planned=event)), ()
        case Overlapping() as overlapping, Observed():
            return _see(episode, overlapping, event)
        case Overlapping() as overlapping, Tick(arm=Measurement() as arm):
            return _overlap(episode, overlapping, event, arm)
        case _:
            return stages.from_rest(episode, event, _first_step)


def _see(episode: Episode, overlapping: Overlapping, event: Observed) -> Next:
    """Judge the arrival at once: a goal that is reached needs no further plan."""
    judged, effects = judging.judge(episode, event.time, event.observation)
    if isinstance(judged.phase, Ended):
        return judged, effects
    seen = replace(overlapping.glance, seen=event.observation)
    return replace(judged, phase=replace(overlapping, glance=seen)), effects


def _overlap(episode: Episode, overlapping: Overlapping, tick: Tick, arm: Measurement) -> Next:
    glance, following = looking.glance(episode, overlapping.glance, tick)
    if isinstance(following[0].phase, Ended):
        return following
    overlapping = replace(overlapping, glance=glance)
    episode, effects = replace(episode, phase=overlapping), following[1]
    seen, planned = glance.seen, overlapping.planned
    if seen is None or planned is None or tick.time < overlapping.travel.arrives:
        return episode, effects
    return _go_on(episode, overlapping, seen, planned, arm, tick.time)


def _go_on(
    episode: Episode,
    overlapping: Overlapping,
    seen: Observation,
    planned: Planned,
    arm: Measurement,
    time: float,
) -> Next:
    """Use, correct or redo the plan that was made from a prediction."""
    expected, settings, origin = overlapping.expected, episode.settings, overlapping.travel.origin
    assert episode.target is not None, "the arm moves to a target"
    if expected.subgoal != episode.subgoal:
        return looking.rest_again(episode, time, origin), ()
    # Predictions are drawn after an arm that is held back; its targets must not run away from it.
    if missed := (
        drift(expected.state, arm.state, settings.safety)
        or drift(episode.target, arm.state, settings.safety)
    ):
        warning = Warn(f"The next step is planned anew: {missed}.")
        return looking.rest_again(episode, time, origin), (warning,)
    limit = settings.look_ahead.redo_latent
    if (surprise := expected.surprise(seen.latent)) >= limit:
        warning = Warn(
            f"The next step is planned anew: what is seen differs by {surprise:.3f} from what was "
            f"predicted, and non_blocking.redo_latent is {limit:g}."
        )
        return looking.rest_again(episode, time, origin), (warning,)
    action = planned.plan.actions[0].copy()
    metres, radians = distance(expected.state, arm.state)
    if metres > settings.look_ahead.use_distance or radians > settings.look_ahead.use_angle:
        action[POSITION] -= (arm.state - expected.state)[POSITION]
    following = Prediction.of(planned.plan, episode.subgoal)
    prediction = following.corrected(expected, seen.latent, arm.state)
    return _step(replace(episode, drifts=0), action, seen, planned, prediction, arm, time)


def _first_step(episode: Episode, deciding: Deciding, arm: Measurement, time: float) -> Next:
    plan = deciding.planned.plan
    start = replace(episode, target=deciding.planning.base)
    seen = deciding.planning.observation
    prediction = Prediction.of(plan, episode.subgoal)
    return _step(start, plan.actions[0], seen, deciding.planned, prediction, arm, time)


def _step(
    episode: Episode,
    action: Float64Array,
    seen: Observation,
    planned: Planned,
    prediction: Prediction,
    arm: Measurement,
    time: float,
) -> Next:
    """Take an action from the last target and have the step after it planned meanwhile."""
    assert episode.target is not None, "a step starts from a target"
    try:
        accepted = judging.accept(episode, planned.plan)
        step = acting.act(accepted, episode.target, action, arm, time)
    except UnsafeCommandError as refusal:
        return ending.end(episode, time, Outcome.ABORTED, str(refusal))
    moving = step.episode
    telling = acting.report(episode, seen, planned, step.target)
    effects: tuple[Effect, ...] = (*step.effects, telling, *acting.fallback(planned.plan))
    if not step.exact or moving.step >= moving.present.step_budget:
        return acting.settling_after(step), effects
    scene = Scene(prediction.latent, prediction.state, moving.present.latent)
    request = judging.request(moving, scene)
    overlapping = Overlapping(step.travel, acting.glance_after(step), prediction, request)
    return replace(moving, phase=overlapping), (*effects, Search(request))
