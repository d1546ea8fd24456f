"""``jepa-planner record``: what happens around the planner node, as a rosbag2 bag."""

from __future__ import annotations

import argparse
import signal
import time
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from jepa_planner_ros.cli import CommandError
from jepa_planner_ros.cli.planner_name import add_node_arguments, full_name

SEEN = ("camera_info", "joint_states", "current_pose", "target_pose")
"""Topics of the robot, besides the camera's pictures."""
TOLD = ("goal", "plan", "outcome", "status")
"""Topics of the planner node, below its name."""
CAMERAS = {
    "raw": ("image_raw",),
    "compressed": ("image_raw/compressed",),
    "both": ("image_raw", "image_raw/compressed"),
}
_NEEDED = ("goal", "plan", "outcome")
_PATIENCE = 5.0
"""Until what is not heard yet is told, s."""
RECORDING = "Camera and planner are heard."
"""What is printed once an episode would be recorded completely."""

_DESCRIPTION = """\
Record camera, joints, goals, plans and outcomes to a rosbag2 bag, until Ctrl-C.

Topics are recorded as soon as somebody publishes on them, whichever node starts first. The bag
holds everything that 'jepa-planner replay' needs to make the plans anew; 'ros2 bag info' and
'ros2 bag play' take it, too.
"""

_EPILOG = """\
The same by ROS's own means, for the default names:
  ros2 bag record -s mcap -o BAG /image_raw /camera_info /joint_states /current_pose /target_pose \\
      /jepa_planner/goal /jepa_planner/plan /jepa_planner/outcome /jepa_planner/status

examples:
  jepa-planner record                                  everything, to recording_<time>
  jepa-planner record pick.bag --goals 1               until the first goal has ended
  jepa-planner record --namespace left --camera compressed
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line."""
    parser.description, parser.epilog = _DESCRIPTION, _EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add = parser.add_argument
    add(
        "bag",
        type=Path,
        nargs="?",
        metavar="BAG",
        help="directory to make (default: recording_<time>)",
    )
    add(
        "--storage",
        choices=("mcap", "sqlite3"),
        default="mcap",
        help="format; mcap is compressed (default: mcap)",
    )
    add_node_arguments(parser)
    add(
        "--camera",
        choices=CAMERAS,
        default="raw",
        help="which of the camera's topics; replays are exact with the one that the planner uses "
        "(default: raw)",
    )
    add("--image-topic", metavar="TOPIC", help="of the camera, where it is none of these")
    add("--topics", nargs="+", default=[], metavar="TOPIC", help="more topics")
    add("--duration", type=float, metavar="S", help="stop after so many seconds")
    add("--goals", type=int, metavar="N", help="stop when so many goals have ended")


def run(args: argparse.Namespace) -> int:
    """Record until the end, and tell what was recorded."""
    # Here, since they take a second to load and --help should not.
    import rclpy
    from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor
    from rclpy.signals import SignalHandlerOptions

    from jepa_planner_ros.ros.recorder import Recorder, RecorderError, Storage

    path = args.bag or Path(f"recording_{datetime.now():%Y%m%d_%H%M%S}")
    images = CAMERAS[args.camera] if args.image_topic is None else (args.image_topic,)
    planner = full_name(args.namespace, args.node)
    told = {name: f"{planner}/{name}" for name in TOLD}
    topics = [*images, *SEEN, *told.values(), *args.topics]
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    rclpy.init(args=[], domain_id=args.domain_id, signal_handler_options=SignalHandlerOptions.NO)
    try:
        node = rclpy.create_node("jepa_recorder", namespace=args.namespace)
        domain = node.context.get_domain_id()
        executor = SingleThreadedExecutor()
        executor.add_node(node)
        needed = {node.resolve_topic_name(name) for name in (*images, *map(told.get, _NEEDED))}
        outcomes = node.resolve_topic_name(told["outcome"])
        with (
            Recorder(node, path, topics, Storage(args.storage)) as recorder,
            suppress(KeyboardInterrupt, ExternalShutdownException),
        ):
            print(f"Recording to {path}; Ctrl-C ends it.", flush=True)
            ready, warned, elapsed, started = False, False, 0.0, time.monotonic()
            while not _finished(args, elapsed, recorder.counts.get(outcomes, 0)):
                executor.spin_once(timeout_sec=0.1)
                elapsed = time.monotonic() - started
                silent = sorted(needed.intersection(recorder.unheard))
                if not silent and not ready:
                    ready = True
                    print(RECORDING, flush=True)
                elif silent and not warned and elapsed > _PATIENCE:
                    warned = True
                    print(
                        f"Nobody publishes yet on {', '.join(silent)} in ROS domain {domain}.",
                        flush=True,
                    )
    except RecorderError as error:
        raise CommandError(str(error)) from error
    finally:
        rclpy.try_shutdown()
    print(f"\n{path}:")
    for topic, count in sorted(recorder.counts.items()):
        print(f"  {count:7d}  {topic}")
    silent = sorted(needed.intersection(recorder.unheard))
    if silent:
        print(
            f"Nobody published on {', '.join(silent)} in ROS domain {domain}: check --namespace, "
            "--node, --image-topic and --domain-id (or ROS_DOMAIN_ID)."
        )
    return 1 if silent else 0


def _finished(args: argparse.Namespace, elapsed: float, goals: int) -> bool:
    late = args.duration is not None and elapsed >= args.duration
    return late or (args.goals is not None and goals >= args.goals)
