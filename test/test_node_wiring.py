"""How the planner node is set up, what it refuses, and how it ends."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import rclpy
import yaml
from action_msgs.msg import GoalStatus
from diagnostic_msgs.msg import DiagnosticStatus
from jepa_planner_msgs.action import ReachGoal
from jepa_planner_msgs.msg import SubGoal
from jepa_planner_msgs.srv import CaptureGoal
from node_under_test import (
    HOME,
    PATIENCE,
    Client,
    answer,
    image_message,
    neighbourhood,
    options,
    picture,
    robot_and_client,
    wait_until,
    write_tiny_model,
)
from planner_service import InProcessService, free_port, serving
from rclpy.qos import qos_profile_sensor_data
from safetensors.torch import save_file
from sensor_msgs.msg import Image

from jepa_planner_ros.control import ControlSettings, SafetyLimits, Worker
from jepa_planner_ros.control.action_queue import _rules, register_merge_rule
from jepa_planner_ros.robot.kinematics import HOME_JOINTS
from jepa_planner_ros.ros.declaration import ParameterError
from jepa_planner_ros.ros.node import PlannerNode, _spin_until_interrupted
from jepa_planner_ros.ros.parameters import PARAMETERS
from jepa_planner_ros.ros.settings import read_episode_defaults, read_wiring
from jepa_planner_ros.serving.endpoint import PlannerEndpoint
from jepa_planner_ros.share import share_directory
from jepa_planner_ros.types import PlannerError
from jepa_planner_ros.world_model import CheckpointError, load_world_model, read_checkpoint

ELSEWHERE = SubGoal(
    image=image_message(picture(HOME + np.array([0.1, 0.2, -0.1, 0, 0, 0, 0]))),
    energy_threshold=1e-6,
    step_budget=1,
)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("model") / "tiny.safetensors")


def flattened(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in tree.items():
        if isinstance(value, dict):
            flat |= flattened(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat


def test_the_configuration_file_shows_the_defaults_of_all_parameters() -> None:
    file = share_directory() / "config" / "planner.yaml"
    written = flattened(yaml.safe_load(file.read_text())["/**"]["ros__parameters"])
    declared = {parameter.name: parameter.default for parameter in PARAMETERS}
    assert written == declared
    assert read_episode_defaults(declared).control == ControlSettings()
    assert read_wiring(declared, "/jepa_planner").freshness == ControlSettings().freshness


def test_arms_on_one_computer_are_two_robots_to_their_planner() -> None:
    values = {parameter.name: parameter.default for parameter in PARAMETERS}
    values |= {"planner": "remote", "planner_address": "grpc://127.0.0.1:9000"}
    settings = [
        read_wiring(values, name).remote
        for name in ("/left/jepa_planner", "/right/jepa_planner", f"/{'n' * 200}/jepa_planner")
    ]
    left, right, long = (one.robot for one in settings if one is not None)
    assert left.endswith("/left/jepa_planner")
    assert right == left.replace("left", "right") != left
    assert len(long) == 96
    assert long.endswith("n/jepa_planner")


def test_a_file_of_nobody_known_is_refused_in_a_sentence() -> None:
    values = {parameter.name: parameter.default for parameter in PARAMETERS}
    values |= {"planner": "remote", "planner_token_file": "~nosuchuser/token"}
    with pytest.raises(ParameterError, match="planner_token_file = '~nosuchuser/token' is no path"):
        read_wiring(values, "/jepa_planner")


@pytest.mark.parametrize("parameter", PARAMETERS, ids=lambda one: one.name)
def test_every_parameter_describes_itself(parameter: Any) -> None:
    descriptor = parameter.descriptor()
    assert descriptor.description.endswith(".")
    is_number = isinstance(parameter.default, int | float) and parameter.default is not True
    ranges = [*descriptor.integer_range, *descriptor.floating_point_range]
    assert len(ranges) == is_number


def test_a_merge_rule_of_ones_own_may_be_chosen() -> None:
    values = {parameter.name: parameter.default for parameter in PARAMETERS}
    values["queue.merge"] = "keep"
    with pytest.raises(ParameterError, match=r"queue.merge = 'keep' is unknown"):
        read_episode_defaults(values)
    register_merge_rule("keep", lambda old, new: old)
    try:
        assert read_episode_defaults(values).control.queue.merge == "keep"
    finally:
        del _rules["keep"]


@pytest.mark.parametrize("rate", [1e-9, 1.0, 19.9])
def test_setpoints_too_rare_to_keep_the_limits_are_refused(rate: float) -> None:
    defaults = {parameter.name: parameter.default for parameter in PARAMETERS}
    with pytest.raises(ParameterError, match=r"setpoint_rate = .* set it to 20 or more, or to 0"):
        read_wiring(defaults | {"setpoint_rate": rate}, "/jepa_planner")
    assert read_wiring(defaults | {"setpoint_rate": 20.0}, "/jepa_planner").setpoint_rate == 20.0
    assert read_wiring(defaults | {"setpoint_rate": 0.0}, "/jepa_planner").setpoint_rate == 0.0


@pytest.mark.parametrize(
    ("given", "error", "sentence"),
    [
        ("planner:=remote", ParameterError, "planner_address '' must be grpc://HOST:PORT"),
        ("planner:=wishful", ParameterError, "planner = 'wishful' is unknown; it must be one of"),
        ("capture.directory:=~nosuchuser/x", ParameterError, "capture.directory = '~nosuchuser/x'"),
        ("limits.translation_sped:=0.1", ParameterError, "Did you mean limits.translation_speed?"),
        ("search:=hope", ParameterError, "search = 'hope' is unknown"),
        ("time_limit:=long", ParameterError, "time_limit must be a number"),
        ("motion.duration:=1", ParameterError, "with a decimal point"),
        ("step_budget:=0", ParameterError, "step_budget = 0 must lie between 1 and 10000"),
        ("limits.workspace_min:=[]", ParameterError, "must be a list of numbers"),
        ("limits.workspace_min:=[0.1, 0.2]", ParameterError, "must hold x, y and z"),
        ("motion.time_limit:=0.2", ParameterError, "motion.time_limit = 0.2 s leaves no time"),
        ("world_model.checkpoint:=/nowhere.pt", CheckpointError, "/nowhere.pt"),
        (f"world_model.checkpoint:=/{'n' * 300}.pt", CheckpointError, "world_model.checkpoint"),
        ("world_model.device:=gpu", CheckpointError, "world_model.device = 'gpu'"),
        ("world_model.device:=cuda:99", CheckpointError, "world_model.device = 'cuda:99'"),
    ],
)
def test_parameters_that_cannot_work_are_refused_at_the_start(
    model: Path, given: str, error: type[Exception], sentence: str
) -> None:
    rclpy.init(args=options(model, given))
    try:
        with pytest.raises(error) as caught:
            PlannerNode()
    finally:
        rclpy.shutdown()
    assert sentence in str(caught.value)


def test_a_planner_elsewhere_plans_for_the_node(model: Path) -> None:
    service = InProcessService(load_world_model(model))
    with serving(PlannerEndpoint(service, token=None)) as port:
        remote = ("planner:=remote", f"planner_address:=grpc://127.0.0.1:{port}")
        with neighbourhood(model, *remote) as neighbours:
            _, result = neighbours.client.send(ELSEWHERE).result()
            assert result.outcome == ReachGoal.Result.BUDGET_SPENT, result.reason
            assert len(neighbours.robot.targets) == len(service.requests) == 1


def test_the_arm_holds_while_a_planner_elsewhere_is_away(model: Path) -> None:
    service, port = InProcessService(load_world_model(model)), free_port()
    address = f"planner_address:=grpc://127.0.0.1:{port}"
    with ExitStack() as first:
        first.enter_context(serving(PlannerEndpoint(service, token=None), port))
        with neighbourhood(model, "planner:=remote", address) as neighbours:
            client, robot = neighbours.client, neighbours.robot
            first.close()
            goal = client.send(ELSEWHERE)
            client.wait_for_status("The arm holds, and asks again. The planner is away")
            wait_until(lambda: _planner_level(client) == DiagnosticStatus.ERROR, "diagnostics")
            assert not robot.targets
            with serving(PlannerEndpoint(service, token=None), port):
                _, result = goal.result()
            assert result.outcome == ReachGoal.Result.BUDGET_SPENT, result.reason
            assert len(robot.targets) == 1
            client.wait_for_status("The planner plans again.")
            wait_until(lambda: _planner_level(client) == DiagnosticStatus.OK, "diagnostics")


def _planner_level(client: Client) -> bytes:
    return client.diagnostics[-1].status[-1].level if client.diagnostics else b""


def test_a_planner_elsewhere_with_another_model_is_refused(model: Path, tmp_path: Path) -> None:
    other = InProcessService(load_world_model("shipped"))
    with serving(PlannerEndpoint(other, token=None)) as port:
        address = f"planner_address:=grpc://127.0.0.1:{port}"
        rclpy.init(args=options(model, "planner:=remote", address))
        try:
            with pytest.raises(PlannerError, match="give both the same"):
                PlannerNode()
        finally:
            rclpy.shutdown()


def test_the_pose_and_the_compressed_camera_of_a_controller(model: Path) -> None:
    sources = ("pose_source:=current_pose", "image_transport:=compressed")
    with neighbourhood(model, *sources) as neighbours:
        robot, client = neighbours.robot, neighbours.client
        _, result = client.send(ELSEWHERE).result()
        assert result.outcome == ReachGoal.Result.BUDGET_SPENT, result.reason
        wait_until(lambda: bool(client.plans), "the plan")
        state = client.plans[0].state
        np.testing.assert_allclose(
            [state.position.x, state.position.y, state.position.z], HOME[:3], atol=1e-6
        )
        np.testing.assert_allclose([state.rotation.x, state.rotation.y], [0.0, 0.0], atol=1e-6)
        assert len(robot.targets) == 1


def test_a_pose_in_another_frame_or_without_its_fingers_is_not_steered_by(model: Path) -> None:
    with neighbourhood(model, "pose_source:=current_pose", "max_age.camera:=10.0") as neighbours:
        robot, client = neighbours.robot, neighbours.client
        time.sleep(0.5)
        robot.publish_joints = False
        time.sleep(1.2)
        _, result = client.send(ELSEWHERE).result()
        assert result.outcome == ReachGoal.Result.ABORTED
        assert "/joint_states is" in result.reason

        robot.publish_joints, robot.pose_frame = True, "world"
        time.sleep(1.2)
        _, result = client.send(ELSEWHERE).result()
        assert result.outcome == ReachGoal.Result.ABORTED
        assert "/current_pose cannot be used" in result.reason
        assert "'world' but base_frame is 'panda_link0'" in result.reason


@pytest.mark.parametrize("unheard", ["image_raw", "joint_states"])
def test_a_capture_before_the_first_message_fails_with_the_reason(
    model: Path, unheard: str
) -> None:
    patient = ("max_age.camera:=60.0", "max_age.joints:=60.0")
    remapped = f"jepa_planner:{unheard}:=elsewhere"
    with neighbourhood(model, *patient, remapping=remapped) as neighbours:
        client = neighbours.client
        time.sleep(0.5)
        for _ in range(2):
            response = answer(client.capture.call_async(CaptureGoal.Request()))
            assert not response.success
            assert "Nothing has been received on /elsewhere yet" in response.message


def test_a_world_model_of_impossible_sizes_is_refused(model: Path, tmp_path: Path) -> None:
    for heads, name in ((3, "three"), (0, "none")):
        whole = read_checkpoint(model)
        sizes = whole.config.to_dict()
        sizes["encoder"]["heads"] = heads
        metadata = {"config": json.dumps(sizes)}
        path = tmp_path / f"{name}.safetensors"
        save_file({f"encoder.{key}": one for key, one in whole.encoder.items()}, path, metadata)
        with pytest.raises(CheckpointError, match="does not describe a world model"):
            read_checkpoint(path)


def test_a_robot_that_was_never_heard_aborts(model: Path) -> None:
    remapped = "jepa_planner:image_raw:=another_camera/image"
    with neighbourhood(model, "ready_timeout:=0.3", remapping=remapped) as neighbours:
        # The time that the photographs take to be encoded does not count.
        neighbours.planner._seeing.submit(lambda: time.sleep(1.0))
        status, result = neighbours.client.send(ELSEWHERE).result()
    assert status == GoalStatus.STATUS_ABORTED
    assert "Nothing has been received on /another_camera/image yet" in result.reason
    assert "Waited for 0." in result.reason


def test_a_goal_waits_for_sensors_and_controller_of_a_robot_that_starts_late(model: Path) -> None:
    remapped = "jepa_planner:image_raw:=late_camera"
    patient = ("ready_timeout:=60.0", "max_age.camera:=0.5", "motion.time_limit:=1.0")
    with neighbourhood(model, *patient, remapping=remapped) as neighbours:
        client, robot = neighbours.client, neighbours.robot
        robot.stop_listening()
        goal = client.send(ELSEWHERE)
        client.wait_for_status("Waiting to begin. Nothing has been received on /late_camera yet")
        # Longer than anything else may take.
        time.sleep(1.5)
        camera = robot.create_publisher(Image, "late_camera", qos_profile_sensor_data)
        robot.spoil_image = camera.publish
        client.wait_for_status("Waiting to begin. No controller listens to /target_pose")
        robot.listen_again()
        _, result = goal.result()
    assert result.outcome == ReachGoal.Result.BUDGET_SPENT, result.reason
    assert len(robot.targets) == 1


def test_a_camera_that_starts_late_and_has_another_shape_than_the_photograph_aborts(
    model: Path,
) -> None:
    patient = ("ready_timeout:=60.0", "max_age.camera:=60.0")
    remapped = "jepa_planner:image_raw:=late_camera"
    cut = image_message(picture(HOME)[:, 8:])
    with neighbourhood(model, *patient, remapping=remapped) as neighbours:
        goal = neighbours.client.send(SubGoal(image=cut))
        neighbours.client.wait_for_status("Waiting to begin.")
        robot = neighbours.robot
        robot.spoil_image = robot.create_publisher(Image, "late_camera", 1).publish
        _, result = goal.result()
    assert result.outcome == ReachGoal.Result.ABORTED
    assert "the photograph has 40 x 48 pixels and the camera 48 x 48" in result.reason
    assert not robot.targets


def test_a_goal_that_waits_for_the_robot_can_be_cancelled(model: Path) -> None:
    remapped = "jepa_planner:joint_states:=elsewhere"
    with neighbourhood(model, "ready_timeout:=60.0", remapping=remapped) as neighbours:
        goal = neighbours.client.send(ELSEWHERE)
        neighbours.client.wait_for_status("Waiting to begin.")
        answer(goal.handle.cancel_goal_async())
        _, result = goal.result()
    assert result.outcome == ReachGoal.Result.CANCELLED


def test_ray_plans_the_same_and_its_death_costs_a_pause(model: Path) -> None:
    ray = ("planner:=local_ray", "serving.replicas:=1", "serving.start_timeout:=300.0")
    with neighbourhood(model) as neighbours:
        neighbours.client.send(ELSEWHERE).result()
        wait_until(lambda: bool(neighbours.client.plans), "the plan in process")
        expected = neighbours.client.plans[0].actions
    with neighbourhood(model, *ray) as neighbours:
        client = neighbours.client
        neighbours.robot.place(HOME_JOINTS)
        _, result = client.send(ELSEWHERE).result()
        assert result.outcome == ReachGoal.Result.BUDGET_SPENT, result.reason
        wait_until(lambda: bool(client.plans), "the plan on Ray")
        assert client.plans[0].actions == expected

        neighbours.robot.place(HOME_JOINTS)
        for child in psutil.Process().children():
            child.kill()
        goal = client.send(ELSEWHERE)
        client.wait_for_status("The arm holds, and asks again. The planner is away: the process")
        _, result = goal.result()
        assert result.outcome == ReachGoal.Result.BUDGET_SPENT, result.reason
        wait_until(lambda: bool(client.plans), "the plan on another Ray")
        assert client.plans[0].actions == expected
        assert len(neighbours.robot.targets) == 1


def test_an_interrupt_during_a_search_ends_the_node_in_time(model: Path, tmp_path: Path) -> None:
    reference = (share_directory() / "config" / "search" / "reference.yaml").read_text()
    endless = tmp_path / "endless.yaml"
    endless.write_text(reference.replace("rounds: 10", "rounds: 1000"))
    command = [sys.executable, "-m", "jepa_planner_ros.ros.planner_node"]
    process = subprocess.Popen(
        [*command, *options(model, f"search:={endless}")], stderr=subprocess.PIPE, text=True
    )
    rclpy.init()
    try:
        with robot_and_client() as (robot, client):
            goal = client.send(ELSEWHERE)
            client.wait_for_status("Pursuing a goal")
            time.sleep(1.0)
            begun = time.monotonic()
            process.send_signal(signal.SIGINT)
            status, result = goal.result()
            _, output = process.communicate(timeout=10.0)
            assert time.monotonic() - begun < 5.0
    finally:
        process.kill()
        rclpy.shutdown()
    assert status == GoalStatus.STATUS_ABORTED
    assert result.outcome == ReachGoal.Result.CANCELLED
    assert result.reason == "The planner node is shutting down."
    assert robot.targets == []
    assert process.returncode == 0
    assert "Traceback" not in output
    assert "exception" not in output


def test_a_node_that_fails_brakes_the_arm_first(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Where the node cannot be stopped in time it ends the process, which is that of all tests.
    monkeypatch.setattr("os._exit", lambda _status: None)
    limits, fails = SafetyLimits(), threading.Event()

    def fail() -> None:
        if fails.is_set():
            fails.clear()
            raise RuntimeError("a callback fails")

    slow = (
        "setpoint_rate:=50.0",
        f"limits.translation_speed:={limits.translation_speed}",
        f"limits.translation_acceleration:={limits.translation_acceleration}",
    )
    rclpy.init(args=options(model, *slow))
    try:
        planner = PlannerNode()
        planner.create_timer(0.01, fail)
        ended = Worker("node").submit(lambda: _spin_until_interrupted(planner))
        with robot_and_client() as (robot, client):
            client.send(ELSEWHERE)
            wait_until(lambda: len(robot.targets) > 10, "motion")
            fails.set()
            with pytest.raises(RuntimeError, match="a callback fails"):
                ended.result(PATIENCE)
            positions = np.array([target[:3] for target in robot.targets])
        speeds = np.linalg.norm(np.diff(positions, axis=0), axis=1) * 50.0
        assert 0.0 < speeds.max() <= (1.0 + 1e-6) * limits.translation_speed
        assert speeds[-1] < 0.1 * limits.translation_speed
    finally:
        rclpy.try_shutdown()


def test_a_start_that_fails_says_so_in_one_line() -> None:
    command = [sys.executable, "-m", "jepa_planner_ros.ros.planner_node"]
    files = ["--params-file", str(share_directory() / "config" / "planner.yaml")]
    done = subprocess.run(
        [*command, "--ros-args", *files, "-p", "step_budget:=few"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("planner_node: Parameter step_budget must be a whole number")
    assert done.stderr.count("\n") == 1
