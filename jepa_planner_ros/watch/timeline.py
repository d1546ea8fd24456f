"""Who did what when, over the course of a goal: the planner's work and the arm's motion."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jepa_planner_ros.watch.records import Goal, Outcome, Span, Step, Watched

_WINDOW = 30.0
"""Longest time that is shown, s."""
_AFTERWARDS = 0.5
"""What is shown beyond the end of a goal, s."""


@dataclass(frozen=True)
class Bar:
    """Something that took from `start` to `end`, s."""

    kind: str
    start: float
    end: float


def timeline(watched: Watched, now: float) -> Mapping[str, Any] | None:
    """The present goal's course: bars of the planner and of the arm, s since the goal began.

    Returns:
        None without a goal.
    """
    goal = watched.goal
    if goal is None:
        return None
    ended = outcome_of(watched)
    end = now if ended is None else ended.at
    shown_to = end if ended is None else end + _AFTERWARDS
    first = max(goal.began, shown_to - _WINDOW)

    def shown(bars: Iterator[Bar]) -> list[Mapping[str, Any]]:
        return [
            {
                "kind": bar.kind,
                "start": round(max(bar.start, first) - goal.began, 3),
                "end": round(min(bar.end, shown_to) - goal.began, 3),
            }
            for bar in bars
            if bar.end > first and bar.start < shown_to
        ]

    return {
        "start": round(first - goal.began, 3),
        "end": round(max(shown_to, first + 1.0) - goal.began, 3),
        "lanes": [
            {"name": "planner", "bars": shown(planner_bars(watched.steps))},
            {"name": "arm", "bars": shown(_arm_bars(watched, goal.began, end))},
        ],
    }


def outcome_of(watched: Watched) -> Outcome | None:
    """How the present goal ended; None while it is pursued."""
    goal, outcome = watched.goal, watched.outcome
    if goal is None or outcome is None or outcome.goal_id != goal.goal_id:
        return None
    return outcome


def planner_bars(steps: Sequence[Step]) -> Iterator[Bar]:
    """Encoding a frame, then planning from it: search, queue and network together."""
    for step in steps:
        encoded = step.began + step.latency.get("encode", 0.0)
        work = sum(step.latency.values()) - step.latency.get("capture_age", 0.0)
        yield Bar("encode", step.began, encoded)
        yield Bar("plan", encoded, step.began + work)


def _arm_bars(watched: Watched, began: float, end: float) -> Iterator[Bar]:
    """Nothing of an arm that nobody has heard of: it is not known to hold."""
    return arm_bars(watched.moving, began, end) if watched.arm.arrivals else iter(())


def arm_bars(moving: Sequence[Span], began: float, end: float) -> Iterator[Bar]:
    """Motion, and between motions holding, from the beginning of a goal to its end."""
    at = began
    for start, stop in moving:
        if stop <= began or start >= end:
            continue
        if start > at:
            yield Bar("hold", at, start)
        at = min(stop, end)
        yield Bar("move", max(start, began), at)
    if end > at:
        yield Bar("hold", at, end)


def goal_age(goal: Goal, outcome: Outcome | None, now: float) -> float:
    """How long a goal has been pursued, or was, s."""
    if outcome is None:
        return now - goal.began
    return outcome.elapsed if outcome.elapsed == outcome.elapsed else outcome.at - goal.began
