r"""Control by an action queue: plans are chunks of targets, merged while the arm moves along them.

::

    start -> Settling -> Looking -> Encoding -> Planning -> Deciding     as in blocking control,
                ^                                              |         for the first chunk
                |                                            chunk
                |                                              v
                |                     +-------------------> Flowing --------------+
                |                     |   arrived: take the next target           |
                |                     |   few targets wait: ask for a chunk       |
                |                     |   chunk: drop what was taken, merge       |
                |                     +-------------------------------------------+
                |                                              |
                +------- far from the target, gripper, --------+---- reached, spent ----> Ended
                         another sub-goal

- A plan is asked for when the queue holds at most ``queue.threshold`` of a chunk, and only one is
  under way. Where the outcome of a motion can be foreseen, as that of the newest plan's first step,
  the chunk after it is planned from that as soon as the motion begins, as in non-blocking control;
  else from the arrival that was seen last.
- A similarity filter may leave out observations that resemble the one last planned from. It cannot
  stall the arm: with an empty queue every observation is planned from.
- A target counts as taken once it has been commanded, and the next one is taken only when the arm
  has been measured to arrive; so what a new chunk repeats of the past is known, not estimated.
- With an empty queue the arm holds its last target.
"""

from __future__ import annotations

import math
from dataclasses import replace

from jepa_planner_ros.control import acting, ending, judging, looking, stages
from jepa_planner_ros.control.acting import Step
from jepa_planner_ros.control.action_queue import MERGE_RULES, ActionQueue
from jepa_planner_ros.control.episode import (
    ChunkSearch,
    ChunkSource,
    Deciding,
    Effect,
    Ended,
    Episode,
    Event,
    Flowing,
    Measurement,
    Next,
    Observation,
    Observed,
    Outcome,
    Planned,
    Search,
    Tick,
    Warn,
)
from jepa_planner_ros.control.prediction import Prediction
from jepa_planner_ros.control.safety import UnsafeCommandError, distance, drift
from jepa_planner_ros.geometry import action_between, apply_action
from jepa_planner_ros.types import Float64Array, Plan, Scene, SearchSettings


def transition(episode: Episode, event: Event) -> Next:
    """What an event makes of an episode, and what is to be done about it."""
    episode = ending.sensed(episode, event)
    if (interruption := ending.interrupted(episode, event)) is not None:
        return interruption
    match episode.phase, event:
        case Flowing() as flowing, Planned():
            return _merge(episode, flowing, event)
        case Flowing() as flowing, Observed():
            return _see(episode, flowing, event)
        case Flowing() as flowing, Tick(arm=Measurement() as arm):
            return _flow(episode, flowing, event, arm)
        case _:
            return stages.from_rest(episode, event, _first_chunk, chunk_search)


def chunk_search(episode: Episode) -> SearchSettings:
    """The goal's search, looking as far ahead as a chunk is long."""
    search = episode.goal.search
    # Weights of the steps are for another number of them.
    steps = search.energy.steps if isinstance(search.energy.steps, str) else "mean"
    energy = replace(search.energy, steps=steps)
    return replace(search, horizon=episode.settings.queue.chunk, energy=energy)


def chunk_targets(base: Float64Array, plan: Plan) -> tuple[Float64Array, ...]:
    """The states (7,) that a plan's actions lead to, one after the other, from a state (7,)."""
    targets = []
    for action in plan.actions:
        base = apply_action(base, action)
        targets.append(base)
    return tuple(targets)


def _first_chunk(episode: Episode, deciding: Deciding, arm: Measurement, time: float) -> Next:
    planning, planned = deciding.planning, deciding.planned
    try:
        episode = judging.accept(replace(episode, target=planning.base), planned.plan)
    except UnsafeCommandError as refusal:
        return ending.end(episode, time, Outcome.ABORTED, str(refusal))
    seen = planning.observation
    chunk = chunk_targets(planning.base, planned.plan)
    queue = ActionQueue().merged(0, chunk, MERGE_RULES["replace"])
    source = ChunkSource(seen, 0, planned, _ratio(episode, seen, planned))
    episode, effects = _take(episode, queue, source, None, seen, None, arm, time)
    return episode, (*effects, *acting.fallback(planned.plan))


def _take(
    episode: Episode,
    queue: ActionQueue,
    source: ChunkSource,
    search: ChunkSearch | None,
    seen: Observation,
    expected: Prediction | None,
    arm: Measurement,
    time: float,
) -> Next:
    """Go to the next target in the queue and, where its outcome can be foreseen, plan from that."""
    assert episode.target is not None, "a queue starts from a target"
    target, queue = queue.take()
    try:
        step = acting.act(
            episode, episode.target, action_between(episode.target, target), arm, time
        )
    except UnsafeCommandError as refusal:
        return ending.end(episode, time, Outcome.ABORTED, str(refusal))
    telling = replace(
        acting.report(episode, source.observation, source.planned, step.target),
        queue_length=len(queue),
        ratio=source.ratio,
    )
    effects: tuple[Effect, ...] = (*step.effects, telling)
    foreseen = _foreseen(episode, queue, source, step, seen, expected)
    glance = acting.glance_after(step)
    flowing = Flowing(step.travel, glance, queue, source, search, foreseen)
    moving = step.episode
    if foreseen is not None and search is None and _is_wanted(moving, flowing, seen):
        scene = Scene(foreseen.latent, foreseen.state, moving.present.latent)
        flowing, asking = _ask(moving, flowing, seen, scene)
        effects = (*effects, asking)
    return replace(moving, phase=flowing), effects


def _foreseen(
    episode: Episode,
    queue: ActionQueue,
    source: ChunkSource,
    step: Step,
    seen: Observation,
    expected: Prediction | None,
) -> Prediction | None:
    """What a step should end in: known where it is the first of the newest plan.

    Neither the limits nor merging may have led it somewhere else.
    """
    plan = source.planned.plan
    if source.first != queue.taken or episode.target is None:
        return None
    metres, _ = distance(apply_action(episode.target, plan.actions[0]), step.target)
    if metres > episode.settings.look_ahead.use_distance:
        return None
    foreseen = Prediction.of(plan, episode.subgoal)
    return foreseen if expected is None else foreseen.corrected(expected, seen.latent, seen.state)


def _see(episode: Episode, flowing: Flowing, event: Observed) -> Next:
    """Judge an arrival and, where it was not foreseen and few targets wait, plan from it."""
    before, seen = episode.subgoal, event.observation
    episode, effects = judging.judge(episode, event.time, seen)
    if isinstance(episode.phase, Ended):
        return episode, effects
    queue = flowing.queue if episode.subgoal == before else flowing.queue.emptied()
    flowing = replace(flowing, queue=queue, glance=replace(flowing.glance, seen=seen))
    will_be_foreseen = len(queue) > 0 and flowing.source.first == queue.taken + 1
    if flowing.search is None and not will_be_foreseen and _is_wanted(episode, flowing, seen):
        flowing, asking = _ask(episode, flowing, seen, _scene(episode, seen))
        return replace(episode, phase=flowing), (asking,)
    return replace(episode, phase=flowing), ()


def _scene(episode: Episode, seen: Observation) -> Scene:
    return Scene(seen.latent, seen.state, episode.present.latent)


def _is_wanted(episode: Episode, flowing: Flowing, seen: Observation) -> bool:
    """Whether a plan should be asked for: few targets wait, and there is something new to see."""
    if episode.step >= episode.present.step_budget:
        return False
    return _runs_low(episode, flowing) and not _similar(episode, flowing, seen)


def _runs_low(episode: Episode, flowing: Flowing) -> bool:
    settings = episode.settings.queue
    return len(flowing.queue) <= settings.threshold * settings.chunk


def _similar(episode: Episode, flowing: Flowing, seen: Observation) -> bool:
    """Whether an arrival resembles the one last planned from, in metres and radians."""
    settings = episode.settings.queue
    if len(flowing.queue) == 0:
        return False
    metres, radians = distance(flowing.source.observation.state, seen.state)
    return metres < settings.similar_distance and radians < settings.similar_angle


def _ask(
    episode: Episode, flowing: Flowing, seen: Observation, scene: Scene
) -> tuple[Flowing, Search]:
    """Ask for a chunk that begins after the target taken last, from a scene there."""
    assert episode.target is not None, "a queue starts from a target"
    request = judging.request(episode, scene, chunk_search(episode))
    search = ChunkSearch(seen, episode.target, flowing.queue.taken + 1, episode.subgoal, request)
    return replace(flowing, search=search), Search(request)


def _merge(episode: Episode, flowing: Flowing, planned: Planned) -> Next:
    """Merge a chunk into the queue, unless it is for a sub-goal that was reached meanwhile."""
    search = flowing.search
    assert search is not None, "a plan is awaited"
    flowing = replace(flowing, search=None)
    if search.subgoal != episode.subgoal:
        return replace(episode, phase=flowing), ()
    try:
        episode = judging.accept(episode, planned.plan)
    except UnsafeCommandError as refusal:
        return ending.end(episode, planned.time, Outcome.ABORTED, str(refusal))
    chunk = chunk_targets(search.base, planned.plan)
    rule = MERGE_RULES[episode.settings.queue.merge]
    queue = flowing.queue.merged(search.first, chunk, rule)
    ratio = _ratio(episode, search.observation, planned)
    source = ChunkSource(search.observation, search.first, planned, ratio)
    merged = replace(episode, phase=replace(flowing, queue=queue, source=source))
    return merged, acting.fallback(planned.plan)


def _ratio(episode: Episode, seen: Observation, planned: Planned) -> float:
    return episode.settings.motion.duration / (seen.encode_duration + planned.round_trip)


def _flow(episode: Episode, flowing: Flowing, tick: Tick, arm: Measurement) -> Next:
    """Take the next target once the arm has arrived and been seen to."""
    glance, (looked, effects) = looking.glance(episode, flowing.glance, tick)
    if isinstance(looked.phase, Ended):
        return looked, effects
    flowing = replace(flowing, glance=glance)
    episode = replace(episode, phase=flowing)
    if glance.seen is None or tick.time < flowing.travel.arrives:
        return episode, effects
    assert episode.target is not None
    if missed := drift(episode.target, arm.state, episode.settings.safety):
        if flowing.search is not None:
            return episode, effects
        warning = Warn(f"The queue is emptied: {missed}.")
        return looking.rest_again(episode, tick.time, flowing.travel.origin), (*effects, warning)
    if len(flowing.queue) == 0:
        if flowing.search is not None:
            return episode, effects
        flowing, asking = _ask(episode, flowing, glance.seen, _scene(episode, glance.seen))
        return replace(episode, phase=flowing), (*effects, asking)
    return _take(
        replace(episode, drifts=0),
        flowing.queue,
        flowing.source,
        flowing.search,
        glance.seen,
        flowing.expected,
        arm,
        tick.time,
    )


def advice(ratio: float, chunk: int, threshold: float) -> str:
    """What the measured ratio of step duration to planning time asks of the queue's settings.

    Plans start at arrivals, so one takes a whole number of steps. What is left when one is asked
    for must last until it is there, and a chunk until the one after it is. An arm that waits is
    slower, not less accurate; the end of a longer chunk is reached by what was seen long before.
    """
    steps = math.ceil(1.0 / ratio)
    found = f"A plan takes {1.0 / ratio:.2f} steps (c = {ratio:.2f})"
    if chunk < 2 * steps:
        return (
            f"{found}: the arm waits for plans. To spare it that, at the cost of accuracy, raise "
            f"queue.chunk to {2 * steps} or more."
        )
    if threshold * chunk < steps:
        needed = math.ceil(100.0 * steps / chunk) / 100.0
        return f"{found}: raise queue.threshold to {needed:g} or more, or the arm waits for plans."
    return f"{found}: the queue does not run empty."
