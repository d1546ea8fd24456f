"""Start the planner node: ``ros2 launch jepa_planner_ros planner.launch.py``."""

from pathlib import Path

from launch import LaunchDescription
from launch.actions import DeclareLaunchArgument
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import Node

CONFIGURATION = Path(__file__).parents[1] / "config"


def generate_launch_description() -> LaunchDescription:
    """The planner node, with what is usually set from outside as arguments."""
    arguments = [
        DeclareLaunchArgument("namespace", default_value="", description="Namespace of the node."),
        DeclareLaunchArgument(
            "use_sim_time", default_value="false", description="Take the time from /clock."
        ),
        DeclareLaunchArgument(
            "params_file",
            default_value=str(CONFIGURATION / "planner.yaml"),
            description="Parameters of the node.",
        ),
        DeclareLaunchArgument(
            "log_level", default_value="info", description="debug, info, warn, error or fatal."
        ),
    ]
    planner = Node(
        package="jepa_planner_ros",
        executable="planner_node",
        name="jepa_planner",
        namespace=LaunchConfiguration("namespace"),
        parameters=[
            LaunchConfiguration("params_file"),
            {"use_sim_time": LaunchConfiguration("use_sim_time")},
        ],
        arguments=["--ros-args", "--log-level", LaunchConfiguration("log_level")],
        output="screen",
    )
    return LaunchDescription([*arguments, planner])
