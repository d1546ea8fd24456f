"""A node that a program has beside its own work."""

from __future__ import annotations

import traceback
from typing import Any

import rclpy
from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor
from rclpy.node import Node
from rclpy.task import Future

from jepa_planner_ros.control import Worker
from jepa_planner_ros.ros.context import own_context

_ENDING = 2.0
"""The longest that the callback under way at the end is waited for, s."""
_COMPLAIN_EVERY = 5.0  # s


class BackgroundNode:
    """A node in a context of its own, whose callbacks run in a thread of their own.

    A callback that raises is told of in the log; the others go on.

    Args:
        name: of the node.
        domain: ROS domain; None for the environment's.
        options: more for `rclpy.node.Node`.
    """

    def __init__(self, name: str, *, domain: int | None = None, **options: Any) -> None:
        self._context = own_context(domain)
        self.node = Node(name, context=self._context, **options)
        """For publishers, subscriptions and clients, to be made before `start`."""
        self._executor = SingleThreadedExecutor(context=self._context)
        self._executor.add_node(self.node)
        self._ended: Future[None] = Future()
        self._thread = Worker(name)

    @property
    def domain(self) -> int:
        """The ROS domain that the node is in."""
        domain: int = self._context.get_domain_id()
        return domain

    def start(self) -> None:
        """Begin to hear."""
        self._thread.submit(self._spin)

    def close(self) -> None:
        """End the thread, then the node, then the context.

        What is left of them when the interpreter ends is destroyed in any order, and can keep the
        process from ending.
        """
        self._ended.set_result(None)
        self._thread.stop(_ENDING)
        self._executor.shutdown(0.0)
        self.node.destroy_node()
        rclpy.try_shutdown(context=self._context)

    def _spin(self) -> None:
        while not self._ended.done() and self._context.ok():
            try:
                self._executor.spin_until_future_complete(self._ended)
            except ExternalShutdownException:
                return
            except Exception:
                self.node.get_logger().error(
                    traceback.format_exc(), throttle_duration_sec=_COMPLAIN_EVERY
                )
