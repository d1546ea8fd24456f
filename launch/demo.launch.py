"""Start a simulated Franka and the planner: ``ros2 launch jepa_planner_ros demo.launch.py``.

Then take a goal with ``ros2 service call /franka_sim/reset`` or ``/jepa_planner/capture_goal``, and
send it to the action ``/jepa_planner/reach_goal``.
"""

from pathlib import Path

from launch import LaunchDescription
from launch.actions import DeclareLaunchArgument
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import Node

CONFIGURATION = Path(__file__).parents[1] / "config"


def generate_launch_description() -> LaunchDescription:
    """Both nodes in one namespace, set up for each other."""
    arguments = [
        DeclareLaunchArgument("namespace", default_value="", description="Namespace of the nodes."),
        DeclareLaunchArgument(
            "params_file",
            default_value=str(CONFIGURATION / "planner.yaml"),
            description="Parameters of the planner.",
        ),
        DeclareLaunchArgument(
            "sim_params_file",
            default_value=str(CONFIGURATION / "sim.yaml"),
            description="Parameters of the simulation.",
        ),
        DeclareLaunchArgument(
            "log_level", default_value="info", description="debug, info, warn, error or fatal."
        ),
    ]
    common = {
        "package": "jepa_planner_ros",
        "namespace": LaunchConfiguration("namespace"),
        "arguments": ["--ros-args", "--log-level", LaunchConfiguration("log_level")],
        "output": "screen",
    }
    simulation = Node(
        executable="sim_node",
        name="franka_sim",
        parameters=[LaunchConfiguration("sim_params_file")],
        **common,
    )
    planner = Node(
        executable="planner_node",
        name="jepa_planner",
        parameters=[
            LaunchConfiguration("params_file"),
            {"controller_frame": "upright"},
        ],
        **common,
    )
    return LaunchDescription([*arguments, simulation, planner])
