"""The planner node among real ROS 2 neighbours, all in this process: a robot and a client."""

from __future__ import annotations

import io
import sys
import threading
import time
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import rclpy
from builtin_interfaces.msg import Duration, Time
from diagnostic_msgs.msg import DiagnosticArray
from geometry_msgs.msg import PoseStamped
from jepa_planner_msgs.action import ReachGoal
from jepa_planner_msgs.msg import Plan, SubGoal
from jepa_planner_msgs.srv import CaptureGoal
from PIL import Image as PillowImage
from random_weights import random_checkpoint
from rclpy.action import ActionClient
from rclpy.executors import Executor, MultiThreadedExecutor, SingleThreadedExecutor
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile, qos_profile_sensor_data
from rclpy.task import Future
from sensor_msgs.msg import CompressedImage, Image, JointState
from std_msgs.msg import Float64MultiArray, String

from jepa_planner_ros.robot.kinematics import HOME_JOINTS, InverseKinematics, end_effector_state
from jepa_planner_ros.ros.clock import ros_now, stamp_message
from jepa_planner_ros.ros.node import PlannerNode
from jepa_planner_ros.ros.poses import ControllerFrame, pose_message, read_pose
from jepa_planner_ros.world_model import (
    EncoderConfig,
    PredictorConfig,
    WorldModelConfig,
    write_checkpoint,
)

HOME = end_effector_state(HOME_JOINTS)
PATIENCE = 60.0
FAST = tuple(
    f"limits.{name}:={value}"
    for name, value in {
        "translation_speed": 1.7,
        "translation_acceleration": 13.0,
        "translation_jerk": 6500.0,
        "rotation_speed": 2.5,
        "rotation_acceleration": 25.0,
        "rotation_jerk": 12500.0,
    }.items()
)
"""As fast as the arm itself can."""

# Node, robot and client share one interpreter here; torch waits for it at every operation.
sys.setswitchinterval(0.0005)


def write_tiny_model(path: Path) -> Path:
    """A world model of random weights that plans in some tens of milliseconds."""
    config = WorldModelConfig(
        EncoderConfig(image_size=(32, 32), dim=32, depth=1, heads=2, mlp_hidden=64),
        PredictorConfig(dim=32, depth=1, heads=2, mlp_hidden=64),
    )
    write_checkpoint(random_checkpoint(config), path)
    return path


def picture(state: np.ndarray) -> np.ndarray:
    """RGB (48, 48, 3): a bright square that moves with the end effector."""
    image = np.full((48, 48, 3), 40, np.uint8)
    column, row = (int(24 + 40 * offset) for offset in (state[1], state[0] - 0.5))
    image[max(0, row - 5) : row + 6, max(0, column - 5) : column + 6] = 220
    image[:, :6, 2] = int(255 * np.clip(state[2], 0, 1))
    return image


def image_message(pixels: np.ndarray, encoding: str = "rgb8") -> Image:
    height, width = pixels.shape[:2]
    data = array("B", pixels.tobytes())
    step = len(data) // height
    return Image(height=height, width=width, encoding=encoding, step=step, data=data)


def png(state: np.ndarray) -> array[int]:
    """The bytes of the picture as PNG."""
    buffer = io.BytesIO()
    PillowImage.fromarray(picture(state)).save(buffer, "PNG")
    return array("B", buffer.getvalue())


class ScriptedRobot(Node):
    """A Franka that goes straight to its target in `duration` seconds, and can be made to fail."""

    def __init__(self) -> None:
        super().__init__("scripted_robot")
        self._inverse_kinematics = InverseKinematics()
        self._joints_lock = threading.Lock()
        self.duration = 0.1
        self.publish_images = True
        self.publish_joints = True
        self.pose_frame = ""
        self.stamped = True
        self.clock_error = 0.0  # s
        self.spoil_joints: Callable[[JointState], None] = lambda message: None
        self.spoil_image: Callable[[Image], None] = lambda message: None
        self.targets: list[np.ndarray] = []
        self.grippers: list[float] = []
        self.images = self.create_publisher(Image, "image_raw", qos_profile_sensor_data)
        self._compressed = self.create_publisher(
            CompressedImage, "image_raw/compressed", qos_profile_sensor_data
        )
        self._joint_states = self.create_publisher(
            JointState, "joint_states", qos_profile_sensor_data
        )
        self._poses = self.create_publisher(PoseStamped, "current_pose", qos_profile_sensor_data)
        self.target_subscription = self._listen()
        self.create_subscription(
            Float64MultiArray,
            "gripper/gripper_position_controller/commands",
            lambda message: self.grippers.append(message.data[0]),
            10,
        )
        self.place(HOME_JOINTS)
        self.create_timer(0.05, self._publish_image)
        self.create_timer(0.02, self._publish_joints)

    def place(self, joints: np.ndarray) -> None:
        """Be there at once, and long enough for every topic to show it."""
        with self._joints_lock:
            self._from = self._to = self._solved = end_effector_state(joints)
            self._joints = joints
            self._commanded = time.monotonic() - 1000.0
        self.targets.clear()
        time.sleep(0.2)

    def stop_listening(self) -> None:
        # In the thread that waits for its messages: it would trip over one that is gone.
        assert self.executor is not None
        gone = self.executor.create_task(self.destroy_subscription, self.target_subscription)
        wait_until(gone.done, "the end of a subscription")

    def listen_again(self) -> None:
        self.target_subscription = self._listen()

    @property
    def state(self) -> np.ndarray:
        done = min(1.0, (time.monotonic() - self._commanded) / self.duration)
        return self._from + done * (self._to - self._from)

    def _listen(self) -> Any:
        return self.create_subscription(PoseStamped, "target_pose", self._obey, 10)

    def _obey(self, message: PoseStamped) -> None:
        target = read_pose(message, ControllerFrame.FINGERTIPS)
        self.go_to(target)
        self.targets.append(target)

    def go_to(self, target: np.ndarray) -> None:
        self._from, self._to, self._commanded = self.state, target, time.monotonic()

    def _stamp(self) -> Time:
        if not self.stamped:
            return Time()
        return stamp_message(ros_now(self) + round(1e9 * self.clock_error))

    def _publish_image(self) -> None:
        if self.publish_images:
            message = image_message(picture(self.state))
            message.header.stamp = self._stamp()
            self.spoil_image(message)
            self.images.publish(message)
            compressed = CompressedImage(
                header=message.header, format="rgb8; png compressed rgb8", data=png(self.state)
            )
            self._compressed.publish(compressed)

    def _publish_joints(self) -> None:
        state = self.state
        pose = PoseStamped(pose=pose_message(state, ControllerFrame.FINGERTIPS))
        pose.header.stamp = self._stamp()
        pose.header.frame_id = self.pose_frame
        self._poses.publish(pose)
        if not self.publish_joints:
            return
        with self._joints_lock:
            # The joints of a robot at rest do not depend on how often it has told them.
            if not np.array_equal(state := self.state, self._solved):
                self._joints = self._inverse_kinematics.solve(state, self._joints, 20)
                self._solved = state
            positions = self._joints.tolist()
        names = [f"panda_joint{index}" for index in range(1, 8)]
        message = JointState(
            name=["panda_finger_joint1", *reversed(names), "a_turntable"],
            position=[0.04, *reversed(positions), 1.5],
        )
        message.header.stamp = self._stamp()
        self.spoil_joints(message)
        self._joint_states.publish(message)


class Client(Node):
    """Whoever uses the planner node, and listens to all it tells."""

    def __init__(self) -> None:
        super().__init__("client")
        self.plans: list[Plan] = []
        self.statuses: list[str] = []
        self.diagnostics: list[DiagnosticArray] = []
        latched = QoSProfile(depth=10, durability=DurabilityPolicy.TRANSIENT_LOCAL)
        self.create_subscription(Plan, "jepa_planner/plan", self.plans.append, 10)
        self.create_subscription(
            String, "jepa_planner/status", lambda told: self.statuses.append(told.data), latched
        )
        self.create_subscription(
            DiagnosticArray, "/diagnostics", self.diagnostics.append, QoSProfile(depth=10)
        )
        self.reach: ActionClient[Any, Any, Any] = ActionClient(
            self, ReachGoal, "jepa_planner/reach_goal"
        )
        self.capture = self.create_client(CaptureGoal, "jepa_planner/capture_goal")

    def send(self, *subgoals: SubGoal, time_limit: float = 60.0, mode: str = "") -> SentGoal:
        self.plans.clear()
        self.statuses.clear()
        goal = ReachGoal.Goal(
            subgoals=list(subgoals),
            time_limit=Duration(sec=int(time_limit), nanosec=int(time_limit % 1 * 1e9)),
            control_mode=mode,
        )
        feedback: list[ReachGoal.Feedback] = []
        future = self.reach.send_goal_async(goal, lambda told: feedback.append(told.feedback))
        return SentGoal(answer(future), feedback)

    def wait_for_status(self, fragment: str) -> str:
        wait_until(lambda: any(fragment in told for told in self.statuses), fragment)
        return next(told for told in self.statuses if fragment in told)


@dataclass
class SentGoal:
    handle: Any
    feedback: list[ReachGoal.Feedback]

    def result(self) -> tuple[int, ReachGoal.Result]:
        """Status of the action and result."""
        response = answer(self.handle.get_result_async())
        return response.status, response.result


def answer(future: Any) -> Any:
    wait_until(future.done, "an answer")
    return future.result()


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"waited {PATIENCE} s for: {what}"
        time.sleep(0.01)


@dataclass
class Neighbourhood:
    planner: PlannerNode
    robot: ScriptedRobot
    client: Client


def options(model: Path, *parameters: str) -> list[str]:
    """Command line of a planner node with the given parameters (``name:=value``)."""
    given = (
        f"world_model.checkpoint:={model}",
        "planner:=in_process",
        "motion.duration:=0.15",
        # Each target at once, so that a test sees the targets themselves; and no waiting.
        "setpoint_rate:=0.0",
        "ready_timeout:=1.0",
        # One thing after the other, unless a goal says otherwise.
        "control_mode:=blocking",
        *FAST,
    )
    return ["--ros-args", *(part for one in (*given, *parameters) for part in ("-p", one))]


@contextmanager
def neighbourhood(
    model: Path, *parameters: str, remapping: str = "unused:=unused"
) -> Iterator[Neighbourhood]:
    """The planner node with the given parameters, its robot and its client."""
    rclpy.init(args=[*options(model, *parameters), "-r", remapping])
    try:
        planner = PlannerNode()
        with spinning(MultiThreadedExecutor(4), planner), robot_and_client() as (robot, client):
            yield Neighbourhood(planner, robot, client)
            assert planner.stop()
    finally:
        rclpy.try_shutdown()


@contextmanager
def robot_and_client() -> Iterator[tuple[ScriptedRobot, Client]]:
    """The planner node's neighbours, once they have found it."""
    robot, client = ScriptedRobot(), Client()
    with spinning(SingleThreadedExecutor(), robot, client):
        assert client.reach.wait_for_server(PATIENCE)
        assert client.capture.wait_for_service(PATIENCE)
        wait_until(lambda: bool(client.statuses), "the planner's status")
        yield robot, client


@contextmanager
def spinning(executor: Executor, *nodes: Node) -> Iterator[None]:
    """Nodes that are spun in a thread of their own."""
    for node in nodes:
        executor.add_node(node)
    ended: Future[None] = Future()
    spin = executor.spin_until_future_complete
    thread = threading.Thread(target=spin, args=(ended,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        # First the thread, since it uses what the executor's end destroys.
        ended.set_result(None)
        thread.join(2.0)
        executor.shutdown(2.0)
        for node in nodes:
            node.destroy_node()
