"""The planner node by its real interfaces: goals in; plans, feedback, results and motion out."""

from __future__ import annotations

import json
import math
import struct
import time
import zlib
from array import array
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest
from action_msgs.msg import GoalStatus
from diagnostic_msgs.msg import DiagnosticStatus
from geometry_msgs.msg import PoseStamped
from jepa_planner_msgs.action import ReachGoal
from jepa_planner_msgs.msg import Plan, SubGoal
from jepa_planner_msgs.srv import CaptureGoal
from node_under_test import (
    HOME,
    Neighbourhood,
    answer,
    image_message,
    neighbourhood,
    picture,
    wait_until,
    write_tiny_model,
)
from PIL import Image as PillowImage
from rclpy.parameter import Parameter
from sensor_msgs.msg import CompressedImage, Image, JointState

from jepa_planner_ros.cli.main import main
from jepa_planner_ros.robot.kinematics import HOME_JOINTS
from jepa_planner_ros.ros.goals import ReachRequest, read_goal
from jepa_planner_ros.search import FAST_SEARCH

ELSEWHERE = picture(HOME + np.array([0.1, 0.2, -0.1, 0, 0, 0, 0]))
UNREACHABLE = 1e-6  # energy threshold


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Neighbourhood]:
    directory = tmp_path_factory.mktemp("node")
    model = write_tiny_model(directory / "tiny.safetensors")
    capture = f"capture.directory:={directory / 'goals'}"
    ages = ("max_age.camera:=1.0", "max_age.joints:=1.0")
    with neighbourhood(model, capture, *ages) as neighbours:
        yield neighbours


@pytest.fixture
def node(running: Neighbourhood) -> Neighbourhood:
    """The neighbourhood with a healthy robot at home."""
    robot = running.robot
    robot.publish_images = robot.publish_joints = robot.stamped = True
    robot.spoil_joints = robot.spoil_image = lambda message: None
    robot.duration = 0.1
    robot.place(HOME_JOINTS)
    return running


def elsewhere(budget: int = 3, **more: object) -> SubGoal:
    return SubGoal(
        image=image_message(ELSEWHERE),
        energy_threshold=UNREACHABLE,
        step_budget=budget,
        **more,
    )


def test_each_step_is_planned_published_commanded_and_reported(node: Neighbourhood) -> None:
    goal = node.client.send(elsewhere(budget=3))
    status, result = goal.result()
    assert status == GoalStatus.STATUS_ABORTED
    assert result.outcome == ReachGoal.Result.BUDGET_SPENT
    assert "step_budget" in result.reason
    assert result.steps == 3
    assert result.final_energy > 0.0
    assert 3 * 0.35 < result.elapsed.sec + 1e-9 * result.elapsed.nanosec < 20.0

    wait_until(lambda: len(node.client.plans) == 3 and len(goal.feedback) == 3, "three steps")
    assert [one.step for one in goal.feedback] == [0, 1, 2]
    for plan, feedback, target in zip(
        node.client.plans, goal.feedback, node.robot.targets, strict=True
    ):
        assert (plan.search, plan.seed) == ("fast", 0)
        assert plan.rollouts >= 1 + sum(FAST_SEARCH.designs)
        assert len(plan.actions) == len(plan.predicted_states) == len(plan.predicted_energies) == 1
        assert len(plan.round_best_energies) == len(plan.round_elite_energies)
        assert len(plan.round_best_energies) >= len(FAST_SEARCH.designs)
        assert 2 <= len(plan.candidates) == len(plan.candidate_energies) <= 100
        assert plan.candidate_energies[0] == pytest.approx(plan.round_best_energies[-1])
        assert plan.header.frame_id == feedback.target_pose.header.frame_id == "panda_link0"
        assert feedback.energy == plan.energy
        assert feedback.predicted_energy == plan.predicted_energies[-1]
        assert 0.0 <= feedback.latency.capture_age < 1.0
        assert feedback.latency.encode > 0.0
        assert 0.0 < feedback.latency.network + feedback.latency.plan < 5.0
        position = feedback.target_pose.pose.position
        np.testing.assert_allclose(target[:3], [position.x, position.y, position.z])
        np.testing.assert_allclose(target[3:6], HOME[3:6], atol=1e-6)


def test_actions_add_to_the_last_target(node: Neighbourhood) -> None:
    node.client.send(elsewhere(budget=2)).result()
    wait_until(lambda: len(node.client.plans) == len(node.robot.targets) == 2, "two steps")
    steps = [plan.actions[0].translation for plan in node.client.plans]
    moved = np.sum([[step.x, step.y, step.z] for step in steps], axis=0)
    np.testing.assert_allclose(node.robot.targets[-1][:3], HOME[:3] + moved, atol=1e-6)


def test_one_seed_gives_one_sequence_of_plans(node: Neighbourhood) -> None:
    def plans() -> list[Plan]:
        node.robot.place(HOME_JOINTS)
        node.client.send(elsewhere(budget=1)).result()
        wait_until(lambda: len(node.client.plans) == 1, "a plan")
        return [*node.client.plans]

    (first,), (second,) = plans(), plans()
    assert first.actions == second.actions
    assert first.round_elite_energies == second.round_elite_energies


def test_a_goal_captured_here_is_reached_at_once(node: Neighbourhood) -> None:
    response = answer(node.client.capture.call_async(CaptureGoal.Request()))
    assert response.success, response.message
    saved = Path(response.image_path)
    with PillowImage.open(saved) as image:
        np.testing.assert_array_equal(np.asarray(image), picture(HOME))
        np.testing.assert_allclose(json.loads(image.text["end_effector_state"]), HOME, atol=1e-4)
    assert response.state.position.x == pytest.approx(HOME[0], abs=1e-4)

    goal = node.client.send(SubGoal(image_path=str(saved)))
    status, result = goal.result()
    assert status == GoalStatus.STATUS_SUCCEEDED
    assert (result.outcome, result.steps) == (ReachGoal.Result.REACHED, 0)
    assert result.final_energy == pytest.approx(0.0, abs=1e-6)
    assert node.robot.targets == []


def test_compressed_goals_and_several_of_them(node: Neighbourhood, tmp_path: Path) -> None:
    PillowImage.fromarray(picture(HOME)).save(tmp_path / "goal.png")
    compressed = CompressedImage(
        format="png", data=array("B", (tmp_path / "goal.png").read_bytes())
    )
    here = SubGoal(compressed_image=compressed)
    status, result = node.client.send(here, here).result()
    assert status == GoalStatus.STATUS_SUCCEEDED
    assert "sub-goal 2 of 2" in result.reason


def test_the_gripper_is_told_once_to_close(node: Neighbourhood) -> None:
    node.robot.grippers.clear()
    node.client.send(elsewhere(budget=3, close_gripper_from=1)).result()
    wait_until(lambda: bool(node.robot.grippers), "the gripper's command")
    assert node.robot.grippers == [0.0], "CRISP's 0 is closed"


def test_cancel_holds_the_arm_where_it_is(node: Neighbourhood) -> None:
    node.robot.duration = 3.0
    goal = node.client.send(elsewhere(budget=10))
    wait_until(lambda: bool(goal.feedback), "the first step")
    time.sleep(0.5)
    begun = time.monotonic()
    answer(goal.handle.cancel_goal_async())
    status, result = goal.result()
    assert time.monotonic() - begun < 5.0, "long before the budget of steps is spent"
    assert status == GoalStatus.STATUS_CANCELED
    assert result.outcome == ReachGoal.Result.CANCELLED
    assert "cancelled" in result.reason
    wait_until(lambda: len(node.robot.targets) == 2, "the hold")
    step, hold = node.robot.targets
    way, gone = step[:3] - HOME[:3], hold[:3] - HOME[:3]
    share = gone @ way / (way @ way)
    assert 0.0 < share < 1.0
    np.testing.assert_allclose(gone, share * way, atol=1e-3)
    np.testing.assert_allclose(hold[3:6], HOME[3:6], atol=1e-3)
    time.sleep(0.5)
    assert len(node.robot.targets) == 2, "nothing is commanded after the end"


def test_the_time_limit_ends_a_goal(node: Neighbourhood) -> None:
    node.robot.duration = 30.0
    status, result = node.client.send(elsewhere(), time_limit=1.5).result()
    assert status == GoalStatus.STATUS_ABORTED
    assert result.outcome == ReachGoal.Result.TIMED_OUT
    assert "1.5 s" in result.reason


def test_one_goal_at_a_time(node: Neighbourhood) -> None:
    first = node.client.send(elsewhere(budget=50))
    wait_until(lambda: bool(first.feedback), "the first step")
    assert not node.client.send(elsewhere()).handle.accepted
    assert "Another goal is being pursued" in node.client.wait_for_status("Goal rejected.")
    answer(first.handle.cancel_goal_async())
    assert first.result()[1].outcome == ReachGoal.Result.CANCELLED


def test_one_goal_is_considered_at_a_time(
    node: Neighbourhood, monkeypatch: pytest.MonkeyPatch
) -> None:
    considered, answered = Event(), Event()

    def slow(*given: Any) -> ReachRequest:
        considered.set()
        assert answered.wait(10.0)
        return read_goal(*given)

    monkeypatch.setattr("jepa_planner_ros.ros.reach_server.read_goal", slow)
    goal = ReachGoal.Goal(subgoals=[elsewhere(budget=1)])
    first = node.client.reach.send_goal_async(goal)
    assert considered.wait(10.0)
    assert not node.client.send(elsewhere()).handle.accepted
    assert "Another goal is being considered" in node.client.wait_for_status("Goal rejected.")
    answered.set()
    assert answer(answer(first).get_result_async()).result.steps == 1


def test_a_goal_that_was_not_taken_up_is_given_up(node: Neighbourhood) -> None:
    def change_seed() -> bool:
        return node.planner.set_parameters([Parameter("seed", value=0)])[0].successful

    server, late = node.planner._server, list[Any]()
    server._server.register_handle_accepted_callback(late.append)
    forgotten = node.client.send(elsewhere())
    wait_until(lambda: len(late) == 1, "its acceptance")
    server._server.register_handle_accepted_callback(None)
    assert not change_seed()
    server._slot._accepted_at -= 10.0
    assert change_seed()
    present = node.client.send(elsewhere(budget=50))
    wait_until(lambda: bool(present.feedback), "the first step")

    late[0].execute()
    status, result = forgotten.result()
    assert (status, result.outcome) == (GoalStatus.STATUS_ABORTED, ReachGoal.Result.ABORTED)
    assert "was given up" in result.reason
    assert server.busy
    answer(present.handle.cancel_goal_async())
    assert present.result()[1].outcome == ReachGoal.Result.CANCELLED


def padded_wrongly() -> Image:
    message = image_message(ELSEWHERE)
    message.step += 1
    return message


def truncated_png() -> CompressedImage:
    """A header chunk that is cut short, with a checksum that is right."""
    chunk = b"IHDR" + bytes(5)
    content = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 5) + chunk
    return CompressedImage(format="png", data=content + struct.pack(">I", zlib.crc32(chunk)))


BAD_GOALS = {
    "no sub-goal": ([], "no sub-goal"),
    "too many sub-goals": ([SubGoal()] * 101, "101 sub-goals; give 100 at most"),
    "nothing given": ([SubGoal()], "exactly one of"),
    "two given": (
        [SubGoal(image_path="/goal.png", image=image_message(ELSEWHERE))],
        "image_path and image was",
    ),
    "no such file": ([SubGoal(image_path="/nowhere/goal.png")], "/nowhere/goal.png"),
    "no such user": ([SubGoal(image_path="~nosuchuser/goal.png")], "~nosuchuser/goal.png"),
    "a device": ([SubGoal(image_path="/dev/zero")], "/dev/zero is not a regular file"),
    "not an image": ([SubGoal(image_path=__file__)], "cannot be read as a JPEG or PNG"),
    "empty": ([SubGoal(image=Image(encoding="rgb8"))], "empty (0 x 0 pixels"),
    "depth": (
        [SubGoal(image=image_message(np.zeros((8, 8), np.uint16), "16UC1"))],
        "a depth image ('16UC1')",
    ),
    "unknown encoding": ([SubGoal(image=image_message(ELSEWHERE, "rgb9"))], "unknown encoding"),
    "too short": ([SubGoal(image=padded_wrongly())], "promises"),
    "broken jpeg": (
        [SubGoal(compressed_image=CompressedImage(format="jpeg", data=[1, 2, 3]))],
        "cannot be read",
    ),
    "truncated png": ([SubGoal(compressed_image=truncated_png())], "cannot be read"),
    "another shape": (
        [elsewhere(), SubGoal(image=image_message(ELSEWHERE[:24]))],
        "Sub-goal 2: the photograph has 48 x 24 pixels and the camera 48 x 48",
    ),
    "negative threshold": ([elsewhere(), elsewhere()], "Sub-goal 2: energy_threshold"),
    "closing too late": ([elsewhere(budget=3, close_gripper_from=3)], "close_gripper_from = 3"),
}
BAD_GOALS["negative threshold"][0][1].energy_threshold = -1.0


@pytest.mark.parametrize("case", BAD_GOALS)
def test_bad_goals_are_rejected_with_the_reason(node: Neighbourhood, case: str) -> None:
    subgoals, reason = BAD_GOALS[case]
    assert not node.client.send(*subgoals).handle.accepted
    assert reason in node.client.wait_for_status("Goal rejected.")


def test_an_unknown_control_mode_is_rejected(node: Neighbourhood) -> None:
    assert not node.client.send(elsewhere(), mode="telepathy").handle.accepted
    assert "blocking" in node.client.wait_for_status("telepathy")


def set_nan(message: JointState) -> None:
    message.position = [math.nan] * len(message.position)


def rename(message: JointState) -> None:
    message.name = [f"ur_{name}" for name in message.name]


def make_depth(message: Image) -> None:
    message.encoding = "32FC1"


@pytest.mark.parametrize(
    ("fault", "fragments"),
    [
        ({"publish_images": False}, ["/image_raw", "s old", "limit is 1 s"]),
        ({"publish_joints": False}, ["/joint_states", "s old", "limit is 1 s"]),
        ({"stamped": False}, ["no stamp"]),
        ({"spoil_joints": set_nan}, ["/joint_states", "no finite position for panda_joint1"]),
        ({"spoil_joints": rename}, ["/joint_states", "panda_joint1", "ur_panda_joint1"]),
        ({"spoil_image": make_depth}, ["/image_raw", "a depth image"]),
    ],
)
def test_sensors_that_cannot_be_used_abort_with_topic_and_cause(
    node: Neighbourhood, fault: dict[str, object], fragments: list[str]
) -> None:
    node.robot.duration = 30.0
    goal = node.client.send(elsewhere(budget=20))
    wait_until(lambda: bool(node.robot.targets), "motion")
    for name, value in fault.items():
        setattr(node.robot, name, value)
    status, result = goal.result()
    assert status == GoalStatus.STATUS_ABORTED
    assert result.outcome == ReachGoal.Result.ABORTED
    for fragment in fragments:
        assert fragment in result.reason


def test_a_robot_without_controller_aborts(node: Neighbourhood) -> None:
    node.robot.stop_listening()
    try:
        wait_until(lambda: node.client.count_subscribers("target_pose") == 0, "nobody listening")
        _, result = node.client.send(elsewhere()).result()
    finally:
        node.robot.listen_again()
        wait_until(lambda: node.client.count_subscribers("target_pose") == 1, "the controller")
    assert result.outcome == ReachGoal.Result.ABORTED
    assert "No controller listens to /target_pose" in result.reason


def test_a_second_commander_aborts(node: Neighbourhood) -> None:
    rival = node.client.create_publisher(PoseStamped, "target_pose", 1)
    try:
        wait_until(lambda: node.planner.count_publishers("target_pose") == 2, "the rival")
        _, result = node.client.send(elsewhere()).result()
    finally:
        node.client.destroy_publisher(rival)
        wait_until(lambda: node.planner.count_publishers("target_pose") == 1, "peace")
    assert "2 publishers send to /target_pose" in result.reason
    assert node.robot.targets == []


def test_parameters_change_between_goals_only(node: Neighbourhood) -> None:
    def change(name: str, value: object) -> tuple[bool, str]:
        (answered,) = node.planner.set_parameters([Parameter(name, value=value)])
        return answered.successful, answered.reason

    assert change("seed", 5)[0]
    goal = node.client.send(elsewhere(budget=50))
    wait_until(lambda: bool(node.client.plans), "a plan")
    assert node.client.plans[0].seed == 5
    refused = change("seed", 6)
    answer(goal.handle.cancel_goal_async())
    goal.result()
    assert refused == (False, "A goal is being pursued: change parameters before or after it.")
    assert change("seed", 0)[0]

    accepted, reason = change("search", "hope")
    assert not accepted
    assert "fast" in reason
    accepted, reason = change("limits.workspace_min", [0.9, 0.0, 0.0])
    assert not accepted
    assert "limits.workspace_max" in reason
    assert not change("step_budget", 0)[0]
    assert not change("motion.duration", "slow")[0]
    assert not change("planner", "local_ray")[0], "read-only"


def test_a_search_that_was_spoilt_since_rejects_goals(node: Neighbourhood, tmp_path: Path) -> None:
    usual, mine = node.planner.get_parameter("search"), tmp_path / "mine.yaml"
    mine.write_text("method: mppi")
    assert node.planner.set_parameters([Parameter("search", value=str(mine))])[0].successful
    mine.write_text("[" * 10_000)
    assert not node.client.send(elsewhere()).handle.accepted
    assert "mine.yaml" in node.client.wait_for_status("Goal rejected. Parameter search")
    assert node.planner.set_parameters([usual])[0].successful


def test_what_nobody_thought_of_refuses_a_request_and_not_the_node(
    node: Neighbourhood, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise KeyError("unthought of")

    with monkeypatch.context() as failing:
        failing.setattr("jepa_planner_ros.ros.reach_server.read_goal", fail)
        failing.setattr("jepa_planner_ros.ros.node.read_episode_defaults", fail)
        assert not node.client.send(elsewhere()).handle.accepted
        node.client.wait_for_status("Goal rejected. The node failed: 'unthought of'")
        (answered,) = node.planner.set_parameters([Parameter("seed", value=7)])
        assert (answered.successful, answered.reason) == (
            False,
            "The node failed: 'unthought of'",
        )
    assert (
        node.client.send(elsewhere(budget=1)).result()[1].outcome == ReachGoal.Result.BUDGET_SPENT
    )


def test_diagnostics_tell_of_sensors_and_planner(node: Neighbourhood) -> None:
    node.client.diagnostics.clear()
    wait_until(lambda: len(node.client.diagnostics) >= 2, "diagnostics")
    camera, joints, planner = node.client.diagnostics[-1].status
    assert camera.name == "jepa_planner: /image_raw"
    assert joints.name == "jepa_planner: /joint_states"
    assert camera.level == joints.level == b"\0"
    assert float(camera.values[0].value) < 1.0
    assert planner.values[0].key == "last plan, s"
    assert {status.hardware_id for status in (camera, joints, planner)} == {"/jepa_planner"}
    assert {value.key: value.value for value in planner.values}["replicas"] == "1"

    node.robot.publish_images = False
    wait_until(
        lambda: node.client.diagnostics[-1].status[0].level == b"\2", "an error of the camera"
    )
    assert "s old" in node.client.diagnostics[-1].status[0].message


def test_diagnostics_tell_of_a_planner_that_fails_until_it_plans_again(node: Neighbourhood) -> None:
    def planner_status() -> DiagnosticStatus:
        node.client.diagnostics.clear()
        wait_until(lambda: bool(node.client.diagnostics), "diagnostics")
        return node.client.diagnostics[-1].status[-1]

    weight = node.planner._planner._world_model._engine._norm.weight
    healthy = weight.clone()
    weight.fill_(math.nan)
    try:
        _, result = node.client.send(elsewhere()).result()
    finally:
        weight.copy_(healthy)
    assert result.outcome == ReachGoal.Result.ABORTED
    assert planner_status().level == DiagnosticStatus.ERROR
    assert not node.client.send().handle.accepted
    assert "weights may be damaged" in planner_status().message, "not the last goal's rejection"
    node.client.send(elsewhere(budget=1)).result()
    assert planner_status().level == DiagnosticStatus.OK


def test_the_command_reach_tells_each_step_what_limits_it_and_the_end(
    node: Neighbourhood, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here, elsewhere = (str(tmp_path / name) for name in ("here.png", "elsewhere.png"))
    PillowImage.fromarray(picture(node.robot.state)).save(here)
    PillowImage.fromarray(ELSEWHERE).save(elsewhere)

    assert main(["reach", here]) == 0
    assert capsys.readouterr().out.splitlines()[2].startswith("Reached the goal at step 0")

    assert main(["reach", elsewhere, "--steps", "2", "--energy-threshold", "1e-6"]) == 1
    told = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [words[0] for words in told] == ["step", "Pursuing", "0", "1", "The", "It"]
    assert told[-2][:4] == ["The", "budget", "was", "spent"]
    assert told[-1][:5] == ["It", "took", "2", "steps", "and"]

    node.robot.place(HOME_JOINTS)
    tight = Parameter("limits.step_translation", value=0.01)
    usual = node.planner.get_parameter(tight.name)
    assert node.planner.set_parameters([tight])[0].successful
    try:
        assert main(["reach", elsewhere, "--steps", "1", "--energy-threshold", "1e-6"]) == 1
    finally:
        node.planner.set_parameters([usual])
    assert "\nLimited: a step of" in capsys.readouterr().out

    Path(here).write_text("no picture")
    assert main(["reach", here]) == 1
    assert "Goal rejected. Sub-goal 1:" in capsys.readouterr().err


def test_a_capture_tells_when_it_replaces_a_photograph(node: Neighbourhood, tmp_path: Path) -> None:
    request = CaptureGoal.Request(path=str(tmp_path / "goal.png"))
    first, second = (answer(node.client.capture.call_async(request)) for _ in range(2))
    assert first.message == f"Saved the goal as {request.path}."
    assert second.message == f"{first.message} It replaced the file that was there."


def test_captures_fail_with_the_reason(node: Neighbourhood) -> None:
    response = answer(node.client.capture.call_async(CaptureGoal.Request(path="/tmp/goal.jpg")))
    assert not response.success
    assert ".png" in response.message
    request = CaptureGoal.Request(path="~nosuchuser/goal.png")
    response = answer(node.client.capture.call_async(request))
    assert not response.success
    assert "path = '~nosuchuser/goal.png' cannot be used" in response.message
    node.robot.publish_images = False
    time.sleep(1.2)
    response = answer(node.client.capture.call_async(CaptureGoal.Request()))
    assert not response.success
    assert "/image_raw" in response.message
