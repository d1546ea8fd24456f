"""What the node tells while it works: goals, plans, feedback, outcomes and status."""

from __future__ import annotations

import math
from array import array
from typing import Any

import numpy as np
from geometry_msgs.msg import Point32
from jepa_planner_msgs.action import ReachGoal
from jepa_planner_msgs.msg import Goal as GoalMessage
from jepa_planner_msgs.msg import Latency as LatencyMessage
from jepa_planner_msgs.msg import Outcome as OutcomeMessage
from jepa_planner_msgs.msg import Plan as PlanMessage
from jepa_planner_msgs.msg import SubGoal as SubGoalMessage
from numpy.typing import NDArray
from rclpy.action.server import ServerGoalHandle
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile
from sensor_msgs.msg import CompressedImage
from std_msgs.msg import Header, String

from jepa_planner_ros.control import Ended, Report
from jepa_planner_ros.control.episode import Latency
from jepa_planner_ros.control.queued import advice
from jepa_planner_ros.geometry import GRIPPER
from jepa_planner_ros.photograph import photograph_file
from jepa_planner_ros.ros.clock import duration_message, ros_now, stamp_message
from jepa_planner_ros.ros.goals import ReachRequest, SubGoalRequest
from jepa_planner_ros.ros.poses import delta_message, pose_stamped_message, state_message
from jepa_planner_ros.ros.settings import EpisodeDefaults
from jepa_planner_ros.ros.wiring import Wiring
from jepa_planner_ros.search.text import search_to_json
from jepa_planner_ros.types import Plan

_LATCHED = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
_PNG_EFFORT = 1
"""Of 9: a goal waits for its photographs to be compressed."""

GoalId = NDArray[np.uint8]
"""The identifier (16,) of a goal in the action's protocol."""


def latency_message(latency: Latency) -> LatencyMessage:
    """Where the time of a step went."""
    return LatencyMessage(
        capture_age=latency.capture_age,
        encode=latency.encode,
        plan=latency.plan,
        network=latency.network,
    )


def goal_message(request: ReachRequest, goal_id: GoalId, header: Header) -> GoalMessage:
    """A goal as it is pursued."""
    return GoalMessage(
        header=header,
        goal_id=goal_id,
        subgoals=[_subgoal_message(subgoal) for subgoal in request.subgoals],
        time_limit=duration_message(request.time_limit),
        control_mode=request.control_mode,
    )


def _subgoal_message(subgoal: SubGoalRequest) -> SubGoalMessage:
    png = photograph_file(subgoal.image, subgoal.state, _PNG_EFFORT)
    return SubGoalMessage(
        compressed_image=CompressedImage(format="rgb8; png compressed rgb8", data=array("B", png)),
        energy_threshold=subgoal.energy_threshold,
        step_budget=subgoal.step_budget,
        close_gripper_from=_or_never(subgoal.close_gripper_from),
    )


def _or_never(closing: int | None) -> int:
    return -1 if closing is None else closing


def _candidates(plan: Plan) -> dict[str, Any]:
    """The message's fields about what the last round imagined."""
    if plan.imagined is None:
        return {}
    return {
        "candidates": [Point32(x=x, y=y, z=z) for x, y, z in plan.imagined.ends.tolist()],
        "candidate_energies": plan.imagined.energies.tolist(),
        "candidate_elites": plan.rounds[-1].elites,
    }


def plan_message(report: Report, search_name: str, goal_id: GoalId, base_frame: str) -> PlanMessage:
    """The plan of one step."""
    plan, seen, request = report.plan, report.observation, report.request
    return PlanMessage(
        header=Header(stamp=stamp_message(seen.stamp), frame_id=base_frame),
        goal_id=goal_id,
        subgoal=report.subgoal,
        step=report.step,
        state=state_message(request.scene.state),
        start_latents=[]
        if request.scene.latent is seen.latent
        else array("f", request.scene.latent.astype(np.float32).tobytes()),
        actions=[delta_message(action) for action in plan.actions],
        predicted_states=[state_message(state) for state in plan.states[1:]],
        energy=report.energy,
        predicted_energies=plan.energies.tolist(),
        round_best_energies=[one.best_energy for one in plan.rounds],
        round_elite_energies=[one.elite_energy for one in plan.rounds],
        **_candidates(plan),
        rollouts=plan.rollouts,
        seed=request.seed,
        search_step=request.step,
        previous=[delta_message(one) for one in request.previous]
        if request.previous is not None
        else [],
        deadline=request.deadline or 0.0,
        close_gripper_from=_or_never(request.close_gripper_from),
        search=search_name,
        search_settings=search_to_json(request.search),
        model_fingerprint=plan.model_fingerprint,
        latency=latency_message(report.latency),
    )


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


def outcome_message(ended: Ended, goal_id: GoalId, header: Header) -> OutcomeMessage:
    """How a goal ended, for those that listen to topics."""
    result = result_message(ended)
    told = {name: getattr(result, name) for name in result.get_fields_and_field_types()}
    return OutcomeMessage(header=header, goal_id=goal_id, **told)


class Reporter:
    """Tells what the node does and why.

    What happens to goals goes to the log, the diagnostics and ``~/status``, which is latched:
    whoever asks why a goal was rejected gets the answer afterwards. ``~/goal``, latched as well,
    ``~/plan`` and ``~/outcome`` are what a recording needs to make the plans anew.
    """

    def __init__(self, node: Node, wiring: Wiring) -> None:
        self._node = node
        self._wiring = wiring
        self._statuses = node.create_publisher(String, "~/status", _LATCHED)
        self._goals = node.create_publisher(GoalMessage, "~/goal", _LATCHED)
        self._plans = node.create_publisher(PlanMessage, "~/plan", QoSProfile(depth=10))
        self._outcomes = node.create_publisher(OutcomeMessage, "~/outcome", QoSProfile(depth=10))
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

    def publish_goal(self, request: ReachRequest, goal_id: GoalId) -> None:
        """Publish the goal that is going to be pursued."""
        self._goals.publish(goal_message(request, goal_id, self._header()))

    def publish_plan(self, report: Report, defaults: EpisodeDefaults, goal_id: GoalId) -> None:
        """Publish the plan of one step."""
        if self.planner_error is not None:
            self.say("The planner plans again.")
        self.last_plan, self.planner_error = report.latency.plan, None
        queue = defaults.control.queue
        if report.ratio is not None:
            self.pace = advice(report.ratio, queue.chunk, queue.threshold)
        message = plan_message(report, defaults.search_name, goal_id, self._wiring.base_frame)
        self._plans.publish(message)

    def publish_outcome(self, ended: Ended, goal_id: GoalId) -> None:
        """Publish how the goal ended."""
        self._outcomes.publish(outcome_message(ended, goal_id, self._header()))

    def feedback(self, report: Report) -> ReachGoal.Feedback:
        """Feedback on one step, commanded just now."""
        return feedback_message(report, self._wiring, ros_now(self._node))

    def _header(self) -> Header:
        stamp = stamp_message(ros_now(self._node))
        return Header(stamp=stamp, frame_id=self._wiring.base_frame)

    def _publish_status(self, text: str) -> None:
        self.status = text
        self._statuses.publish(String(data=text))


class GoalFollower:
    """The audience of one goal's episode: its client, and whoever listens to the node."""

    def __init__(
        self,
        handle: ServerGoalHandle[Any, Any, Any],
        defaults: EpisodeDefaults,
        reporter: Reporter,
    ) -> None:
        self._handle = handle
        self._defaults = defaults
        self._reporter = reporter
        self._feedback = ReachGoal.Feedback(energy=math.nan, predicted_energy=math.nan)

    def report(self, report: Report) -> None:
        """A step was planned and commanded."""
        self._reporter.publish_plan(report, self._defaults, self._handle.goal_id.uuid)
        self._feedback = self._reporter.feedback(report)
        self._handle.publish_feedback(self._feedback)

    def warn(self, text: str) -> None:
        """Something noteworthy happened that does not end the episode."""
        self._reporter.complain(text)

    def planner_failed(self, reason: str) -> None:
        """A plan could not be made, and the arm holds until it can."""
        self._reporter.planner_error = reason
        self._feedback.holding = reason
        self._handle.publish_feedback(self._feedback)
