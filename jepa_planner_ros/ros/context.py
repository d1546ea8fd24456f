"""A context of ROS for a command, beside whatever else runs in its process."""

from __future__ import annotations

import rclpy
from rclpy.signals import SignalHandlerOptions


def own_context(domain: int | None = None) -> rclpy.Context:
    """An initialised context, to be ended by `rclpy.try_shutdown`.

    It leaves signals alone: rclpy's own handler would close it before a command has tidied up.

    Args:
        domain: ROS domain; None for the environment's.
    """
    context = rclpy.Context()
    rclpy.init(
        args=[],
        context=context,
        domain_id=domain,
        signal_handler_options=SignalHandlerOptions.NO,
    )
    return context
