"""The planner on Ray Serve: replicas of the world model share the rollouts of a search."""

from jepa_planner_ros.serving.local import LocalRayPlanner
from jepa_planner_ros.serving.messages import ServedPlan, ServingReport
from jepa_planner_ros.serving.settings import ServingSettings

__all__ = ["LocalRayPlanner", "ServedPlan", "ServingReport", "ServingSettings"]
