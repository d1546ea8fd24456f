"""``jepa-planner bench serve``: what Ray adds to the rounds of a search."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from jepa_planner_ros.cli import CommandError
from jepa_planner_ros.cli.numbers import whole_number
from jepa_planner_ros.search import CrossEntropySettings
from jepa_planner_ros.serving import LocalRayPlanner
from jepa_planner_ros.types import ModelDescription, Plan, PlannerError, PlanRequest, Scene

_ROUNDS_OF_A_PLAN = 10
# Micro-batches in a round: enough for the largest number of replicas to have one each.
_SHARES = 4
_START = np.array([0.4, 0.0, 0.3, 3.1, 0.0, 0.1, 0.2])


@dataclass(frozen=True)
class ServingFigures:
    """What was measured with one number of replicas.

    Attributes:
        replicas: how many.
        overheads: of each round, what it took beyond its slowest replica's work, s.
        collisions: shards that queued behind another of their round.
        plan_seconds: of each plan.
        actions: of all plans, to be compared.
    """

    replicas: int
    overheads: np.ndarray
    collisions: int
    plan_seconds: np.ndarray
    actions: np.ndarray

    def summary(self) -> dict[str, float]:
        """Median and 95th percentile of a round's overhead, ms."""
        median, p95 = np.percentile(1e3 * self.overheads, (50, 95))
        return {"median": round(float(median), 2), "p95": round(float(p95), 2)}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line."""
    parser.description = (
        "Plan with 1, 2 and 4 replicas of the world model on a local Ray, and tell what a round "
        "takes beyond its slowest replica's work, how often two shards of a round met on one "
        "replica, and whether all plans are equal. Replicas on a CPU share its cores: with more "
        "replicas than cores, plans do not get quicker."
    )
    parser.epilog = "exit code: 0 when all plans are equal and no shards met, else 1"
    add = parser.add_argument
    add("--checkpoint", default="shipped", metavar="FILE", help="world model (default: shipped)")
    add("--device", choices=("auto", "cpu", "cuda"), default="auto", help="(default: auto)")
    add(
        "--replicas",
        type=whole_number(1, 64),
        nargs="+",
        default=[1, 2, 4],
        metavar="W",
        help="numbers of replicas to measure (default: 1 2 4)",
    )
    add(
        "--plans",
        type=whole_number(1),
        default=20,
        metavar="N",
        help=f"plans of {_ROUNDS_OF_A_PLAN} rounds for each (default: 20)",
    )
    add("--json", type=Path, metavar="FILE", help="write the figures there")


def run(args: argparse.Namespace) -> int:
    """Measure, print a table, and return the exit code."""
    try:
        measured = [
            measure(replicas, args.plans, args.checkpoint, args.device)
            for replicas in args.replicas
        ]
    except PlannerError as error:
        raise CommandError(str(error)) from error
    print("replicas  overhead of a round, ms  collisions  plan, ms")
    print("              median    p95                       median")
    for one in measured:
        overhead = one.summary()
        print(
            f"{one.replicas:8d}  {overhead['median']:10.2f}  {overhead['p95']:5.1f}"
            f"  {one.collisions:14d}  {1e3 * np.median(one.plan_seconds):8.0f}"
        )
    figures = summarise(measured)
    print(f"plans identical: {'yes' if figures['plans_identical'] else 'no'}")
    if args.json is not None:
        args.json.write_text(json.dumps(figures, indent=2) + "\n")
    return 0 if figures["plans_identical"] and not figures["collisions"] else 1


def measure(replicas: int, plans: int, checkpoint: str, device: str) -> ServingFigures:
    """Make plans with so many replicas.

    Raises:
        PlannerError: the planner could not be started.
    """
    planner = LocalRayPlanner(checkpoint, replicas, device=device, start_timeout_s=300.0)
    try:
        model = planner.describe()
        overheads: list[float] = []
        seconds, actions, collisions = [], [], 0
        planner.plan(_request(model, 0))  # The first plan of a handle takes longer.
        for seed in tqdm(range(plans), f"{replicas} replicas", leave=False, disable=None):
            begun = time.perf_counter()
            plan: Plan = planner.plan(_request(model, seed))
            seconds.append(time.perf_counter() - begun)
            actions.append(plan.actions)
            report = planner.last_report
            assert report is not None, "set by every plan"
            # The last is the rollout of the chosen sequence alone.
            overheads.extend(report.overheads[:-1])
            collisions += report.collisions
    finally:
        planner.close()
    return ServingFigures(
        replicas, np.array(overheads), collisions, np.array(seconds), np.array(actions)
    )


def summarise(measured: Sequence[ServingFigures]) -> dict[str, Any]:
    """The figures for ``--json``."""
    first = measured[0].actions
    return {
        "round_overhead_ms": {str(one.replicas): one.summary() for one in measured},
        "plan_ms": {
            str(one.replicas): round(1e3 * float(np.median(one.plan_seconds)), 1)
            for one in measured
        },
        "rounds": sum(len(one.overheads) for one in measured),
        "collisions": sum(one.collisions for one in measured),
        "plans_identical": all(np.array_equal(one.actions, first) for one in measured),
    }


def _request(model: ModelDescription, seed: int) -> PlanRequest:
    samples = _SHARES * model.micro_batch
    search = CrossEntropySettings(
        samples=samples, elites=samples // 8, rounds=_ROUNDS_OF_A_PLAN, horizon=1
    )
    draw = np.random.default_rng(seed).standard_normal
    latents = [draw((model.tokens, model.dim)).astype(np.float32) for _ in range(2)]
    return PlanRequest(Scene(latents[0], _START, latents[1]), search, seed)
