"""The stages that every control mode begins with: rest, look, judge, plan, and decide.

Each takes an episode through: it returns the episode as it is afterwards, and the effects to carry
out. The modes decide what follows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from jepa_planner_ros.control.episode import (
    Deciding,
    Encoding,
    Ended,
    Episode,
    Event,
    Looking,
    Measurement,
    Next,
    Observed,
    Planned,
    Planning,
    Settling,
    Tick,
)
from jepa_planner_ros.control.judging import decide, goal_search, judge, plan
from jepa_planner_ros.control.looking import look, settle
from jepa_planner_ros.types import SearchSettings


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
