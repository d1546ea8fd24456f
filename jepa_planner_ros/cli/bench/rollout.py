"""``jepa-planner bench rollout``: seconds for a round of candidates, against upstream's way."""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from jepa_planner_ros.cli import CommandError
from jepa_planner_ros.cli.bench.trial import (
    SIZES,
    FastPath,
    Progress,
    ReferencePath,
    Trial,
    candidates_of_rounds,
    elite_overlap,
    make_trial,
    progress,
    search_settings,
)
from jepa_planner_ros.cli.numbers import whole_number
from jepa_planner_ros.geometry import POSITION
from jepa_planner_ros.types import Float64Array
from jepa_planner_ros.world_model import PRECISIONS, CheckpointError, choose_precision
from jepa_planner_ros.world_model.compilation import obstacle
from jepa_planner_ros.world_model.cost import reference_operations, rollout_operations
from jepa_planner_ros.world_model.precision import FP64, caution

# Candidates at once in double precision, which takes four times the memory of fp16.
_EXACT_MICRO_BATCH = 16
_SEED = 0
_ROUNDS, _LATE_ROUNDS = 10, 3
# m. A Franka repeats a position to 0.1 mm, so it cannot tell closer candidates apart.
_REPEATABILITY = 1e-4
_PROFILED_OPERATIONS = 12

# Dense matrix products in TFLOP/s, with sums in fp32, by a part of the device's name. From NVIDIA's
# data sheets (SXM versions where there are several); GeForce cards sum at half their fp16 rate.
_PEAKS = {
    "B200": {"fp16": 2250.0, "bf16": 2250.0, "tf32": 1125.0, "fp32": 75.0},
    "H200": {"fp16": 989.0, "bf16": 989.0, "tf32": 495.0, "fp32": 67.0},
    "H100": {"fp16": 989.0, "bf16": 989.0, "tf32": 495.0, "fp32": 67.0},
    "A100": {"fp16": 312.0, "bf16": 312.0, "tf32": 156.0, "fp32": 19.5},
    "L40S": {"fp16": 362.0, "bf16": 362.0, "tf32": 183.0, "fp32": 91.6},
    "L4": {"fp16": 121.0, "bf16": 121.0, "tf32": 60.0, "fp32": 30.3},
    "RTX 4090": {"fp16": 165.0, "bf16": 165.0, "tf32": 82.6, "fp32": 82.6},
    "RTX 3090": {"fp16": 71.0, "bf16": 71.0, "tf32": 35.6, "fp32": 35.6},
}


@dataclass(frozen=True)
class PathFigures:
    """What was measured of one precision.

    Attributes:
        precision: its name.
        compiled: whether compiled code ran.
        seconds: of a round of all candidates, the quickest of the repetitions.
        speedup: the reference's seconds over these.
        tflops: useful operations in 1e12 per second.
        peak_share: these over the device's peak; None where that is unknown.
        max_abs_energy_error: against double precision, over the last rounds of a search.
        elite_overlap: share of the reference's elites among those chosen, mean over the last
            rounds.
    """

    precision: str
    compiled: bool
    seconds: float
    speedup: float
    tflops: float
    peak_share: float | None
    max_abs_energy_error: float
    elite_overlap: float


@dataclass(frozen=True, eq=False)
class LateRounds:
    """Candidates that lie close together, where rounding costs elites first.

    Attributes:
        candidates: of the last rounds of a search that a robot could tell apart,
            (samples, horizon, 7).
        truth: their energies in double precision.
    """

    candidates: tuple[Float64Array, ...]
    truth: tuple[Float64Array, ...]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line."""
    parser.description = (
        "Time a round of candidates, in one run on the same weights: the reference computes every "
        "frame anew at every step in fp32, as upstream does; then the engine that plans, in each "
        "precision. Repetitions take turns, and the quickest of each counts. On the candidates of "
        "the last rounds of a search, which lie close together, energies are compared with double "
        "precision, and elites with the reference's. Needs PyTorch, NumPy and safetensors, "
        "neither ROS nor Ray."
    )
    parser.epilog = (
        "examples: 'jepa-planner bench rollout --preset mid --samples 100' on a CPU; "
        "'jepa-planner bench rollout --preset vjepa2-ac-vitg --samples 800' on a GPU of 40 GB or "
        "more, and with --micro-batch 25 on smaller ones. From a checkout without installing: "
        "python -m jepa_planner_ros.cli.main bench rollout ..."
    )
    add_trial_arguments(parser)
    parser.add_argument(
        "--precisions",
        nargs="+",
        choices=tuple(PRECISIONS),
        help="precisions to time (default: those that the device is fast in)",
    )
    parser.add_argument(
        "--uncompiled",
        action="store_true",
        help="on a GPU, time each precision without torch.compile and CUDA graphs, too",
    )
    parser.add_argument(
        "--repeat",
        type=whole_number(1),
        default=3,
        metavar="N",
        help="rounds to time of each (default: %(default)s)",
    )
    parser.add_argument(
        "--profile",
        action="store_true",
        help="print where the quickest one spends its time, by operation",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures to FILE")


def add_trial_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what is measured, on what."""
    parser.add_argument(
        "--preset",
        choices=tuple(SIZES),
        default="mid",
        help="sizes of the network; all but 'shipped' have random weights (default: %(default)s)",
    )
    parser.add_argument(
        "--checkpoint", metavar="FILE", help="a world model's file, in place of a preset"
    )
    parser.add_argument(
        "--samples",
        type=whole_number(1),
        default=100,
        metavar="N",
        help="candidates (default: %(default)s)",
    )
    parser.add_argument(
        "--horizon",
        type=whole_number(1),
        default=2,
        metavar="T",
        help="actions of a candidate (default: %(default)s)",
    )
    parser.add_argument(
        "--device",
        default="cuda" if torch.cuda.is_available() else "cpu",
        metavar="NAME",
        help="cpu or cuda (default here: %(default)s)",
    )
    parser.add_argument(
        "--micro-batch",
        type=whole_number(1),
        metavar="N",
        help="candidates at once (default: what divides --samples, up to 100 on GPUs, 32 on CPUs)",
    )


def run(args: argparse.Namespace) -> int:
    """Measure, and print a table."""
    trial = trial_of(args)
    _introduce(trial, args)
    paths = _paths(args, trial.device)
    with progress(_ROUNDS + 2 + len(paths) + args.repeat) as shown:
        late = _late_rounds(trial, args, shown)
        reference_s, figures = _measure(trial, late, paths, args, shown)
    _print_table(trial, args, reference_s, figures)
    if args.json:
        args.json.write_text(
            json.dumps(_record(trial, args, reference_s, figures), indent=2) + "\n"
        )
        print(f"\nfigures written to {args.json}")
    if args.profile:
        best = min(figures, key=lambda path: path.seconds)
        _print_profile(trial, late, best)
    return 0


def trial_of(args: argparse.Namespace) -> Trial:
    """The network and scene that the command line asks for.

    Raises:
        CommandError: there is no such file or device.
    """
    if args.samples < 4:
        raise CommandError(f"--samples {args.samples}: at least 4 are needed to tell elites.")
    try:
        device = torch.device(args.device)
        torch.zeros(1, device=device)
        return make_trial(
            args.preset,
            args.checkpoint,
            device,
            args.micro_batch
            or _even_micro_batch(args.samples, 32 if device.type == "cpu" else 100),
            _SEED,
        )
    except CheckpointError as error:
        raise CommandError(str(error)) from error
    except (AssertionError, RuntimeError) as error:
        cause = str(error).partition("\n")[0]
        raise CommandError(f"--device {args.device} cannot be used: {cause}") from error


def _even_micro_batch(samples: int, most: int) -> int:
    """The largest that needs no padding."""
    return max(size for size in range(1, most + 1) if samples % size == 0)


def _paths(args: argparse.Namespace, device: torch.device) -> list[tuple[str, bool]]:
    """What to measure: names of precisions, each with whether to compile."""
    names = args.precisions or [
        name for name in PRECISIONS if not caution(choose_precision(name, device), device)
    ]
    compiles = device.type == "cuda" and not obstacle(device)
    ways = [True, False] if compiles and args.uncompiled else [compiles]
    return [(name, way) for name in names for way in ways]


def _introduce(trial: Trial, args: argparse.Namespace) -> None:
    sizes = trial.config.predictor
    print(
        f"predictor  {args.checkpoint or args.preset}: {sizes.dim} wide, {sizes.depth} layers, "
        f"{sizes.heads} heads, {trial.config.encoder.tokens} tokens a frame\n"
        f"device     {device_name(trial.device)}, PyTorch {torch.__version__}\n"
        f"a round    {args.samples} candidates of {args.horizon} actions, {trial.micro_batch} at "
        "once"
    )
    if trial.device.type == "cuda" and (hindrance := obstacle(trial.device)):
        print(f"note       nothing is compiled: {hindrance}")
    for name in args.precisions or ():
        if warning := caution(choose_precision(name, trial.device), trial.device):
            print(f"note       {warning}")


def device_name(device: torch.device) -> str:
    """The device in words."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{platform.machine()} CPU, {torch.get_num_threads()} threads"


def _late_rounds(trial: Trial, args: argparse.Namespace, shown: Progress) -> LateRounds:
    path = FastPath(trial, PRECISIONS["fp32"])
    settings = search_settings(args.samples, args.horizon, _ROUNDS)
    rounds: list[Float64Array] = []
    for candidates in candidates_of_rounds(path, settings, _SEED):
        shown.step(f"search, round {len(rounds) + 1}")
        rounds.append(candidates)
    del path
    shown.step("energies in double precision")
    apart = [one for one in rounds if one[..., POSITION].std(0).max() > _REPEATABILITY]
    late = tuple((apart or rounds)[-_LATE_ROUNDS:])
    exact = FastPath(trial, FP64, micro_batch=min(_EXACT_MICRO_BATCH, trial.micro_batch))
    return LateRounds(late, tuple(exact.energies(candidates) for candidates in late))


def _measure(
    trial: Trial,
    late: LateRounds,
    paths: list[tuple[str, bool]],
    args: argparse.Namespace,
    shown: Progress,
) -> tuple[float, list[PathFigures]]:
    """Seconds of the reference, and every path's figures."""
    candidates, elites = late.candidates[-1], max(2, args.samples // 10)
    built, accuracies = [], []
    shown.step("reference, energies")
    reference = ReferencePath(trial)
    chosen = [reference.energies(candidates) for candidates in late.candidates]
    for name, compiled in paths:
        shown.step(f"{name}, accuracy")
        path = FastPath(trial, choose_precision(name, trial.device), compiled)
        accuracies.append(_accuracy(path, late, chosen, elites))
        built.append(path)
    reference_s, quickest = float("inf"), [float("inf")] * len(paths)
    for repetition in range(1, args.repeat + 1):
        shown.step(f"repetition {repetition} of {args.repeat}")
        reference_s = min(reference_s, seconds(reference, candidates))
        for index, path in enumerate(built):
            quickest[index] = min(quickest[index], seconds(path, candidates))
    operations = args.samples * rollout_operations(trial.config, args.horizon)
    return reference_s, [
        PathFigures(
            name,
            path.compiled,
            seconds,
            reference_s / seconds,
            operations / seconds / 1e12,
            _peak_share(trial.device, name, operations / seconds / 1e12),
            *accuracy,
        )
        for (name, _), path, seconds, accuracy in zip(
            paths, built, quickest, accuracies, strict=True
        )
    ]


def _accuracy(
    path: FastPath, late: LateRounds, reference: list[Float64Array], elites: int
) -> tuple[float, float]:
    """Largest error of an energy, and mean overlap with the reference's elites."""
    energies = [path.energies(candidates) for candidates in late.candidates]
    error = max(
        float(abs(found - true).max()) for found, true in zip(energies, late.truth, strict=True)
    )
    overlaps = [
        elite_overlap(found[:, -1], theirs[:, -1], elites)
        for found, theirs in zip(energies, reference, strict=True)
    ]
    return error, sum(overlaps) / len(overlaps)


def seconds(path: FastPath | ReferencePath, candidates: Float64Array) -> float:
    """What a round of candidates takes."""
    started = time.perf_counter()
    path.energies(candidates)  # Brings them to the CPU, so the device has ended, too.
    return time.perf_counter() - started


def _peak_share(device: torch.device, precision: str, tflops: float) -> float | None:
    if device.type != "cuda":
        return None
    name = torch.cuda.get_device_name(device)
    peaks: dict[str, float] = next((p for part, p in _PEAKS.items() if part in name), {})
    return tflops / peaks[precision] if precision in peaks else None


def _print_table(
    trial: Trial, args: argparse.Namespace, reference_s: float, figures: list[PathFigures]
) -> None:
    operations = args.samples * reference_operations(trial.config, args.horizon)
    print(
        f"\n{'path':<11}{'compiled':<10}{'s a round':>10}{'speed-up':>10}{'TFLOP/s':>9}"
        f"{'of peak':>9}{'energy error':>14}{'elites':>8}"
    )
    print(
        f"{'reference':<11}{'no':<10}{reference_s:>10.3f}{'1.00':>10}"
        f"{operations / reference_s / 1e12:>9.2f}"
    )
    for path in figures:
        share = "" if path.peak_share is None else f"{path.peak_share:.0%}"
        print(
            f"{path.precision:<11}{'yes' if path.compiled else 'no':<10}{path.seconds:>10.3f}"
            f"{path.speedup:>10.2f}{path.tflops:>9.2f}{share:>9}"
            f"{path.max_abs_energy_error:>14.1e}{path.elite_overlap:>8.0%}"
        )


def _record(
    trial: Trial, args: argparse.Namespace, reference_s: float, figures: list[PathFigures]
) -> dict[str, Any]:
    return {
        "network": args.checkpoint or args.preset,
        "device": device_name(trial.device),
        "torch": torch.__version__,
        "samples": args.samples,
        "horizon": args.horizon,
        "micro_batch": trial.micro_batch,
        "reference_s": reference_s,
        "paths": [asdict(path) for path in figures],
    }


def _print_profile(trial: Trial, late: LateRounds, best: PathFigures) -> None:
    from torch.profiler import ProfilerActivity, profile

    path = FastPath(trial, choose_precision(best.precision, trial.device), best.compiled)
    path.energies(late.candidates[-1])
    on_gpu = trial.device.type == "cuda"
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
    with profile(activities=activities) as profiled:
        path.energies(late.candidates[-1])
    parts = {event.key: _self_time(event, on_gpu) for event in profiled.key_averages()}
    total = sum(parts.values())
    print(f"\nWhere {best.precision} spends its {best.seconds:.3f} s:")
    for name, part in _largest(parts):
        print(f"  {part / total:>6.1%}  {name}")


def _self_time(event: Any, on_gpu: bool) -> float:
    return float(event.self_device_time_total if on_gpu else event.self_cpu_time_total)


def _largest(parts: dict[str, float]) -> Iterator[tuple[str, float]]:
    yield from sorted(parts.items(), key=lambda item: -item[1])[:_PROFILED_OPERATIONS]
