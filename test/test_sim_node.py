"""The simulated robot's node, as a process of its own that is spoken to over ROS."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rclpy
import yaml
from geometry_msgs.msg import PoseStamped
from jepa_planner_msgs.msg import EndEffectorState
from jepa_planner_msgs.srv import ResetSimulation
from rcl_interfaces.srv import DescribeParameters
from rclpy.context import Context
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from sensor_msgs.msg import CameraInfo, CompressedImage, Image, JointState
from std_msgs.msg import Float64MultiArray, Header

from jepa_planner_ros.robot.joints import read_arm
from jepa_planner_ros.robot.kinematics import end_effector_state
from jepa_planner_ros.share import share_directory
from jepa_planner_ros.sim import messages
from jepa_planner_ros.sim.parameters import SimNodeParameters
from jepa_planner_ros.sim.sim_node import GRIPPER_TOPIC

ENVIRONMENT = {**os.environ, "PYTHONUNBUFFERED": "1"}
COMMAND = [sys.executable, "-m", "jepa_planner_ros.sim.sim_node"]

TOPICS = {
    "image_raw": Image,
    "image_raw/compressed": CompressedImage,
    "camera_info": CameraInfo,
    "joint_states": JointState,
    "current_pose": PoseStamped,
}


class Robot:
    """The test's end of the wire."""

    def __init__(self, node: Node, process: subprocess.Popen[str], log: Path) -> None:
        self.node = node
        self.process = process
        self._log = log
        self.received: dict[str, list[Any]] = {topic: [] for topic in TOPICS}
        for topic, kind in TOPICS.items():
            node.create_subscription(kind, topic, self.received[topic].append, 10)
        self.target = node.create_publisher(PoseStamped, "target_pose", 1)
        self.gripper = node.create_publisher(Float64MultiArray, GRIPPER_TOPIC, 1)
        self._reset = node.create_client(ResetSimulation, "franka_sim/reset")
        self._executor = SingleThreadedExecutor(context=node.context)
        self._executor.add_node(node)

    def wait(self, done: Callable[[], object], seconds: float = 20.0) -> None:
        deadline = time.monotonic() + seconds
        while not done():
            assert self.process.poll() is None, self.log
            assert time.monotonic() < deadline, f"Nothing within {seconds} s.\n{self.log}"
            self._executor.spin_once(timeout_sec=0.05)

    def spin(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        self.wait(lambda: time.monotonic() >= deadline, seconds + 1.0)

    def call(self, client: Any, request: Any) -> Any:
        self.wait(client.service_is_ready)
        future = client.call_async(request)
        self.wait(future.done)
        return future.result()

    def reset(self, seed: int) -> Any:
        response = self.call(self._reset, ResetSimulation.Request(seed=seed))
        assert response.success, response.message
        return response

    def latest(self, topic: str) -> Any:
        """The next message of a topic from now on."""
        arrived = self.received[topic]
        arrived.clear()
        self.wait(lambda: arrived)
        return arrived[-1]

    def command(self, position: np.ndarray) -> None:
        self.wait(self.target.get_subscription_count)
        pose = PoseStamped()
        pose.pose.position.x, pose.pose.position.y, pose.pose.position.z = position.tolist()
        pose.pose.orientation.w = 1.0
        self.target.publish(pose)

    @property
    def position(self) -> np.ndarray:
        return position_of(self.latest("current_pose").pose)

    @property
    def log(self) -> str:
        return self._log.read_text()


def position_of(pose: Any) -> np.ndarray:
    return np.array((pose.position.x, pose.position.y, pose.position.z))


def values_of(state: EndEffectorState) -> list[float]:
    p, r = state.position, state.rotation
    return [p.x, p.y, p.z, r.x, r.y, r.z, state.gripper]


def seconds(stamp: Any) -> float:
    return stamp.sec + 1e-9 * stamp.nanosec


@contextmanager
def running_robot(log: Path, namespace: str, **parameters: object) -> Iterator[Robot]:
    arguments = [part for name, value in parameters.items() for part in ("-p", f"{name}:={value}")]
    context = Context()
    rclpy.init(context=context)
    node = rclpy.create_node("test_sim_node", namespace=namespace, context=context)
    with log.open("w") as output:
        process = subprocess.Popen(
            [*COMMAND, "--ros-args", "-r", f"__ns:=/{namespace}", *arguments],
            env=ENVIRONMENT,
            stdout=output,
            stderr=subprocess.STDOUT,
            text=True,
        )
    try:
        robot = Robot(node, process, log)
        robot.wait(lambda: robot.received["joint_states"], 120.0)
        yield robot
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        node.destroy_node()
        rclpy.shutdown(context=context)


@pytest.fixture(scope="module")
def robot(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Robot]:
    log = tmp_path_factory.mktemp("sim") / "lockstep.log"
    with running_robot(log, "lockstep", lockstep="true") as robot:
        yield robot


def test_reset_is_seeded_and_photographs_the_goal(robot: Robot) -> None:
    first, other, again = robot.reset(3), robot.reset(4), robot.reset(3)
    assert first.goal_image.data == again.goal_image.data
    assert first.start_state == again.start_state
    assert first.goal_state == again.goal_state
    assert other.goal_image.data != first.goal_image.data

    start, goal = np.array(values_of(first.start_state)), np.array(values_of(first.goal_state))
    assert 0.15 <= np.linalg.norm((goal - start)[:3]) <= 0.251
    np.testing.assert_allclose(robot.position, start[:3], atol=1e-3)
    image = first.goal_image
    assert (image.width, image.height, image.encoding, image.step) == (256, 256, "rgb8", 768)
    assert len(image.data) == 256 * 768


def test_lockstep_repeats_an_episode_bit_by_bit(robot: Robot) -> None:
    def episode() -> list[Any]:
        response = robot.reset(5)
        start = position_of(response.start_state)
        step_size = np.array([0.01, -0.02, 0.015])
        seen = []
        for step in range(1, 4):
            robot.command(start + step * step_size)
            robot.spin(0.4)
            joints = robot.latest("joint_states")
            seen.append((robot.latest("image_raw").data, joints.position, joints.velocity))
        reached = robot.position
        np.testing.assert_allclose(reached, start + 3 * step_size, atol=2e-3)
        return seen

    first, second = episode(), episode()
    assert first == second
    assert first[0][0] != first[1][0]


def test_what_is_published_is_stamped_framed_and_consistent(robot: Robot) -> None:
    robot.reset(6)
    for arrived in robot.received.values():
        arrived.clear()
    robot.wait(lambda: all(len(arrived) >= 4 for arrived in robot.received.values()))
    now = seconds(robot.node.get_clock().now().to_msg())
    for topic, arrived in robot.received.items():
        stamps = [seconds(message.header.stamp) for message in arrived]
        assert stamps == sorted(set(stamps)), topic
        assert -0.01 <= now - stamps[-1] < 1.0, topic
    frames = {topic: arrived[-1].header.frame_id for topic, arrived in robot.received.items()}
    assert (
        frames["image_raw"] == frames["camera_info"] == frames["image_raw/compressed"] == "camera"
    )
    assert frames["current_pose"] == "panda_link0"
    infos, images = robot.received["camera_info"], robot.received["image_raw"]
    assert {seconds(m.header.stamp) for m in infos} & {seconds(m.header.stamp) for m in images}

    joints = robot.latest("joint_states")
    reading = read_arm(joints.name, joints.position)
    state = end_effector_state(reading.positions)
    np.testing.assert_allclose(state[:3], robot.position, atol=1e-4)
    assert reading.gripper == pytest.approx(0.0, abs=0.02)
    assert robot.received["image_raw/compressed"][-1].data[:2].tobytes() == b"\xff\xd8"


def test_gripper_closes_and_opens(robot: Robot) -> None:
    robot.reset(7)
    robot.wait(robot.gripper.get_subscription_count)
    before = robot.position
    for opening in (0.0, 1.0):
        robot.gripper.publish(Float64MultiArray(data=[opening]))

        def gripper() -> float | None:
            joints = robot.latest("joint_states")
            return read_arm(joints.name, joints.position).gripper

        robot.wait(lambda opening=opening: gripper() == pytest.approx(1.0 - opening, abs=0.03))
    np.testing.assert_allclose(robot.position, before, atol=5e-4)


def test_commands_that_make_no_sense_are_ignored_and_told(robot: Robot) -> None:
    robot.reset(8)
    before = robot.position
    robot.command(np.array([np.nan, 0.0, 0.3]))
    robot.wait(lambda: "not finite" in robot.log)
    robot.gripper.publish(Float64MultiArray(data=[7.0]))
    robot.wait(lambda: "from 0 (closed) to 1 (open)" in robot.log)

    second = robot.node.create_publisher(PoseStamped, "target_pose", 1)
    robot.spin(0.5)
    robot.command(before + 0.05)
    robot.wait(lambda: "2 nodes publish on /lockstep/target_pose" in robot.log)
    np.testing.assert_allclose(robot.position, before, atol=5e-4)
    robot.node.destroy_publisher(second)
    robot.spin(0.5)
    robot.command(before + 0.02)
    robot.spin(0.5)
    np.testing.assert_allclose(robot.position, before + 0.02, atol=2e-3)


def test_every_parameter_is_described_and_in_the_configuration_file(robot: Robot) -> None:
    names = [parameter.name for parameter in fields(SimNodeParameters)]
    client = robot.node.create_client(DescribeParameters, "franka_sim/describe_parameters")
    described = robot.call(client, DescribeParameters.Request(names=names)).descriptors
    assert all(descriptor.description and descriptor.read_only for descriptor in described)

    text = (share_directory() / "config" / "sim.yaml").read_text()
    configured = yaml.safe_load(text)["/**"]["ros__parameters"]
    defaults = SimNodeParameters()
    assert configured == {name: getattr(defaults, name) for name in names}


def test_real_time_motion_takes_its_time_and_an_interrupt_ends_it(tmp_path: Path) -> None:
    with running_robot(
        tmp_path / "sim.log", "real_time", motion_duration=1.0, seed=2, seeed=7
    ) as robot:
        robot.wait(lambda: "is ready, with seed 2;" in robot.log)
        assert "There is no parameter seeed: its value is ignored. Did you mean seed?" in robot.log
        before = robot.position
        started = time.monotonic()
        robot.command(before + 0.03)
        robot.wait(lambda: np.abs(robot.position - before - 0.03).max() < 2e-3)
        assert time.monotonic() - started > 0.6

        robot.command(before)
        robot.spin(0.2)
        interrupted = time.monotonic()
        robot.process.send_signal(signal.SIGINT)
        assert robot.process.wait(5.0) == 0, robot.log
        assert time.monotonic() - interrupted < 5.0
        assert "Traceback" not in robot.log


def test_pictures_in_every_encoding() -> None:
    picture = np.zeros((2, 3, 3), dtype=np.uint8)
    picture[0, 0] = 255, 128, 0
    rgb, bgr, mono = (
        messages.image_message(picture, encoding, Header()) for encoding in messages.ENCODINGS
    )
    assert [rgb.encoding, bgr.encoding, mono.encoding] == ["rgb8", "bgr8", "mono8"]
    assert [image.step for image in (rgb, bgr, mono)] == [9, 9, 3]
    assert rgb.data[:3].tolist() == [255, 128, 0]
    assert bgr.data[:3].tolist() == [0, 128, 255]
    assert mono.data.tolist() == [151, 0, 0, 0, 0, 0]


def test_parameters_that_make_no_sense_are_told_in_one_sentence() -> None:
    with pytest.raises(ValueError, match="image_encoding is 'yuv'"):
        SimNodeParameters(image_encoding="yuv")
    file = share_directory() / "config" / "sim.yaml"
    arguments = ["--ros-args", "--params-file", str(file), "-p", "seed:=x"]
    ended = subprocess.run(
        [*COMMAND, *arguments], env=ENVIRONMENT, capture_output=True, text=True, timeout=120
    )
    assert ended.returncode == 1
    assert ended.stderr.startswith("sim_node: Parameter seed must be a whole number")
    assert "Traceback" not in ended.stderr
