"""The launch files, with the real launch: start, act, stop, exit codes, no orphans.

They are started as `ros2 launch` does, by launch's own service in a process of its own, since only
there do Ctrl-C and exit codes mean what they mean to a user.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
import rclpy
from jepa_planner_msgs.action import ReachGoal
from jepa_planner_msgs.msg import SubGoal
from jepa_planner_msgs.srv import ResetSimulation
from rclpy.action import ActionClient
from rclpy.executors import SingleThreadedExecutor

pytest.importorskip(
    "launch_pytest", reason="launch_pytest is not installed; it comes with ROS 2 (ros-testing)"
)

from jepa_planner_ros.share import share_directory

BAG = Path(__file__).parent / "data" / "replay" / "bag"
PATIENCE = 120.0
IN_PROCESS = "planner:=in_process"

LAUNCH = """
import sys
from launch import LaunchService
from launch.actions import IncludeLaunchDescription
from launch.launch_description import LaunchDescription
from launch.launch_description_sources import PythonLaunchDescriptionSource

arguments = [tuple(argument.split(":=", 1)) for argument in sys.argv[2:]]
included = IncludeLaunchDescription(
    PythonLaunchDescriptionSource(sys.argv[1]), launch_arguments=arguments
)
service = LaunchService()
service.include_launch_description(LaunchDescription([included]))
sys.exit(service.run())
"""


class Launched:
    """A launch file that runs."""

    def __init__(self, file: str, *arguments: str) -> None:
        path = share_directory() / "launch" / file
        # Scripts are found by env: their Python must be this one.
        paths = (str(Path(sys.executable).parent), os.environ["PATH"])
        self.process = subprocess.Popen(
            [sys.executable, "-c", LAUNCH, str(path), *arguments],
            env=os.environ | {"PATH": os.pathsep.join(paths)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def family(self) -> list[psutil.Process]:
        """What has been started, directly or not."""
        return psutil.Process(self.process.pid).children(recursive=True)

    def interrupt(self) -> tuple[int, str, list[psutil.Process]]:
        """Press Ctrl-C; returns exit code, output, and what is left running."""
        family = self.family()
        # A terminal sends it to the whole foreground group.
        os.killpg(self.process.pid, signal.SIGINT)
        output, _ = self.process.communicate(timeout=30.0)
        _, left = psutil.wait_procs(family, 5.0)
        return self.process.returncode, output, left


@contextmanager
def launched(file: str, *arguments: str) -> Iterator[Launched]:
    one = Launched(file, *arguments)
    try:
        yield one
    finally:
        if one.process.poll() is None:
            for process in (*one.family(), one.process):
                process.kill()


class User:
    """Whoever uses what was launched."""

    def __init__(self, namespace: str = "") -> None:
        self.node = rclpy.create_node("user", namespace=namespace)
        self._executor = SingleThreadedExecutor()
        self._executor.add_node(self.node)
        self._reset = self.node.create_client(ResetSimulation, "franka_sim/reset")
        self._reach: ActionClient[Any, Any, Any] = ActionClient(
            self.node, ReachGoal, "jepa_planner/reach_goal"
        )

    def reset(self, seed: int) -> SubGoal:
        """A photograph of a goal, and the arm somewhere else."""
        self._wait(self._reset.service_is_ready)
        response = self._answer(self._reset.call_async(ResetSimulation.Request(seed=seed)))
        assert response.success, response.message
        return SubGoal(image=response.goal_image, energy_threshold=0.12)

    def reach(self, subgoal: SubGoal) -> ReachGoal.Result:
        self._wait(self._reach.server_is_ready)
        handle = self._answer(self._reach.send_goal_async(ReachGoal.Goal(subgoals=[subgoal])))
        assert handle.accepted
        return self._answer(handle.get_result_async()).result

    def wait_for_planner(self) -> None:
        self._wait(self._reach.server_is_ready)

    def _answer(self, future: Any) -> Any:
        self._wait(future.done)
        return future.result()

    def _wait(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline
            self._executor.spin_once(timeout_sec=0.05)


@pytest.fixture(autouse=True)
def ros() -> Iterator[None]:
    rclpy.init()
    yield
    rclpy.shutdown()


def test_the_demo_reaches_a_goal_and_ctrl_c_leaves_nothing() -> None:
    with launched("demo.launch.py", IN_PROCESS, "view:=true") as demo:
        user = User()
        result = user.reach(user.reset(seed=7))
        code, output, left = demo.interrupt()
    assert result.outcome == ReachGoal.Result.REACHED, result.reason
    assert left == []
    assert code == 0, output
    assert "Traceback" not in output
    assert "process has died" not in output


def test_two_robots_in_two_namespaces_keep_to_themselves() -> None:
    with (
        launched("demo.launch.py", "namespace:=left", IN_PROCESS) as left_robot,
        launched("demo.launch.py", "namespace:=right", IN_PROCESS) as right_robot,
    ):
        left, right = User("left"), User("right")
        goals = left.reset(seed=1), right.reset(seed=2)
        results = left.reach(goals[0]), right.reach(goals[1])
        topics = dict(left.node.get_topic_names_and_types())
        for robot in (left_robot, right_robot):
            assert robot.interrupt()[2] == []
    for result in results:
        assert result.outcome == ReachGoal.Result.REACHED, result.reason
    assert {"/left/image_raw", "/right/image_raw"} <= set(topics)
    assert not {"/image_raw", "/target_pose", "/jepa_planner/plan"} & set(topics)


def test_the_planner_alone_takes_arguments_as_parameters() -> None:
    with launched("planner.launch.py", IN_PROCESS, "controller_frame:=upright") as planner:
        User().wait_for_planner()
        code, output, left = planner.interrupt()
    assert (code, left) == (0, []), output
    assert "Starting the planner (in_process)" in output


def test_a_planner_that_cannot_start_says_why() -> None:
    with launched("planner.launch.py", "planner:=wishful") as planner:
        output, _ = planner.process.communicate(timeout=PATIENCE)
    assert "Parameter planner = 'wishful' is unknown; it must be one of" in output
    assert "exit code 1" in output


@pytest.mark.parametrize(
    ("options", "code", "sentence"),
    [((), 0, "3 plans"), (("seed:=1",), 1, "Plans differ from the recorded ones")],
    ids=["as recorded", "another seed"],
)
def test_a_replay_ends_with_its_verdict(
    tmp_path: Path, options: tuple[str, ...], code: int, sentence: str
) -> None:
    arguments = (f"bag:={BAG}", "rate:=2.0", "tolerance:=0.001", f"output:={tmp_path}", *options)
    with launched("replay.launch.py", *arguments) as replay:
        output, _ = replay.process.communicate(timeout=PATIENCE)
        assert replay.process.returncode == code, output
    assert sentence in output
    assert (tmp_path / "report.html").exists()
