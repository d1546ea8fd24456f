"""The start of a node from its command line, and what is wrong with that, in a sentence."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import rclpy
from rclpy.node import Node
from rclpy.parameter import Parameter
from rclpy.signals import SignalHandlerOptions
from rclpy.utilities import remove_ros_args

_FILE = "--params-file"
_PARAMETERS = ("-p", "--param", _FILE)
"""Each is followed by one more argument."""


@contextmanager
def ros_started(program: str, args: Sequence[str] | None) -> Iterator[list[str]]:
    """ROS for the node of one program, started with its command line, which is returned.

    Without rclpy's signal handlers, which would close the context in the middle of a callback that
    publishes, and before an arm can be held.

    Args:
        program: what the node's program is called.
        args: the command line without the program; None: that of this process.

    Raises:
        SystemExit: the command line cannot be understood; the message says why.
    """
    arguments = list(sys.argv[1:] if args is None else args)
    parser = argparse.ArgumentParser(
        prog=program,
        usage="%(prog)s [--ros-args [--params-file FILE] [-p NAME:=VALUE] ...]",
        description="A node of ROS 2. docs/reference.md lists its parameters, config/ has files.",
    )
    for option, file in pairwise(arguments):
        if option == _FILE and not Path(file).exists():
            parser.error(f"there is no file {file}.")
    try:
        _, others = parser.parse_known_args(remove_ros_args(arguments))
        if others:
            parser.error(f"{' '.join(others)}: what is meant for ROS must come after --ros-args.")
        rclpy.init(args=arguments, signal_handler_options=SignalHandlerOptions.NO)
    except RuntimeError as error:
        parser.error(_cause(error))
    try:
        yield arguments
    finally:
        rclpy.try_shutdown()


def _cause(error: RuntimeError) -> str:
    # rclpy's own classes of errors have no public names.
    if type(error).__name__ == "UnknownROSArgsError":
        unknown = str(error).strip("[]")
        return f"{unknown} is unknown to ROS: parameters are given as -p NAME:=VALUE."
    # The rest are places in rcl's own code.
    return str(error).split(", at /")[0].removesuffix(" Error: error not set")


def given_parameters(name: str, arguments: Sequence[str]) -> list[Parameter]:
    """The parameters that a command line gives to a node; of several values the last.

    rcl itself keeps one value of each type where they differ, so that a text after a number, which
    an earlier file may hold, would go unnoticed. It is asked for each of them alone here. The node
    warns of a file that holds nothing for it: rcl drops what stands under another node's name.

    Args:
        name: of the node, unless the command line has another.
        arguments: the command line without the program.
    """
    at = [place for place, one in enumerate(arguments) if one in _PARAMETERS]
    pairs = {place for start in at for place in (start, start + 1)}
    rest = [one for place, one in enumerate(arguments) if place not in pairs]
    given: dict[str, Parameter] = {}
    for start in at:
        asked = Node(
            name,
            cli_args=["--ros-args", *arguments[start : start + 2], "--", *rest],
            use_global_arguments=False,
            enable_rosout=False,
            start_parameter_services=False,
        )
        given |= asked._parameter_overrides
        if arguments[start] == _FILE and not asked._parameter_overrides:
            full_name = asked.get_fully_qualified_name()
            asked.get_logger().warning(
                f"{arguments[start + 1]} holds nothing for the node {full_name}: its heading must "
                f"be {full_name} or /**."
            )
        asked.destroy_node()
    return list(given.values())
