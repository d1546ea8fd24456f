"""The planner on Ray Serve: replicas of the world model share the rollouts of a search."""

from jepa_planner_ros.serving.local import LocalRayPlanner
from jepa_planner_ros.serving.messages import ServedPlan, ServingReport
from jepa_planner_ros.serving.remote import RemotePlanner, RemoteTiming
from jepa_planner_ros.serving.remote_settings import LatentPrecision, RemoteSettings
from jepa_planner_ros.serving.settings import ServingSettings

__all__ = [
    "LatentPrecision",
    "LocalRayPlanner",
    "RemotePlanner",
    "RemoteSettings",
    "RemoteTiming",
    "ServedPlan",
    "ServingReport",
    "ServingSettings",
]
