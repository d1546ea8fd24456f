"""``jepa-planner bench search``: which search ends nearest to the photograph, at what cost."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from jepa_planner_ros.cli import CommandError
from jepa_planner_ros.cli.bench.bootstrap import mean_interval
from jepa_planner_ros.cli.bench.contest import (
    AS_PHOTOGRAPHED,
    HARDER,
    REFERENCE,
    contestants,
    energy_gaps,
    final_cm,
    run_episodes,
)
from jepa_planner_ros.cli.bench.pareto import Point, draw_pareto
from jepa_planner_ros.cli.numbers import whole_number
from jepa_planner_ros.report import REACHED_CM
from jepa_planner_ros.search.profiles import DEFAULT_PROFILE
from jepa_planner_ros.sim.closed_loop import Reach
from jepa_planner_ros.types import SearchSettings
from jepa_planner_ros.world_model import CheckpointError, WorldModel, load_world_model

_DESCRIPTION = """\
Compare searches in closed loop: the simulated arm reaches for photographs, without ROS.

Every search gets the same episodes, with seeds from 1000 on (settings were chosen on seeds 0 to
99); the reference, whose plans take seconds, gets the first few of them. In brackets are 95 percent
confidence intervals of the mean, by a bootstrap over episodes. The gap says
how much of the possible drop of its own energy a search leaves at the episodes' starts, against an
oracle with thousands of rollouts.
"""

_EPILOG = """\
examples:
  jepa-planner bench search --episodes 50 --json search.json --plots plots
  jepa-planner bench search --episodes 5 --reference-episodes 1     a quick look
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line."""
    parser.description, parser.epilog = _DESCRIPTION, _EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add = parser.add_argument
    add(
        "--searches",
        metavar="NAMES",
        help="compare only these, separated by commas, and the reference (default: all)",
    )
    add(
        "--episodes",
        type=whole_number(1),
        default=50,
        metavar="N",
        help="for each search (default: 50)",
    )
    add(
        "--reference-episodes",
        type=whole_number(1),
        default=12,
        metavar="N",
        help="for the reference, whose plan takes seconds (default: 12)",
    )
    add(
        "--steps",
        type=whole_number(1),
        default=8,
        metavar="N",
        help="actions of an episode (default: 8)",
    )
    add(
        "--harder-episodes",
        type=whole_number(1),
        default=12,
        metavar="N",
        help="in a changed world, and with execution error; not for the reference (default: 12)",
    )
    add(
        "--scenes",
        type=whole_number(1),
        default=4,
        metavar="N",
        help="to compare with an oracle (default: 4)",
    )
    add("--checkpoint", default="shipped", metavar="FILE", help="world model (default: shipped)")
    add("--device", default="cpu", metavar="NAME", help="where the world model runs (default: cpu)")
    add("--json", type=Path, metavar="FILE", help="write the figures there")
    add("--plots", type=Path, metavar="DIR", help="write Pareto plots there, as PNG")


_TABLE_WIDTH = 120
_TITLES = (
    "rollouts",
    "ms",
    "speed",
    "final cm",
    "worst",
    "reached",
    "above ref.",
    "gap",
    "fallback",
    "changed",
    "error",
)


@dataclass(frozen=True)
class Figures:
    """What was measured of one search. Intervals are of the mean, 95 %.

    Attributes:
        name: of the search.
        rollouts: of a plan, on average.
        final_cm_mean: distance to the goal at the end.
        final_cm_interval: of that mean.
        final_cm_worst: over the episodes.
        reached_fraction: ended within 5 cm.
        plan_ms: median time of a plan.
        speedup_vs_reference: of that time, in the same run.
        episodes: how many.
        cm_above_reference: mean difference to the reference on the same episodes.
        cm_above_reference_interval: of that mean.
        energy_gap: left of the possible drop of its own energy; see the description.
        fallback_fraction: plans in which cross-entropy rounds took over.
        harder_cm_mean: final distance in each of the harder conditions; none for the reference.
    """

    name: str
    rollouts: float
    final_cm_mean: float
    final_cm_interval: tuple[float, float]
    final_cm_worst: float
    reached_fraction: float
    plan_ms: float
    speedup_vs_reference: float
    episodes: int
    cm_above_reference: float
    cm_above_reference_interval: tuple[float, float]
    energy_gap: float
    fallback_fraction: float
    harder_cm_mean: Mapping[str, float]


def run(args: argparse.Namespace) -> int:
    """Run the contest, print the table, and write what was asked for."""
    if args.reference_episodes > args.episodes:
        raise CommandError("--reference-episodes must be at most --episodes.")
    try:
        world_model = load_world_model(args.checkpoint, args.device)
    except CheckpointError as error:
        raise CommandError(str(error)) from error
    figures = _measure(world_model, args)
    _print_table(figures)
    if args.json is not None:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        content = {"default": DEFAULT_PROFILE, "searches": [asdict(entry) for entry in figures]}
        args.json.write_text(json.dumps(content, indent=2) + "\n")
    if args.plots is not None:
        path = args.plots / "search_pareto.png"
        points = [
            Point(
                entry.name,
                entry.rollouts,
                entry.plan_ms,
                entry.final_cm_mean,
                *entry.final_cm_interval,
            )
            for entry in figures
        ]
        draw_pareto(points, DEFAULT_PROFILE, path)
        print(f"plots: {path.absolute()}")
    return 0


def _measure(world_model: WorldModel, args: argparse.Namespace) -> list[Figures]:
    searches = _chosen(args.searches)
    episodes = dict.fromkeys(searches, args.episodes) | {REFERENCE: args.reference_episodes}
    courses = run_episodes(world_model, searches, episodes, args.steps, AS_PHOTOGRAPHED)
    quick = {name: settings for name, settings in searches.items() if name != REFERENCE}
    few = dict.fromkeys(quick, args.harder_episodes)
    harder = {
        condition.name: run_episodes(world_model, quick, few, args.steps, condition)
        for condition in HARDER
    }
    gaps = energy_gaps(world_model, searches, args.scenes)
    harder_means: dict[str, dict[str, float]] = {
        name: {title: float(final_cm(by_name[name]).mean()) for title, by_name in harder.items()}
        for name in quick
    }
    return [
        _figures(name, courses[name], courses[REFERENCE], gaps[name], harder_means.get(name, {}))
        for name in searches
    ]


def _chosen(names: str | None) -> Mapping[str, SearchSettings]:
    known = contestants()
    if names is None:
        return known
    wanted = [REFERENCE, *(name.strip() for name in names.split(",") if name != REFERENCE)]
    if unknown := [name for name in wanted if name not in known]:
        raise CommandError(f"no search is called '{unknown[0]}'; there are: {', '.join(known)}.")
    return {name: known[name] for name in wanted}


def _figures(
    name: str,
    courses: list[Reach],
    reference: list[Reach],
    gap: float,
    harder: Mapping[str, float],
) -> Figures:
    finals = final_cm(courses)
    difference = finals[: len(reference)] - final_cm(reference)
    plan_ms = _median_plan_ms(courses)
    plans = sum(len(course.rollouts) for course in courses)
    return Figures(
        name=name,
        rollouts=float(np.mean([course.rollouts for course in courses])),
        final_cm_mean=float(finals.mean()),
        final_cm_interval=mean_interval(finals),
        final_cm_worst=float(finals.max()),
        reached_fraction=float((finals < REACHED_CM).mean()),
        plan_ms=plan_ms,
        speedup_vs_reference=_median_plan_ms(reference) / plan_ms,
        episodes=len(courses),
        cm_above_reference=float(difference.mean()),
        cm_above_reference_interval=mean_interval(difference),
        energy_gap=gap,
        fallback_fraction=sum(course.fallbacks for course in courses) / plans,
        harder_cm_mean=harder,
    )


def _median_plan_ms(courses: list[Reach]) -> float:
    return 1000 * float(np.median([course.plan_seconds for course in courses]))


def _print_table(figures: list[Figures]) -> None:
    table = Table(box=None, header_style="bold")
    table.add_column("search")
    for title in _TITLES:
        table.add_column(title, justify="right", no_wrap=True)
    for entry in figures:
        table.add_row(
            entry.name,
            f"{entry.rollouts:.0f}",
            f"{entry.plan_ms:.0f}",
            f"x{entry.speedup_vs_reference:.0f}",
            f"{entry.final_cm_mean:.2f}\n{_bracketed(entry.final_cm_interval)}",
            f"{entry.final_cm_worst:.1f}",
            f"{entry.reached_fraction:.0%}",
            f"{entry.cm_above_reference:+.2f}\n{_bracketed(entry.cm_above_reference_interval)}",
            f"{entry.energy_gap:.1%}",
            f"{entry.fallback_fraction:.0%}",
            *(f"{mean:.2f}" for mean in entry.harder_cm_mean.values()),
        )
    console = Console(highlight=False)
    # A narrower table would lose its figures.
    console.width = max(console.width, _TABLE_WIDTH)
    console.print(table)


def _bracketed(interval: tuple[float, float]) -> str:
    return f"({interval[0]:.1f}..{interval[1]:.1f})"
