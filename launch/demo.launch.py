"""Start a simulated Franka and the planner: ``ros2 launch jepa_planner_ros demo.launch.py``.

Photograph a goal with ``/franka_sim/reset`` or ``/jepa_planner/capture_goal``, and send it to the
action ``/jepa_planner/reach_goal``. All arguments of ``planner.launch.py`` are taken, too.
"""

from pathlib import Path

from launch import LaunchDescription
from launch.actions import DeclareLaunchArgument, IncludeLaunchDescription
from launch.launch_description_sources import PythonLaunchDescriptionSource
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import Node

HERE = Path(__file__).parent
CONFIGURATION = HERE.parent / "config"


def generate_launch_description() -> LaunchDescription:
    """Both nodes in one namespace, set up for each other."""
    arguments = [
        DeclareLaunchArgument("namespace", default_value="", description="Namespace of the nodes."),
        DeclareLaunchArgument(
            "log_level", default_value="info", description="debug, info, warn, error or fatal."
        ),
        DeclareLaunchArgument(
            "params_file",
            default_value=str(CONFIGURATION / "demo.yaml"),
            description="Parameters of the planner.",
        ),
        DeclareLaunchArgument(
            "sim_params_file",
            default_value=str(CONFIGURATION / "sim.yaml"),
            description="Parameters of the simulation.",
        ),
    ]
    simulation = Node(
        package="jepa_planner_ros",
        executable="sim_node",
        name="franka_sim",
        namespace=LaunchConfiguration("namespace"),
        parameters=[LaunchConfiguration("sim_params_file")],
        arguments=["--ros-args", "--log-level", LaunchConfiguration("log_level")],
        output="screen",
        sigterm_timeout="8",
    )
    planner = IncludeLaunchDescription(
        PythonLaunchDescriptionSource(str(HERE / "planner.launch.py"))
    )
    return LaunchDescription([*arguments, simulation, planner])
