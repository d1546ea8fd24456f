"""``jepa-planner capture``: have a running planner node save what the camera shows as a goal."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import rclpy
from jepa_planner_msgs.srv import CaptureGoal
from rclpy.executors import SingleThreadedExecutor

from jepa_planner_ros.cli import CommandError
from jepa_planner_ros.cli.planner_name import add_node_arguments, full_name, not_offered
from jepa_planner_ros.ros.context import own_context

_FOR_THE_NODE = 10.0  # s
_FOR_AN_ANSWER = 5.0
"""Until a call is taken to be lost, s: a service may be found before both of its ends are."""
_TRIES = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line."""
    parser.description = (
        "Have a running planner node save the camera's present frame as the photograph of a goal, "
        "with the arm's state inside. Move the arm to where it should go first."
    )
    parser.add_argument("photograph", type=Path, metavar="PHOTO", help="PNG to write, by the node")
    add_node_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Ask for the photograph and tell what the node answers."""
    planner = full_name(args.namespace, args.node)
    context = own_context(args.domain_id)
    try:
        answer = _capture(context, planner, args.photograph.expanduser().absolute())
    finally:
        rclpy.try_shutdown(context=context)
    if not answer.success:
        raise CommandError(answer.message)
    position = answer.state.position
    print(answer.message)
    print(f"The fingertips were at x {position.x:.3f}, y {position.y:.3f}, z {position.z:.3f} m.")
    return 0


def _capture(context: rclpy.Context, planner: str, path: Path) -> CaptureGoal.Response:
    node = rclpy.create_node("jepa_planner_capture", context=context)
    executor = SingleThreadedExecutor(context=context)
    executor.add_node(node)
    service: Any = node.create_client(CaptureGoal, f"{planner}/capture_goal")
    if not service.wait_for_service(_FOR_THE_NODE):
        raise not_offered(f"{planner}/capture_goal", context.get_domain_id())
    for _ in range(_TRIES):
        future = service.call_async(CaptureGoal.Request(path=str(path)))
        executor.spin_until_future_complete(future, _FOR_AN_ANSWER)
        if future.done():
            return future.result()
    raise CommandError(f"{planner} did not answer; look at its log.")
