"""The loop around the planner: observe, plan, check, move. Knows neither ROS nor Ray."""

from collections.abc import Callable, Mapping

from jepa_planner_ros.control import blocking
from jepa_planner_ros.control.episode import (
    Ended,
    Episode,
    Goal,
    GripperMotion,
    Outcome,
    Report,
    SubGoal,
    Transition,
)
from jepa_planner_ros.control.runner import Audience, EpisodeRunner, Frame, Robot, RobotError
from jepa_planner_ros.control.settings import (
    ControlSettings,
    FreshnessLimits,
    MotionSettings,
    SafetyLimits,
)
from jepa_planner_ros.control.worker import Worker

CONTROL_MODES: Mapping[str, tuple[Callable[[Goal, ControlSettings, float], Episode], Transition]]
CONTROL_MODES = {"blocking": (blocking.begin, blocking.transition)}
"""How planning and motion share the time: the episode's beginning and its transitions."""

__all__ = [
    "CONTROL_MODES",
    "Audience",
    "ControlSettings",
    "Ended",
    "Episode",
    "EpisodeRunner",
    "Frame",
    "FreshnessLimits",
    "Goal",
    "GripperMotion",
    "MotionSettings",
    "Outcome",
    "Report",
    "Robot",
    "RobotError",
    "SafetyLimits",
    "SubGoal",
    "Transition",
    "Worker",
]
