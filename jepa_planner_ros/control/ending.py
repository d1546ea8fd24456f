"""What ends an episode or interrupts it, in whatever phase, and how the arm is left then."""

from __future__ import annotations

from dataclasses import replace

from jepa_planner_ros.control.episode import (
    NANOSECONDS,
    CancelRequested,
    Effect,
    Encoding,
    Ended,
    Episode,
    Event,
    Failed,
    Flowing,
    Hold,
    Next,
    Observe,
    Observed,
    Outage,
    Outcome,
    Overlapping,
    Phase,
    Planned,
    Planning,
    Settling,
    Tick,
    Unplanned,
    Warn,
)
from jepa_planner_ros.control.safety import POSE_AGE, at_pose, drift, staleness
from jepa_planner_ros.geometry import GRIPPER
from jepa_planner_ros.types import PlanRequest


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
