"""A simulated clock that is set back while a goal is pursued."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from jepa_planner_msgs.action import ReachGoal
from jepa_planner_msgs.msg import SubGoal
from node_under_test import (
    HOME,
    image_message,
    neighbourhood,
    picture,
    spinning,
    wait_until,
    write_tiny_model,
)
from rclpy.clock import Clock
from rclpy.clock_type import ClockType
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rosgraph_msgs.msg import Clock as ClockMessage

from jepa_planner_ros.ros.clock import stamp_message

ELSEWHERE = image_message(picture(HOME + np.array([0.1, 0.2, -0.1, 0, 0, 0, 0])))


def elsewhere(budget: int) -> SubGoal:
    return SubGoal(image=ELSEWHERE, energy_threshold=1e-6, step_budget=budget)


class SimulatedClock(Node):
    """Publishes /clock, which runs with real time and may be set."""

    def __init__(self) -> None:
        super().__init__("simulated_clock")
        self.now = 1_000.0
        self._clock = self.create_publisher(ClockMessage, "/clock", 10)
        self.create_timer(0.01, self._tick, clock=Clock(clock_type=ClockType.STEADY_TIME))

    def _tick(self) -> None:
        self.now += 0.01
        self._clock.publish(ClockMessage(clock=stamp_message(round(1e9 * self.now))))


def test_the_goal_ends_and_the_next_one_is_pursued(tmp_path: Path) -> None:
    model = write_tiny_model(tmp_path / "tiny.safetensors")
    with neighbourhood(model, "use_sim_time:=true") as node:
        clock = SimulatedClock()
        with spinning(SingleThreadedExecutor(), clock):
            goal = node.client.send(elsewhere(budget=50))
            wait_until(lambda: bool(goal.feedback), "the first step")
            clock.now -= 20.0
            _, result = goal.result()
            assert result.outcome == ReachGoal.Result.ABORTED
            assert "clock was set back by" in result.reason
            _, result = node.client.send(elsewhere(budget=1)).result()
            assert result.outcome == ReachGoal.Result.BUDGET_SPENT, result.reason
