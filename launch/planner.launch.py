"""Start the planner node: ``ros2 launch jepa_planner_ros planner.launch.py``.

Arguments that name a parameter of the node win over the parameters file; left empty, the file
holds. With ``namespace``, topics and node move there together, so that several robots can share one
computer: start this once for each.
"""

from pathlib import Path

from launch import LaunchContext, LaunchDescription
from launch.actions import DeclareLaunchArgument, OpaqueFunction
from launch.conditions import IfCondition
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import Node

CONFIGURATION = Path(__file__).parents[1] / "config"

ARGUMENTS = {
    "namespace": ("", "Namespace of the node and of all its topics."),
    "use_sim_time": ("false", "Take the time from /clock."),
    "params_file": (str(CONFIGURATION / "planner.yaml"), "Parameters of the node."),
    "log_level": ("info", "debug, info, warn, error or fatal."),
    "view": ("false", "Draw plans for RViz and Foxglove: markers and a picture (view_node)."),
    "rviz": ("false", "Start RViz as well, with config/planner.rviz."),
}

PARAMETERS = {
    "planner": "Parameter planner, who plans: local_ray, in_process or remote.",
    "planner_address": "Parameter planner_address of planner:=remote, as grpc://HOST:PORT.",
    "robot": "Parameter robot: panda or fr3.",
    "commander": "Parameter commander, the robot's controller: crisp, servo, ... or dry_run.",
    "controller_frame": "Parameter controller_frame: fingertips or upright.",
    "checkpoint": "Parameter world_model.checkpoint: shipped, or a file.",
}
NAMES = {"checkpoint": "world_model.checkpoint"}
"""Parameters whose arguments have another name."""


def planner_node(context: LaunchContext) -> list[Node]:
    """The node with the parameters that were given as arguments."""
    given = {name: LaunchConfiguration(name).perform(context) for name in PARAMETERS}
    return [
        Node(
            package="jepa_planner_ros",
            executable="planner_node",
            name="jepa_planner",
            namespace=LaunchConfiguration("namespace"),
            parameters=[
                LaunchConfiguration("params_file"),
                {"use_sim_time": LaunchConfiguration("use_sim_time")},
                {NAMES.get(name, name): value for name, value in given.items() if value},
            ],
            arguments=["--ros-args", "--log-level", LaunchConfiguration("log_level")],
            output="screen",
            sigterm_timeout="8",
        )
    ]


def generate_launch_description() -> LaunchDescription:
    """The planner node, with what is usually set from outside as arguments."""
    view = Node(
        package="jepa_planner_ros",
        executable="view_node",
        name="jepa_view",
        namespace=LaunchConfiguration("namespace"),
        parameters=[
            LaunchConfiguration("params_file"),
            {"use_sim_time": LaunchConfiguration("use_sim_time")},
        ],
        output="screen",
        sigterm_timeout="8",
        condition=IfCondition(LaunchConfiguration("view")),
    )
    rviz = Node(
        package="rviz2",
        executable="rviz2",
        namespace=LaunchConfiguration("namespace"),
        arguments=["-d", str(CONFIGURATION / "planner.rviz")],
        condition=IfCondition(LaunchConfiguration("rviz")),
    )
    return LaunchDescription(
        [
            *(
                DeclareLaunchArgument(name, default_value=default, description=description)
                for name, (default, description) in ARGUMENTS.items()
            ),
            *(
                DeclareLaunchArgument(name, default_value="", description=description)
                for name, description in PARAMETERS.items()
            ),
            OpaqueFunction(function=planner_node),
            view,
            rviz,
        ]
    )
