"""``jepa-planner demo``: the whole loop on this computer, from a photograph to a report."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from pathlib import Path
from types import FrameType

from jepa_planner_ros.cli import CommandError
from jepa_planner_ros.cli.numbers import real_number, whole_number

# Of many episodes, this share has to reach the goal for the demo to succeed.
_ENOUGH = 0.95

# ROS's parameters are signed integers of 64 bits.
_LARGEST_SEED = 2**63 - 1

_DESCRIPTION = """\
Watch a simulated Franka reach the pose in a photograph.

The demo starts what a real robot would have, as processes of their own: a physics simulation with
the topics of the arm and its camera, and the planner node with its Ray cluster. For each episode it
resets the simulation, sends the goal photograph through the ROS 2 action, and follows the plans.
Then it writes a report with pictures, DIR/report.html; what the processes say is in DIR/logs. They
keep to a ROS domain of their own on this computer, so that no real robot hears them.
"""

_EPILOG = """\
examples:
  jepa-planner demo                                     one goal, about half a minute
  jepa-planner demo --episodes 20 --json demo.json      twenty goals and their figures
  jepa-planner demo --search reference --steps 6        the search of the V-JEPA 2 paper: slow
  jepa-planner demo --planner in_process                without Ray; the result is the same
  jepa-planner demo --planner grpc://127.0.0.1:9000     by 'jepa-planner serve', started before
  jepa-planner demo --real-time-factor 1                a robot that takes its time
  jepa-planner demo --watch --episodes 20               with a live page for the browser

exit code: 0 when the goal was reached (of several goals: 95 percent), else 1; 130 after Ctrl-C
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line."""
    parser.description, parser.epilog = _DESCRIPTION, _EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add = parser.add_argument
    add(
        "--episodes",
        type=whole_number(1),
        default=1,
        metavar="N",
        help="goals to reach (default: 1)",
    )
    add(
        "--seed",
        type=whole_number(0, _LARGEST_SEED),
        default=0,
        metavar="S",
        help="episode i has the start, the goal and the search of seed S + i (default: 0)",
    )
    add(
        "--steps",
        type=whole_number(1),
        default=12,
        metavar="N",
        help="most steps for a goal (default: 12)",
    )
    add(
        "--search",
        default="fast",
        metavar="PROFILE",
        help="how to look for actions: fast, robust, reference (as in the V-JEPA 2 paper: slow), "
        "another profile of config/search, or a .yaml file like those (default: fast)",
    )
    add(
        "--control-mode",
        choices=("blocking", "non_blocking", "queue"),
        default="blocking",
        help="how planning and motion share the time; all but blocking are at home in real time, "
        "with --real-time-factor (default: blocking)",
    )
    add(
        "--commander",
        choices=("crisp", "servo", "servo_twist", "joint_trajectory"),
        default="crisp",
        help="controller of the arm; all but crisp move in real time only, with --real-time-factor "
        "(default: crisp)",
    )
    add(
        "--planner",
        type=_planner,
        default="local_ray",
        metavar="P",
        help="plan on a Ray cluster of this computer (local_ray), in the node itself (in_process), "
        "or by a started 'jepa-planner serve' (grpc://HOST:PORT) (default: local_ray)",
    )
    add(
        "--replicas",
        type=whole_number(0, 64),
        default=0,
        metavar="W",
        help="copies of the world model on Ray; 0 is one per GPU, or two without (default: 0)",
    )
    add(
        "--checkpoint",
        default="shipped",
        metavar="FILE",
        help="world model to plan with, for instance of 'jepa-planner train' (default: shipped)",
    )
    add(
        "--real-time-factor",
        type=real_number(0.1, 10.0),
        metavar="X",
        help="simulated seconds per second, 0.1 to 10 (default: none; each motion is carried out "
        "at once, in lockstep with the planner, which is quicker and the same from run to run)",
    )
    add(
        "--output",
        type=Path,
        default=Path("demo"),
        metavar="DIR",
        help="where the report and the logs go (default: demo)",
    )
    add("--json", type=Path, metavar="FILE", help="write the figures of the run there")
    add("--record", type=Path, metavar="BAG", help="record the episodes as a rosbag2 bag there")
    add(
        "--watch",
        action="store_true",
        help="serve a live page of the planner for the browser while it lasts, and print where",
    )
    add(
        "--domain-id",
        type=whole_number(0, 101),
        metavar="D",
        help="ROS domain to use, 0 to 101 (default: one that nobody uses)",
    )


def run(args: argparse.Namespace) -> int:
    """Run the episodes, write the report, and return the exit code."""
    # Here, since they take seconds to load and --help should not.
    from jepa_planner_ros.cli.demo_loop import DemoSettings, run_episodes
    from jepa_planner_ros.report import headline, reached_fraction, summarise, write_report

    if args.commander != "crisp" and args.real_time_factor is None:
        raise CommandError(f"--commander {args.commander} needs --real-time-factor, for example 1.")
    # Now, not after minutes, when there is a report to be written.
    _make_folder("--output", args.output)
    if args.json is not None:
        _make_folder("--json", args.json.parent)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave)
    record = run_episodes(
        DemoSettings(
            episodes=args.episodes,
            seed=args.seed,
            steps=args.steps,
            search=args.search,
            control_mode=args.control_mode,
            commander=args.commander,
            planner=args.planner,
            replicas=args.replicas,
            checkpoint=args.checkpoint,
            real_time_factor=args.real_time_factor,
            logs=args.output / "logs",
            bag=args.record,
            watch=args.watch,
            domain=args.domain_id,
            command_line=args.command_line,
        )
    )
    page = args.output / "report.html"
    write_report(record, page)
    if args.json is not None:
        args.json.write_text(json.dumps(summarise(record), indent=2) + "\n")
    print(f"\n{headline(record)}\nreport: {page.absolute().as_uri()}")
    return 0 if reached_fraction(record) >= _ENOUGH else 1


def _make_folder(option: str, folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CommandError(
            f"{option} cannot be written to: {folder}: {error.strerror}. Name another folder."
        ) from error


def _planner(text: str) -> str:
    if text in ("local_ray", "in_process") or text.startswith(("grpc://", "grpcs://")):
        return text
    raise argparse.ArgumentTypeError(f"{text!r} is not local_ray, in_process or grpc://HOST:PORT")


def _leave(number: int, frame: FrameType | None) -> None:
    """End like after Ctrl-C, processes included, and with the exit code of the signal."""
    sys.exit(128 + number)
