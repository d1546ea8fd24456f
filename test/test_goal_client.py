"""Goals that are given up before they are accepted, or rejected, with real action servers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import Event
from time import monotonic
from typing import Any

import pytest
import rclpy
from jepa_planner_msgs.action import ReachGoal
from node_under_test import spinning, wait_until
from rclpy.action.server import ActionServer, CancelResponse, GoalResponse
from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.executors import MultiThreadedExecutor, SingleThreadedExecutor
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile
from rclpy.signals import SignalHandlerOptions
from std_msgs.msg import String

from jepa_planner_ros.ros.goal_client import GoalClient, GoalNotTakenError

PLANNER = "/slow_planner"


class SlowPlanner(Node):
    """Considers its first goal until `answer` is set; pursues goals until they are cancelled."""

    def __init__(self) -> None:
        super().__init__(PLANNER.strip("/"))
        self.considered: list[str] = []
        self.cancelled: list[str] = []
        self.answer, self.over = Event(), Event()
        self.consider: Callable[[], None] = lambda: None
        self._server = ActionServer(
            self,
            ReachGoal,
            "~/reach_goal",
            execute_callback=self._pursue,
            goal_callback=self._consider,
            cancel_callback=lambda _: CancelResponse.ACCEPT,
            callback_group=ReentrantCallbackGroup(),
        )

    def _consider(self, goal: ReachGoal.Goal) -> GoalResponse:
        self.considered.append(goal.control_mode)
        if len(self.considered) == 1:
            self.consider()
            self.answer.wait(30.0)
        return GoalResponse.ACCEPT

    def _pursue(self, handle: Any) -> ReachGoal.Result:
        while not handle.is_cancel_requested and not self.over.wait(0.01):
            pass
        if handle.is_cancel_requested:
            handle.canceled()
            self.cancelled.append(bytes(handle.goal_id.uuid).hex())
        return ReachGoal.Result()


@pytest.fixture
def planner() -> Iterator[SlowPlanner]:
    rclpy.init(signal_handler_options=SignalHandlerOptions.NO)
    try:
        node = SlowPlanner()
        with spinning(MultiThreadedExecutor(4), node):
            try:
                yield node
            finally:
                node.answer.set()
                node.over.set()
    finally:
        rclpy.try_shutdown()


def test_a_goal_that_is_accepted_after_it_was_sent_again_is_cancelled(
    planner: SlowPlanner,
) -> None:
    node = rclpy.create_node("client")
    tries: list[Callable[[], bool]] = []
    with spinning(SingleThreadedExecutor(), node):

        def wait(condition: Callable[[], bool], _: float) -> bool:
            # The first goal is given up once the node looks at it; the second is waited for.
            tries.append(condition)
            first = len(tries) == 1
            wait_until(lambda: bool(planner.considered) if first else condition(), "an answer")
            return not first

        goals = GoalClient(node, PLANNER, wait)
        wait_until(lambda: goals.ready, "the server")
        handle = goals.send(ReachGoal.Goal())
        assert not goals.settled
        planner.answer.set()
        wait_until(lambda: bool(planner.cancelled), "that the first goal is cancelled")
        wait_until(lambda: goals.settled, "that the client knows")
        assert bytes(handle.goal_id.uuid).hex() not in planner.cancelled
        handle.cancel_goal()
        wait_until(lambda: len(planner.cancelled) == 2, "that the second goal is cancelled")


class BusyPlanner(Node):
    """Rejects every goal, and says `before` when it starts and `meanwhile` when it rejects."""

    def __init__(self, before: str, meanwhile: list[str]) -> None:
        super().__init__(PLANNER.strip("/"))
        self._meanwhile = meanwhile
        latched = QoSProfile(depth=8, durability=DurabilityPolicy.TRANSIENT_LOCAL)
        self._status = self.create_publisher(String, "~/status", latched)
        self._status.publish(String(data=before))
        self._server = ActionServer(
            self, ReachGoal, "~/reach_goal", lambda _: ReachGoal.Result(), goal_callback=self._busy
        )

    def _busy(self, _: ReachGoal.Goal) -> GoalResponse:
        for status in self._meanwhile:
            self._status.publish(String(data=status))
        return GoalResponse.REJECT


@pytest.mark.parametrize(
    ("meanwhile", "reason"),
    [
        (["Goal rejected. Another is pursued.", "The search fell back."], "Another is pursued"),
        (["The search fell back."], "its log says why"),
    ],
)
def test_a_rejection_is_told_by_what_the_node_says_about_it(
    meanwhile: list[str], reason: str
) -> None:
    rclpy.init(signal_handler_options=SignalHandlerOptions.NO)
    try:
        node = rclpy.create_node("client")
        busy = BusyPlanner("Goal rejected. It had no photograph.", meanwhile)
        executor = SingleThreadedExecutor()
        with spinning(MultiThreadedExecutor(2), busy):
            executor.add_node(node)

            def wait(condition: Callable[[], bool], seconds: float) -> bool:
                deadline = monotonic() + seconds
                while not condition() and monotonic() < deadline:
                    executor.spin_once(timeout_sec=0.05)
                return condition()

            goals = GoalClient(node, PLANNER, wait)
            assert wait(lambda: goals.ready, 30.0)
            wait(lambda: False, 0.3)  # what it said before
            with pytest.raises(GoalNotTakenError, match=reason):
                goals.send(ReachGoal.Goal())
    finally:
        rclpy.try_shutdown()
