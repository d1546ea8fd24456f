"""What is drawn over the camera's picture: way, plan, candidates and goal, in its pixels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from jepa_planner_ros.report.records import Camera
from jepa_planner_ros.types import Float64Array
from jepa_planner_ros.watch.json_values import known
from jepa_planner_ros.watch.records import Candidates, Watched
from jepa_planner_ros.watch.timeline import outcome_of

_WAY_SHOWN = 60
"""Most steps that the way is drawn for."""


@dataclass(frozen=True)
class View:
    """A camera that the base frame is seen through, and the size of its pictures in pixels."""

    camera: Camera
    width: int
    height: int


def overlay(watched: Watched, view: View) -> Mapping[str, Any] | None:
    """The newest plan where the camera sees it, in pixels of its pictures."""
    if not watched.steps or outcome_of(watched) is not None:
        return None
    newest = watched.steps[-1]
    way = np.stack([step.path[0] for step in watched.steps[-_WAY_SHOWN:]])
    imagined, place = _candidates(newest.candidates, view), _place(watched)
    return {
        "width": view.width,
        "height": view.height,
        "way": _pixels(view, way),
        "planned": _pixels(view, newest.path),
        "candidates": [] if imagined is None else _pixels(view, imagined.ends),
        "ranks": [] if imagined is None else ranks(imagined),
        "goal": None if place is None else next(iter(_pixels(view, place[None])), None),
    }


def _candidates(candidates: Candidates | None, view: View) -> Candidates | None:
    """Those that have a pixel and an energy; None where none has."""
    if candidates is None:
        return None
    shown = np.isfinite(_projected(view, candidates.ends)).all(axis=1)
    shown &= np.isfinite(candidates.energies)
    if not shown.any():
        return None
    elites = int(shown[: candidates.elites].sum())
    return Candidates(candidates.ends[shown], candidates.energies[shown], elites)


def _place(watched: Watched) -> Float64Array | None:
    """Where the present photograph was taken, if it tells."""
    goal, index = watched.goal, watched.steps[-1].subgoal if watched.steps else 0
    if goal is None or index >= len(goal.subgoals):
        return None
    return goal.subgoals[index].place


def distance_cm(watched: Watched) -> float | None:
    """From the arm, as the newest plan found it, to where the photograph was taken, cm."""
    place = _place(watched)
    if place is None or not watched.steps:
        return None
    return known(100.0 * float(np.linalg.norm(place - watched.steps[-1].path[0])), 1)


def ranks(candidates: Candidates) -> list[float]:
    """How each candidate fared: 0 for the lowest energy, and for all elites; 1 for the highest."""
    energies = candidates.energies
    least = energies[: max(1, candidates.elites)].max()
    spread = max(float(energies.max() - least), np.finfo(float).tiny)
    return [round(float(share), 2) for share in np.clip((energies - least) / spread, 0.0, 1.0)]


def _pixels(view: View, points: Float64Array) -> list[list[float]]:
    """Pixels of those points that have one."""
    return [
        [round(float(x), 1), round(float(y), 1)]
        for x, y in _projected(view, points)
        if np.isfinite((x, y)).all()
    ]


def _projected(view: View, points: Float64Array) -> Float64Array:
    """Pixels (n, 2) of points (n, 3); not finite beside the camera, or of points that are not."""
    with np.errstate(all="ignore"):
        return view.camera.pixels(points)
