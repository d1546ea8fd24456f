r"""Blocking control: observe, plan, move, wait until the arm rests, and again.

::

               +------------------- Command, or the arm was moved ------------------+
               v                                                                    |
    start -> Settling --still--> Looking --frame--> Encoding --Observed--> Planning |
               |                    |                  |   \                  |      |
               |                    |                  |    reached        Planned  |
               |                    |                  |      |                |    |
               |                    |                  |      |            Deciding-+
               |                    |                  |      v                |
               +---- cancelled, too late, stale, failed, refused, spent -------+--> Ended

Each plan starts from a frame taken after the arm came to rest, so that nothing has to be predicted
about the time that planning takes. The price is an arm that waits for every plan. A plan is obeyed
only after a last look at the robot: planning may have taken long, and the arm may have been moved.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeGuard

import numpy as np

from jepa_planner_ros.control.episode import (
    NANOSECONDS,
    CancelRequested,
    Command,
    Deciding,
    Effect,
    Encoding,
    Ended,
    Episode,
    Event,
    Failed,
    Goal,
    GripperMotion,
    Latency,
    Looking,
    Measurement,
    Observation,
    Observe,
    Observed,
    Outcome,
    Planned,
    Planning,
    Report,
    Search,
    Settling,
    SubGoal,
    Tick,
    Warn,
)
from jepa_planner_ros.control.safety import (
    UnsafeCommandError,
    at_pose,
    distance,
    drift,
    next_target,
    require_finite,
    require_model,
    staleness,
)
from jepa_planner_ros.control.settings import ControlSettings
from jepa_planner_ros.geometry import GRIPPER
from jepa_planner_ros.types import Float64Array, Plan, PlanRequest, Scene

# Change of closedness within a step that opens or closes a gripper; less is the search's noise.
_GRIPPER_CHANGE = 0.25
# A pose older than this, s, may lie so far behind a moving arm that to hold it is to jerk back.
_HOLDABLE_AGE = 0.2
# A step of this length, m, moves any controller.
_CERTAIN_MOTION = 0.005

Next = tuple[Episode, tuple[Effect, ...]]


def begin(goal: Goal, settings: ControlSettings, time: float) -> Episode:
    """An episode about to start at `time`, with an arm that must first be at rest."""
    rest = Settling(not_before=time, deadline=time + settings.motion.time_limit)
    return Episode(goal, settings, started=time, phase=rest)


def transition(episode: Episode, event: Event) -> Next:
    """What an event makes of an episode, and what is to be done about it."""
    if isinstance(event, Tick):
        episode = replace(episode, arm=event.arm)
    match episode.phase, event:
        case Ended(), _:
            return episode, ()
        case _, CancelRequested():
            return _end(episode, event.time, Outcome.CANCELLED, event.reason)
        case _, Failed():
            return _end(episode, event.time, Outcome.ABORTED, event.reason)
        case _, Tick() if event.time - episode.started > episode.goal.time_limit:
            reason = (
                f"The time limit of {episode.goal.time_limit:g} s passed at {episode.progress}."
            )
            return _end(episode, event.time, Outcome.TIMED_OUT, reason)
        case _, Tick() if reasons := _stale(episode, event):
            return _end(episode, event.time, Outcome.ABORTED, reasons)
        case Settling() as settling, Tick():
            return _settle(episode, settling, event)
        case Looking() as looking, Tick():
            return _look(episode, looking, event)
        case Encoding(), Observed():
            return _judge(episode, event.time, event.observation)
        case Planning() as planning, Planned():
            return replace(episode, phase=Deciding(planning, event)), ()
        case Deciding() as deciding, Tick(arm=Measurement() as arm):
            return _decide(episode, deciding, event.time, arm)
        case _:
            return episode, ()


def _stale(episode: Episode, tick: Tick) -> str:
    waited = tick.time - episode.started
    return " ".join(reason for stream in tick.streams if (reason := staleness(stream, waited)))


def _settle(episode: Episode, settling: Settling, tick: Tick) -> Next:
    motion = episode.settings.motion
    late = tick.time > settling.deadline
    if tick.arm is not None and tick.arm.time >= settling.not_before:
        anchor = settling.anchor or tick.arm
        metres, radians = distance(anchor.state, tick.arm.state)
        if metres > motion.still_distance or radians > motion.still_angle:
            anchor = tick.arm
        still = tick.arm.stamp - anchor.stamp >= motion.still_time * NANOSECONDS
        if still and (late or _has_begun(episode, settling, tick.arm)):
            # One exposure may have begun before the arm was still; the next must be delivered.
            deadline = tick.time + 2 * episode.settings.freshness.camera
            return replace(episode, phase=Looking(tick.arm.stamp, deadline)), ()
        episode = replace(episode, phase=replace(settling, anchor=anchor))
    if late:
        cause = (
            "something else is moving it"
            if settling.origin is None
            else "check the controller, and the parameters motion.duration and motion.time_limit"
        )
        reason = f"The arm did not come to rest within {motion.time_limit:g} s: {cause}."
        return _end(episode, tick.time, Outcome.ABORTED, reason)
    return episode, ()


def _has_begun(episode: Episode, settling: Settling, arm: Measurement) -> bool:
    """Whether a resting arm rests after its motion, not before it.

    A command may take its time to arrive. Steps so small that a controller may swallow them are
    taken to be executed.
    """
    if settling.origin is None or episode.target is None:
        return True
    asked, _ = distance(settling.origin, episode.target)
    moved, _ = distance(settling.origin, arm.state)
    return asked < _CERTAIN_MOTION or moved > episode.settings.motion.still_distance


def _look(episode: Episode, looking: Looking, tick: Tick) -> Next:
    if tick.frame_stamp is not None and tick.frame_stamp > looking.after:
        return replace(episode, phase=Encoding()), (Observe(),)
    if tick.time > looking.deadline:
        reason = (
            "The camera delivers frames, but none is stamped later than the arm came to rest: "
            "synchronise the clocks of camera and robot."
        )
        return _end(episode, tick.time, Outcome.ABORTED, reason)
    return episode, ()


def _judge(episode: Episode, time: float, seen: Observation) -> Next:
    """Compare an observation with the sub-goal: reached, spent, or to be planned from."""
    try:
        require_finite("The encoded camera frame", seen.latent)
        require_finite("The measured state", seen.state)
    except UnsafeCommandError as refusal:
        return _end(episode, time, Outcome.ABORTED, str(refusal))
    episode = replace(episode, energy=_energy(seen, episode.present))
    while _reached(episode):
        if episode.subgoal + 1 == len(episode.goal.subgoals):
            reason = f"Reached the goal at {episode.progress}."
            return _end(episode, time, Outcome.REACHED, reason)
        episode = replace(episode, subgoal=episode.subgoal + 1, step=0, previous=None)
        episode = replace(episode, energy=_energy(seen, episode.present))
    if episode.step >= episode.present.step_budget:
        reason = (
            f"The budget was spent at {episode.progress}: raise step_budget or energy_threshold, "
            "or give a photograph nearer to where the arm is."
        )
        return _end(episode, time, Outcome.BUDGET_SPENT, reason)
    return _plan(episode, time, seen)


def _reached(episode: Episode) -> bool:
    closing = episode.present.close_gripper_from
    gripper_done = closing is None or episode.step > closing
    return gripper_done and episode.energy <= episode.present.energy_threshold


def _energy(seen: Observation, subgoal: SubGoal) -> float:
    return float(np.abs(seen.latent - subgoal.latent).mean())


def _plan(episode: Episode, time: float, seen: Observation) -> Next:
    """Ask for a plan, to be added to the last target unless the arm has drifted from it."""
    limits, base = episode.settings.safety, episode.target
    effects: tuple[Effect, ...] = ()
    if base is None:
        base = seen.state
    elif missed := drift(base, seen.state, limits):
        if episode.drifts == limits.drift_patience:
            reason = (
                f"The arm does not follow: {missed}, as after the {episode.drifts} steps before. "
                "Check that the controller is active and not in an error state."
            )
            return _end(episode, time, Outcome.ABORTED, reason)
        base = at_pose(seen.state, gripper=base[GRIPPER])
        effects = (Warn(f"Resynchronised: {missed}."),)
        episode = replace(episode, drifts=episode.drifts + 1)
    else:
        episode = replace(episode, drifts=0)
    request = _request(episode, seen)
    return replace(episode, phase=Planning(seen, base)), (*effects, Search(request))


def _request(episode: Episode, seen: Observation) -> PlanRequest:
    goal, subgoal = episode.goal, episode.present
    closing = subgoal.close_gripper_from
    return PlanRequest(
        Scene(seen.latent, seen.state, subgoal.latent),
        goal.search,
        seed=goal.seed,
        step=episode.steps,
        previous=episode.previous,
        close_gripper_from=None if closing is None else max(0, closing - episode.step),
        deadline=goal.plan_deadline,
    )


def _decide(episode: Episode, deciding: Deciding, time: float, arm: Measurement) -> Next:
    """Obey a plan if the arm is where it was planned from; otherwise look and plan again."""
    moved = drift(deciding.planning.observation.state, arm.state, episode.settings.safety)
    if moved is None:
        return _act(episode, deciding.planning, deciding.planned, time)
    rest = Settling(not_before=time, deadline=time + episode.settings.motion.time_limit)
    warning = Warn("The arm was moved while a plan was made; planning again from where it rests.")
    return replace(episode, phase=rest), (warning,)


def _act(episode: Episode, planning: Planning, planned: Planned, time: float) -> Next:
    """Command the first action of a plan, within the limits."""
    plan, seen, motion = planned.plan, planning.observation, episode.settings.motion
    try:
        require_model(plan.model_fingerprint, episode.goal.model_fingerprint)
        target, notes = next_target(planning.base, plan.actions[0], episode.settings.safety)
    except UnsafeCommandError as refusal:
        return _end(episode, time, Outcome.ABORTED, str(refusal))
    report = Report(
        episode.subgoal,
        episode.step,
        episode.energy,
        seen,
        plan,
        target,
        _latency(seen, plan, planned.round_trip),
    )
    settling = Settling(
        not_before=time + motion.duration,
        deadline=time + motion.time_limit,
        origin=seen.state,
    )
    moving = replace(
        episode,
        phase=settling,
        step=episode.step + 1,
        steps=episode.steps + 1,
        target=target,
        previous=plan.actions,
    )
    warnings = [Warn(f"Limited: {note}.") for note in notes]
    if plan.fallback is not None:
        warnings.append(Warn(f"The search fell back to cross-entropy rounds: {plan.fallback}."))
    command = Command(target, _gripper_motion(planning.base, target))
    return moving, (command, report, *warnings)


def _gripper_motion(base: Float64Array, target: Float64Array) -> GripperMotion | None:
    change = target[GRIPPER] - base[GRIPPER]
    if abs(change) < _GRIPPER_CHANGE:
        return None
    return GripperMotion.CLOSE if change > 0 else GripperMotion.OPEN


def _latency(seen: Observation, plan: Plan, round_trip: float) -> Latency:
    return Latency(
        capture_age=seen.capture_age,
        encode=seen.encode_duration,
        plan=plan.timing.total,
        network=max(0.0, round_trip - plan.timing.total),
    )


def _end(episode: Episode, time: float, outcome: Outcome, reason: str) -> Next:
    """End the episode; an arm in motion is held where it is.

    An arm at rest holds its last target by itself. One whose pose is not known just now comes to
    rest at the target of its last step, at most one step away.
    """
    ended = Ended(outcome, reason, episode.energy, episode.steps, time - episode.started)
    effects: tuple[Effect, ...] = ()
    arm, target = episode.arm, episode.target
    moving = isinstance(episode.phase, Settling) and episode.phase.origin is not None
    if moving and target is not None and _is_holdable(arm, time):
        effects = (Command(at_pose(arm.state, gripper=target[GRIPPER])),)
    return replace(episode, phase=ended), effects


def _is_holdable(arm: Measurement | None, time: float) -> TypeGuard[Measurement]:
    return arm is not None and time - arm.time <= _HOLDABLE_AGE
