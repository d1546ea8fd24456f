"""Each family of controllers by its conventions, and an arm that does not follow."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
from geometry_msgs.msg import PoseStamped, TwistStamped
from jepa_planner_msgs.action import ReachGoal
from jepa_planner_msgs.msg import SubGoal
from node_under_test import (
    HOME,
    image_message,
    neighbourhood,
    picture,
    wait_until,
    write_tiny_model,
)
from trajectory_msgs.msg import JointTrajectory

from jepa_planner_ros.control import SafetyLimits
from jepa_planner_ros.robot.kinematics import end_effector_state
from jepa_planner_ros.ros.poses import ControllerFrame, read_pose

ELSEWHERE = image_message(picture(HOME + np.array([0.1, 0.2, -0.1, 0, 0, 0, 0])))
LIMITS = SafetyLimits()
SLOW = (
    f"limits.translation_speed:={LIMITS.translation_speed}",
    f"limits.translation_acceleration:={LIMITS.translation_acceleration}",
    f"limits.translation_jerk:={LIMITS.translation_jerk}",
)
SMOOTH = ("setpoint_rate:=50.0", "motion.duration:=0.5")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("model") / "tiny.safetensors")


def elsewhere(budget: int = 2) -> SubGoal:
    return SubGoal(image=ELSEWHERE, energy_threshold=1e-6, step_budget=budget)


def test_an_arm_in_reflex_is_not_pushed_on(model: Path) -> None:
    with neighbourhood(
        model, "setpoint_rate:=50.0", "motion.duration:=0.5", "limits.lag_distance:=0.01"
    ) as node:
        node.robot.duration = 1e6
        _, result = node.client.send(elsewhere()).result()
        assert result.outcome == ReachGoal.Result.ABORTED
        assert "not in reflex" in result.reason
        wait_until(
            lambda: np.linalg.norm(node.robot.targets[-1][:3] - HOME[:3]) < 1e-3, "no pull is left"
        )


def test_a_dry_run_tells_what_it_would_command_and_moves_nothing(model: Path) -> None:
    with neighbourhood(model, "commander:=dry_run", "motion.time_limit:=1.0") as node:
        would: list[PoseStamped] = []
        node.client.create_subscription(PoseStamped, "jepa_planner/would_command", would.append, 10)
        time.sleep(0.3)
        goal = node.client.send(elsewhere(budget=5))
        _, result = goal.result()
        assert result.outcome == ReachGoal.Result.BUDGET_SPENT, result.reason
        wait_until(lambda: len(would) == 5, "five commands")
        assert node.robot.targets == []
        for pose in would:
            target = read_pose(pose, ControllerFrame.FINGERTIPS)
            assert np.abs(target - HOME)[:3].max() <= LIMITS.step_translation + 1e-6


def test_twists_keep_the_limits_and_end_at_zero(model: Path) -> None:
    with neighbourhood(
        model, "setpoint_rate:=50.0", "motion.duration:=0.5", *SLOW, "commander:=servo_twist"
    ) as node:
        robot, sent = node.robot, []
        robot.duration = 0.02

        def follow(message: TwistStamped) -> None:
            linear, angular = message.twist.linear, message.twist.angular
            twist = np.array([linear.x, linear.y, linear.z, angular.x, angular.y, angular.z])
            sent.append(twist)
            robot.go_to(robot.state + np.append(twist * 0.02, 0.0))

        topic = "servo_node/delta_twist_cmds"
        robot.create_subscription(TwistStamped, topic, follow, 10)
        wait_until(lambda: node.planner.count_subscribers(topic) == 1, "the controller")
        goal = node.client.send(elsewhere(budget=1))
        _, result = goal.result()
        assert result.outcome == ReachGoal.Result.BUDGET_SPENT, result.reason
        wait_until(lambda: bool(sent) and not sent[-1].any(), "a twist of zero")
        fastest = max(np.linalg.norm(twist[:3]) for twist in sent)
        assert 0.0 < fastest <= LIMITS.translation_speed * (1 + 1e-9)
        target = goal.feedback[0].target_pose.pose.position
        reached = robot.state[:3] - [target.x, target.y, target.z]
        assert np.linalg.norm(reached) < 0.01


def test_a_joint_trajectory_leads_to_the_target(model: Path) -> None:
    with neighbourhood(model, *SMOOTH, "commander:=joint_trajectory") as node:
        node.robot.duration = 0.5
        sent: list[JointTrajectory] = []

        def follow(trajectory: JointTrajectory) -> None:
            sent.append(trajectory)
            order = [trajectory.joint_names.index(f"panda_joint{i}") for i in range(1, 8)]
            last = np.array(trajectory.points[-1].positions)[order]
            node.robot.go_to(end_effector_state(last))

        topic = "joint_trajectory_controller/joint_trajectory"
        node.robot.create_subscription(JointTrajectory, topic, follow, 10)
        wait_until(lambda: node.planner.count_subscribers(topic) == 1, "the controller")
        goal = node.client.send(elsewhere(budget=2))
        _, result = goal.result()
        assert result.outcome == ReachGoal.Result.BUDGET_SPENT, result.reason
        assert len(sent) == 2
        for trajectory, feedback in zip(sent, goal.feedback, strict=True):
            assert list(trajectory.points[-1].velocities) == [0.0] * 7
            times = [
                one.time_from_start.sec + 1e-9 * one.time_from_start.nanosec
                for one in trajectory.points
            ]
            assert times[0] > 0.0
            assert (np.diff(times) > 0.0).all()
            end = end_effector_state(np.array(trajectory.points[-1].positions))
            target = feedback.target_pose.pose.position
            np.testing.assert_allclose(end[:3], [target.x, target.y, target.z], atol=1e-3)
