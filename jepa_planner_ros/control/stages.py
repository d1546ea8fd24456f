"""What every control mode is made of: to rest, to look, to judge, to plan, to act, to end.

Each function takes an episode through one stage: it returns the episode as it is afterwards, and
the effects to carry out. The modes decide which stage follows which.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

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
    Flowing,
    Glance,
    Goal,
    GripperMotion,
    Hold,
    Latency,
    Looking,
    Measurement,
    Observation,
    Observe,
    Observed,
    Outage,
    Outcome,
    Overlapping,
    Phase,
    Planned,
    Planning,
    Report,
    Search,
    Settling,
    SubGoal,
    Tick,
    Travel,
    Unplanned,
    Warn,
)
from jepa_planner_ros.control.safety import (
    POSE_AGE,
    UnsafeCommandError,
    at_pose,
    distance,
    drift,
    has_moved,
    motion_time,
    next_target,
    require_finite,
    require_live,
    require_model,
    staleness,
    within_reach,
)
from jepa_planner_ros.control.settings import ControlSettings
from jepa_planner_ros.control.standstill import CERTAIN_MOTION, Standstill
from jepa_planner_ros.geometry import GRIPPER
from jepa_planner_ros.types import Float64Array, Plan, PlanRequest, Scene, SearchSettings

# Change of closedness within a step that opens or closes a gripper; less is the search's noise.
_GRIPPER_CHANGE = 0.25
_CHECK_ARM = "Check that nothing holds it, and that its controller is active and in no error state."

Next = tuple[Episode, tuple[Effect, ...]]


def begin(goal: Goal, settings: ControlSettings, time: float) -> Episode:
    """An episode about to start at `time`, with an arm that must first be at rest."""
    rest = Settling(not_before=time, deadline=time + settings.motion.time_limit)
    return Episode(goal, settings, started=time, phase=rest)


def sensed(episode: Episode, event: Event) -> Episode:
    """The episode with what a tick tells of the arm."""
    if not isinstance(event, Tick):
        return episode
    before, arm = episode.arm, event.arm
    set_back = 0.0
    if before is not None and arm is not None:
        set_back = max(0.0, (before.stamp - arm.stamp) / NANOSECONDS)
    return replace(episode, arm=arm, set_back=set_back)


def interrupted(episode: Episode, event: Event) -> Next | None:
    """What an event leads to in whatever phase: mostly the end of the episode. None otherwise."""
    match episode.phase, event:
        case Ended(), _:
            return episode, ()
        case _, CancelRequested():
            return end(episode, event.time, Outcome.CANCELLED, event.reason)
        case phase, (
            Observed(asked=asked)
            | Planned(request=asked)
            | Unplanned(asked=asked)
            | Failed(asked=Observe() as asked)
        ) if not _awaits(phase, asked):
            return episode, ()
        case _, Failed():
            return end(episode, event.time, Outcome.ABORTED, event.reason)
        case _, Unplanned(retry_after=None):
            return end(episode, event.time, Outcome.ABORTED, event.reason)
        case _, Unplanned(retry_after=float() as pause):
            return _without_planner(episode, event, pause)
        case _, Tick(fault=str() as fault):
            return end(episode, event.time, Outcome.ABORTED, fault)
        case _, Tick() if episode.set_back > 0.0:
            reason = (
                f"The robot's clock was set back by {episode.set_back:.1f} s, so that it is not "
                "known any more what was measured before what. Send the goal again."
            )
            return end(episode, event.time, Outcome.ABORTED, reason)
        case _, Tick() if event.time - episode.started > episode.goal.time_limit:
            reason = (
                f"The time limit of {episode.goal.time_limit:g} s passed at {episode.progress}."
            )
            if (outage := episode.outage) is not None:
                reason += (
                    f" No plan for the last {event.time - outage.since:.0f} s. {outage.reason}"
                )
            return end(episode, event.time, Outcome.TIMED_OUT, reason)
        case _, Tick() if reasons := _stale(episode, event):
            return end(episode, event.time, Outcome.ABORTED, reasons)
        case _:
            return None


def _awaits(phase: Phase, asked: Observe | PlanRequest) -> bool:
    """Whether an answer is still awaited; one to what was given up is about another scene."""
    match phase:
        case Encoding(asked=awaited) | Planning(request=awaited):
            return asked is awaited
        case Overlapping(glance=glance, request=awaited):
            return asked is awaited or asked is glance.asked
        case Flowing(glance=glance, search=search):
            return asked is glance.asked or (search is not None and asked is search.request)
        case _:
            return False


def _without_planner(episode: Episode, missed: Unplanned, pause: float) -> Next:
    """Let the arm rest until the planner may be back, then look again: the scene may change."""
    back, origin = missed.time + pause, None
    if isinstance(episode.phase, Overlapping | Flowing):
        travel = episode.phase.travel
        back, origin = max(back, travel.arrives), travel.origin
    resting = Settling(back, back + episode.settings.motion.time_limit, origin)
    outage = episode.outage or Outage(missed.time, missed.reason)
    waiting = replace(episode, phase=resting, outage=replace(outage, reason=missed.reason))
    if episode.outage is not None:
        return waiting, ()
    return waiting, (Warn(f"The arm holds, and asks again. {missed.reason}"),)


def _stale(episode: Episode, tick: Tick) -> str:
    waited = tick.time - episode.started
    return " ".join(reason for stream in tick.streams if (reason := staleness(stream, waited)))


# --- To rest and to look -------------------------------------------------------------------------


def settle(episode: Episode, settling: Settling, tick: Tick) -> Next:
    """Wait until the arm has stayed where it is for long enough, then look."""
    motion = episode.settings.motion
    late = tick.time > settling.deadline
    if tick.arm is not None and tick.arm.time >= settling.not_before:
        anchor = settling.anchor or tick.arm
        if has_moved(anchor.state, tick.arm.state, motion):
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
        return end(episode, tick.time, Outcome.ABORTED, reason)
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
    return asked < CERTAIN_MOTION or moved > episode.settings.motion.still_distance


def look(episode: Episode, looking: Looking, tick: Tick) -> Next:
    """Wait for a frame that was taken after the arm came to rest, then have it encoded."""
    if tick.frame_stamp is not None and tick.frame_stamp > looking.after:
        asking = Observe()
        return replace(episode, phase=Encoding(asking)), (asking,)
    if tick.time > looking.deadline:
        return _clocks_disagree(episode, tick.time)
    return episode, ()


def glance(episode: Episode, present: Glance, tick: Tick) -> tuple[Glance, Next]:
    """Wait for a frame of the end of a motion, then have it encoded; the arm need not stop."""
    if present.asked is not None or tick.arm is None or tick.time < present.opens:
        return present, (episode, ())
    after = tick.arm.stamp if present.after is None else present.after
    present = replace(present, after=after)
    if tick.frame_stamp is not None and tick.frame_stamp > after:
        asking = Observe()
        return replace(present, asked=asking), (episode, (asking,))
    if tick.time > present.deadline:
        return present, _clocks_disagree(episode, tick.time)
    return present, (episode, ())


def _clocks_disagree(episode: Episode, time: float) -> Next:
    reason = (
        "The camera delivers frames, but none is stamped later than the arm came to rest: "
        "synchronise the clocks of camera and robot."
    )
    return end(episode, time, Outcome.ABORTED, reason)


def rest_again(episode: Episode, time: float, origin: Float64Array | None = None) -> Episode:
    """The episode with an arm that must come to rest before anything else is done."""
    deadline = time + episode.settings.motion.time_limit
    return replace(episode, phase=Settling(not_before=time, deadline=deadline, origin=origin))


# --- To judge and to plan ------------------------------------------------------------------------


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
                f"{_CHECK_ARM}"
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


# --- To act --------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Step:
    """A step that was checked and is about to be taken.

    Attributes:
        episode: with the step counted.
        target: the state (7,) to go to.
        travel: the motion.
        effects: the command, and what there is to tell.
        exact: whether the limits left the planned action as it was.
    """

    episode: Episode
    target: Float64Array
    travel: Travel
    effects: tuple[Effect, ...]
    exact: bool


def act(
    episode: Episode, base: Float64Array, action: Float64Array, arm: Measurement, time: float
) -> Step:
    """Command an action (7,), added to a state (7,), within the limits.

    Raises:
        UnsafeCommandError: it must not be commanded, or the arm ignores what is.
    """
    settings = episode.settings
    standstill = _standstill(episode, base, arm)
    target, notes = next_target(base, action, settings.safety)
    target, reach_note = within_reach(base, target, settings.safety, arm.joints)
    if reach_note is not None:
        notes = (*notes, reach_note)
    motion = settings.motion
    duration = motion_time(arm.state, target, motion.duration, settings.safety)
    travel = Travel(
        origin=arm.state,
        departs=time,
        arrives=time + duration,
        deadline=time + duration - motion.duration + motion.time_limit,
    )
    moving = replace(
        episode,
        step=episode.step + 1,
        steps=episode.steps + 1,
        target=target,
        standstill=standstill.told(target),
    )
    warnings = tuple(Warn(f"Limited: {note}.") for note in notes)
    command = Command(target, _gripper_motion(base, target))
    return Step(moving, target, travel, (command, *warnings), exact=not notes)


def _standstill(episode: Episode, base: Float64Array, arm: Measurement) -> Standstill:
    """Where the arm stands; refused where it has stood there in spite of too many steps."""
    before, settings = episode.standstill, episode.settings
    if before is None or has_moved(before.state, arm.state, settings.motion):
        return Standstill(arm.state, base)
    if before.steps > settings.safety.drift_patience:
        raise UnsafeCommandError(
            f"The arm does not follow: {before.steps} steps that should have moved it have not. "
            f"{_CHECK_ARM}"
        )
    return before


def settling_after(step: Step) -> Episode:
    """The episode after a step, with an arm that must come to rest before anything else."""
    travel = step.travel
    phase = Settling(travel.arrives, travel.deadline, travel.origin)
    return replace(step.episode, phase=phase)


def glance_after(step: Step) -> Glance:
    """The look at where a step ends."""
    settings, travel = step.episode.settings, step.travel
    return Glance(
        opens=travel.departs + settings.look_ahead.look_from * (travel.arrives - travel.departs),
        deadline=travel.arrives + 2 * settings.freshness.camera,
    )


def accept(episode: Episode, plan: Plan) -> Episode:
    """The episode with a plan counted, and its actions kept to start the next search from.

    Raises:
        UnsafeCommandError: it was made by another model, or is not finite.
    """
    require_model(plan.model_fingerprint, episode.goal.model_fingerprint)
    require_finite("The planned action", plan.actions)
    return replace(episode, plans=episode.plans + 1, previous=plan.actions, outage=None)


def report(episode: Episode, seen: Observation, planned: Planned, target: Float64Array) -> Report:
    """What there is to tell about a step that is about to be taken."""
    return Report(
        episode.subgoal,
        episode.step,
        episode.energy,
        seen,
        planned.request,
        planned.plan,
        target,
        _latency(seen, planned.plan, planned.round_trip),
    )


def fallback(plan: Plan) -> tuple[Warn, ...]:
    """What to warn of where a search did not trust its own predictions."""
    if plan.fallback is None:
        return ()
    return (Warn(f"The search fell back to cross-entropy rounds: {plan.fallback}."),)


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


def end(episode: Episode, time: float, outcome: Outcome, reason: str) -> Next:
    """End the episode; an arm in motion is held where it is.

    An arm that rests near its last target holds it by itself. A motion in setpoints is braked. A
    controller that was given the target itself is sent back to where the arm is, or, where that is
    not known just now, comes to rest at the target, at most one step away.
    """
    ended = Ended(outcome, reason, episode.energy, episode.steps, time - episode.started)
    effects: tuple[Effect, ...] = ()
    arm, target = episode.arm, episode.target
    # To hold an older pose is to jerk back to it.
    known = arm is not None and time - arm.time <= POSE_AGE
    if target is not None and _in_motion(episode, time):
        pose = arm.state if arm is not None and known else target
        effects = (Hold(at_pose(pose, gripper=target[GRIPPER])),)
    return replace(episode, phase=ended), effects


def _in_motion(episode: Episode, time: float) -> bool:
    """Whether this episode's last command may still move the arm; a controller may be late."""
    match episode.phase:
        case Settling(origin=origin):
            return origin is not None
        case Overlapping(travel=travel) | Flowing(travel=travel):
            return time < travel.arrives or _away(episode)
        case _:
            return False


def _away(episode: Episode) -> bool:
    arm, target = episode.arm, episode.target
    if arm is None or target is None:
        return False
    return drift(target, arm.state, episode.settings.safety) is not None


# --- From rest to the first action ---------------------------------------------------------------


def from_rest(
    episode: Episode,
    event: Event,
    act: Callable[[Episode, Deciding, Measurement, float], Next],
    search: Callable[[Episode], SearchSettings] = goal_search,
) -> Next:
    """The stages that every mode begins with: rest, look, judge, plan, and decide.

    Args:
        episode: in one of these stages; in another nothing happens.
        event: what has happened.
        act: what the mode does with a plan, where the arm still is at a time, s.
        search: how the plan is to be searched for.
    """
    match episode.phase, event:
        case Settling() as settling, Tick():
            return settle(episode, settling, event)
        case Looking() as looking, Tick():
            return look(episode, looking, event)
        case Encoding(), Observed():
            return _observed_at_rest(episode, event, search(episode))
        case Planning() as planning, Planned():
            return replace(episode, phase=Deciding(planning, event)), ()
        case Deciding() as deciding, Tick(arm=Measurement() as arm):
            return decide(episode, deciding, event) or act(episode, deciding, arm, event.time)
        case _:
            return episode, ()


def _observed_at_rest(episode: Episode, event: Observed, search: SearchSettings) -> Next:
    """Judge what was seen at rest and, unless that is the end, plan from it."""
    episode, effects = judge(episode, event.time, event.observation)
    if isinstance(episode.phase, Ended):
        return episode, effects
    return plan(episode, event.time, event.observation, search)
