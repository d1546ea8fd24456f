"""``jepa-planner bench serve``: what Ray and the network add to a plan, and how far it scales."""

from __future__ import annotations

import argparse
import json
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from jepa_planner_ros.cli import CommandError
from jepa_planner_ros.cli.bench import latency_model
from jepa_planner_ros.cli.bench.latency_model import LatencyModel
from jepa_planner_ros.cli.bench.remote_planning import (
    FleetFigures,
    RoundTripFigures,
    fleet,
    over_distances,
    remote_added,
)
from jepa_planner_ros.cli.bench.rounds import (
    ROUNDS_OF_A_PLAN,
    RoundFigures,
    measure_rounds,
    sample_plans,
)
from jepa_planner_ros.cli.numbers import real_number, whole_number
from jepa_planner_ros.planning import InProcessPlanner
from jepa_planner_ros.serving import LocalRayPlanner, RemotePlanner, RemoteSettings, ServingSettings
from jepa_planner_ros.serving.service import PlannerService, ServiceSettings
from jepa_planner_ros.types import Float64Array, PlannerError
from jepa_planner_ros.world_model import CheckpointError, load_world_model

_DESCRIPTION = f"""\
Measure the planner as a service, on a local Ray and behind its gRPC endpoint:

  rounds    what a round takes beyond its slowest replica's work, and how often two parcels of a
            round met on one replica. Each replica has --work milliseconds of work in a round, most
            of which it waits, as a computer does for a GPU; so replicas do not compete for cores
  model     rounds of the same work on more and more replicas, and the fit of
            time(W) = rounds x (r / effective(W) + c x (W - 1)), where
            effective(W) = W / (1 + k x (W - 1)); continued to 64 replicas and to fleets of robots
  plans     whether they are equal to the last bit in this process, and for every number of
            replicas on a local Ray and behind the endpoint
  remote    what a plan takes longer behind the endpoint, both on this computer, side by side
  fleet     plans per second of several robots that share two replicas, and of one alone
  distance  a step's time in simulation, for round trips of 0 to 100 ms between robot and planner.
            The network's delay is made within this process; it loses nothing

A plan has {ROUNDS_OF_A_PLAN} rounds. All of it takes some five minutes.
"""

_EPILOG = """\
examples:
  jepa-planner bench serve --json serve.json --plot serve.png
  jepa-planner bench serve --rounds 100 --replicas 1 2 3      a quick look

exit code: 0 when all plans are equal and no parcels met, else 1
"""

# Of the work in the model's rounds every number of replicas from 1 to 4 takes the same share.
_SHARED_WORK = 12
_PROJECTED = (8, 16, 32, 64)
_FLEET = 4
_SHARED_REPLICAS = 2
_ROUND_TRIPS = (0.0, 0.02, 0.05, 0.1)


@dataclass(frozen=True)
class ReplicaFigures:
    """What was measured with one number of replicas.

    Attributes:
        filled: rounds in which each replica has the same work.
        shared: rounds of the same work for all replicas together.
        identical: whether plans are those of this process, on a local Ray and behind the endpoint.
    """

    filled: RoundFigures
    shared: RoundFigures
    identical: bool


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line."""
    parser.description, parser.epilog = _DESCRIPTION, _EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add = parser.add_argument
    add("--checkpoint", default="shipped", metavar="FILE", help="world model (default: shipped)")
    add(
        "--replicas",
        type=whole_number(1, 64),
        nargs="+",
        default=[1, 2, 3, 4],
        metavar="W",
        help="numbers of replicas to measure, three at least for the model (default: 1 2 3 4)",
    )
    add(
        "--rounds",
        type=whole_number(ROUNDS_OF_A_PLAN),
        default=1000,
        metavar="N",
        help="rounds for each number of replicas (default: 1000)",
    )
    add(
        "--work",
        type=real_number(1.0, 10000.0),
        default=5.0,
        metavar="MS",
        help="a replica's work in a round, ms (default: 5)",
    )
    add("--json", type=Path, metavar="FILE", help="write the figures there")
    add("--plot", type=Path, metavar="FILE", help="draw rounds over replicas there")


def run(args: argparse.Namespace) -> int:
    """Measure, print tables, and return the exit code."""
    replicas = sorted(set(args.replicas))
    try:
        here = sample_plans(InProcessPlanner(load_world_model(args.checkpoint)))
        with Progress(transient=True) as progress:
            measured = {
                one: _measure(one, here, args)
                for one in progress.track(replicas, description="replicas")
            }
            shared = progress.add_task("robots and distances", total=None)
            added, together, distances = _remote(args.checkpoint)
            progress.remove_task(shared)
    except (PlannerError, CheckpointError) as error:
        raise CommandError(str(error)) from error
    seconds = {one: figures.shared.round_seconds for one, figures in measured.items()}
    model = latency_model.fit(seconds) if len(seconds) > 2 else None
    figures = _as_json(measured, model, seconds, added, together, distances)
    _print(measured, model, seconds, added, together, distances)
    if args.json is not None:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps(figures, indent=2) + "\n")
    if args.plot is not None and model is not None:
        latency_model.draw(model, seconds, max(_PROJECTED), args.plot)
    return 0 if figures["plans_identical"] and not figures["collisions"] else 1


def _measure(replicas: int, here: Float64Array, args: argparse.Namespace) -> ReplicaFigures:
    """Rounds of a local Ray, and plans of it and of a service, with so many replicas."""
    pace = {"micro_batch": 2, "pace_s": 1e-3 * args.work}
    with _local(args.checkpoint, replicas, **pace) as planner:
        filled = measure_rounds(planner, micro_batches=replicas, rounds=args.rounds)
        shared = measure_rounds(planner, _SHARED_WORK, max(ROUNDS_OF_A_PLAN, args.rounds // 10))
    with _local(args.checkpoint, replicas) as planner:
        local = sample_plans(planner)
    with _service(args.checkpoint, replicas) as endpoint, _connected(endpoint, "bench") as robot:
        remote = sample_plans(robot)
    return ReplicaFigures(
        filled, shared, np.array_equal(here, local) and np.array_equal(here, remote)
    )


def _remote(checkpoint: str) -> tuple[float, FleetFigures, Sequence[RoundTripFigures]]:
    """What the network and other robots cost, with replicas that do not wait."""
    with ExitStack() as stack:
        endpoint = stack.enter_context(_service(checkpoint, _SHARED_REPLICAS))
        robots = [
            stack.enter_context(_connected(endpoint, f"robot-{index}")) for index in range(_FLEET)
        ]
        with _local(checkpoint, _SHARED_REPLICAS) as local:
            added = remote_added(local, robots[0])
        together = fleet(robots)
        distances = over_distances(endpoint, _ROUND_TRIPS, checkpoint)
    return added, together, distances


@contextmanager
def _local(checkpoint: str, replicas: int, **settings: Any) -> Iterator[LocalRayPlanner]:
    planner = LocalRayPlanner(checkpoint, replicas, device="cpu", start_timeout_s=300.0, **settings)
    try:
        yield planner
    finally:
        planner.close()


@contextmanager
def _service(checkpoint: str, replicas: int) -> Iterator[str]:
    settings = ServiceSettings(
        ServingSettings(checkpoint, "cpu", replicas), port=_free_port(), health_port=_free_port()
    )
    service = PlannerService(settings)
    try:
        yield service.running.endpoint
    finally:
        service.close()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def _connected(endpoint: str, robot: str) -> Iterator[RemotePlanner]:
    planner = RemotePlanner(RemoteSettings(endpoint, robot=robot))
    try:
        yield planner
    finally:
        planner.close()


def _print(
    measured: Mapping[int, ReplicaFigures],
    model: LatencyModel | None,
    seconds: Mapping[int, float],
    added: float,
    together: FleetFigures,
    distances: Sequence[RoundTripFigures],
) -> None:
    console = Console()
    table = Table("replicas", "overhead of a round, ms", "95 %", "rounds", "collisions", "equal")
    for replicas, one in measured.items():
        overhead = one.filled.overhead_ms
        table.add_row(
            str(replicas),
            f"{overhead['median']:.2f}",
            f"{overhead['p95']:.2f}",
            str(one.filled.rounds + one.shared.rounds),
            str(one.filled.collisions + one.shared.collisions),
            "yes" if one.identical else "no",
        )
    console.print(table)
    if model is None:
        console.print("model: give three numbers of replicas or more")
    else:
        console.print(
            f"model: r {1e3 * model.r:.1f} ms, k {model.k:.4f}, c {1e3 * model.c:.2f} ms, error "
            f"{100.0 * model.error(seconds):.1f} %"
        )
        table = Table("replicas", "a plan, ms", "of them at work", "robots at a plan a second")
        for replicas in (*measured, *(one for one in _PROJECTED if one not in measured)):
            plan = ROUNDS_OF_A_PLAN * model.round_seconds(replicas)
            table.add_row(
                f"{replicas}{'' if replicas in measured else ' (projected)'}",
                f"{1e3 * plan:.0f}",
                f"{model.effective(replicas):.1f}",
                f"{1.0 / plan:.1f}",
            )
        console.print(table)
    console.print(f"a remote plan on this computer takes {added:.1f} ms longer than a local one")
    console.print(
        f"{together.robots} robots on {_SHARED_REPLICAS} replicas: {together.plans_per_s:.1f} "
        f"plans a second; one alone: {together.single_plans_per_s:.1f}"
    )
    table = Table("round trip, ms", "a plan, ms", "a step, s: blocking", "non-blocking")
    for distance in distances:
        table.add_row(
            f"{distance.round_trip_ms:.0f}",
            f"{distance.plan_ms:.0f}",
            *(f"{one:.2f}" for one in distance.step_s.values()),
        )
    console.print(table)


def _as_json(
    measured: Mapping[int, ReplicaFigures],
    model: LatencyModel | None,
    seconds: Mapping[int, float],
    added: float,
    together: FleetFigures,
    distances: Sequence[RoundTripFigures],
) -> dict[str, Any]:
    everything = [rounds for one in measured.values() for rounds in (one.filled, one.shared)]
    return {
        "round_overhead_ms": {str(one): measured[one].filled.overhead_ms for one in measured},
        "collisions": sum(one.collisions for one in everything),
        "rounds": sum(one.rounds for one in everything),
        "rounds_by_replicas": {str(one): measured[one].filled.rounds for one in measured},
        "remote_added_ms": added,
        "plans_identical": all(one.identical for one in measured.values()),
        "fleet": asdict(together),
        "latency_model": None
        if model is None
        else {
            "r_ms": 1e3 * model.r,
            "k": model.k,
            "c_ms": 1e3 * model.c,
            "relative_error": model.error(seconds),
            "measured_round_ms": {str(one): 1e3 * value for one, value in seconds.items()},
            "projected_plan_ms": {
                str(one): 1e3 * ROUNDS_OF_A_PLAN * model.round_seconds(one) for one in _PROJECTED
            },
        },
        "network": "delay within the process",
        "round_trips": [asdict(one) for one in distances],
    }
