"""What messages say, as numbers and arrays.

Nothing here imports a message: it reads those of rclpy as well as those that `rosbags` takes out of
a recording on a computer without ROS.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from jepa_planner_ros.control.episode import NANOSECONDS
from jepa_planner_ros.types import Float64Array


def stamp_of(message: Any) -> int:
    """The stamp in a message's header, ns."""
    stamp = message.header.stamp
    return int(stamp.sec) * NANOSECONDS + int(stamp.nanosec)


def state_array(message: Any) -> Float64Array:
    """The state (7,) of an ``EndEffectorState``."""
    p, r = message.position, message.rotation
    return np.array([p.x, p.y, p.z, r.x, r.y, r.z, message.gripper])


def states_array(messages: Sequence[Any]) -> Float64Array:
    """The states (count, 7) of ``EndEffectorState`` messages."""
    return np.array([state_array(message) for message in messages]).reshape(-1, 7)


def actions_array(messages: Sequence[Any]) -> Float64Array:
    """The actions (count, 7) of ``EndEffectorDelta`` messages."""
    return np.array([_action_array(message) for message in messages]).reshape(-1, 7)


def _action_array(message: Any) -> Float64Array:
    t, r = message.translation, message.rotation
    return np.array([t.x, t.y, t.z, r.x, r.y, r.z, message.gripper])
