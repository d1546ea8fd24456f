"""The figures of a run, for people's tables and for other programs."""

from __future__ import annotations

from typing import Any

import numpy as np

from jepa_planner_ros.report.records import EpisodeRecord, RunRecord


def summarise(run: RunRecord) -> dict[str, Any]:
    """The run in plain values that JSON can hold; figures that nobody knows are None.

    Returns:
        ``median_final_cm``, ``reached_fraction``, ``plan_ms_median``, and for each of ``episodes``
        ``start_cm``, ``final_cm``, ``steps``, ``outcome``, ``elapsed_s``.
    """
    plan_s = [step.latency.plan for episode in run.episodes for step in episode.steps]
    return {
        "median_final_cm": _median([episode.final_cm for episode in run.episodes], 3),
        "reached_fraction": reached_fraction(run),
        "plan_ms_median": _median([1000.0 * seconds for seconds in plan_s], 1),
        "episodes": [_episode(episode) for episode in run.episodes],
    }


def reached_fraction(run: RunRecord) -> float:
    """Share of the episodes that reached their goal, 0..1."""
    return sum(episode.reached for episode in run.episodes) / len(run.episodes)


def _episode(episode: EpisodeRecord) -> dict[str, Any]:
    return {
        "start_cm": _known(episode.start_cm, 3),
        "final_cm": _known(episode.final_cm, 3),
        "steps": len(episode.steps),
        "outcome": episode.outcome,
        "elapsed_s": round(episode.elapsed_s, 3),
    }


def _median(values: list[float], digits: int) -> float | None:
    return _known(float(np.median(values)), digits) if values else None


def _known(value: float, digits: int) -> float | None:
    return None if np.isnan(value) else round(value, digits)
