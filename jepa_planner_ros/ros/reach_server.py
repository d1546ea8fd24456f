"""The action ``~/reach_goal``: one goal at a time, from its photographs to its result."""

from __future__ import annotations

import math
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from threading import Lock
from typing import Any, TypeAlias

from jepa_planner_msgs.action import ReachGoal
from rclpy.action.server import (
    ActionServer,
    CancelResponse,
    GoalResponse,
    ServerGoalHandle,
)
from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.node import Node

from jepa_planner_ros.control import (
    CONTROL_MODES,
    Ended,
    EpisodeRunner,
    Goal,
    Outcome,
    RobotError,
    SubGoal,
    Worker,
    begin,
)
from jepa_planner_ros.control.runner import TICK_PERIOD
from jepa_planner_ros.ros.declaration import ParameterError
from jepa_planner_ros.ros.goal_slot import GoalSlot
from jepa_planner_ros.ros.goals import GoalError, ReachRequest, read_goal, require_shape_of
from jepa_planner_ros.ros.parameters import current_values
from jepa_planner_ros.ros.reporting import GoalFollower, Reporter, result_message
from jepa_planner_ros.ros.robot import RosRobot
from jepa_planner_ros.ros.settings import read_episode_defaults
from jepa_planner_ros.types import Encoder, PlannerError, PlannerUnavailableError

_RESULT_KEPT = 900
"""How long a result can be asked for after the end, s."""

# In quotes, since Jazzy's class takes no parameters when it runs.
Handle: TypeAlias = "ServerGoalHandle[Any, Any, Any]"


class _EndedEarlyError(Exception):
    """The goal ended before its episode began."""

    def __init__(self, outcome: Outcome, reason: str) -> None:
        super().__init__(reason)
        self.outcome = outcome
        self.reason = reason


class ReachServer:
    """Accepts goals, runs their episodes, and reports.

    An episode occupies one thread of the executor, where it waits for events; whatever computes
    runs in the worker. A coroutine would not do: rclpy's executors poll a waiting one without
    pause.

    Args:
        node: offers the action.
        robot: is moved.
        runner: runs the episodes.
        encoder: encodes the photographs, in the worker.
        worker: encodes.
        reporter: tells what happens.
    """

    def __init__(
        self,
        node: Node,
        robot: RosRobot,
        runner: EpisodeRunner,
        encoder: Encoder,
        worker: Worker,
        reporter: Reporter,
    ) -> None:
        self._node = node
        self._robot = robot
        self._runner = runner
        self._encoder = encoder
        self._worker = worker
        self._reporter = reporter
        self._considering = Lock()
        self._slot = GoalSlot()
        self._stop_reason: str | None = None
        self._server = ActionServer(
            node,
            ReachGoal,
            "~/reach_goal",
            execute_callback=self._execute,
            goal_callback=self._consider,
            cancel_callback=lambda _handle: CancelResponse.ACCEPT,
            callback_group=ReentrantCallbackGroup(),
            result_timeout=_RESULT_KEPT,
        )

    @property
    def busy(self) -> bool:
        """Whether a goal is being pursued."""
        return self._slot.busy

    def stop(self, reason: str, timeout: float) -> bool:
        """Accept no more goals and end the present one.

        Returns whether that took less than `timeout` s.
        """
        self._stop_reason = reason
        return self._slot.wait(timeout)

    def _consider(self, goal: ReachGoal.Goal) -> GoalResponse:
        # Photographs take long to decode; goals at the same time must not take every thread.
        if not self._considering.acquire(blocking=False):
            self._reporter.complain(
                "Goal rejected. Another goal is being considered: await its answer first."
            )
            return GoalResponse.REJECT
        try:
            return self._considered(goal)
        finally:
            self._considering.release()

    def _considered(self, goal: ReachGoal.Goal) -> GoalResponse:
        try:
            self._require_free()
            request = read_goal(
                goal, read_episode_defaults(current_values(self._node), self._robot.model)
            )
            self._require_shape(request)
            self._require_free()
            self._slot.accept(goal, request)
            self._robot.switch.admit()
        except (GoalError, ParameterError) as refusal:
            self._reporter.complain(f"Goal rejected. {refusal}")
            return GoalResponse.REJECT
        except Exception as error:
            # Whatever leaves this callback ends the executor, and the node with it.
            self._node.get_logger().error(traceback.format_exc())
            self._reporter.complain(f"Goal rejected. {_failure(error)}")
            return GoalResponse.REJECT
        return GoalResponse.ACCEPT

    def _require_free(self) -> None:
        if self._stop_reason is not None:
            raise GoalError(self._stop_reason)
        if refusal := self._robot.switch.disabled:
            raise GoalError(refusal)
        self._slot.require_free()

    def _require_shape(self, request: ReachRequest) -> None:
        """Raise `GoalError` where the camera's newest frame, if any, is of another shape."""
        try:
            frame = self._robot.frame()
        except RobotError:
            return
        require_shape_of(frame.image, request)

    def _execute(self, handle: Handle) -> ReachGoal.Result:
        request = self._slot.take_up(handle.request)
        if request is None:
            reason = "The goal was given up, since it was not taken up in time: send it again."
            ended = Ended(Outcome.ABORTED, reason, math.nan, 0, 0.0)
            self._conclude(handle, ended)
            return result_message(ended)
        try:
            ended = self._outcome(handle, request)
            self._conclude(handle, ended)
        finally:
            self._slot.release()
        return result_message(ended)

    def _outcome(self, handle: Handle, request: ReachRequest) -> Ended:
        started = time.monotonic()
        try:
            return self._pursue(handle, request, started)
        except _EndedEarlyError as early:
            outcome, reason = early.outcome, early.reason
        except Exception as error:
            # rclpy would answer an empty result; the client is owed the reason.
            self._node.get_logger().error(traceback.format_exc())
            outcome = Outcome.ABORTED
            reason = _failure(error)
        return Ended(outcome, reason, math.nan, 0, time.monotonic() - started)

    def _pursue(self, handle: Handle, request: ReachRequest, started: float) -> Ended:
        count = len(request.subgoals)
        self._reporter.say(f"Pursuing a goal of {count} photograph{'s' if count > 1 else ''}.")
        defaults = request.defaults
        follower = GoalFollower(handle, defaults, self._reporter)
        goal = Goal(
            subgoals=self._encoded(handle, request, started, follower),
            time_limit=request.time_limit,
            model_fingerprint=self._encoder.fingerprint,
            search=defaults.search,
            plan_deadline=defaults.plan_deadline,
            seed=defaults.seed,
        )
        self._await_robot(handle, request, started)
        try:
            # When the goal was accepted the camera may not have been heard yet.
            self._require_shape(request)
        except GoalError as refusal:
            raise _EndedEarlyError(Outcome.ABORTED, str(refusal)) from refusal
        episode = begin(goal, defaults.control, time.monotonic())
        return self._runner.run(
            # The goal's time counts from its acceptance.
            replace(episode, started=started),
            CONTROL_MODES[request.control_mode],
            follower,
            lambda: self._cancel_reason(handle),
        )

    def _encoded(
        self, handle: Handle, request: ReachRequest, started: float, follower: GoalFollower
    ) -> tuple[SubGoal, ...]:
        """The goal, encoded; asks again while the planner that encodes it is away."""
        away: PlannerUnavailableError | None = None

        def wait_until(over: Callable[[], bool]) -> None:
            while not over():
                if time.monotonic() - started > request.time_limit:
                    remedy = "raise time_limit, or give fewer or smaller photographs."
                    raise _EndedEarlyError(
                        Outcome.TIMED_OUT,
                        f"The time limit of {request.time_limit:g} s passed before the photographs "
                        f"were encoded: {remedy if away is None else away}",
                    )
                self._pause(handle)

        publishing = self._worker.submit(
            lambda: self._reporter.publish_goal(request, handle.goal_id.uuid)
        )
        while True:
            encoding = self._worker.submit(lambda: self._encode(request))
            wait_until(encoding.done)
            publishing.result()
            try:
                return encoding.result()
            except PlannerUnavailableError as error:
                if away is None:
                    follower.warn(f"Waiting to begin. The planner is away: {error}")
                away = error
                follower.planner_failed(f"The planner is away: {error}")
                wait_until(partial(_passed, time.monotonic() + error.retry_after))
            except PlannerError as error:
                reason = f"The photographs were not encoded: {error}"
                raise _EndedEarlyError(Outcome.ABORTED, reason) from error

    def _encode(self, request: ReachRequest) -> tuple[SubGoal, ...]:
        return tuple(
            SubGoal(
                self._encoder.encode(subgoal.image),
                subgoal.energy_threshold,
                subgoal.step_budget,
                subgoal.close_gripper_from,
            )
            for subgoal in request.subgoals
        )

    def _await_robot(self, handle: Handle, request: ReachRequest, started: float) -> None:
        """Wait for sensors and controller: a young node finds topics one by one."""
        begun, ready_timeout = time.monotonic(), request.defaults.ready_timeout
        patience = min(ready_timeout, started + request.time_limit - begun)
        outcome = Outcome.ABORTED if patience == ready_timeout else Outcome.TIMED_OUT
        told = None
        while missing := self._robot.missing():
            waited = time.monotonic() - begun
            if waited > patience:
                raise _EndedEarlyError(outcome, f"{missing.reason} Waited for {waited:.1f} s.")
            if missing.what != told:
                self._reporter.say(f"Waiting to begin. {missing.reason}")
                told = missing.what
            self._pause(handle)

    def _pause(self, handle: Handle) -> None:
        if reason := self._cancel_reason(handle):
            raise _EndedEarlyError(Outcome.CANCELLED, reason)
        if refusal := self._robot.switch.refusal:
            raise _EndedEarlyError(Outcome.ABORTED, refusal)
        time.sleep(TICK_PERIOD)

    def _cancel_reason(self, handle: Handle) -> str | None:
        # Asked rather than told by the cancel callback, which rclpy calls before the goal's state
        # allows it to be reported as cancelled.
        return "The client cancelled the goal." if handle.is_cancel_requested else self._stop_reason

    def _conclude(self, handle: Handle, ended: Ended) -> None:
        self._reporter.publish_outcome(ended, handle.goal_id.uuid)
        if ended.outcome is Outcome.REACHED:
            self._reporter.say(ended.reason)
            handle.succeed()
        elif ended.outcome is Outcome.CANCELLED and handle.is_cancel_requested:
            self._reporter.say(ended.reason)
            handle.canceled()
        else:
            self._reporter.complain(ended.reason)
            handle.abort()


def _passed(moment: float) -> bool:
    return time.monotonic() > moment


def _failure(error: Exception) -> str:
    return f"The node failed: {str(error) or type(error).__name__}"
