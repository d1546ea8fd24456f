"""Which messages of a sensor are kept, whatever order they come in."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import pytest
import rclpy
from node_under_test import spinning, wait_until
from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.qos import qos_profile_sensor_data
from sensor_msgs.msg import JointState

from jepa_planner_ros.control.episode import Measurement
from jepa_planner_ros.robot.kinematics import HOME_JOINTS
from jepa_planner_ros.ros.arm import JointStateArm
from jepa_planner_ros.ros.clock import ros_now, stamp_message
from jepa_planner_ros.ros.description import RobotDescription
from jepa_planner_ros.ros.parameters import PARAMETERS
from jepa_planner_ros.ros.settings import read_wiring
from jepa_planner_ros.ros.streams import SensorStream

SECOND = 10**9


def leap(before: float, after: float, seconds: float) -> str | None:
    """Numbers change by 10 in a second at most."""
    return None if abs(after - before) <= 10.0 * seconds else "it leaps"


class Sensor(Node):
    """Publishes a number under any stamp, and listens to itself."""

    def __init__(self) -> None:
        super().__init__("sensor")
        self.read: list[float] = []
        self.stream = SensorStream(
            self, JointState, "numbers", 60.0, 10.0, self._read, ReentrantCallbackGroup(), leap
        )
        self._publisher = self.create_publisher(JointState, "numbers", qos_profile_sensor_data)
        self.now = ros_now(self)

    def send(self, number: float, age: float) -> None:
        """Publish a number as `age` s old, and wait until the stream has taken it."""
        message = JointState(position=[number])
        message.header.stamp = stamp_message(self.now - round(age * SECOND))
        self._publisher.publish(message)
        wait_until(lambda: self.read[-1:] == [number], "the number")
        time.sleep(0.05)

    def kept(self, age: float) -> float:
        """The number that is nearest to an age."""
        sample = self.stream.nearest(self.now - round(age * SECOND))
        assert sample is not None
        return sample.value

    def _read(self, message: JointState) -> float:
        self.read.append(message.position[0])
        return self.read[-1]


@pytest.fixture
def sensor() -> Iterator[Sensor]:
    rclpy.init()
    sensor = Sensor()
    try:
        with spinning(SingleThreadedExecutor(), sensor):
            wait_until(lambda: sensor.count_subscribers("numbers") == 1, "the subscription")
            time.sleep(0.2)
            yield sensor
    finally:
        rclpy.shutdown()


def stamp_of(measurement: Measurement | None) -> int | None:
    return None if measurement is None else measurement.stamp


def test_the_arm_of_an_old_picture_is_known_as_long_as_a_picture_may_be_old(
    sensor: Sensor,
) -> None:
    values = {parameter.name: parameter.default for parameter in PARAMETERS}
    wiring = read_wiring(values | {"max_age.camera": 10.0}, "/jepa_planner")
    group = sensor.default_callback_group
    arm = JointStateArm(sensor, wiring, RobotDescription(sensor, wiring, group), 1.0, group)
    names = [f"panda_joint{number}" for number in range(1, 8)]
    turned = [HOME_JOINTS + np.array([0.0, 0, 0, 0, 0, 0, 0.1 * (9 - age)]) for age in range(10)]
    publisher = sensor.create_publisher(JointState, "joint_states", qos_profile_sensor_data)
    wait_until(lambda: sensor.count_subscribers("joint_states") == 1, "the subscription")
    for age in reversed(range(10)):
        message = JointState(name=names, position=turned[age].tolist())
        message.header.stamp = stamp_message(sensor.now - age * SECOND)
        publisher.publish(message)
        time.sleep(0.02)
    wait_until(lambda: stamp_of(arm.newest()) == sensor.now, "the newest joints")
    for age in range(10):
        then = arm.nearest(sensor.now - age * SECOND)
        assert then is not None
        assert then.joints is not None
        np.testing.assert_allclose(then.joints, turned[age])


def test_a_late_message_neither_becomes_the_newest_nor_ends_the_history(sensor: Sensor) -> None:
    sensor.send(1.0, age=2.0)
    sensor.send(2.0, age=0.5)
    sensor.send(3.0, age=1.0)
    newest = sensor.stream.newest()
    assert newest is not None
    assert newest.value == 2.0
    assert sensor.kept(age=2.0) == 1.0
    assert sensor.kept(age=1.0) == 2.0, "what came late is not kept"


def test_a_clock_that_was_set_back_begins_the_history_anew(sensor: Sensor) -> None:
    sensor.send(1.0, age=1.0)
    sensor.send(2.0, age=0.0)
    sensor.send(3.0, age=5.0)
    newest = sensor.stream.newest()
    assert newest is not None
    assert newest.value == 3.0
    assert sensor.kept(age=0.0) == 3.0


def test_a_message_that_leaps_is_dropped_unless_the_next_confirms_it(sensor: Sensor) -> None:
    sensor.send(1.0, age=1.0)
    sensor.send(50.0, age=0.9)
    assert sensor.kept(age=0.0) == 1.0
    assert sensor.stream.status(time.monotonic()).fault.startswith("it leaps, which")
    sensor.send(1.1, age=0.8)
    sensor.send(50.0, age=0.7)
    assert sensor.kept(age=0.0) == 1.1, "another leap, not confirmed by the first"
    sensor.send(50.5, age=0.6)
    assert sensor.kept(age=0.0) == 50.5
    assert sensor.stream.status(time.monotonic()).fault is None
