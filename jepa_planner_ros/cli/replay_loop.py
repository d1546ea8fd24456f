"""A replay through the real planner node: its process, the player, and what they come to."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tqdm import tqdm

from jepa_planner_ros.cli import CommandError
from jepa_planner_ros.cli.display import PATIENCE_AT_START, Display
from jepa_planner_ros.cli.domain import enter_domain, free_domain
from jepa_planner_ros.cli.processes import ProcessFamily
from jepa_planner_ros.replay.pipeline import Moment, Replayed, Skipped
from jepa_planner_ros.replay.player import PLANNER, PlayedGoal, Player, PlayerError
from jepa_planner_ros.replay.recording import (
    COMPRESSED_IMAGE_TYPE,
    RecordedGoal,
    RecordedPlan,
    Recording,
    plan_of,
    seconds_text,
)
from jepa_planner_ros.search.text import search_from_json
from jepa_planner_ros.share import share_directory
from jepa_planner_ros.types import Plan, PlanTiming, RgbImage, SearchRound


@dataclass(frozen=True)
class NodeSettings:
    """How the node is to be started; None leaves what was recorded."""

    planner: str
    replicas: int
    checkpoint: str
    device: str
    search: str | None
    seed: int | None
    params_file: Path | None
    logs: Path
    domain: int | None

    def command(self, recording: Recording) -> list[str]:
        """The command line of the node."""
        first = recording.plans[0]
        compressed = recording.topics[recording.image_topic] == COMPRESSED_IMAGE_TYPE
        parameters: dict[str, object] = {
            "use_sim_time": "true",
            "planner": self.planner,
            "serving.replicas": self.replicas,
            "serving.start_timeout": PATIENCE_AT_START,
            "world_model.checkpoint": self.checkpoint,
            "world_model.device": self.device,
            "image_transport": "compressed" if compressed else "raw",
            "search": self.search or self._recorded_search(first),
            "seed": first.seed if self.seed is None else self.seed,
            # The arm in the bag follows the recorded plans, and nobody else's.
            "commander": "dry_run",
            "setpoint_rate": 0.0,
        }
        file = self.params_file or share_directory() / "config" / "planner.yaml"
        command = [sys.executable, "-m", "jepa_planner_ros.ros.planner_node", "--ros-args"]
        command += ["-r", f"__node:={PLANNER}", "--params-file", str(file)]
        for name, value in parameters.items():
            command += ["-p", f"{name}:={value}"]
        return command

    def _recorded_search(self, plan: RecordedPlan) -> Path:
        """A profile with the recorded settings: its name may mean others by now."""
        profile = self.logs.absolute() / "recorded_search.yaml"
        profile.parent.mkdir(parents=True, exist_ok=True)
        profile.write_text(plan.search_settings + "\n")  # JSON is YAML, too
        return profile


def replay_through_node(
    recording: Recording, settings: NodeSettings, rate: float
) -> list[Replayed | Skipped]:
    """Start the node, play the bag to it, and compare plan by plan.

    Raises:
        CommandError: the bag holds no plans, or the node cannot be played to.
    """
    if not recording.plans:
        raise CommandError(f"{recording.path} holds no goal and plans to play to the node.")
    enter_domain(free_domain() if settings.domain is None else settings.domain, os.environ)
    with ProcessFamily() as family, Display(1) as display:
        program = family.start(
            "planner", settings.command(recording), settings.logs / "planner.log"
        )
        with Player(recording.path, recording.image_topic, rate, family.check) as player:
            display.wait_for(program, player.node_ready, family.check)
            bar = tqdm(total=len(recording.plans), desc="replay", unit="plan", disable=None)
            try:
                for _ in player.play():
                    bar.update()
            except PlayerError as error:
                raise CommandError(str(error)) from error
            finally:
                bar.close()
            return list(_results(recording, player))


def _results(recording: Recording, player: Player) -> Iterator[Replayed | Skipped]:
    played = {goal.goal_id: goal for goal in player.goals}
    made: list[tuple[RecordedPlan, RecordedPlan]] = []
    for goal_id in recording.goals:
        recorded = [plan for plan in recording.plans if plan.goal_id == goal_id]
        made += zip(recorded, _plans(played.get(goal_id)), strict=False)
    paired = {id(was): now for was, now in made}
    stamps = {id(now): player.original_stamps.get(now.stamp, 0) for _, now in made}
    frames = dict(recording.frames(stamps.values()))
    for was in recording.plans:
        now = paired.get(id(was))
        if now is None:
            goal = played.get(was.goal_id)
            reason = "its goal is not in the bag" if goal is None else goal.reason
            yield Skipped(
                f"The node made no plan where that of step {was.search_step} at "
                f"{seconds_text(was.stamp)} was: {reason}"
            )
        elif stamps[id(now)] in frames:
            yield _replayed(was, now, recording.goals[was.goal_id], frames[stamps[id(now)]])


def _plans(goal: PlayedGoal | None) -> Sequence[RecordedPlan]:
    return () if goal is None else [plan_of(0, message) for message in goal.plans]


def _replayed(
    was: RecordedPlan, now: RecordedPlan, goal: RecordedGoal, frame: RgbImage
) -> Replayed:
    _, encode, planned, network = now.latency
    moment = Moment(
        episode=was.goal_id,
        stamp=was.stamp,
        state=now.state,
        photograph=goal.photographs[was.subgoal],
        search=search_from_json(now.search_settings),
        seed=now.seed,
        step=now.search_step,
        previous=now.previous,
        start_latents=now.start_latents,
        close_gripper_from=now.close_gripper_from,
        recorded=was,
    )
    plan = Plan(
        actions=now.actions,
        states=np.vstack((now.state, now.predicted_states)),
        energies=now.predicted_energies,
        predicted_latent=np.zeros((0, 0), np.float32),  # stays with the node
        start_energy=now.energy,
        rollouts=now.rollouts,
        rounds=tuple(
            SearchRound(best, elite)
            for best, elite in zip(now.round_best_energies, now.round_elite_energies, strict=True)
        ),
        timing=PlanTiming(planned, planned),
        model_fingerprint=now.model_fingerprint,
    )
    return Replayed(moment, frame, plan, now.energy, encode, planned + network)
