"""A replay for readers: its plans as lines of JSON, and its episodes for the report."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import groupby
from math import nan
from typing import Any

import numpy as np
from PIL import Image as Picture

from jepa_planner_ros.replay.pipeline import Moment, Replayed, Skipped
from jepa_planner_ros.replay.recording import RecordedPlan, Recording
from jepa_planner_ros.replay.verdict import Verdict, cut_short, difference
from jepa_planner_ros.report import (
    Camera,
    EpisodeRecord,
    LatencyRecord,
    PlannedMotion,
    RunRecord,
    StepRecord,
)
from jepa_planner_ros.search.profiles import in_words
from jepa_planner_ros.types import RgbImage

_WIDTH = 480
"""Of a frame in the report, pixels, so that long recordings give pages of bearable size."""

_LEAD = (
    "A recording, planned anew. At each recorded plan the planner was given the same frame, state "
    "and goal; what the arm does is as recorded, whatever was planned."
)


def plans_as_lines(results: Sequence[Replayed | Skipped]) -> str:
    """Every plan as a line of JSON, in order; skipped ones with the reason."""
    return "".join(json.dumps(_plan_as_dict(one)) + "\n" for one in results)


def _plan_as_dict(result: Replayed | Skipped) -> dict[str, Any]:
    if isinstance(result, Skipped):
        return {"skipped": result.reason}
    moment, plan = result.moment, result.plan
    told: dict[str, Any] = {
        "stamp_ns": moment.stamp,
        "step": moment.step,
        "seed": moment.seed,
        "model_fingerprint": plan.model_fingerprint,
        "state": moment.state.tolist(),
        "actions": plan.actions.tolist(),
        "energy": result.energy,
        "predicted_energies": plan.energies.tolist(),
        "rollouts": plan.rollouts,
        "encode_s": result.encode_duration,
        "plan_s": plan.timing.total,
    }
    if moment.recorded is not None:
        apart = difference(result, moment.recorded)
        told |= {
            "identical": apart.identical,
            "cut_short": cut_short(result),
            "action_diff_m": apart.translation,
            "energy_diff": apart.energy,
            "plan_s_diff": plan.timing.total - moment.recorded.latency[2],
        }
    return told


def run_record(
    recording: Recording,
    results: Sequence[Replayed | Skipped],
    verdict: Verdict,
    command_line: str,
    camera_pose: Sequence[float] | None = None,
) -> RunRecord:
    """A replay as the report shows it: one episode for each goal.

    Args:
        recording: what was replayed.
        results: plans made anew, at least one.
        verdict: on all of them.
        command_line: what repeats it.
        camera_pose: of the camera's optical frame in the base frame (7,), see `Camera.placed`;
            None draws nothing into the frames. It takes a recording with intrinsics.
    """
    made = [one for one in results if isinstance(one, Replayed)]
    episodes = tuple(
        _episode(recording, list(group), f"goal {number}")
        for number, (_, group) in enumerate(
            groupby(made, key=lambda one: one.moment.episode), start=1
        )
    )
    searches = sorted({in_words(one.moment.search) for one in made})
    return RunRecord(
        title=f"Replay of {recording.path.name}",
        command=command_line,
        settings={
            "World model": ", ".join(sorted({one.plan.model_fingerprint for one in made})),
            "Recorded with": ", ".join(sorted({p.model_fingerprint for p in recording.plans}))
            or "no planner",
            "Search": "; ".join(searches),
            "Camera": recording.image_topic,
            "Notes": " ".join(verdict.reasons) or "none",
        },
        episodes=episodes,
        camera=None if camera_pose is None else _camera(recording, made[0].frame, camera_pose),
        headline=verdict.sentence(),
        lead=_LEAD,
    )


def _camera(recording: Recording, frame: RgbImage, pose: Sequence[float]) -> Camera:
    """The camera of the frames as they are shown."""
    assert recording.intrinsics is not None, "a camera pose goes with intrinsics"
    scale = _small(frame).shape[1] / frame.shape[1]
    shown = np.diag((scale, scale, 1.0)) @ recording.intrinsics
    return Camera.placed(shown, np.array(pose))


def _episode(recording: Recording, made: Sequence[Replayed], name: str) -> EpisodeRecord:
    first, last = made[0], made[-1]
    outcome = recording.outcomes.get(first.moment.episode)
    return EpisodeRecord(
        name=name,
        start_image=_small(first.frame),
        goal_image=_small(first.moment.photograph),
        final_image=_small(last.frame),
        start_state=first.moment.state,
        final_state=last.moment.state,
        goal_state=None,
        steps=tuple(_step(one) for one in made),
        outcome="replayed",
        reason="" if outcome is None else outcome.reason,
        final_energy=nan if outcome is None or not _same_model(last) else outcome.final_energy,
        elapsed_s=(last.moment.stamp - first.moment.stamp) / 1e9,
    )


def _same_model(made: Replayed) -> bool:
    """Whether energies compare with those in the recording."""
    recorded = made.moment.recorded
    return recorded is not None and recorded.model_fingerprint == made.plan.model_fingerprint


def _step(made: Replayed) -> StepRecord:
    plan = made.plan
    return StepRecord(
        frame=_small(made.frame),
        state=made.moment.state,
        actions=plan.actions,
        predicted_states=plan.states[1:],
        energy=made.energy,
        predicted_energies=plan.energies,
        latency=LatencyRecord(
            0.0,
            made.encode_duration,
            plan.timing.total,
            max(0.0, made.round_trip - plan.timing.total),
        ),
        rollouts=plan.rollouts,
        model_fingerprint=plan.model_fingerprint,
        recorded=_motion(made.moment),
    )


def _motion(moment: Moment) -> PlannedMotion | None:
    plan: RecordedPlan | None = moment.recorded
    if plan is None:
        return None
    return PlannedMotion(
        plan.actions,
        plan.predicted_states,
        plan.energy,
        plan.predicted_energies,
        LatencyRecord(*plan.latency),
    )


def _small(image: RgbImage) -> RgbImage:
    height, width = image.shape[:2]
    if width <= _WIDTH:
        return image
    size = (_WIDTH, round(height * _WIDTH / width))
    return np.asarray(Picture.fromarray(image).resize(size))
