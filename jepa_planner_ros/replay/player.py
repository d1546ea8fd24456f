"""Playing a recording to the real planner node, by way of ROS and with the bag's clock.

The robot of a recording waits for the node: where the recorded node had made its next plan, and
this one has not yet, the arm stands still and the camera goes on showing it, until the plan is
there. So a slow computer, a large model or a debugger change nothing about what is planned from.
Time goes on meanwhile, and all later stamps are shifted by it.
"""

from __future__ import annotations

import struct
import time
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush, merge
from pathlib import Path
from typing import Any

import rclpy
from geometry_msgs.msg import PoseStamped
from jepa_planner_msgs.action import ReachGoal
from jepa_planner_msgs.msg import Plan as PlanMessage
from jepa_planner_msgs.msg import SubGoal
from rclpy.executors import SingleThreadedExecutor
from rclpy.qos import QoSProfile
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import CompressedImage, Image, JointState

from jepa_planner_ros.replay.bag import Bag, RawMessage
from jepa_planner_ros.replay.recording import (
    COMPRESSED_IMAGE_TYPE,
    GOAL_TYPE,
    JOINTS_TYPE,
    OUTCOME_TYPE,
    PLAN_TYPE,
    RAW_IMAGE_TYPE,
    raw_stamp,
)
from jepa_planner_ros.ros.clock import duration_message, stamp_message
from jepa_planner_ros.ros.context import own_context
from jepa_planner_ros.ros.goal_client import GoalClient, GoalNotTakenError

PLANNER = "jepa_planner"
"""Name of the node that is played to."""

_CLOCK_PERIOD = 0.01  # s
_REPEAT_PERIOD = 0.033
"""How often the sensors repeat what they show while the arm waits, s."""
_PATIENCE = 600.0
"""Longest wait for a plan, s; large models on small machines take minutes."""
_DISORDER = 500
"""How many messages may have been recorded before one that was stamped earlier."""
_FOR_THE_CLOCK = 0.5
"""Until the node has heard the clock, s."""
_FOR_THE_END = 5.0
"""Until the node has judged what the last step led to, s."""
_UNLIMITED = 86_400.0
"""Time limit of a goal, s: the node may take longer than the recorded one."""

_TYPES: dict[str, Any] = {
    RAW_IMAGE_TYPE: Image,
    COMPRESSED_IMAGE_TYPE: CompressedImage,
    JOINTS_TYPE: JointState,
}
_NAMES = {
    RAW_IMAGE_TYPE: "image_raw",
    COMPRESSED_IMAGE_TYPE: "image_raw/compressed",
    JOINTS_TYPE: "joint_states",
}


class PlayerError(RuntimeError):
    """The bag cannot be played to the node; the message says why."""


@dataclass
class PlayedGoal:
    """A goal of the bag as the node pursued it.

    Attributes:
        goal_id: in the bag.
        plans: of the node, in order.
        reason: the action's sentence about how it ended; empty while it goes on.
    """

    goal_id: bytes
    plans: list[PlanMessage] = field(default_factory=list)
    reason: str = ""


class Player:
    """Plays a bag to the planner node. Use it in a ``with`` block, from one thread.

    Args:
        path: the bag.
        image_topic: the camera's topic in the bag.
        rate: seconds of the bag per second.
        watch: called while waiting, to notice that the node has died.
    """

    def __init__(
        self, path: Path, image_topic: str, rate: float, watch: Callable[[], None]
    ) -> None:
        self._watch = watch
        self._rate = rate
        self._bag = Bag(path)
        self._image_topic = image_topic
        self._joint_topics = [t for t, kind in self._bag.topics.items() if kind == JOINTS_TYPE]
        self._context = own_context()
        self._node = rclpy.create_node("jepa_replay", context=self._context)
        self._clock = self._node.create_publisher(Clock, "/clock", QoSProfile(depth=10))
        self._sensors = {
            kind: self._node.create_publisher(_TYPES[kind], _NAMES[kind], QoSProfile(depth=10))
            for kind in (self._bag.topics[image_topic], JOINTS_TYPE)
        }
        self._node.create_subscription(
            PlanMessage, f"{PLANNER}/plan", self._receive_plan, QoSProfile(depth=100)
        )
        # The node wants a controller that listens; what moves is the arm in the bag.
        self._node.create_subscription(PoseStamped, "target_pose", lambda _: None, 10)
        self._goals = GoalClient(self._node, PLANNER, self._hold)
        self._executor = SingleThreadedExecutor(context=self._context)
        self._executor.add_node(self._node)
        self._newest: dict[str, RawMessage] = {}
        self._held = 0
        self._position = 0
        self._handle: Any = None
        self._plans_passed: dict[bytes, int] = {}
        self.goals: list[PlayedGoal] = []
        """What has been played, goal by goal."""
        self.original_stamps: dict[int, int] = {}
        """Of frames: the stamp in the bag by the stamp that was published, ns."""

    def __enter__(self) -> Player:
        return self

    def __exit__(self, *_: object) -> None:
        self._bag.close()
        self._executor.shutdown(0.3)
        rclpy.shutdown(context=self._context)

    def node_ready(self) -> bool:
        """Whether the node takes goals."""
        self._executor.spin_once(timeout_sec=0.0)
        return self._goals.ready

    def play(self) -> Iterator[int]:
        """Play the bag, yielding how many recorded plans have been passed so far.

        Raises:
            PlayerError: the node rejects a goal, or never answers.
        """
        passed = 0
        for message in self._events():
            self._advance_to(raw_stamp(message))
            if message.type == GOAL_TYPE:
                self._send_goal(self._bag.read(message))
            elif message.type == PLAN_TYPE:
                plan = self._bag.read(message)
                self._await_plan(bytes(plan.goal_id))
                passed += 1
                yield passed
            elif message.type == OUTCOME_TYPE:
                self._end_goal()
            else:
                self._publish(message)
        self._end_goal()

    def _events(self) -> Iterator[RawMessage]:
        """What happens, in the order of the stamps; a plan comes right after its frame.

        A busy recorder may have heard of a plan only when the arm had moved already.
        """
        kinds = (GOAL_TYPE, PLAN_TYPE, OUTCOME_TYPE)
        topics = [topic for topic, kind in self._bag.topics.items() if kind in kinds]
        told = sorted(self._bag.messages(topics), key=raw_stamp)
        seen = self._bag.messages([self._image_topic, *self._joint_topics])
        return merge(_in_order(seen), told, key=raw_stamp)

    # --- Time ------------------------------------------------------------------------------------

    def _advance_to(self, position: int) -> None:
        """Let the bag's time pass until a moment in it, ns."""
        if not self._position:
            self._position = position
            # The node must hear the clock before the first message.
            self._hold(lambda: False, _FOR_THE_CLOCK)
        begun, first = time.monotonic(), self._position
        while self._position < position:
            self._spin(_CLOCK_PERIOD / 2)
            passed = round(1e9 * self._rate * (time.monotonic() - begun))
            self._position = min(position, first + passed)
            self._publish_clock()

    def _hold_until(self, condition: Callable[[], bool], complaint: str) -> None:
        """Let time pass while the arm stands still, until something has happened."""
        if not self._hold(condition, _PATIENCE):
            raise PlayerError(f"{complaint} within {_PATIENCE:g} s. It says: {self._goals.status}")

    def _hold(self, condition: Callable[[], bool], patience: float) -> bool:
        """Let time pass while the arm stands still; returns whether the condition came true."""
        begun, first = time.monotonic(), self._held
        repeated = begun
        while not condition():
            self._spin(_CLOCK_PERIOD / 2)
            now = time.monotonic()
            if now - begun > patience:
                return False
            self._held = first + round(1e9 * self._rate * (now - begun))
            self._publish_clock()
            if now - repeated >= _REPEAT_PERIOD:
                repeated = now
                for message in self._newest.values():
                    self._publish(message)
        return True

    def _spin(self, seconds: float) -> None:
        self._watch()
        self._executor.spin_once(timeout_sec=seconds)

    def _publish_clock(self) -> None:
        self._clock.publish(Clock(clock=stamp_message(self._position + self._held)))

    # --- What the robot shows --------------------------------------------------------------------

    def _publish(self, message: RawMessage) -> None:
        self._newest[message.type] = message
        stamp = raw_stamp(message) + self._held
        if message.type != JOINTS_TYPE:
            self.original_stamps[stamp] = stamp - self._held
        self._sensors[message.type].publish(_restamped(message.data, stamp))

    # --- What the node does ----------------------------------------------------------------------

    def _send_goal(self, goal: Any) -> None:
        self._end_goal()
        wanted = ReachGoal.Goal(
            subgoals=[_subgoal(one) for one in goal.subgoals],
            time_limit=duration_message(_UNLIMITED),
            control_mode=str(goal.control_mode),
        )
        try:
            self._handle = self._goals.send(wanted)
        except GoalNotTakenError as error:
            raise PlayerError(str(error)) from error
        played = PlayedGoal(bytes(goal.goal_id))
        self.goals.append(played)

        def end(result: Any) -> None:
            played.reason = result.result().result.reason

        self._handle.get_result_async().add_done_callback(end)

    def _await_plan(self, goal_id: bytes) -> None:
        goal = next((one for one in reversed(self.goals) if one.goal_id == goal_id), None)
        if goal is None:
            return
        wanted = self._plans_passed.get(goal_id, 0) + 1
        self._plans_passed[goal_id] = wanted
        self._hold_until(
            lambda: len(goal.plans) >= wanted or bool(goal.reason),
            "The planner node made no plan",
        )

    def _end_goal(self) -> None:
        if self._handle is None:
            return
        goal = self.goals[-1]
        if not self._hold(lambda: bool(goal.reason), _FOR_THE_END):
            # It wants more steps than were recorded.
            self._handle.cancel_goal_async()
            self._hold_until(lambda: bool(goal.reason), "The planner node did not end a goal")
        self._handle = None

    def _receive_plan(self, message: PlanMessage) -> None:
        if self.goals:
            self.goals[-1].plans.append(message)


def _in_order(messages: Iterator[RawMessage]) -> Iterator[RawMessage]:
    """Messages in the order of their stamps, of which they come nearly in order."""
    waiting: list[tuple[int, int, RawMessage]] = []
    for count, message in enumerate(messages):
        heappush(waiting, (raw_stamp(message), count, message))
        if len(waiting) > _DISORDER:
            yield heappop(waiting)[-1]
    while waiting:
        yield heappop(waiting)[-1]


def _subgoal(recorded: Any) -> SubGoal:
    """A sub-goal as rclpy knows it, from one read from the bag."""
    picture = recorded.compressed_image
    return SubGoal(
        compressed_image=CompressedImage(
            format=str(picture.format), data=array("B", bytes(picture.data))
        ),
        energy_threshold=float(recorded.energy_threshold),
        step_budget=int(recorded.step_budget),
        close_gripper_from=int(recorded.close_gripper_from),
    )


def _restamped(data: bytes, stamp: int) -> bytes:
    """A serialised message that begins with a header, with another stamp, ns."""
    order = "<" if data[1] & 1 else ">"
    return data[:4] + struct.pack(f"{order}iI", *divmod(stamp, 1_000_000_000)) + data[12:]
