"""The planner on Ray Serve: replicas of the world model share the rollouts of a search."""

from .local import LocalRayPlanner
from .messages import ServedPlan, ServingReport
from .settings import ServingSettings

__all__ = ["LocalRayPlanner", "ServedPlan", "ServingReport", "ServingSettings"]
