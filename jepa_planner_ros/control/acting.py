"""A plan's action becomes a step of the arm, within the limits, and is told of."""

from __future__ import annotations

from dataclasses import dataclass, replace

from jepa_planner_ros.control.episode import (
    Command,
    Effect,
    Episode,
    Glance,
    GripperMotion,
    Latency,
    Measurement,
    Observation,
    Planned,
    Report,
    Settling,
    Travel,
    Warn,
)
from jepa_planner_ros.control.safety import (
    UnsafeCommandError,
    has_moved,
    motion_time,
    next_target,
    within_reach,
)
from jepa_planner_ros.control.standstill import CHECK_ARM, Standstill
from jepa_planner_ros.geometry import GRIPPER
from jepa_planner_ros.types import Float64Array, Plan

# Change of closedness within a step that opens or closes a gripper; less is the search's noise.
_GRIPPER_CHANGE = 0.25


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
            f"{CHECK_ARM}"
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
    sentence = (
        f"The search fell back to cross-entropy rounds: {plan.fallback}. The plan is as good, and "
        "took longer."
    )
    return (Warn(sentence),)


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
