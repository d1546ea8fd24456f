"""``jepa-planner bench faults``: what goes wrong around the planner, and that it does no harm."""

from __future__ import annotations

import argparse
import json
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from jepa_planner_ros.cli import CommandError
from jepa_planner_ros.cli.domain import enter_domain, free_domain
from jepa_planner_ros.cli.numbers import whole_number

if TYPE_CHECKING:
    from jepa_planner_ros.faults.scenarios import Campaign, Verdict

_DESCRIPTION = """\
Run episodes in simulation with a fault in each: sensors that lie, freeze or fall silent, clocks
that jump, a controller that ignores commands, clients that change their mind. The planner node and
the simulated arm are real and talk over DDS; a relay between them meddles with the messages and
holds every setpoint that the controller is sent against the limits of position, speed, acceleration
and jerk.
"""

_EPILOG = """\
examples:
  jepa-planner bench faults --episodes 200 --json faults.json     some ten minutes
  jepa-planner bench faults --faults controller_deaf cancelled    those only

exit code: 0 when no limit was exceeded, every episode ended as its fault allows, the setpoints came
to rest after it, and no process was left over; else 1
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line."""
    parser.description, parser.epilog = _DESCRIPTION, _EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add = parser.add_argument
    add(
        "--episodes",
        type=whole_number(1),
        default=200,
        metavar="N",
        help="each fault comes equally often (default: 200)",
    )
    add(
        "--seed",
        type=whole_number(0),
        default=0,
        metavar="S",
        help="of the faults' order, moments and modes; the goal of episode i is that of seed S + i "
        "(default: 0)",
    )
    add("--faults", nargs="+", metavar="NAME", help="only these (default: all)")
    add(
        "--planner",
        choices=("in_process", "local_ray"),
        default="in_process",
        help="where plans are made (default: in_process)",
    )
    add(
        "--logs",
        type=Path,
        default=Path("faults"),
        metavar="DIR",
        help="where the output of the nodes goes (default: faults)",
    )
    add("--json", type=Path, metavar="FILE", help="write the verdicts there")


def run(args: argparse.Namespace) -> int:
    """Run the episodes and tell what became of them."""
    enter_domain(free_domain(), os.environ)
    # Here, since rclpy reads the domain once, and takes a second to load.
    from jepa_planner_ros.faults.campaign import run
    from jepa_planner_ros.faults.scenarios import draw

    try:
        scenarios = draw(args.episodes, args.seed, args.faults)
    except ValueError as error:
        raise CommandError(str(error)) from error
    with Progress() as progress:
        bar = progress.add_task("episodes", total=len(scenarios))

        def tell(verdict: Verdict) -> None:
            progress.advance(bar)
            if not verdict.sound:
                progress.console.print(_in_words(verdict))

        campaign = run(scenarios, args.planner, args.logs, tell)
    _print(campaign)
    if args.json is not None:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps(_as_json(campaign, args), indent=2) + "\n")
    return 0 if campaign.sound else 1


def _in_words(verdict: Verdict) -> str:
    scenario = verdict.scenario
    wrong = [f"{one.limit} exceeded {one.excess:.3g} times" for one in verdict.violations[:3]]
    if verdict.outcome is None:
        wrong.append("hung")
    elif not verdict.expected:
        wrong.append(f"ended {verdict.outcome.name}")
    if not verdict.rested:
        wrong.append("did not come to rest")
    what = f"{scenario.fault}, {scenario.mode}, seed {scenario.seed}"
    return f"{what}: {', '.join(wrong)}. {verdict.reason}"


def _print(campaign: Campaign) -> None:
    table = Table(title="Faults")
    for heading in ("fault", "episodes", "ended", "unsound"):
        table.add_column(heading, justify="left" if heading in ("fault", "ended") else "right")
    for fault, verdicts in _by_fault(campaign.verdicts).items():
        outcomes = ", ".join(f"{count} {name}" for name, count in _outcomes(verdicts).items())
        unsound = sum(not verdict.sound for verdict in verdicts)
        table.add_row(fault, f"{len(verdicts)}", outcomes, f"{unsound}")
    console = Console()
    console.print(table)
    used = ", ".join(f"{name} {100 * part:.2f} %" for name, part in campaign.highest.items())
    console.print(f"{campaign.setpoints} setpoints; of the limits they used at most: {used}.")
    console.print(f"Processes left over: {len(campaign.leaked) or 'none'}.", *campaign.leaked)


def _by_fault(verdicts: Sequence[Verdict]) -> dict[str, list[Verdict]]:
    grouped: dict[str, list[Verdict]] = {}
    for verdict in sorted(verdicts, key=lambda one: one.scenario.fault):
        grouped.setdefault(verdict.scenario.fault, []).append(verdict)
    return grouped


def _outcomes(verdicts: Sequence[Verdict]) -> Counter[str]:
    return Counter("hung" if one.outcome is None else one.outcome.name.lower() for one in verdicts)


def _as_json(campaign: Campaign, args: argparse.Namespace) -> dict[str, object]:
    verdicts = campaign.verdicts
    return {
        "episodes": len(verdicts),
        "limit_violations": sum(len(verdict.violations) for verdict in verdicts),
        "hung_episodes": sum(verdict.outcome is None for verdict in verdicts),
        "unexpected_outcomes": sum(not verdict.expected for verdict in verdicts),
        "unrested_episodes": sum(not verdict.rested for verdict in verdicts),
        "leaked_processes": len(campaign.leaked),
        "setpoints": campaign.setpoints,
        "highest_part_of_limits": dict(campaign.highest),
        "by_fault": {
            fault: dict(_outcomes(of_fault)) for fault, of_fault in _by_fault(verdicts).items()
        },
        "unsound": [_in_words(verdict) for verdict in verdicts if not verdict.sound],
        "planner": args.planner,
        "seed": args.seed,
    }
