"""Sending goals to a planner node, and why one was not taken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jepa_planner_msgs.action import ReachGoal
from rclpy.action.client import ActionClient
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile
from rclpy.task import Future
from std_msgs.msg import String

_FOR_AN_ANSWER = 15.0
"""Until a goal is taken to be lost, s: the node decodes its photographs before it answers, and
forgets after 5 s a goal whose acceptance nobody has heard."""
_TRIES = 4
_REJECTED = "Goal rejected."
"""How the node begins to say why it rejects a goal."""
_HEARD_AT_ONCE = 10
"""Statuses that may come between two looks, so that none hides a rejection."""
_FOR_A_REASON = 1.0
"""Until the reason of a rejection has surely come, s: it travels by another topic."""

Wait = Callable[[Callable[[], bool], float], bool]
"""Lets messages come in until a condition is true or so many seconds have passed; returns whether
it is true."""


class GoalNotTakenError(RuntimeError):
    """The planner node rejected a goal or did not answer; the message says why."""


class GoalClient:
    """A client of the action ``~/reach_goal`` of one planner node.

    Args:
        node: sends, and is spun by `wait` or by somebody else.
        planner: name of the planner node.
        wait: how to wait; it may raise to give up.
    """

    def __init__(self, node: Node, planner: str, wait: Wait) -> None:
        self._wait = wait
        self._client: ActionClient[Any, Any, Any] = ActionClient(
            node, ReachGoal, f"{planner}/reach_goal"
        )
        self.status = ""
        """What the node said last."""
        self._rejection = ""
        self._forsaken: set[Future] = set()
        latched = QoSProfile(depth=_HEARD_AT_ONCE, durability=DurabilityPolicy.TRANSIENT_LOCAL)
        node.create_subscription(String, f"{planner}/status", self._hear, latched)

    @property
    def ready(self) -> bool:
        """Whether the node is there to take goals."""
        return bool(self._client.server_is_ready())

    @property
    def settled(self) -> bool:
        """Whether every goal that was given up is answered, and cancelled where it was accepted."""
        return not self._forsaken

    def send(
        self,
        goal: ReachGoal.Goal,
        on_feedback: Callable[[ReachGoal.Feedback], None] = lambda _: None,
    ) -> Any:
        """Send a goal, again where it seems to be lost, and return the handle of the accepted goal.

        A node may be found before both ends of its services have found each other. A goal that is
        given up, since no answer came or `wait` raised, is cancelled when it is accepted after all:
        an arm must not move for a goal that nobody follows. That takes messages; `settled` tells
        when none is awaited any more.

        Raises:
            GoalNotTakenError: the node rejects the goal, or never answers.
        """
        for _ in range(_TRIES):
            self._rejection = ""
            future = self._client.send_goal_async(goal, lambda told: on_feedback(told.feedback))
            try:
                if self._wait(future.done, _FOR_AN_ANSWER):
                    break
            except BaseException:
                self._forsake(future)
                raise
            self._forsake(future)
        else:
            raise GoalNotTakenError(
                f"The planner node did not answer a goal. It says: {self.status}"
            )
        handle: Any = future.result()
        if not handle.accepted:
            self._wait(lambda: False, _FOR_A_REASON)
            raise GoalNotTakenError(
                self._rejection or "The planner node rejected the goal; its log says why."
            )
        return handle

    def _forsake(self, future: Future) -> None:
        """Cancel a goal as soon as it is accepted."""

        def settle(_: Future) -> None:
            self._forsaken.discard(future)

        def cancel(answered: Future) -> None:
            handle: Any = answered.result()
            if handle.accepted:
                handle.cancel_goal_async().add_done_callback(settle)
            else:
                settle(answered)

        self._forsaken.add(future)
        future.add_done_callback(cancel)

    def _hear(self, status: String) -> None:
        self.status = status.data
        # What else the node says meanwhile is about the goal that it pursues.
        if status.data.startswith(_REJECTED):
            self._rejection = status.data
