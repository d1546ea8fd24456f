"""The watcher's side of ROS: subscribes to what a planner node and its neighbours tell.

It publishes nothing and calls nobody. Nor does it subscribe to the topics that controllers obey:
the planner node takes a subscriber there for a controller, and must go on refusing to move an arm
that has none. What is commanded is told by the action's feedback.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any

import numpy as np
from action_msgs.msg import GoalStatusArray
from diagnostic_msgs.msg import DiagnosticArray
from geometry_msgs.msg import PoseStamped
from jepa_planner_msgs.action import ReachGoal
from jepa_planner_msgs.msg import Goal, Outcome, Plan
from numpy.typing import NDArray
from rcl_interfaces.msg import Log
from rclpy.qos import DurabilityPolicy, QoSProfile, qos_profile_sensor_data
from rclpy.serialization import deserialize_message
from sensor_msgs.msg import CameraInfo, CompressedImage, Image, JointState
from std_msgs.msg import String

from jepa_planner_ros.report.records import Camera
from jepa_planner_ros.ros.background import BackgroundNode
from jepa_planner_ros.ros.images import decode_compressed_image, decode_image
from jepa_planner_ros.types import Float64Array
from jepa_planner_ros.watch import hearing
from jepa_planner_ros.watch.overlay import View
from jepa_planner_ros.watch.pictures import Source
from jepa_planner_ros.watch.records import Topic, Watched
from jepa_planner_ros.watch.snapshot import Pictures, snapshot

_LOOK_AROUND = 0.5
"""How often the node and the robot's topics are looked for, s."""
_LATCHED = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
_RELIABLE = QoSProfile(depth=20)

Hear = Callable[[Watched, Any, float], Watched]


class Listener:
    """Subscribes, and keeps what was heard last. Use it in a ``with`` block.

    One thread hears, and puts a new value in the place of the old one; any other may read.

    Args:
        namespace: of the planner node and its robot, such as ``/left``; empty for none.
        planner: name of the planner node.
        domain: ROS domain; None for the environment's.
        image_topic: of the camera; None for ``image_raw/compressed`` or else ``image_raw``.
        camera_pose: of the camera's optical frame in the base frame, x, y, z (m) and quaternion
            x, y, z, w: (7,). None draws no plans into the picture.
        joint_prefix: how the arm's joints are called up to their number; None looks for the usual
            ones.
    """

    def __init__(
        self,
        namespace: str = "",
        planner: str = "jepa_planner",
        domain: int | None = None,
        image_topic: str | None = None,
        camera_pose: Float64Array | None = None,
        joint_prefix: str | None = None,
    ) -> None:
        self._background = BackgroundNode(
            "jepa_watch",
            domain=domain,
            namespace=namespace,
            enable_rosout=False,
            start_parameter_services=False,
        )
        self._node = self._background.node
        self._planner = planner
        self._camera_pose, self._joint_prefix = camera_pose, joint_prefix
        self.watched = Watched(self._node.resolve_topic_name(planner), self._background.domain)
        self._view: View | None = None
        self._numbers = count(1)
        self._sources: dict[str, Source] = {}
        self._cameras = {image_topic} if image_topic else {"image_raw/compressed", "image_raw"}
        self._subscribe()
        self._timer = self._node.create_timer(_LOOK_AROUND, self._look_around)

    def __enter__(self) -> Listener:
        self._background.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._background.close()

    @property
    def sources(self) -> Mapping[str, Source]:
        """The pictures by name: ``camera``, ``drawing``, ``goal-0``, ``goal-1``, ..."""
        return self._sources

    def snapshot(self) -> Mapping[str, Any]:
        """What the page is told now."""
        sources, watched = self._sources, self.watched
        subgoals = () if watched.goal is None else watched.goal.subgoals
        goals = (sources.get(f"goal-{index}") for index in range(len(subgoals)))
        pictures = Pictures(
            camera=_number(sources.get("camera")),
            goals=tuple(goal.number for goal in goals if goal is not None),
            drawing=_number(sources.get("drawing")),
        )
        return snapshot(watched, pictures, self._view, time.monotonic())

    def _subscribe(self) -> None:
        planner = self._planner
        feedback = ReachGoal.Impl.FeedbackMessage
        for kind, topic, hear, qos in (
            (Plan, f"{planner}/plan", hearing.heard_plan, _RELIABLE),
            (Outcome, f"{planner}/outcome", hearing.heard_outcome, _RELIABLE),
            (String, f"{planner}/status", hearing.heard_status, _LATCHED),
            (feedback, f"{planner}/reach_goal/_action/feedback", hearing.heard_feedback, _RELIABLE),
            (
                GoalStatusArray,
                f"{planner}/reach_goal/_action/status",
                hearing.heard_action_status,
                _LATCHED,
            ),
            (PoseStamped, f"{planner}/would_command", hearing.heard_would_command, _RELIABLE),
            (DiagnosticArray, "/diagnostics", hearing.heard_diagnostics, _RELIABLE),
            (Log, "/rosout", hearing.heard_log, _RELIABLE),
        ):
            self._listen(kind, topic, hear, qos)
        self._node.create_subscription(Goal, f"{planner}/goal", self._hear_goal, _LATCHED)
        self._node.create_subscription(
            CameraInfo, "camera_info", self._hear_camera_info, qos_profile_sensor_data
        )
        self._node.create_subscription(Image, "jepa_view/image", self._hear_drawing, 1, raw=True)
        self.watched = replace(
            self.watched, drawing=Topic(self._node.resolve_topic_name("jepa_view/image"))
        )

    def _listen(self, kind: type, topic: str, hear: Hear, qos: QoSProfile) -> None:
        def receive(message: Any) -> None:
            self.watched = hear(self.watched, message, time.monotonic())

        self._node.create_subscription(kind, topic, receive, qos)

    def _look_around(self) -> None:
        present = self._node.count_publishers(f"{self.watched.node}/plan") > 0
        self.watched = hearing.looked(self.watched, present, time.monotonic())
        if not self.watched.camera.name:
            self._find_camera()
        if not self.watched.arm.name:
            self._find_arm()

    def _find_camera(self) -> None:
        """Take the camera's compressed pictures where there are any, which are less to carry."""
        for topic in sorted(self._cameras, reverse=True):
            for publisher in self._node.get_publishers_info_by_topic(
                self._node.resolve_topic_name(topic)
            ):
                for kind in (CompressedImage, Image):
                    if publisher.topic_type == f"sensor_msgs/msg/{kind.__name__}":
                        self._watch_camera(kind, topic)
                        return

    def _watch_camera(self, kind: type, topic: str) -> None:
        # As they are serialised: most are never shown, and need not be taken apart.
        subscription = self._node.create_subscription(
            kind,
            topic,
            partial(self._hear_frame, kind),
            qos_profile_sensor_data,
            raw=True,
        )
        self.watched = replace(self.watched, camera=Topic(subscription.topic_name))

    def _find_arm(self) -> None:
        hear_joints = partial(hearing.heard_joints, joint_prefix=self._joint_prefix)
        for kind, topic, hear in (
            (JointState, "joint_states", hear_joints),
            (PoseStamped, "current_pose", hearing.heard_pose),
        ):
            name = self._node.resolve_topic_name(topic)
            if self._node.count_publishers(name) > 0:
                self.watched = replace(self.watched, arm=Topic(name))
                self._listen(kind, topic, hear, qos_profile_sensor_data)
                return

    def _hear_goal(self, message: Goal) -> None:
        for index, subgoal in enumerate(message.subgoals):
            self._keep(f"goal-{index}", partial(decode_compressed_image, subgoal.compressed_image))
        self.watched = hearing.heard_goal(self.watched, message, time.monotonic())

    def _hear_frame(self, kind: type, serialized: bytes) -> None:
        self._keep("camera", partial(_decode, kind, serialized))
        self.watched = hearing.heard_frame(self.watched, time.monotonic())

    def _hear_drawing(self, serialized: bytes) -> None:
        self._keep("drawing", partial(_decode, Image, serialized))
        self.watched = hearing.heard_drawing(self.watched, time.monotonic())

    def _hear_camera_info(self, info: CameraInfo) -> None:
        if self._view is None and self._camera_pose is not None and info.width and info.height:
            intrinsics = np.array(info.k).reshape(3, 3)
            camera = Camera.placed(intrinsics, self._camera_pose)
            self._view = View(camera, info.width, info.height)

    def _keep(self, name: str, decode: Callable[[], NDArray[np.uint8]]) -> None:
        self._sources = self._sources | {name: Source(next(self._numbers), decode)}


def _decode(kind: type, serialized: bytes) -> NDArray[np.uint8]:
    """RGB pixels (height, width, 3) of a picture as it came. Raises ValueError."""
    message: Any = deserialize_message(serialized, kind)
    return decode_image(message) if kind is Image else decode_compressed_image(message)


def _number(source: Source | None) -> int | None:
    return None if source is None else source.number
