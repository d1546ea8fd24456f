"""``jepa-planner``: one entry point, one module for each command."""

from __future__ import annotations

import argparse
import importlib
import shlex
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from jepa_planner_ros import __version__
from jepa_planner_ros.cli import Command, CommandError

INTERRUPTED = 128 + signal.SIGINT
"""Exit code after Ctrl-C, as shells count it."""


COMMANDS = (
    Command(
        "demo", "watch a simulated Franka reach a photographed goal", "jepa_planner_ros.cli.demo"
    ),
    Command("capture", "have a running planner node save a goal", "jepa_planner_ros.cli.capture"),
    Command("reach", "have a running planner node reach photographs", "jepa_planner_ros.cli.reach"),
    Command("watch", "see in the browser what a running node thinks", "jepa_planner_ros.cli.watch"),
    Command("record", "record an episode as a rosbag2 bag", "jepa_planner_ros.cli.record"),
    Command("replay", "make the plans of a bag anew and compare", "jepa_planner_ros.cli.replay"),
    Command(
        "serve", "plan for robots on the network, or on this computer", "jepa_planner_ros.cli.serve"
    ),
    Command("train", "train the small shipped world model", "jepa_planner_ros.training.command"),
    Command("doctor", "tell what is missing, and how to mend it", "jepa_planner_ros.cli.doctor"),
    Command("convert", "make a safetensors file of Meta's", "jepa_planner_ros.cli.convert"),
    Command("plan", "make one plan from two photographs", "jepa_planner_ros.cli.plan"),
    Command("bench", "measure on this machine", "jepa_planner_ros.cli.bench"),
)


def build_parser(called: Sequence[str]) -> argparse.ArgumentParser:
    """The parser of all commands; only the called command's own options are filled in.

    Args:
        called: the words of the command line.
    """
    parser = argparse.ArgumentParser(
        prog="jepa-planner",
        description="Point a Franka arm at a photograph of where it should be.",
        epilog="'jepa-planner COMMAND --help' explains a command. Start with: jepa-planner demo",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    _add_commands(parser, COMMANDS, called)
    return parser


def _add_commands(
    parser: argparse.ArgumentParser, commands: Sequence[Command], called: Sequence[str]
) -> None:
    choices = parser.add_subparsers(metavar="COMMAND", required=True)
    for command in commands:
        own = choices.add_parser(command.name, help=command.summary)
        if [command.name] != list(called[:1]):
            continue
        module = importlib.import_module(command.module)
        module.add_arguments(own)
        if hasattr(module, "COMMANDS"):
            _add_commands(own, module.COMMANDS, called[1:])
        else:
            own.set_defaults(run=module.run)


def _program() -> str:
    """This command as it was typed, with its path where it has one."""
    typed = Path(sys.argv[0])
    return str(typed) if typed.name == "jepa-planner" else "jepa-planner"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    called = arguments[0] if arguments else None
    try:
        args = build_parser(arguments).parse_args(arguments)
        args.command_line = shlex.join([_program(), *arguments])
        code: int = args.run(args)
    except CommandError as error:
        print(f"jepa-planner {called}: {error}", file=sys.stderr)
        return 1
    except ModuleNotFoundError as error:
        print(
            f"jepa-planner {called}: needs the Python module {error.name}, which is not installed. "
            "In a checkout, 'make setup' installs all; where ROS 2 is installed, source its "
            "setup.bash first.",
            file=sys.stderr,
        )
        return 1
    except KeyboardInterrupt:
        print("\nInterrupted.", file=sys.stderr)
        return INTERRUPTED
    return code


if __name__ == "__main__":
    sys.exit(main())
