"""The reference page, made of the code: ``python -m jepa_planner_ros.cli.reference``.

It prints ``docs/reference.md``. A test compares the two, so that the page cannot drift.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection, Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import rclpy
from jepa_planner_msgs.action import ReachGoal
from rcl_interfaces.msg import ParameterDescriptor
from rclpy.callback_groups import MutuallyExclusiveCallbackGroup
from rclpy.node import Node
from rclpy.parameter import Parameter
from rclpy.signals import SignalHandlerOptions

from jepa_planner_ros.cli import Command
from jepa_planner_ros.cli.bench import COMMANDS as BENCHMARKS
from jepa_planner_ros.cli.main import COMMANDS, build_parser
from jepa_planner_ros.cli.markdown import Row, table
from jepa_planner_ros.cli.search_reference import search_profiles
from jepa_planner_ros.report.view_node import ViewNode
from jepa_planner_ros.ros.capture import CaptureService
from jepa_planner_ros.ros.commander import COMMANDERS
from jepa_planner_ros.ros.diagnostics import Diagnostics
from jepa_planner_ros.ros.parameters import (
    IMAGE_TRANSPORTS,
    PARAMETERS,
    POSE_SOURCES,
    declare_parameters,
)
from jepa_planner_ros.ros.reporting import Reporter
from jepa_planner_ros.ros.robot import RosRobot
from jepa_planner_ros.ros.settings import read_wiring
from jepa_planner_ros.share import share_directory
from jepa_planner_ros.sim.parameters import SimNodeParameters
from jepa_planner_ros.types import ModelDescription

_HEAD = """\
# Reference

*Made of the code, by `python -m jepa_planner_ros.cli.reference > docs/reference.md`: change that,
not this page.*
"""

_LAUNCH = """\
## Launch files

`demo.launch.py`, `planner.launch.py` and `replay.launch.py` tell their arguments by

<!-- needs: an installed ROS 2 -->
```bash
ros2 launch jepa_planner_ros planner.launch.py --show-args
```
"""

_ROS_OWN = ("/rosout", "/parameter_events", "/clock")
_NOT_EVERYWHERE = "franka_msgs/"
_NO_MODEL = ModelDescription("", 0, 0, (0, 0), 0, "", "")


def reference() -> str:
    """The whole page."""
    rclpy.init(args=[], signal_handler_options=SignalHandlerOptions.NO)
    try:
        parts = [
            _HEAD,
            *_planner_parameters(),
            *search_profiles(),
            *_simulation_parameters(),
            *_view_node(),
            *_planner_interfaces(),
            *_definitions(share_directory() / "msg"),
            _LAUNCH,
            *_commands(),
        ]
    finally:
        rclpy.shutdown()
    return "\n".join(parts)


# --- Parameters ----------------------------------------------------------------------------------


def _planner_parameters() -> Iterator[str]:
    yield "## Parameters of `planner_node`\n"
    yield (
        "Those *fixed* are read when the node starts; the others may be changed between goals.\n"
        "`config/planner.yaml` holds all of them with their defaults.\n"
    )
    yield table(
        ("parameter", "default", "allowed", "", "meaning"),
        (
            (
                f"`{one.name}`",
                _value(one.default),
                _allowed(one.descriptor(), one.choices),
                "fixed" if one.read_only else "",
                one.description,
            )
            for one in PARAMETERS
        ),
    )


def _simulation_parameters() -> Iterator[str]:
    yield "## Parameters of `sim_node`\n"
    yield "All are fixed while the node runs.\n"
    yield table(
        ("parameter", "default", "allowed", "meaning"),
        (
            (
                f"`{one.name}`",
                _value(one.default),
                _allowed(one.metadata["descriptor"]),
                one.metadata["descriptor"].description,
            )
            for one in fields(SimNodeParameters)
        ),
    )


def _view_node() -> Iterator[str]:
    node = ViewNode()
    try:
        yield "## `view_node`\n"
        yield table(("parameter", "default", "meaning"), _declared_rows(node))
        yield table(("topic", "type", ""), sorted(_topic_rows(node)))
    finally:
        node.destroy_node()


def _declared_rows(node: Node) -> Iterator[Row]:
    for name, parameter in sorted(node.get_parameters_by_prefix("").items()):
        descriptor = node.describe_parameter(name)
        if name != "use_sim_time" and not name.startswith("qos_overrides"):
            yield f"`{name}`", _value(_plain(parameter)), descriptor.description


def _plain(parameter: Parameter) -> Any:
    value = parameter.value
    return value if isinstance(value, str | bool | int | float) else list(value)


def _allowed(descriptor: ParameterDescriptor, choices: Collection[str] = ()) -> str:
    if choices:
        return ", ".join(f"`{one}`" for one in choices)
    for limits in (*descriptor.integer_range, *descriptor.floating_point_range):
        return f"{limits.from_value:g} to {limits.to_value:g}"
    return ""


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{value}`" if value != "" else ""


# --- Topics, services and actions ----------------------------------------------------------------


@dataclass(frozen=True)
class _Variant:
    """A way to wire the node."""

    commander: str = next(iter(COMMANDERS))
    pose_source: str = POSE_SOURCES[0]
    image_transport: str = IMAGE_TRANSPORTS[0]

    def __str__(self) -> str:
        default = _Variant()
        given = {one.name: getattr(self, one.name) for one in fields(self)}
        return ", ".join(
            f"`{name}: {value}`" for name, value in given.items() if value != getattr(default, name)
        )


_VARIANTS = (
    _Variant(),
    *(_Variant(commander=name) for name in COMMANDERS if name != _Variant.commander),
    *(_Variant(pose_source=name) for name in POSE_SOURCES[1:]),
    *(_Variant(image_transport=name) for name in IMAGE_TRANSPORTS[1:]),
)


def _planner_interfaces() -> Iterator[str]:
    yield "## Topics, services and actions of `planner_node`\n"
    yield (
        "Names are relative to the node's namespace; `~` is the node's own name. The sensors' and\n"
        "commands' quality of service can be overridden by parameters `qos_overrides.*`. Where\n"
        "franka_msgs are installed, `franka_robot_state_broadcaster/robot_state` is heard, too.\n"
    )
    first: dict[Row, str] = {}
    services: dict[Row, None] = {}
    for variant in _VARIANTS:
        node = _wired(variant)
        try:
            for row in _topic_rows(node):
                first.setdefault(row, str(variant))
            services |= dict.fromkeys(_service_rows(node))
        finally:
            node.destroy_node()
    rows = sorted((*row, variant) for row, variant in first.items())
    yield table(("topic", "type", "", "other than by default"), rows)
    action = f"{ReachGoal.__module__.split('.')[0]}/action/{ReachGoal.__name__}"
    yield table(
        ("service or action", "type"), [*sorted(services), ("`~/reach_goal`", f"`{action}`")]
    )


def _wired(variant: _Variant) -> Node:
    """The planner node without planner and world model."""
    node = Node("jepa_planner", enable_rosout=False, start_parameter_services=False)
    declare_parameters(node)
    defaults = {parameter.name: parameter.default for parameter in PARAMETERS}
    wiring = replace(
        read_wiring(defaults, node.get_name()),
        **{one.name: getattr(variant, one.name) for one in fields(variant)},
    )
    group = MutuallyExclusiveCallbackGroup()
    robot = RosRobot(node, wiring, group, group)
    reporter = Reporter(node, wiring)
    CaptureService(node, robot, Path(), group)
    Diagnostics(node, robot, reporter, _NO_MODEL, lambda: None, lambda: None)
    return node


def _topic_rows(node: Node) -> Iterator[Row]:
    for ways, ends in (("out", node.publishers), ("in", node.subscriptions)):
        for end in ends:
            name, kind = end.topic_name, _type_name(end.msg_type)
            if name not in _ROS_OWN and not kind.startswith(_NOT_EVERYWHERE):
                yield f"`{_relative(node, name)}`", f"`{kind}`", ways


def _service_rows(node: Node) -> Iterator[Row]:
    for service in node.services:
        kind = _type_name(service.srv_type)
        if not kind.startswith(("rcl_interfaces", "type_description_interfaces")):
            yield f"`{_relative(node, service.service_name)}`", f"`{kind}`"


def _relative(node: Node, name: str) -> str:
    own = f"/{node.get_name()}/"
    if name.startswith(own):
        return f"~/{name.removeprefix(own)}"
    return name if name == "/diagnostics" else name.removeprefix("/")


def _type_name(kind: type) -> str:
    package, group, _ = kind.__module__.split(".", 2)
    return f"{package}/{group}/{kind.__name__}"


def _definitions(directory: Path) -> Iterator[str]:
    yield "## Definitions of `jepa_planner_msgs`\n"
    for pattern in ("action/*.action", "srv/*.srv", "msg/*.msg"):
        for file in sorted(directory.glob(pattern)):
            yield f"### `{file.parent.name}/{file.stem}`\n"
            yield f"```text\n{file.read_text().strip()}\n```\n"


# --- The command line ----------------------------------------------------------------------------


def _commands() -> Iterator[str]:
    yield "## `jepa-planner`\n"
    yield table(("command", ""), ((f"`{one.name}`", one.summary) for one in COMMANDS))
    for command in COMMANDS:
        if command.name == "bench":
            for benchmark in BENCHMARKS:
                yield from _command(benchmark, "bench", benchmark.name)
        else:
            yield from _command(command, command.name)


def _command(command: Command, *words: str) -> Iterator[str]:
    parser = build_parser(words)
    for word in words:
        parser = _subparser(parser, word)
    yield f"### `jepa-planner {' '.join(words)}`\n"
    description = (parser.description or f"{command.summary.capitalize()}.").strip()
    yield f"{description}\n"
    # argparse has no public way to ask a parser for its arguments.
    arguments = [one for one in parser._actions if one.dest != "help"]
    yield table(("argument", "meaning"), (_argument_row(parser, one) for one in arguments))


def _subparser(parser: argparse.ArgumentParser, name: str) -> argparse.ArgumentParser:
    (choices,) = (one for one in parser._actions if isinstance(one, argparse._SubParsersAction))
    chosen: argparse.ArgumentParser = choices.choices[name]
    return chosen


def _argument_row(parser: argparse.ArgumentParser, argument: argparse.Action) -> Row:
    values = argument.metavar or ""
    if isinstance(values, tuple):
        values = " ".join(values)
    if argument.choices is not None and not values:
        values = "{" + ",".join(map(str, argument.choices)) + "}"
    if argument.nargs == "+":
        values = f"{values} ..."
    name = ", ".join(argument.option_strings)
    explained = (argument.help or "") % {**vars(argument), "prog": parser.prog}
    return f"`{f'{name} {values}'.strip()}`", explained


if __name__ == "__main__":
    sys.stdout.write(reference())
