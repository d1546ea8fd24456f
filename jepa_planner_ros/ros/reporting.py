"""What the node tells while it works: plans, feedback, results, its status and diagnostics."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from jepa_planner_msgs.action import ReachGoal
from jepa_planner_msgs.msg import Latency as LatencyMessage
from jepa_planner_msgs.msg import Plan as PlanMessage
from rclpy.action.server import ServerGoalHandle
from rclpy.clock import Clock
from rclpy.clock_type import ClockType
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile
from std_msgs.msg import String

from jepa_planner_ros.control import Ended, Report
from jepa_planner_ros.control.episode import Latency
from jepa_planner_ros.control.queued import advice
from jepa_planner_ros.control.safety import Stream
from jepa_planner_ros.geometry import GRIPPER
from jepa_planner_ros.ros.clock import duration_message, ros_now, stamp_message
from jepa_planner_ros.ros.parameters import EpisodeDefaults, Wiring
from jepa_planner_ros.ros.poses import delta_message, pose_stamped_message, state_message
from jepa_planner_ros.ros.robot import RosRobot

_LATCHED = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)


def latency_message(latency: Latency) -> LatencyMessage:
    """Where the time of a step went."""
    return LatencyMessage(
        capture_age=latency.capture_age,
        encode=latency.encode,
        plan=latency.plan,
        network=latency.network,
    )


def plan_message(report: Report, defaults: EpisodeDefaults, base_frame: str) -> PlanMessage:
    """The plan of one step."""
    plan, seen = report.plan, report.observation
    message = PlanMessage(
        subgoal=report.subgoal,
        step=report.step,
        state=state_message(plan.states[0]),
        actions=[delta_message(action) for action in plan.actions],
        predicted_states=[state_message(state) for state in plan.states[1:]],
        energy=report.energy,
        predicted_energies=plan.energies.tolist(),
        round_best_energies=[one.best_energy for one in plan.rounds],
        round_elite_energies=[one.elite_energy for one in plan.rounds],
        rollouts=plan.rollouts,
        seed=defaults.seed,
        search=defaults.search_name,
        model_fingerprint=plan.model_fingerprint,
        latency=latency_message(report.latency),
    )
    message.header.frame_id = base_frame
    message.header.stamp = stamp_message(seen.stamp)
    return message


def feedback_message(report: Report, wiring: Wiring, stamp: int) -> ReachGoal.Feedback:
    """The progress after one step, commanded at a stamp in nanoseconds."""
    return ReachGoal.Feedback(
        subgoal=report.subgoal,
        step=report.step,
        energy=report.energy,
        predicted_energy=float(report.plan.energies[-1]),
        target_pose=pose_stamped_message(
            report.target, wiring.controller_frame, wiring.base_frame, stamp
        ),
        target_gripper=float(report.target[GRIPPER]),
        latency=latency_message(report.latency),
        queue_length=report.queue_length,
    )


def result_message(ended: Ended) -> ReachGoal.Result:
    """How a goal ended."""
    return ReachGoal.Result(
        outcome=int(ended.outcome),
        reason=ended.reason,
        final_energy=ended.energy,
        steps=ended.steps,
        elapsed=duration_message(ended.elapsed),
    )


class Reporter:
    """Tells what the node does and why.

    What happens to goals goes to the log, the diagnostics and ``~/status``, which is latched:
    whoever asks why a goal was rejected gets the answer afterwards. Plans go to ``~/plan``.
    """

    def __init__(self, node: Node, wiring: Wiring) -> None:
        self._node = node
        self._wiring = wiring
        self._statuses = node.create_publisher(String, "~/status", _LATCHED)
        self._plans = node.create_publisher(PlanMessage, "~/plan", QoSProfile(depth=10))
        self.status = ""
        """What was told last."""
        self.last_plan = math.nan
        """Duration of the last plan, s; NaN before the first."""
        self.planner_error: str | None = None
        """Why the last plan could not be made; None when it could."""
        self.pace: str | None = None
        """How step duration and planning time compare, and what that asks of the queue."""

    def say(self, text: str) -> None:
        """Tell something that is as it should be."""
        self._node.get_logger().info(text)
        self._publish_status(text)

    def complain(self, text: str) -> None:
        """Tell something that an operator should look at."""
        self._node.get_logger().warning(text)
        self._publish_status(text)

    def publish_plan(self, report: Report, defaults: EpisodeDefaults) -> None:
        """Publish the plan of one step."""
        if self.planner_error is not None:
            self.say("The planner plans again.")
        self.last_plan, self.planner_error = report.latency.plan, None
        queue = defaults.control.queue
        if report.ratio is not None:
            self.pace = advice(report.ratio, queue.chunk, queue.threshold)
        self._plans.publish(plan_message(report, defaults, self._wiring.base_frame))

    def feedback(self, report: Report) -> ReachGoal.Feedback:
        """Feedback on one step, commanded just now."""
        return feedback_message(report, self._wiring, ros_now(self._node))

    def _publish_status(self, text: str) -> None:
        self.status = text
        self._statuses.publish(String(data=text))


@dataclass(frozen=True)
class GoalFollower:
    """The audience of one goal's episode: its client, and whoever listens to the node."""

    handle: ServerGoalHandle[Any, Any, Any]
    defaults: EpisodeDefaults
    reporter: Reporter

    def report(self, report: Report) -> None:
        """A step was planned and commanded."""
        self.reporter.publish_plan(report, self.defaults)
        self.handle.publish_feedback(self.reporter.feedback(report))

    def warn(self, text: str) -> None:
        """Something noteworthy happened that does not end the episode."""
        self.reporter.complain(text)

    def planner_failed(self, reason: str) -> None:
        """A plan could not be made."""
        self.reporter.planner_error = reason


class Diagnostics:
    """Publishes the state of sensors and planner on ``/diagnostics``, once a second."""

    def __init__(self, node: Node, robot: RosRobot, reporter: Reporter) -> None:
        self._node = node
        self._robot = robot
        self._reporter = reporter
        self._publisher = node.create_publisher(
            DiagnosticArray, "/diagnostics", QoSProfile(depth=10)
        )
        # A simulated clock may stop; the diagnostics must not.
        steady = Clock(clock_type=ClockType.STEADY_TIME)
        self._timer = node.create_timer(1.0, self._publish, clock=steady)

    def _publish(self) -> None:
        name, now = self._node.get_name(), time.monotonic()
        complaints = self._robot.complaints(now)
        message = DiagnosticArray(
            status=[
                *(
                    _stream_status(name, stream, complaints.get(stream.topic))
                    for stream in self._robot.streams(now)
                ),
                _planner_status(name, self._reporter),
            ]
        )
        message.header.stamp = stamp_message(ros_now(self._node))
        self._publisher.publish(message)


def _planner_status(name: str, reporter: Reporter) -> DiagnosticStatus:
    last = reporter.last_plan
    duration = "none yet" if math.isnan(last) else f"{last:.3f}"
    failed = reporter.planner_error
    return DiagnosticStatus(
        level=DiagnosticStatus.OK if failed is None else DiagnosticStatus.ERROR,
        name=f"{name}: planner",
        message=failed or reporter.status,
        values=[
            KeyValue(key="last plan, s", value=duration),
            *([] if reporter.pace is None else [KeyValue(key="pace", value=reporter.pace)]),
        ],
    )


def _stream_status(name: str, stream: Stream, complaint: str | None) -> DiagnosticStatus:
    age = "none" if stream.age is None else f"{stream.age:.3f}"
    return DiagnosticStatus(
        level=DiagnosticStatus.OK if complaint is None else DiagnosticStatus.ERROR,
        name=f"{name}: {stream.topic}",
        message=complaint or "Fresh.",
        values=[
            KeyValue(key="age, s", value=age),
            KeyValue(key="limit, s", value=f"{stream.max_age:g}"),
        ],
    )
