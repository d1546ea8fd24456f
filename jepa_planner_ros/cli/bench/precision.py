"""``jepa-planner bench precision``: which elites a search loses to rounding, round by round."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from jepa_planner_ros.cli.bench.rollout import (
    add_trial_arguments,
    device_name,
    trial_of,
)
from jepa_planner_ros.cli.bench.savings import without_onednn
from jepa_planner_ros.cli.bench.trial import (
    FastPath,
    candidates_of_rounds,
    elite_overlap,
    progress,
    search_settings,
)
from jepa_planner_ros.cli.numbers import whole_number
from jepa_planner_ros.types import Float64Array
from jepa_planner_ros.world_model import PRECISIONS, choose_precision
from jepa_planner_ros.world_model.precision import FP64

_EXACT_MICRO_BATCH = 16
_COLOURS = {
    "fp32": "tab:grey",
    "tf32": "tab:olive",
    "fp16": "tab:blue",
    "bf16": "tab:orange",
    "int8": "tab:red",
}


@dataclass(frozen=True)
class RoundFigures:
    """What rounding does to the candidates of one round.

    Attributes:
        elite_overlap: share of the elites in double precision that are elites here, too.
        noise: deviation of the energies' errors among candidates; what all have in common moves
            no candidate before another.
        max_abs_error: largest error of an energy.
    """

    elite_overlap: float
    noise: float
    max_abs_error: float


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line."""
    parser.description = (
        "Let the reference's search run, and evaluate the candidates of each of its rounds in "
        "every precision and in double precision. The further a search has come, the closer its "
        "candidates lie together, and the more of its elites are chosen by rounding errors. On a "
        "CPU, fp16 is multiplied as on a GPU, which makes it slow."
    )
    parser.epilog = (
        "example: jepa-planner bench precision --preset mid --json precision.json --plot "
        "precision.png. Plots need matplotlib."
    )
    add_trial_arguments(parser)
    parser.add_argument(
        "--precisions",
        nargs="+",
        choices=tuple(PRECISIONS),
        default=["fp32", "fp16", "bf16", "int8"],
        help="precisions to compare (default: all but tf32)",
    )
    parser.add_argument(
        "--rounds",
        type=whole_number(1),
        default=10,
        metavar="N",
        help="of the search (default: %(default)s)",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures to FILE")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw them to FILE")


def run(args: argparse.Namespace) -> int:
    """Measure, and print a table."""
    trial = trial_of(args)
    settings = search_settings(args.samples, args.horizon, args.rounds)
    # On a CPU, too, fp16 is to be multiplied as GPUs do it, however slowly.
    with without_onednn():
        paths = {
            name: FastPath(trial, choose_precision(name, trial.device)) for name in args.precisions
        }
    exact = FastPath(trial, FP64, micro_batch=min(_EXACT_MICRO_BATCH, trial.micro_batch))
    spreads: list[float] = []
    figures: dict[str, list[RoundFigures]] = {name: [] for name in paths}
    with progress(args.rounds * (1 + len(paths))) as shown:
        for candidates in candidates_of_rounds(exact, settings, seed=0):
            of_round = f"round {len(spreads) + 1} of {args.rounds}"
            shown.step(f"{of_round}, double precision")
            truth = exact.energies(candidates)[:, -1]
            spreads.append(float(truth.std()))
            for name, path in paths.items():
                shown.step(f"{of_round}, {name}")
                energies = path.energies(candidates)[:, -1]
                figures[name].append(_figures(energies, truth, settings.elites))
    print(
        f"{args.checkpoint or args.preset} on {device_name(trial.device)}: {args.samples} "
        f"candidates of {args.horizon} actions, {settings.elites} elites\n"
    )
    _print_table(spreads, figures)
    if args.json:
        record = {
            "network": args.checkpoint or args.preset,
            "device": device_name(trial.device),
            "samples": args.samples,
            "elites": settings.elites,
            "horizon": args.horizon,
            "energy_spread": spreads,
            "precisions": {name: list(map(asdict, rounds)) for name, rounds in figures.items()},
        }
        args.json.write_text(json.dumps(record, indent=2) + "\n")
    if args.plot:
        draw(spreads, figures, args.plot)
    return 0


def _figures(energies: Float64Array, truth: Float64Array, elites: int) -> RoundFigures:
    errors = energies - truth
    return RoundFigures(
        elite_overlap(energies, truth, elites), float(errors.std()), float(np.abs(errors).max())
    )


def _print_table(spreads: list[float], figures: Mapping[str, list[RoundFigures]]) -> None:
    print("elites kept, and the errors' deviation over that of the candidates' energies")
    print("round   spread " + "".join(f"{name:>16}" for name in figures))
    for index, spread in enumerate(spreads):
        cells = (
            f"{rounds[index].elite_overlap:>7.0%}{rounds[index].noise / spread:>9.4f}"
            for rounds in figures.values()
        )
        print(f"{index + 1:>5}  {spread:.1e}" + "".join(cells))


def draw(spreads: list[float], figures: Mapping[str, list[RoundFigures]], path: Path) -> None:
    """Draw elites and errors over the rounds of a search.

    Args:
        spreads: deviation of the candidates' energies in each round.
        figures: of each precision and round.
        path: picture to write.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, (kept, noise) = pyplot.subplots(1, 2, figsize=(9.0, 4.0), layout="constrained")
    rounds = range(1, len(spreads) + 1)
    for name, of_rounds in figures.items():
        style = {"color": _COLOURS[name], "marker": "o", "markersize": 3, "label": name}
        kept.plot(rounds, [100 * one.elite_overlap for one in of_rounds], **style)
        noise.semilogy(rounds, [one.noise for one in of_rounds], **style)
    noise.semilogy(rounds, spreads, color="black", label="energies of candidates")
    kept.set(xlabel="round of the search", ylabel="elites kept, %", ylim=(0, 103))
    noise.set(xlabel="round of the search", ylabel="deviation among candidates")
    noise.set_title("error of the energy, and what it has to tell apart", fontsize="medium")
    kept.set_title("the same elites as in double precision", fontsize="medium")
    figure.legend(*noise.get_legend_handles_labels(), loc="outside lower center", ncols=6)
    for axes in (kept, noise):
        axes.grid(alpha=0.3)
    figure.savefig(path, dpi=130)
    pyplot.close(figure)
