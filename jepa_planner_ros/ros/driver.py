"""What Franka's driver says about the arm, where its messages are installed."""

from __future__ import annotations

import importlib
import time
from typing import Any

from rclpy.callback_groups import CallbackGroup
from rclpy.node import Node
from rclpy.qos import qos_profile_sensor_data

_TOPIC = "franka_robot_state_broadcaster/robot_state"
_LASTS = 2.0
"""How long a state counts after it was told, s; drivers tell it many times a second."""

# Robot modes of libfranka (`franka::RobotMode`) in which the arm follows no command.
_STANDING = {
    3: "is being guided by hand",
    4: "is in reflex: clear the error",
    5: "is stopped by its user: release the stop",
    6: "is recovering from an error",
}


def mode_fault(mode: int) -> str | None:
    """Why an arm in a robot mode must not be commanded, or None."""
    if mode not in _STANDING:
        return None
    return f"The robot's driver reports that the arm {_STANDING[mode]}."


class DriverState:
    """Listens to the driver's state, if there is one to be understood.

    Without franka_msgs an arm that stands is noticed by its not following.
    """

    def __init__(self, node: Node, group: CallbackGroup) -> None:
        self._told: str | None = None
        self._heard = 0.0
        try:
            messages = importlib.import_module("franka_msgs.msg")
        except ImportError:
            return
        node.create_subscription(
            messages.FrankaRobotState,
            _TOPIC,
            self._receive,
            qos_profile_sensor_data,
            callback_group=group,
        )

    @property
    def fault(self) -> str | None:
        """Why the arm must not be commanded, by the newest message; None while it may.

        What a driver said that has fallen silent may have changed since.
        """
        return self._told if time.monotonic() - self._heard < _LASTS else None

    def _receive(self, message: Any) -> None:
        self._told, self._heard = mode_fault(message.robot_mode), time.monotonic()
