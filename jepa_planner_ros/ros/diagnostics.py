"""How the node is: sensors, planner and replicas, on ``/diagnostics``."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from rclpy.clock import Clock
from rclpy.clock_type import ClockType
from rclpy.node import Node
from rclpy.qos import QoSProfile

from jepa_planner_ros.control.safety import Stream
from jepa_planner_ros.ros.clock import ros_now, stamp_message
from jepa_planner_ros.ros.reporting import Reporter
from jepa_planner_ros.ros.robot import RosRobot
from jepa_planner_ros.serving import LocalRayPlanner, RemotePlanner
from jepa_planner_ros.serving.messages import ServingReport
from jepa_planner_ros.types import ModelDescription, Planner


class Diagnostics:
    """Publishes the state of sensors and planner on ``/diagnostics``, once a second.

    Args:
        node: publishes; every entry bears its full name as ``hardware_id``.
        robot: has the sensors.
        reporter: knows what the planner did last.
        model: that plans.
        served: tells how replicas shared the last plan.
        network: tells what part of the last plan's time was the network's, s.
    """

    def __init__(
        self,
        node: Node,
        robot: RosRobot,
        reporter: Reporter,
        model: ModelDescription,
        served: Callable[[], ServingReport | None],
        network: Callable[[], float | None],
    ) -> None:
        self._node = node
        self._robot = robot
        self._reporter = reporter
        self._model = model
        self._served = served
        self._network = network
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
                planner_status(name, self._reporter, self._model, self._served(), self._network()),
            ]
        )
        for status in message.status:
            # Several robots' nodes may bear the same name in different namespaces.
            status.hardware_id = self._node.get_fully_qualified_name()
        message.header.stamp = stamp_message(ros_now(self._node))
        self._publisher.publish(message)


def last_report(planner: Planner) -> ServingReport | None:
    """How replicas shared the last plan; None where there are none, or no plan yet."""
    return planner.last_report if isinstance(planner, LocalRayPlanner | RemotePlanner) else None


def last_network(planner: Planner) -> float | None:
    """The network's part of the last plan's time, s; None without one, or without a plan yet."""
    timing = planner.last_timing if isinstance(planner, RemotePlanner) else None
    return None if timing is None else timing.network


def planner_status(
    name: str,
    reporter: Reporter,
    model: ModelDescription,
    report: ServingReport | None,
    network: float | None,
) -> DiagnosticStatus:
    """How the planner is, and how its replicas shared the last plan."""
    last = reporter.last_plan
    duration = "none yet" if math.isnan(last) else f"{last:.3f}"
    level, message = DiagnosticStatus.OK, reporter.status
    if reporter.planner_error is not None:
        level, message = DiagnosticStatus.ERROR, reporter.planner_error
    elif report is not None and report.retries:
        level = DiagnosticStatus.WARN
        message = (
            f"During the last plan a replica died, and {report.retries} of its shards were sent to "
            "another: look at the planner's log if this happens again."
        )
    return DiagnosticStatus(
        level=level,
        name=f"{name}: planner",
        message=message,
        values=[
            KeyValue(key="last plan, s", value=duration),
            *([] if network is None else [KeyValue(key="network, s", value=f"{network:.3f}")]),
            *([] if reporter.pace is None else [KeyValue(key="pace", value=reporter.pace)]),
            KeyValue(key="model", value=model.fingerprint),
            KeyValue(key="device", value=model.device),
            KeyValue(key="precision", value=model.precision),
            KeyValue(key="replicas", value=f"{model.replicas}"),
            *([] if report is None else _shares(report)),
        ],
    )


def _shares(report: ServingReport) -> list[KeyValue]:
    shards = ", ".join(f"{name}: {count}" for name, count in sorted(report.shards.items()))
    return [
        KeyValue(key="waited for its turn, s", value=f"{report.waited:.3f}"),
        KeyValue(key="shards", value=shards),
        KeyValue(key="shards that queued", value=f"{report.collisions}"),
        KeyValue(key="shards sent again", value=f"{report.retries}"),
    ]


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
