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

from jepa_planner_ros.control import acting, ending, judging, stages
from jepa_planner_ros.control.episode import (
    Deciding,
    Episode,
    Event,
    Measurement,
    Next,
    Outcome,
)
from jepa_planner_ros.control.safety import UnsafeCommandError


def transition(episode: Episode, event: Event) -> Next:
    """What an event makes of an episode, and what is to be done about it."""
    episode = ending.sensed(episode, event)
    if (interruption := ending.interrupted(episode, event)) is not None:
        return interruption
    return stages.from_rest(episode, event, _act)


def _act(episode: Episode, deciding: Deciding, arm: Measurement, time: float) -> Next:
    """Command the first action of a plan, and wait until the arm rests."""
    planning, planned = deciding.planning, deciding.planned
    try:
        planning_done = judging.accept(episode, planned.plan)
        step = acting.act(planning_done, planning.base, planned.plan.actions[0], arm, time)
    except UnsafeCommandError as refusal:
        return ending.end(episode, time, Outcome.ABORTED, str(refusal))
    telling = acting.report(episode, planning.observation, planned, step.target)
    return acting.settling_after(step), (*step.effects, telling, *acting.fallback(planned.plan))
