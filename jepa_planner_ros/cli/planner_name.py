"""How commands name the planner node that they speak to."""

from __future__ import annotations

import argparse

from jepa_planner_ros.cli import CommandError
from jepa_planner_ros.cli.numbers import whole_number


def add_node_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options that name a planner node and its ROS domain."""
    add = parser.add_argument
    add("--namespace", default="", metavar="NS", help="of robot and planner (default: none)")
    add(
        "--node",
        default="jepa_planner",
        metavar="NAME",
        help="name of the planner node, in the namespace or as a whole, such as /left/jepa_planner "
        "(default: jepa_planner)",
    )
    add(
        "--domain-id",
        type=whole_number(0, 232),
        metavar="D",
        help="ROS domain of the node, 0 to 232 (default: that of ROS_DOMAIN_ID)",
    )


def full_name(namespace: str, node: str) -> str:
    """The name of the planner node, with its namespace.

    Args:
        namespace: such as ``left`` or ``/left``; empty for none.
        node: its name in the namespace, or the whole name, which begins with a slash.

    Raises:
        CommandError: these are no names of ROS.
    """
    # Here, since it takes half a second to load and --help should not.
    from rclpy.exceptions import InvalidNamespaceException, InvalidTopicNameException
    from rclpy.validate_full_topic_name import validate_full_topic_name
    from rclpy.validate_namespace import validate_namespace

    whole = namespace if namespace.startswith("/") else f"/{namespace}"
    name = node if node.startswith("/") else f"{whole.rstrip('/')}/{node}"
    try:
        validate_namespace(whole)
        validate_full_topic_name(name)
    except (InvalidNamespaceException, InvalidTopicNameException) as error:
        # The other lines of it point at a letter.
        cause = str(error).splitlines()[0].rstrip(":")
        raise CommandError(
            f"--namespace {namespace!r} --node {node!r} are no names of ROS: {cause}."
        ) from error
    return name


def not_offered(name: str, domain: int) -> CommandError:
    """Why nobody answers.

    Args:
        name: of the service or action that was looked for.
        domain: the ROS domain that it was looked for in.
    """
    return CommandError(
        f"no planner node offers {name} in ROS domain {domain}. Start one, or name it with "
        "--namespace, --node and --domain-id (or ROS_DOMAIN_ID). One that is still starting offers "
        "it when it says 'Ready for goals.'"
    )
