"""``jepa-planner watch``: what a running planner node sees, plans and says, in the browser."""

from __future__ import annotations

import argparse
import asyncio
import signal

from jepa_planner_ros.cli import CommandError
from jepa_planner_ros.cli.numbers import whole_number
from jepa_planner_ros.cli.planner_name import add_node_arguments, full_name

PORT = 8484
"""Where the page is by default."""
SERVED_AT = "The page is at "
"""What is printed, before the address, once a browser can open it."""

_DESCRIPTION = """\
Watch a running planner node in the browser: camera and goal photograph, energies, where the time of
every plan goes, what the arm does, and what the node complains about.

The page only shows: it cannot send goals or move the arm. It needs no network but the one between
the browser and this command, and finds the node whenever it is started.
"""

_EPILOG = """\
examples:
  jepa-planner watch                        the node /jepa_planner, at http://127.0.0.1:8484
  jepa-planner watch --namespace /left      the node /left/jepa_planner
  jepa-planner watch --domain-id 42         in another ROS domain, such as a demo's
  jepa-planner demo --watch                 a demo, with its page
  ssh -L 8484:127.0.0.1:8484 ROBOT          on your desk: a page served on the robot's computer

With --host 0.0.0.0 everybody on the network can see the camera's pictures, without a password.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line."""
    parser.description, parser.epilog = _DESCRIPTION, _EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add = parser.add_argument
    add_node_arguments(parser)
    add(
        "--host",
        default="127.0.0.1",
        metavar="HOST",
        help="address to serve on (default: 127.0.0.1)",
    )
    add(
        "--port",
        type=whole_number(0, 65535),
        default=PORT,
        metavar="P",
        help=f"port to serve on; 0 takes one that is free (default: {PORT})",
    )
    add(
        "--image-topic",
        metavar="TOPIC",
        help="of the camera (default: image_raw/compressed, or image_raw where that is not there)",
    )
    add(
        "--joint-prefix",
        metavar="NAME",
        help="how the arm's joints are called up to their number, such as left_fr3_joint (default: "
        "panda_joint or fr3_joint)",
    )
    add(
        "--camera-pose",
        nargs=7,
        type=float,
        metavar=("X", "Y", "Z", "QX", "QY", "QZ", "QW"),
        help="of the camera's optical frame in the robot's base frame, m and quaternion; with it, "
        "plans are drawn into the camera's picture",
    )


def run(args: argparse.Namespace) -> int:
    """Serve the page until Ctrl-C."""
    # Here, since they take a second to load and --help should not.
    import numpy as np

    from jepa_planner_ros.watch.listener import Listener
    from jepa_planner_ros.watch.server import address, is_loopback, listen, serve

    planner = full_name(args.namespace, args.node)
    try:
        listening = listen(args.host, args.port)
    except OSError as error:
        raise CommandError(
            f"--host {args.host} --port {args.port} cannot be listened on: {error.strerror}. Give "
            "another port, or 0 for one that is free."
        ) from error
    pose = None if args.camera_pose is None else np.array(args.camera_pose)
    listener = Listener(
        args.namespace, planner, args.domain_id, args.image_topic, pose, args.joint_prefix
    )

    async def serve_until_interrupted() -> None:
        ended = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, ended.set)
        await serve(listener, args.host, listening, ended)

    with listener:
        print(f"{SERVED_AT}{address(args.host, listening)}", flush=True)
        if not is_loopback(args.host):
            print("Everybody who can reach this computer can see it, pictures included.")
        print("Ctrl-C ends it.", flush=True)
        asyncio.run(serve_until_interrupted())
    return 0
