"""What it costs to plan behind an endpoint: alone, in a fleet, and from afar."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from jepa_planner_ros.cli.bench.delay import delayed
from jepa_planner_ros.cli.bench.rounds import request
from jepa_planner_ros.control import (
    CONTROL_MODES,
    ControlSettings,
    Goal,
    MotionSettings,
    SubGoal,
    begin,
)
from jepa_planner_ros.planning import InProcessPlanner
from jepa_planner_ros.search import FAST_SEARCH
from jepa_planner_ros.serving import RemotePlanner, RemoteSettings
from jepa_planner_ros.sim.episodes import sample_reach_task
from jepa_planner_ros.sim.franka import FrankaSim, SimSettings
from jepa_planner_ros.sim.timed_loop import Delays, TimedLoop
from jepa_planner_ros.types import Planner
from jepa_planner_ros.world_model import load_world_model

_PLANS = 30
_MODES = ("blocking", "non_blocking")
_MOTION_S = 1.0
_STEPS = 6


@dataclass(frozen=True)
class FleetFigures:
    """Robots that plan at once, and one of them alone.

    Attributes:
        robots: how many.
        plans_per_s: of all together.
        single_plans_per_s: of one that has the replicas to itself.
        plan_ms: median time of a plan, by robot, while all plan.
    """

    robots: int
    plans_per_s: float
    single_plans_per_s: float
    plan_ms: dict[str, float]


@dataclass(frozen=True)
class RoundTripFigures:
    """Planning from afar.

    Attributes:
        round_trip_ms: of the network.
        plan_ms: median time of a plan.
        step_s: mean time from one command to the next in simulation, where motions take a second,
            by control mode.
    """

    round_trip_ms: float
    plan_ms: float
    step_s: dict[str, float]


def remote_added(local: Planner, remote: Planner) -> float:
    """How much longer a plan takes remotely, ms: the median of pairs made one after the other."""
    differences = []
    for seed in range(_PLANS + 1):
        here, there = (_timed(planner, seed) for planner in (local, remote))
        differences.append(there - here)
    # The first plan of a handle takes longer.
    return round(1e3 * float(np.median(differences[1:])), 2)


def fleet(robots: Sequence[RemotePlanner]) -> FleetFigures:
    """Have one robot plan, then all at once."""
    begun = time.perf_counter()
    for seed in range(_PLANS):
        _timed(robots[0], seed)
    alone = _PLANS / (time.perf_counter() - begun)
    begun = time.perf_counter()
    with ThreadPoolExecutor(len(robots)) as pool:
        taken = list(
            pool.map(lambda robot: [_timed(robot, seed) for seed in range(_PLANS)], robots)
        )
    together = _PLANS * len(robots) / (time.perf_counter() - begun)
    return FleetFigures(
        robots=len(robots),
        plans_per_s=round(together, 2),
        single_plans_per_s=round(alone, 2),
        plan_ms={
            f"robot-{index}": round(1e3 * float(np.median(seconds)), 1)
            for index, seconds in enumerate(taken)
        },
    )


def over_distances(
    endpoint: str, round_trips: Sequence[float], checkpoint: str
) -> tuple[RoundTripFigures, ...]:
    """Plan through networks of given round trips, s, and simulate steps with what that takes."""
    port = int(endpoint.rpartition(":")[2])
    plan_s = []
    for round_trip in round_trips:
        with delayed(port, round_trip) as entrance:
            robot = RemotePlanner(RemoteSettings(f"grpc://127.0.0.1:{entrance}", robot="afar"))
            seconds = [_timed(robot, seed) for seed in range(_PLANS // 3 + 1)][1:]
            robot.close()
        plan_s.append(float(np.median(seconds)))
    return tuple(
        RoundTripFigures(
            1e3 * round_trip,
            round(1e3 * seconds, 1),
            {mode: round(_step_seconds(mode, seconds, checkpoint), 3) for mode in _MODES},
        )
        for round_trip, seconds in zip(round_trips, plan_s, strict=True)
    )


def _step_seconds(mode: str, planning: float, checkpoint: str) -> float:
    """Mean time of a step where a plan takes `planning` seconds."""
    world_model = load_world_model(checkpoint)
    with FrankaSim(SimSettings(motion_duration_s=_MOTION_S)) as sim:
        task = sample_reach_task(sim, 0)
        never = SubGoal(world_model.encode(task.goal_image), 1e-9, _STEPS)
        goal = Goal((never,), 3600.0, world_model.fingerprint, FAST_SEARCH, 0)
        settings = ControlSettings(motion=MotionSettings(duration=_MOTION_S))
        loop = TimedLoop(
            sim, world_model, InProcessPlanner(world_model), Delays(planning), _MOTION_S
        )
        return loop.run(begin(goal, settings, 0.0), CONTROL_MODES[mode]).step_seconds


def _timed(planner: Planner, seed: int) -> float:
    """Time of a plan of the default search, s."""
    asked = request(planner.describe(), FAST_SEARCH, seed)
    begun = time.perf_counter()
    planner.plan(asked)
    return time.perf_counter() - begun
