"""What the page is told: all that is known, as plain values that JSON can hold.

Every sentence of the page that depends on the node's state is made here, where it can be tested.
What nobody knows is None, never NaN.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from jepa_planner_ros.report.page import LATENCY_PARTS
from jepa_planner_ros.watch.json_values import known
from jepa_planner_ros.watch.overlay import View, distance_cm, overlay
from jepa_planner_ros.watch.records import (
    Diagnosis,
    Goal,
    Outcome,
    Step,
    Topic,
    Watched,
)
from jepa_planner_ros.watch.timeline import goal_age, outcome_of, timeline

SENSOR_STALE, DIAGNOSTICS_STALE = 1.0, 3.0
"""Older data are shown as stale, s."""

_STEPS_SHOWN = 60
_MOVES = 0.2
"""An arm that moved this short a time ago is said to move, s."""
_LEVELS = ("ok", "warning", "error", "stale")
_LOG_LEVELS = ((40, "error"), (30, "warning"))
_SPARE_COLOURS = ("distance", "energy", "muted")

_ENDINGS: Mapping[str, str] = {
    "reached": "Reached",
    "budget_spent": "Not reached: the budget of steps is spent",
    "timed_out": "Not reached: the time is up",
    "cancelled": "Cancelled",
    "aborted": "Aborted",
    "ended": "Ended without reaching the goal",
}

_DOING: Mapping[str | None, str] = {
    "moves": "the arm moves",
    "holds": "planning, the arm holds",
    None: "planning",
}
"""By what the arm does."""


@dataclass(frozen=True)
class Pictures:
    """Which pictures there are: a number for each, which changes with its content."""

    camera: int | None = None
    goals: tuple[int, ...] = ()
    drawing: int | None = None


def snapshot(
    watched: Watched, pictures: Pictures, view: View | None, now: float
) -> Mapping[str, Any]:
    """All that the page shows, but the pictures themselves.

    Args:
        watched: what is known.
        pictures: which there are.
        view: where to draw planned motions into the camera's picture; None draws none.
        now: on the clock of `watched`, s.
    """
    outcome = outcome_of(watched)
    steps = watched.steps[-_STEPS_SHOWN:]
    return {
        "node": watched.node,
        "domain": watched.domain,
        "state": _state(watched, outcome, now),
        "goal": _goal(watched, outcome, now),
        "pictures": {
            "camera": _topic(watched.camera, pictures.camera, now),
            "drawing": _topic(watched.drawing, pictures.drawing, now),
            "goals": list(pictures.goals),
        },
        "overlay": None if view is None else overlay(watched, view),
        "steps": [_step(step) for step in steps],
        "latency_parts": latency_parts(steps),
        "timeline": timeline(watched, now),
        "arm": {**_topic(watched.arm, None, now), "command": _command(watched, now)},
        "diagnostics": _diagnostics(watched, now),
        "replicas": replicas(watched.diagnoses),
        "log": [
            {"age": round(now - line.at, 1), "level": _log_level(line.level), "text": line.text}
            for line in reversed(watched.log)
        ],
    }


def latency_parts(steps: Sequence[Step]) -> list[Mapping[str, str]]:
    """The parts of the latency in order: field of the message, label and colour of each."""
    labels = {name.replace(" ", "_"): (name, colour) for name, colour in LATENCY_PARTS}
    names = list(labels)
    for step in steps:
        names += [name for name in step.latency if name not in names]
    spare = iter(_SPARE_COLOURS * len(names))
    return [
        {"name": name, "label": label, "colour": colour}
        for name in names
        for label, colour in [labels.get(name) or (name.replace("_", " "), next(spare))]
    ]


def replicas(diagnoses: Sequence[Diagnosis]) -> Mapping[str, Any] | None:
    """What the planner's diagnosis tells about who plans; None where it tells nothing."""
    values = next((one.values for one in diagnoses if one.name == "planner"), {})
    if "replicas" not in values:
        return None
    shares = (part.rpartition(": ") for part in values.get("shards", "").split(", ") if part)
    return {
        "count": values["replicas"],
        "device": values.get("device"),
        "precision": values.get("precision"),
        "model": values.get("model"),
        "shards": [{"replica": name, "shards": count} for name, _, count in shares],
        "resent": values.get("shards sent again"),
    }


def _state(watched: Watched, outcome: Outcome | None, now: float) -> Mapping[str, Any]:
    """In one word, one headline, and what the node says itself."""
    name, headline = _name_and_headline(watched, outcome, now)
    detail = watched.status
    if name == "waiting":
        detail = (
            "Start it, or name it with --node and --namespace; both must have the same "
            f"ROS domain, which is {watched.domain} here."
        )
    elif name == "held":
        detail = watched.holding
    elif name == "gone":
        detail = f"Its last words: {watched.status}" if watched.status else ""
    return {"name": name, "headline": headline, "detail": detail, "arm": _arm(watched, now)}


def _name_and_headline(watched: Watched, outcome: Outcome | None, now: float) -> tuple[str, str]:
    if watched.last_present is None:
        return "waiting", f"Waiting for the node at {watched.node}"
    if not watched.present:
        return "gone", f"{watched.node} has been gone for {now - watched.last_present:.0f} s"
    if watched.goal is None:
        return "idle", "Ready: no goal yet"
    if outcome is not None:
        count = len(watched.steps)
        after = f" after {count} step{'s' if count != 1 else ''}" if count else ""
        return outcome.name, f"{_ENDINGS[outcome.name]}{after}"
    if watched.holding:
        return "held", "The arm holds: there is no plan for now"
    doing = _DOING[_arm(watched, now)]
    if not watched.steps:
        return "pursuing", f"Looking at the goal: {doing}"
    step = watched.steps[-1]
    return "pursuing", f"Step {step.step + 1}{_of_budget(watched.goal, step)}: {doing}"


def _of_budget(goal: Goal, step: Step) -> str:
    if step.subgoal >= len(goal.subgoals):
        return ""
    return f" of {goal.subgoals[step.subgoal].step_budget}"


def _arm(watched: Watched, now: float) -> str | None:
    """What the arm does, in a word; None where nobody can tell."""
    newest = watched.arm.newest
    if newest is None or now - newest > SENSOR_STALE:
        return None
    moved = watched.moving[-1][1] if watched.moving else -math.inf
    return "moves" if now - moved < _MOVES else "holds"


def _goal(watched: Watched, outcome: Outcome | None, now: float) -> Mapping[str, Any] | None:
    goal = watched.goal
    if goal is None:
        return None
    present = watched.steps[-1].subgoal if watched.steps else 0
    return {
        "id": goal.goal_id[:8],
        "subgoal": min(present, max(0, len(goal.subgoals) - 1)),
        "subgoals": [
            {"threshold": known(one.energy_threshold), "budget": one.step_budget}
            for one in goal.subgoals
        ],
        "distance_cm": distance_cm(watched),
        "mode": goal.control_mode,
        "time_limit": known(goal.time_limit, 1),
        "elapsed": known(goal_age(goal, outcome, now), 1),
        "ended": outcome is not None,
        "final_energy": None if outcome is None else known(outcome.final_energy),
        "reason": None if outcome is None else outcome.reason,
    }


def _topic(topic: Topic, picture: int | None, now: float) -> Mapping[str, Any]:
    newest = topic.newest
    age = None if newest is None else now - newest
    return {
        "topic": topic.name,
        "age": known(age, 2),
        "stale": age is not None and age > SENSOR_STALE,
        "rate": known(topic.rate, 1),
        "problem": topic.problem,
        "picture": picture,
    }


def _step(step: Step) -> Mapping[str, Any]:
    action = 1000.0 * (step.path[1] - step.path[0]) if len(step.path) > 1 else np.zeros(3)
    return {
        "subgoal": step.subgoal,
        "step": step.step,
        "energy": known(step.energy),
        "predicted": _all_known(step.predicted_energies),
        "best": _all_known(step.round_best),
        "elites": _all_known(step.round_elites),
        "rollouts": step.rollouts,
        "search": step.search,
        "action_mm": [round(float(part)) for part in action],
        "latency": {name: known(1000.0 * value, 1) for name, value in step.latency.items()},
    }


def _command(watched: Watched, now: float) -> Mapping[str, Any] | None:
    command = watched.command
    if command is None:
        return None
    return {
        "age": round(now - command.at, 1),
        "position": [round(part, 3) for part in command.position],
        "gripper": known(command.gripper, 2),
        "queue_length": command.queue_length,
        "dry_run": watched.would_command is not None,
    }


def _diagnostics(watched: Watched, now: float) -> Mapping[str, Any]:
    age = None if watched.diagnosed is None else now - watched.diagnosed
    return {
        "age": known(age, 1),
        "stale": age is not None and age > DIAGNOSTICS_STALE,
        "entries": [
            {
                "name": one.name,
                "level": _LEVELS[one.level] if one.level < len(_LEVELS) else "error",
                "message": one.message,
                "values": [[key, value] for key, value in one.values.items()],
            }
            for one in watched.diagnoses
        ],
    }


def _log_level(level: int) -> str:
    return next((name for least, name in _LOG_LEVELS if level >= least), "info")


def _all_known(values: Sequence[float]) -> list[float | None]:
    return [known(value) for value in values]
