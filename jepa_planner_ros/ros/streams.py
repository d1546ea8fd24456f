"""Sensor messages as they come in: which can be used, which is newest, and how old it is."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from typing import Any, Generic, TypeVar

from rclpy.callback_groups import CallbackGroup
from rclpy.node import Node
from rclpy.qos import qos_profile_sensor_data
from rclpy.qos_overriding_options import QoSOverridingOptions

from jepa_planner_ros.control.episode import NANOSECONDS
from jepa_planner_ros.control.safety import Stream
from jepa_planner_ros.ros.clock import nanoseconds, ros_now

Value = TypeVar("Value")

Leap = Callable[[Value, Value, float], str | None]

_CLOCK_TOLERANCE = 0.1
"""How far in the future a stamp may lie, s."""
_LATENESS = 1.0
"""How much older than the newest a message that comes late may be, s; more is a clock set back."""
_COMPLAINT_PERIOD = 5.0
"""Least time between two warnings about a stream, s."""


@dataclass(frozen=True, eq=False)
class Sample(Generic[Value]):
    """What a message told.

    Attributes:
        value: its content.
        stamp: when it was taken by the clock of the robot's messages, ns.
        time: the same moment on this computer's steady clock, s.
    """

    value: Value
    stamp: int
    time: float


class SensorStream(Generic[Value]):
    """The recent usable messages of one topic.

    The stamp in its header decides how old a message is; the steady clock counts on from its
    arrival, so that a clock that stops or jumps cannot keep old messages fresh. A message that
    comes after a newer one is dropped; only a clock that was set back begins the history anew.

    Args:
        node: subscribes.
        message_type: has a header.
        topic: relative name.
        max_age: limit that `status` reports, s.
        kept: how far back messages are kept, s; 0 keeps the newest.
        read: takes a message apart; raises ValueError when it cannot be used.
        group: callback group of the subscription.
        leap: tells why a value cannot follow another after so many seconds, or None. A message that
            leaps is dropped, unless the next one confirms it.
    """

    def __init__(
        self,
        node: Node,
        message_type: type,
        topic: str,
        max_age: float,
        kept: float,
        read: Callable[[Any], Value],
        group: CallbackGroup,
        leap: Leap[Value] = lambda before, after, seconds: None,
    ) -> None:
        self._node = node
        self._max_age = max_age
        self._kept = round(kept * NANOSECONDS)
        self._read = read
        self._lock = Lock()
        self._leap = leap
        self._samples: deque[Sample[Value]] = deque()
        self._doubted: Sample[Value] | None = None
        self._fault: str | None = None
        self._subscription = node.create_subscription(
            message_type,
            topic,
            self._receive,
            qos_profile_sensor_data,
            callback_group=group,
            qos_overriding_options=QoSOverridingOptions.with_default_policies(),
        )
        self.topic: str = self._subscription.topic_name

    def newest(self) -> Sample[Value] | None:
        """The newest usable message."""
        with self._lock:
            return self._samples[-1] if self._samples else None

    def nearest(self, stamp: int) -> Sample[Value] | None:
        """The usable message taken nearest to a stamp in nanoseconds."""
        with self._lock:
            return min(self._samples, key=lambda one: abs(one.stamp - stamp), default=None)

    def status(self, now: float) -> Stream:
        """How fresh the stream is, `now` on the steady clock."""
        newest = self.newest()
        age = None if newest is None else now - newest.time
        return Stream(self.topic, age, self._max_age, self._fault)

    def _receive(self, message: Any) -> None:
        try:
            sample = self._sample(message)
            if self._comes_late(sample):
                return
            self._require_continuity(sample)
        except ValueError as error:
            self._fault = str(error)
            self._node.get_logger().warning(
                f"A message on {self.topic} was dropped: {error}",
                throttle_duration_sec=_COMPLAINT_PERIOD,
            )
            return
        self._fault = None
        with self._lock:
            samples = self._samples
            if samples and sample.stamp <= samples[-1].stamp:
                samples.clear()
            samples.append(sample)
            while sample.stamp - samples[0].stamp > self._kept:
                samples.popleft()

    def _comes_late(self, sample: Sample[Value]) -> bool:
        newest = self.newest()
        return newest is not None and 0 <= newest.stamp - sample.stamp < _LATENESS * NANOSECONDS

    def _require_continuity(self, sample: Sample[Value]) -> None:
        """Raises ValueError for a sample that neither the last nor the doubted one leads to."""
        before, doubted = self.newest(), self._doubted
        self._doubted = None
        if before is None or (leap := self._leaps(before, sample)) is None:
            return
        delivered_again = doubted is not None and sample.stamp == doubted.stamp
        if doubted is None or delivered_again or self._leaps(doubted, sample) is not None:
            self._doubted = sample
            raise ValueError(
                f"{leap}, which none can do: check that {self.topic} has one publisher."
            )

    def _leaps(self, before: Sample[Value], after: Sample[Value]) -> str | None:
        seconds = abs(after.stamp - before.stamp) / NANOSECONDS
        return self._leap(before.value, after.value, seconds)

    def _sample(self, message: Any) -> Sample[Value]:
        stamp = nanoseconds(message.header.stamp)
        if stamp == 0:
            raise ValueError("its header has no stamp; the publisher must set it.")
        now, age = time.monotonic(), (ros_now(self._node) - stamp) / NANOSECONDS
        if age < -_CLOCK_TOLERANCE:
            raise ValueError(
                f"it is stamped {-age:.1f} s in the future; synchronise the computers' clocks, or "
                "set use_sim_time alike on all nodes."
            )
        return Sample(self._read(message), stamp, now - age)
