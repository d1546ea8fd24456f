"""An arm that comes to rest or arrives, and the camera frame that is to show it there."""

from __future__ import annotations

from dataclasses import replace

from jepa_planner_ros.control.ending import end
from jepa_planner_ros.control.episode import (
    NANOSECONDS,
    Encoding,
    Episode,
    Glance,
    Goal,
    Looking,
    Measurement,
    Next,
    Observe,
    Outcome,
    Settling,
    Tick,
)
from jepa_planner_ros.control.safety import distance, has_moved
from jepa_planner_ros.control.settings import ControlSettings
from jepa_planner_ros.control.standstill import CERTAIN_MOTION
from jepa_planner_ros.types import Float64Array


def begin(goal: Goal, settings: ControlSettings, time: float) -> Episode:
    """An episode about to start at `time`, with an arm that must first be at rest."""
    rest = Settling(not_before=time, deadline=time + settings.motion.time_limit)
    return Episode(goal, settings, started=time, phase=rest)


def rest_again(episode: Episode, time: float, origin: Float64Array | None = None) -> Episode:
    """The episode with an arm that must come to rest before anything else is done."""
    deadline = time + episode.settings.motion.time_limit
    return replace(episode, phase=Settling(not_before=time, deadline=deadline, origin=origin))


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
