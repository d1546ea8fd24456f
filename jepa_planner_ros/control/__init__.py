"""The loop around the planner: observe, plan, check, move. Knows neither ROS nor Ray."""

from collections.abc import Mapping

from jepa_planner_ros.control import blocking, non_blocking, queued
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
from jepa_planner_ros.control.looking import begin
from jepa_planner_ros.control.runner import Audience, EpisodeRunner, Frame, Robot, RobotError
from jepa_planner_ros.control.settings import (
    ControlSettings,
    FreshnessLimits,
    LookAheadSettings,
    MotionSettings,
    QueueSettings,
    SafetyLimits,
)
from jepa_planner_ros.control.worker import Worker

CONTROL_MODES: Mapping[str, Transition] = {
    "blocking": blocking.transition,
    "non_blocking": non_blocking.transition,
    "queue": queued.transition,
}
"""How planning and motion share the time."""

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
    "LookAheadSettings",
    "MotionSettings",
    "Outcome",
    "QueueSettings",
    "Report",
    "Robot",
    "RobotError",
    "SafetyLimits",
    "SubGoal",
    "Transition",
    "Worker",
    "begin",
]
