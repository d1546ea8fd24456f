"""Between ROS's messages about time and numbers.

Stamps are whole nanoseconds, so that they come back exactly as they were sent.
"""

from __future__ import annotations

from builtin_interfaces.msg import Duration, Time
from rclpy.node import Node

from jepa_planner_ros.control.episode import NANOSECONDS


def nanoseconds(stamp: Time) -> int:
    """A stamp in nanoseconds."""
    return int(stamp.sec) * NANOSECONDS + int(stamp.nanosec)


def stamp_message(stamp: int) -> Time:
    """A stamp given in nanoseconds."""
    sec, nanosec = divmod(stamp, NANOSECONDS)
    return Time(sec=sec, nanosec=nanosec)


def seconds(duration: Duration) -> float:
    """A duration in seconds."""
    return float(duration.sec) + duration.nanosec / NANOSECONDS


def duration_message(duration: float) -> Duration:
    """A duration given in seconds."""
    sec, nanosec = divmod(round(duration * NANOSECONDS), NANOSECONDS)
    return Duration(sec=sec, nanosec=nanosec)


def ros_now(node: Node) -> int:
    """The present time of a node's clock, in nanoseconds."""
    return int(node.get_clock().now().nanoseconds)
