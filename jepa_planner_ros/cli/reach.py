"""``jepa-planner reach``: send photographs to a planner node that runs, and tell how it goes.

For terminals without the command ``ros2``, and because it says why a goal was rejected, which an
action's rejection cannot.
"""

from __future__ import annotations

import argparse
import time
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import rclpy
from jepa_planner_msgs.action import ReachGoal
from jepa_planner_msgs.msg import SubGoal
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile
from rclpy.task import Future
from sensor_msgs.msg import CompressedImage
from std_msgs.msg import String

from jepa_planner_ros.cli import CommandError
from jepa_planner_ros.cli.numbers import real_number, whole_number
from jepa_planner_ros.cli.planner_name import add_node_arguments, full_name, not_offered
from jepa_planner_ros.control import CONTROL_MODES
from jepa_planner_ros.ros.clock import duration_message, seconds
from jepa_planner_ros.ros.context import own_context
from jepa_planner_ros.ros.goal_client import GoalClient, GoalNotTakenError

_FORMATS = {".png": "png", ".jpg": "jpeg", ".jpeg": "jpeg"}
_PATIENCE = 10.0  # s
_FOR_A_STATUS = 2.0
"""Until a node that has said something is surely heard, s."""
_COLUMNS = "step  energy  predicted  plan ms"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line."""
    parser.description = (
        "Have a running planner node bring the arm to where photographs show it, one after the "
        "other. Ctrl-C cancels: the arm then holds. Exit code: 0 when the last one was reached; 1 "
        "when it was not, also when Ctrl-C ended a goal under way; 130 when Ctrl-C came before the "
        "node had accepted the goal."
    )
    parser.add_argument(
        "photographs", nargs="+", type=Path, metavar="PHOTO", help="PNG or JPEG, in order"
    )
    add_node_arguments(parser)
    parser.add_argument(
        "--steps",
        type=whole_number(1, 10_000),
        default=0,
        metavar="N",
        help="most steps for each photograph (default: the node's parameter step_budget)",
    )
    parser.add_argument(
        "--energy-threshold",
        type=real_number(0.0, 10.0),
        default=0.0,
        metavar="E",
        help="energy at which a photograph is reached (default: the node's parameter)",
    )
    parser.add_argument(
        "--time-limit",
        type=real_number(0.1, 86_400.0),
        default=0.0,
        metavar="S",
        help="most seconds for the whole goal (default: the node's parameter)",
    )
    parser.add_argument(
        "--control-mode",
        choices=CONTROL_MODES,
        default="",
        help="how planning and motion share the time (default: the node's parameter)",
    )


def run(args: argparse.Namespace) -> int:
    """Send the goal and follow it to its end."""
    goal = ReachGoal.Goal(
        subgoals=[
            SubGoal(
                compressed_image=_read(path),
                step_budget=args.steps,
                energy_threshold=args.energy_threshold,
            )
            for path in args.photographs
        ],
        time_limit=duration_message(args.time_limit),
        control_mode=args.control_mode,
    )
    planner = full_name(args.namespace, args.node)
    context = own_context(args.domain_id)
    try:
        result = Pursuit(planner, context).pursue(goal)
    finally:
        rclpy.try_shutdown(context=context)
    return 0 if result.outcome == ReachGoal.Result.REACHED else 1


class Pursuit:
    """One goal's client.

    Args:
        planner: full name of the planner node.
        context: of ROS, initialised.
    """

    def __init__(self, planner: str, context: rclpy.Context) -> None:
        self._planner = planner
        self._domain = context.get_domain_id()
        self._node = Node("jepa_planner_reach", context=context)
        self._executor = SingleThreadedExecutor(context=context)
        self._executor.add_node(self._node)
        self._goals = GoalClient(self._node, planner, self._spin_until)
        self._heard = ""
        """What the node said last."""
        self._untold: list[str] = []
        latched = QoSProfile(depth=10, durability=DurabilityPolicy.TRANSIENT_LOCAL)
        self._node.create_subscription(String, f"{planner}/status", self._hear, latched)

    def pursue(self, goal: ReachGoal.Goal) -> ReachGoal.Result:
        """Send a goal, and print each step, what the node says meanwhile, and how it ends.

        An interrupt cancels the goal.

        Raises:
            CommandError: no planner answers, or it rejects the goal.
        """
        if not self._spin_until(lambda: self._goals.ready, _PATIENCE):
            raise not_offered(f"{self._planner}/reach_goal", self._domain)
        # What it said before is latched; whatever comes after that is about this goal.
        self._spin_until(lambda: bool(self._heard), _FOR_A_STATUS)
        self._untold.clear()
        handle = self._send(goal)
        result = handle.get_result_async()
        try:
            print(_COLUMNS)
            self._wait(result)
        except KeyboardInterrupt:
            print("\nCancelling ...")
            handle.cancel_goal_async()
            self._await_answer(result.done)
        answer: ReachGoal.Result = result.result().result
        self._tell()
        if answer.reason != self._heard:
            print(answer.reason)
        if steps := answer.steps:
            one_or_more = "step" if steps == 1 else "steps"
            print(f"It took {steps} {one_or_more} and {seconds(answer.elapsed):.1f} s.")
        return answer

    def _send(self, goal: ReachGoal.Goal) -> Any:
        try:
            return self._goals.send(goal, self._show)
        except GoalNotTakenError as error:
            raise CommandError(str(error)) from error
        except KeyboardInterrupt:
            # The node may accept it yet; nobody would be there to cancel it then.
            print("\nCancelling ...")
            self._await_answer(lambda: self._goals.settled)
            raise

    def _await_answer(self, answered: Callable[[], bool]) -> None:
        if not self._spin_until(answered, _PATIENCE):
            raise CommandError(f"{self._planner} has not answered for {_PATIENCE:g} s.") from None

    def _wait(self, result: Future) -> None:
        lost = 0.0
        while not result.done():
            self._executor.spin_once(timeout_sec=0.1)
            self._tell()
            # A result does not come when the node was killed.
            lost = 0.0 if self._goals.ready else lost or time.monotonic()
            if lost and time.monotonic() - lost > _PATIENCE:
                raise CommandError(f"{self._planner} is gone; look at its log.")

    def _spin_until(self, condition: Callable[[], bool], patience: float) -> bool:
        deadline = time.monotonic() + patience
        while not condition():
            if time.monotonic() > deadline:
                return False
            self._executor.spin_once(timeout_sec=0.1)
        return True

    def _hear(self, status: String) -> None:
        if status.data != self._heard:
            self._heard = status.data
            self._untold.append(status.data)

    def _tell(self) -> None:
        for sentence in self._untold:
            print(sentence, flush=True)
        self._untold.clear()

    def _show(self, told: ReachGoal.Feedback) -> None:
        self._tell()
        if told.holding:
            # Its status says so once; the reason may change meanwhile.
            if not self._heard.endswith(told.holding):
                self._heard = told.holding
                print(told.holding, flush=True)
            return
        print(
            f"{told.step:4d}  {told.energy:6.3f}  {told.predicted_energy:9.3f}  "
            f"{1000.0 * told.latency.plan:7.0f}",
            flush=True,
        )


def _read(path: Path) -> CompressedImage:
    kind = _FORMATS.get(path.suffix.lower())
    if kind is None:
        raise CommandError(f"{path} must be a PNG or JPEG file.")
    try:
        return CompressedImage(format=kind, data=array("B", path.read_bytes()))
    except OSError as error:
        raise CommandError(f"{path} cannot be read: {error.strerror}.") from error
