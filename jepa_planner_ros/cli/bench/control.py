"""``jepa-planner bench control``: what each control mode costs in time and accuracy."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from jepa_planner_ros.cli import CommandError
from jepa_planner_ros.cli.bench.gantt import draw_gantt, write_page
from jepa_planner_ros.cli.numbers import real_number, whole_number
from jepa_planner_ros.control import (
    CONTROL_MODES,
    ControlSettings,
    Goal,
    MotionSettings,
    SubGoal,
    begin,
)
from jepa_planner_ros.geometry import POSITION
from jepa_planner_ros.planning import InProcessPlanner
from jepa_planner_ros.search.profiles import DEFAULT_PROFILE, ProfileError, load_profile
from jepa_planner_ros.sim.episodes import ReachTask, sample_reach_task
from jepa_planner_ros.sim.franka import FrankaSim, SimSettings
from jepa_planner_ros.sim.timed_loop import Delays, TimedEpisode, TimedLoop
from jepa_planner_ros.types import SearchSettings
from jepa_planner_ros.world_model import CheckpointError, WorldModel, load_world_model

_DESCRIPTION = """\
Compare the control modes in simulation: the same goals, the same planner, another way to share time
between planning and motion.

Time is simulated, too. A plan takes as long as --planning says, whatever this computer needs for
it, and every motion as long as --motion; so the figures are the same from run to run. The arm
misses every target by --execution-error. No episode ends before its --steps are spent.
"""

_EPILOG = """\
examples:
  jepa-planner bench control --json control.json --report control.html
  jepa-planner bench control --episodes 3 --planning 0.86      a quick look
"""

# Never reached, so that every episode has the same number of steps.
_UNREACHABLE = 1e-9
_TIME_LIMIT = 3600.0


@dataclass(frozen=True)
class ModeFigures:
    """Means over the episodes of one mode.

    Attributes:
        step_s: time from one command to the next, s.
        episode_s: from the start to the end, s.
        final_cm: distance to the photographed position at the end.
        worst_cm: the same of the worst episode.
        idle_fraction: part of the time in which the arm stood still, from the first command on.
        jerk: root mean square of the executed path's, m/s^3.
        staleness_s: age of the newest frame that a command depends on, s.
    """

    step_s: float
    episode_s: float
    final_cm: float
    worst_cm: float
    idle_fraction: float
    jerk: float
    staleness_s: float


@dataclass(frozen=True)
class Trial:
    """What an episode is run with."""

    search: SearchSettings
    planning: float
    motion: float
    steps: int

    @property
    def control(self) -> ControlSettings:
        """Those that come by default, but for the duration of motions."""
        return ControlSettings(
            motion=MotionSettings(duration=self.motion, time_limit=self.motion + 4.0)
        )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line."""
    parser.description, parser.epilog = _DESCRIPTION, _EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add = parser.add_argument
    add(
        "--episodes",
        type=whole_number(1),
        default=20,
        metavar="N",
        help="of each mode (default: 20)",
    )
    add(
        "--steps",
        type=whole_number(1),
        default=12,
        metavar="N",
        help="of each episode (default: 12)",
    )
    add(
        "--planning",
        type=real_number(0.0),
        nargs="+",
        default=[0.86, 0.2, 1.5],
        metavar="S",
        help="seconds for a plan; the first is what 'modes' in the JSON is about "
        "(default: 0.86 0.2 1.5)",
    )
    add(
        "--motion",
        type=real_number(0.05, 10.0),
        default=1.0,
        metavar="S",
        help="seconds for a step (default: 1)",
    )
    add(
        "--execution-error",
        type=real_number(0.0, 0.05),
        default=0.004,
        metavar="M",
        help="standard deviation along each axis of how targets are missed, m (default: 0.004)",
    )
    add(
        "--search",
        default=DEFAULT_PROFILE,
        metavar="PROFILE",
        help="a profile of config/search, or a .yaml file like those (default: %(default)s)",
    )
    add("--checkpoint", default="shipped", metavar="FILE", help="world model (default: shipped)")
    add(
        "--seed",
        type=whole_number(0),
        default=0,
        metavar="S",
        help="of the first episode (default: 0)",
    )
    add("--json", type=Path, metavar="FILE", help="write the figures there")
    add(
        "--report",
        type=Path,
        metavar="FILE",
        help="write a page of HTML there, with the figures and a time line for each mode",
    )
    add("--plot", type=Path, metavar="FILE", help="draw an episode of each mode over time there")


def run(args: argparse.Namespace) -> int:
    """Run the episodes and tell the figures."""
    try:
        search = load_profile(args.search)
        world_model = load_world_model(args.checkpoint)
        simulated = SimSettings(
            motion_duration_s=args.motion, execution_noise_m=args.execution_error
        )
        trials = [Trial(search, planning, args.motion, args.steps) for planning in args.planning]
        # Made once to be checked before anything is run.
        _ = [trial.control for trial in trials]
    except (ProfileError, CheckpointError, ValueError) as error:
        raise CommandError(str(error)) from error
    seeds = range(args.seed, args.seed + args.episodes)
    results: dict[float, dict[str, ModeFigures]] = {}
    drawn: dict[tuple[float, str], TimedEpisode] = {}
    total = len(trials) * len(CONTROL_MODES) * len(seeds)
    with FrankaSim(simulated) as sim, Progress() as progress:
        bar = progress.add_task("episodes", total=total)
        for trial in trials:
            results[trial.planning] = {}
            for mode in CONTROL_MODES:
                episodes = []
                for task, episode in _episodes(sim, world_model, trial, mode, seeds):
                    episodes.append((task, episode))
                    progress.advance(bar)
                results[trial.planning][mode] = _figures(episodes)
                drawn[trial.planning, mode] = episodes[0][1]
    _print(results)
    if args.json is not None:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps(_as_json(results, args), indent=2) + "\n")
    if args.plot is not None:
        args.plot.parent.mkdir(parents=True, exist_ok=True)
        first = {mode: drawn[args.planning[0], mode] for mode in CONTROL_MODES}
        draw_gantt(first, args.plot)
    if args.report is not None:
        args.report.parent.mkdir(parents=True, exist_ok=True)
        write_page(
            drawn,
            args.report,
            results=results,
            motion=args.motion,
            execution_error=args.execution_error,
            episodes=args.episodes,
            steps=args.steps,
            command=args.command_line,
        )
    return 0


def _episodes(
    sim: FrankaSim, world_model: WorldModel, trial: Trial, mode: str, seeds: Sequence[int]
) -> Iterator[tuple[ReachTask, TimedEpisode]]:
    planner = InProcessPlanner(world_model)
    for seed in seeds:
        task = sample_reach_task(sim, seed)
        photograph = SubGoal(world_model.encode(task.goal_image), _UNREACHABLE, trial.steps)
        goal = Goal((photograph,), _TIME_LIMIT, world_model.fingerprint, trial.search, seed)
        loop = TimedLoop(sim, world_model, planner, Delays(trial.planning), trial.motion)
        yield task, loop.run(begin(goal, trial.control, 0.0), CONTROL_MODES[mode])


def _figures(episodes: Sequence[tuple[ReachTask, TimedEpisode]]) -> ModeFigures:
    final = [
        100.0 * float(np.linalg.norm((episode.final_state - task.goal_state)[POSITION]))
        for task, episode in episodes
    ]

    def mean(values: Iterator[float]) -> float:
        return float(np.mean(list(values)))

    return ModeFigures(
        step_s=mean(episode.step_seconds for _, episode in episodes),
        episode_s=mean(episode.ended.elapsed for _, episode in episodes),
        final_cm=float(np.mean(final)),
        worst_cm=max(final),
        idle_fraction=mean(episode.idle_fraction for _, episode in episodes),
        jerk=mean(episode.jerk for _, episode in episodes),
        staleness_s=mean(float(np.mean(episode.staleness)) for _, episode in episodes),
    )


def _print(results: Mapping[float, Mapping[str, ModeFigures]]) -> None:
    table = Table(title="Control modes, means over the episodes")
    for heading in (
        "plan s",
        "mode",
        "s per step",
        "s per episode",
        "cm at the end (worst)",
        "arm idle",
        "jerk m/s³",
        "newest frame s",
    ):
        table.add_column(heading, justify="right", no_wrap=heading == "mode")
    for planning, modes in results.items():
        for mode, one in modes.items():
            table.add_row(
                f"{planning:g}",
                mode,
                f"{one.step_s:.2f}",
                f"{one.episode_s:.1f}",
                f"{one.final_cm:.2f} ({one.worst_cm:.1f})",
                f"{100.0 * one.idle_fraction:.0f} %",
                f"{one.jerk:.1f}",
                f"{one.staleness_s:.2f}",
            )
        table.add_section()
    Console().print(table)


def _as_json(
    results: Mapping[float, Mapping[str, ModeFigures]], args: argparse.Namespace
) -> Mapping[str, object]:
    by_planning = {
        f"{planning:g}": {mode: asdict(one) for mode, one in modes.items()}
        for planning, modes in results.items()
    }
    return {
        "modes": by_planning[f"{args.planning[0]:g}"],
        "by_planning_s": by_planning,
        "planning_s": args.planning[0],
        "motion_s": args.motion,
        "execution_error_m": args.execution_error,
        "episodes": args.episodes,
        "steps": args.steps,
        "search": args.search,
    }
