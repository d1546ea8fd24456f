"""Play a recording to a planner node, and compare the plans.

``ros2 launch jepa_planner_ros replay.launch.py bag:=BAG`` starts the node, plays the bag to it with
the bag's clock, in a ROS domain of its own so that no robot hears it, and ends with the verdict:
exit code 1 when a plan differs.
"""

import sys

from launch import LaunchContext, LaunchDescription
from launch.actions import DeclareLaunchArgument, ExecuteProcess, OpaqueFunction
from launch.events.process import ProcessExited
from launch.substitutions import LaunchConfiguration

ARGUMENTS = {
    "planner": ("in_process", "Who plans: in_process or local_ray."),
    "checkpoint": ("shipped", "World model: shipped, or a file."),
    "rate": ("1.0", "Seconds of the bag per second."),
    "seed": ("", "Another seed than the recorded one."),
    "tolerance": ("0.0001", "How far an action may lie from the recorded one, m."),
    "output": ("replay", "Directory for the report and the plans."),
}


def replay(context: LaunchContext) -> list[ExecuteProcess]:
    """The command ``jepa-planner replay --realtime``, which starts the node."""
    command = [sys.executable, "-m", "jepa_planner_ros.cli.main", "replay"]
    command += [LaunchConfiguration("bag"), "--realtime"]
    for name in ARGUMENTS:
        if value := LaunchConfiguration(name).perform(context):
            command += [f"--{name}", value]
    return [ExecuteProcess(cmd=command, output="screen", on_exit=end_with_verdict)]


def end_with_verdict(event: ProcessExited, _context: LaunchContext) -> None:
    """Make the verdict the outcome of the launch."""
    if event.returncode:
        raise RuntimeError(f"the replay ended with exit code {event.returncode}; see above.")


def generate_launch_description() -> LaunchDescription:
    """The replay, with its options as arguments."""
    return LaunchDescription(
        [
            DeclareLaunchArgument("bag", description="The recording."),
            *(
                DeclareLaunchArgument(name, default_value=default, description=description)
                for name, (default, description) in ARGUMENTS.items()
            ),
            OpaqueFunction(function=replay),
        ]
    )
