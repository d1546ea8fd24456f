"""The demo's side of ROS: resets the simulation, sends goals to the planner, and keeps records."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from geometry_msgs.msg import PoseStamped
from jepa_planner_msgs.action import ReachGoal
from jepa_planner_msgs.msg import Plan as PlanMessage
from jepa_planner_msgs.msg import SubGoal
from jepa_planner_msgs.srv import ResetSimulation
from rclpy.client import Client
from rclpy.parameter import Parameter
from rclpy.parameter_client import AsyncParameterClient
from rclpy.qos import QoSProfile
from rclpy.task import Future
from sensor_msgs.msg import CameraInfo
from sensor_msgs.msg import Image as ImageMessage

from jepa_planner_ros.cli import CommandError
from jepa_planner_ros.geometry import GRIPPER, POSITION
from jepa_planner_ros.report import EpisodeRecord, Image, LatencyRecord, StepRecord
from jepa_planner_ros.ros.background import BackgroundNode
from jepa_planner_ros.ros.clock import duration_message, nanoseconds, ros_now, seconds
from jepa_planner_ros.ros.goal_client import GoalClient, GoalNotTakenError
from jepa_planner_ros.ros.images import decode_image
from jepa_planner_ros.ros.poses import ControllerFrame, read_pose
from jepa_planner_ros.ros.reading import actions_array, state_array, states_array
from jepa_planner_ros.types import Float64Array

SIMULATION, PLANNER = "franka_sim", "jepa_planner"
"""Names of the nodes that the client talks to."""

OUTCOMES = {
    getattr(ReachGoal.Result, name): name.lower()
    for name in ("REACHED", "BUDGET_SPENT", "TIMED_OUT", "CANCELLED", "ABORTED")
}

_POLL = 0.02  # s
_SENSOR_PATIENCE = 15.0  # s
_RESET_PATIENCE = 60.0  # s
_REST_TIME = 300_000_000  # ns
_REST_DISTANCE = 3e-4  # m
# Enough camera frames to find the one that a slow plan started from.
_FRAMES_KEPT = 300


Watch = Callable[[], None]
"""Is called again and again while the client waits; raises to end the wait."""


@dataclass(frozen=True, eq=False)
class Task:
    """A start and a goal, as the simulation was reset to them.

    Attributes:
        seed: what start and goal were drawn with, and what the planner is to search with.
        goal_message: the photograph of the goal, as it goes to the planner.
        start_state: state (7,) of the end effector now.
        goal_state: state (7,) in the photograph, for scoring only.
        start_image: what the camera sees now, RGB (height, width, 3).
    """

    seed: int
    goal_message: ImageMessage
    start_state: Float64Array
    goal_state: Float64Array
    start_image: Image


class EpisodeClient:
    """Talks to the simulation and to the planner; one at a time, from one thread.

    Args:
        watch: called while waiting, to notice processes that have died.
    """

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._background = BackgroundNode("jepa_planner_demo")
        self._node = self._background.node
        self._frames: deque[ImageMessage] = deque(maxlen=_FRAMES_KEPT)
        self._poses: deque[PoseStamped] = deque(maxlen=200)
        self._plans: deque[PlanMessage] = deque()
        self.camera_info: CameraInfo | None = None
        newest, all_of_them = QoSProfile(depth=1), QoSProfile(depth=100)
        for kind, topic, receive, qos in (
            (ImageMessage, "image_raw", self._receive_frame, newest),
            (PoseStamped, "current_pose", self._receive_pose, newest),
            (CameraInfo, "camera_info", self._receive_camera_info, newest),
            (PlanMessage, f"{PLANNER}/plan", self._receive_plan, all_of_them),
        ):
            self._node.create_subscription(kind, topic, receive, qos)
        self._reset: Client[Any, Any] = self._node.create_client(
            ResetSimulation, f"{SIMULATION}/reset"
        )
        self._goals = GoalClient(self._node, PLANNER, self._wait_for)
        self._parameters = AsyncParameterClient(self._node, PLANNER)
        self._background.start()

    def __enter__(self) -> EpisodeClient:
        return self

    def __exit__(self, *_: object) -> None:
        self._background.close()

    def simulation_ready(self) -> bool:
        """Whether the simulation can be reset and its camera and arm are heard."""
        heard = self._frames and self._poses and self.camera_info is not None
        return bool(self._reset.service_is_ready() and heard)

    def planner_ready(self) -> bool:
        """Whether the planner takes goals."""
        return self._goals.ready and bool(self._parameters.services_are_ready())

    def reset(self, seed: int) -> Task:
        """Bring the simulation to the start of an episode and photograph its goal.

        Raises:
            CommandError: the simulation refuses or does not answer.
        """
        response = self._result_of(
            self._reset.call_async(ResetSimulation.Request(seed=seed)),
            _RESET_PATIENCE,
            "the simulation did not answer the reset",
        )
        if not response.success:
            raise CommandError(f"the simulation cannot start seed {seed}: {response.message}")
        return Task(
            seed,
            response.goal_image,
            state_array(response.start_state),
            state_array(response.goal_state),
            self._frame_after(ros_now(self._node)),
        )

    def reach(
        self,
        task: Task,
        step_budget: int,
        time_limit_s: float,
        on_step: Callable[[StepRecord], None],
    ) -> EpisodeRecord:
        """Have the planner bring the arm to the photograph, and record what happens.

        Args:
            task: from `reset`.
            step_budget: most steps.
            time_limit_s: most time, seconds.
            on_step: called with each step as soon as it is planned.

        Raises:
            CommandError: the planner rejects the goal, or something died.
        """
        self._set_planner_seed(task.seed)
        self._plans.clear()
        goal = ReachGoal.Goal(
            subgoals=[SubGoal(image=task.goal_message, step_budget=step_budget)],
            time_limit=duration_message(time_limit_s),
        )
        try:
            handle = self._goals.send(goal)
        except GoalNotTakenError as error:
            raise CommandError(str(error)) from error
        steps: list[StepRecord] = []

        def collect() -> None:
            while self._plans:
                steps.append(self._step(self._plans.popleft()))
                on_step(steps[-1])

        future = handle.get_result_async()
        while not future.done():
            self._watch()
            collect()
            time.sleep(_POLL)
        result = future.result().result
        self._wait_for(lambda: len(steps) + len(self._plans) >= result.steps, 1.0)
        collect()
        final_state, final_image = self._at_rest()
        final_state[GRIPPER] = steps[-1].state[GRIPPER] if steps else task.start_state[GRIPPER]
        return EpisodeRecord(
            name=f"seed {task.seed}",
            start_image=task.start_image,
            goal_image=decode_image(task.goal_message),
            final_image=final_image,
            start_state=task.start_state,
            final_state=final_state,
            goal_state=task.goal_state,
            steps=tuple(steps),
            outcome=OUTCOMES.get(result.outcome, f"outcome {result.outcome}"),
            reason=result.reason,
            final_energy=result.final_energy,
            elapsed_s=seconds(result.elapsed),
            energy_threshold=self._energy_threshold(),
        )

    def _set_planner_seed(self, seed: int) -> None:
        """Make the search's noise the episode's own, so that it can be repeated alone."""
        response = self._result_of(
            self._parameters.set_parameters([Parameter("seed", value=seed)]),
            _RESET_PATIENCE,
            "the planner did not answer the change of its seed",
        )
        (result,) = response.results
        if not result.successful:
            raise CommandError(f"the planner does not take the seed {seed}: {result.reason}")

    def _energy_threshold(self) -> float:
        response = self._result_of(
            self._parameters.get_parameters(["energy_threshold"]),
            _RESET_PATIENCE,
            "the planner did not tell its energy_threshold",
        )
        return float(response.values[0].double_value)

    def _receive_frame(self, message: ImageMessage) -> None:
        self._frames.append(message)

    def _receive_pose(self, message: PoseStamped) -> None:
        self._poses.append(message)

    def _receive_plan(self, message: PlanMessage) -> None:
        self._plans.append(message)

    def _receive_camera_info(self, message: CameraInfo) -> None:
        self.camera_info = message

    def _step(self, plan: PlanMessage) -> StepRecord:
        stamp = nanoseconds(plan.header.stamp)
        frame = min(self._frames.copy(), key=lambda f: abs(nanoseconds(f.header.stamp) - stamp))
        return StepRecord(
            frame=decode_image(frame),
            state=state_array(plan.state),
            actions=actions_array(plan.actions),
            predicted_states=states_array(plan.predicted_states),
            energy=plan.energy,
            predicted_energies=np.array(plan.predicted_energies),
            latency=LatencyRecord(
                plan.latency.capture_age,
                plan.latency.encode,
                plan.latency.plan,
                plan.latency.network,
            ),
            rollouts=plan.rollouts,
            model_fingerprint=plan.model_fingerprint,
        )

    def _at_rest(self) -> tuple[Float64Array, Image]:
        """The state (7,) without gripper and the frame once the arm rests."""

        def rests() -> bool:
            poses = self._poses.copy()
            newest = nanoseconds(poses[-1].header.stamp)
            if newest - nanoseconds(poses[0].header.stamp) < _REST_TIME:
                return False
            recent = [p for p in poses if newest - nanoseconds(p.header.stamp) < _REST_TIME]
            positions = np.stack([_pose_state(pose)[POSITION] for pose in recent])
            return bool(np.ptp(positions, axis=0).max() < _REST_DISTANCE)

        self._poses.clear()
        self._wait_for(lambda: bool(self._poses) and rests(), _SENSOR_PATIENCE)
        if not self._poses:
            raise CommandError(f"no pose of the arm came for {_SENSOR_PATIENCE:g} s.")
        pose = self._poses[-1]
        return _pose_state(pose), self._frame_after(nanoseconds(pose.header.stamp))

    def _frame_after(self, stamp: int) -> Image:
        def fresh() -> bool:
            return bool(self._frames) and nanoseconds(self._frames[-1].header.stamp) > stamp

        if not self._wait_for(fresh, _SENSOR_PATIENCE):
            raise CommandError(f"no camera frame came for {_SENSOR_PATIENCE:g} s.")
        return decode_image(self._frames[-1])

    def _result_of(self, future: Future, patience_s: float, complaint: str) -> Any:
        if not self._wait_for(future.done, patience_s):
            raise CommandError(f"{complaint} within {patience_s:g} s.")
        return future.result()

    def _wait_for(self, condition: Callable[[], bool], patience_s: float) -> bool:
        """Whether the condition came true in time."""
        deadline = time.monotonic() + patience_s
        while not condition():
            self._watch()
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL)
        return True


def _pose_state(message: PoseStamped) -> Float64Array:
    return read_pose(message, ControllerFrame.UPRIGHT)
