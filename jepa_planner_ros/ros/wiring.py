"""What the planner node is connected to."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from jepa_planner_ros.control import FreshnessLimits
from jepa_planner_ros.ros.poses import ControllerFrame
from jepa_planner_ros.serving import RemoteSettings


@dataclass(frozen=True)
class Wiring:
    """As the parameters name it; fixed while the node runs."""

    planner: str
    remote: RemoteSettings | None
    """Set for planner remote."""
    encode: str
    replicas: int
    serving_device: str
    start_timeout: float
    plan_timeout: float
    checkpoint: str
    device: str
    precision: str
    base_frame: str
    joint_prefix: str
    robot: str
    commander: str
    gripper: str
    setpoint_rate: float
    enabled: bool
    pose_source: str
    controller_frame: ControllerFrame
    image_transport: str
    capture_directory: Path
    freshness: FreshnessLimits
