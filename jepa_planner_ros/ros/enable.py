"""Whether anything may move the arm, and the service that says so."""

from __future__ import annotations

from collections.abc import Callable

from rclpy.callback_groups import CallbackGroup
from rclpy.node import Node
from std_srvs.srv import SetBool


class EnableSwitch:
    """The service ``~/enable``: false stops the arm at once and refuses to move it.

    Once true, only a goal that is accepted from then on moves it. It is a switch in software, and
    no replacement for the stop button at hand.
    """

    def __init__(
        self, node: Node, stop: Callable[[], None], enabled: bool, group: CallbackGroup
    ) -> None:
        self._node = node
        self._stop = stop
        self._enabled = enabled
        self._times_disabled = 0
        self._admitted_after = 0
        node.create_service(SetBool, "~/enable", self._set, callback_group=group)

    @property
    def disabled(self) -> str | None:
        """Why nothing may move the arm, or None."""
        if self._enabled:
            return None
        service = self._node.resolve_service_name("~/enable")
        return f"Motion is disabled: enable it by the service {service}."

    @property
    def refusal(self) -> str | None:
        """Why the goal admitted last must not move the arm, or None."""
        if self._times_disabled == self._admitted_after:
            return self.disabled
        return self.disabled or "Motion was disabled since the goal was accepted: send it again."

    def admit(self) -> None:
        """A goal is accepted, and may move the arm until motion is disabled the next time."""
        self._admitted_after = self._times_disabled

    def _set(self, request: SetBool.Request, response: SetBool.Response) -> SetBool.Response:
        self._enabled = request.data
        if not request.data:
            self._times_disabled += 1
            self._stop()
        response.success = True
        response.message = "Motion is enabled." if request.data else "Motion is disabled."
        self._node.get_logger().warning(response.message)
        return response
