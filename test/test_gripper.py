"""Each family of grippers by its conventions; their messages are not on PyPI and played here."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import rclpy
from action_msgs.msg import GoalStatus
from rclpy.node import Node
from rclpy.task import Future

from jepa_planner_ros.control import GripperMotion
from jepa_planner_ros.ros import gripper
from jepa_planner_ros.ros.gripper import GRIPPERS, GripperError
from jepa_planner_ros.ros.node import PlannerNode


class PlayedClient:
    """In place of an action client, for which the types of an action would have to be built."""

    ready = True

    def __init__(self, node: Node, kind: Any, name: str) -> None:
        self.name = name

    def server_is_ready(self) -> bool:
        return self.ready

    def send_goal_async(self, goal: Any) -> Future:
        sent.append((self.name, goal))
        answers.append(Future())
        return answers[-1]


sent: list[tuple[str, Any]] = []
answers: list[Future] = []


def goal(**fields: Any) -> SimpleNamespace:
    return SimpleNamespace(**{"epsilon": SimpleNamespace(), "command": SimpleNamespace()} | fields)


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    for package, names in (
        ("franka_msgs", ("Move", "Grasp")),
        ("control_msgs", ("GripperCommand",)),
    ):
        module = ModuleType(f"{package}.action")
        for name in names:
            setattr(module, name, SimpleNamespace(Goal=goal))
        monkeypatch.setitem(sys.modules, package, ModuleType(package))
        monkeypatch.setitem(sys.modules, f"{package}.action", module)
    monkeypatch.setattr(gripper, "ActionClient", PlayedClient)
    sent.clear()
    answers.clear()
    rclpy.init()
    node = rclpy.create_node("grippers")
    yield node
    node.destroy_node()
    rclpy.shutdown()


def test_frankas_gripper_grasps_to_close_and_moves_to_open(node: Node) -> None:
    franka = GRIPPERS["franka_gripper"](node)
    franka.grip(GripperMotion.CLOSE)
    franka.grip(GripperMotion.OPEN)
    (grasped, grasp), (moved, move) = sent
    assert (grasped, moved) == ("franka_gripper/grasp", "franka_gripper/move")
    assert grasp.width == 0.0
    assert grasp.epsilon.inner == grasp.epsilon.outer == 0.08, "whatever is held"
    assert move.width == 0.08


def test_control_msgs_speak_of_half_the_width(node: Node) -> None:
    command = GRIPPERS["gripper_command"](node)
    command.grip(GripperMotion.OPEN)
    command.grip(GripperMotion.CLOSE)
    assert [one.command.position for _, one in sent] == [0.04, 0.0]


def test_a_gripper_that_is_not_there_is_not_waited_for(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PlayedClient, "ready", False)
    GRIPPERS["franka_gripper"](node).grip(GripperMotion.OPEN)
    assert sent == []


def accepted(status: int, error: str) -> SimpleNamespace:
    """The handle of a goal that has ended."""
    ended: Future = Future()
    ended.set_result(SimpleNamespace(status=status, result=SimpleNamespace(error=error)))
    return SimpleNamespace(accepted=True, get_result_async=lambda: ended)


def test_a_gripper_that_does_not_do_what_it_was_told_is_complained_of(
    node: Node, capfd: pytest.CaptureFixture[str]
) -> None:
    franka = GRIPPERS["franka_gripper"](node)
    for answer, complaint in (
        (SimpleNamespace(accepted=False), "franka_gripper/grasp rejected the command"),
        (accepted(GoalStatus.STATUS_ABORTED, "libfranka: no"), "grasp failed: libfranka: no."),
        (accepted(GoalStatus.STATUS_CANCELED, ""), "grasp was cancelled: the log of"),
        (accepted(GoalStatus.STATUS_SUCCEEDED, ""), None),
    ):
        franka.grip(GripperMotion.CLOSE)
        answers[-1].set_result(answer)
        logged = capfd.readouterr().err
        assert logged == "" if complaint is None else complaint in logged


@pytest.mark.parametrize(
    ("name", "package"), [("franka_gripper", "franka_msgs"), ("gripper_command", "control_msgs")]
)
def test_a_package_that_is_missing_is_named(
    name: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, f"{package}.action", None)
    rclpy.init(args=["--ros-args", "-p", f"gripper:={name}"])
    try:
        with pytest.raises(GripperError, match=f"needs the package {package}"):
            PlannerNode()
    finally:
        rclpy.shutdown()
