"""Geometry and limits out of a URDF, against MuJoCo's reading of the same text."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import mujoco
import numpy as np
import pytest
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
from rclpy.qos import DurabilityPolicy, QoSProfile
from std_msgs.msg import String

from jepa_planner_ros.robot.description import DescriptionError, described
from jepa_planner_ros.robot.kinematics import (
    HOME_JOINTS,
    InverseKinematics,
    end_effector_matrix,
    end_effector_state,
)
from jepa_planner_ros.robot.limits import FR3, PANDA, RobotLimits

HALF = np.pi / 2
# As in franka_description.
ORIGINS = (
    ("0 0 0.333", "0 0 0"),
    ("0 0 0", f"{-HALF} 0 0"),
    ("0 -0.316 0", f"{HALF} 0 0"),
    ("0.0825 0 0", f"{HALF} 0 0"),
    ("-0.0825 0.384 0", f"{-HALF} 0 0"),
    ("0 0 0", f"{HALF} 0 0"),
    ("0.088 0 0", f"{HALF} 0 0"),
)
STRANGE = (
    ("0.01 0.02 0.3", "0.1 0 0.2"),
    ("0 0.1 0", "-1.2 0.3 0"),
    ("0.05 -0.3 0", "1.1 0 0.4"),
    ("0.1 0 0.02", "1.6 0.1 0"),
    ("-0.1 0.4 0", "-1.4 0 0.1"),
    ("0 0 0.01", "1.5 0.2 0"),
    ("0.09 0.01 0", "1.6 0 0"),
)
STRANGE_AXES = ("0 0 1", "0 1 0", "0 0 -1", "1 0 0", "0 0 1", "0 -1 0", "0.6 0 0.8")


def urdf(
    arm: str,
    robot: RobotLimits,
    origins: tuple[tuple[str, str], ...] = ORIGINS,
    axes: tuple[str, ...] = ("0 0 1",) * 7,
) -> str:
    links = [
        "base",
        *(f"{arm}_link{index}" for index in range(9)),
        f"{arm}_hand",
        f"{arm}_hand_tcp",
    ]
    mass = (
        '<inertial><mass value="1"/>'
        '<inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>'
    )
    parts = [f'<link name="{link}">{mass}</link>' for link in links]

    def fixed(name: str, parent: str, child: str, xyz: str, rpy: str) -> None:
        parts.append(
            f'<joint name="{name}" type="fixed"><parent link="{parent}"/><child link="{child}"/>'
            f'<origin xyz="{xyz}" rpy="{rpy}"/></joint>'
        )

    fixed("mount", "base", f"{arm}_link0", "0.3 0 1", "0 0 1")
    for index, ((xyz, rpy), axis) in enumerate(zip(origins, axes, strict=True), start=1):
        low, high = robot.joint_min[index - 1], robot.joint_max[index - 1]
        parts.append(
            f'<joint name="{arm}_joint{index}" type="revolute">'
            f'<parent link="{arm}_link{index - 1}"/><child link="{arm}_link{index}"/>'
            f'<origin xyz="{xyz}" rpy="{rpy}"/><axis xyz="{axis}"/>'
            f'<limit lower="{low}" upper="{high}" velocity="2" effort="87"/></joint>'
        )
    fixed(f"{arm}_joint8", f"{arm}_link7", f"{arm}_link8", "0 0 0.107", "0 0 0")
    fixed(f"{arm}_hand_joint", f"{arm}_link8", f"{arm}_hand", "0 0 0", f"0 0 {-HALF / 2}")
    fixed(f"{arm}_tcp_joint", f"{arm}_hand", f"{arm}_hand_tcp", "0 0 0.1034", "0 0 0")
    compiler = '<mujoco><compiler fusestatic="false"/></mujoco>'
    return f'<robot name="{arm}">{compiler}{"".join(parts)}</robot>'


def read(text: str, robot: RobotLimits) -> RobotLimits:
    arm = robot.joint_prefix.removesuffix("_joint")
    return described(text, robot, robot.joint_prefix, f"{arm}_link0")


@pytest.mark.parametrize("robot", [PANDA, FR3], ids=lambda robot: robot.name)
@pytest.mark.parametrize(
    "shape",
    [SimpleNamespace(), SimpleNamespace(origins=STRANGE, axes=STRANGE_AXES)],
    ids=["franka", "strange"],
)
def test_the_fingertips_are_where_mujoco_has_them(
    robot: RobotLimits, shape: SimpleNamespace
) -> None:
    arm = robot.joint_prefix.removesuffix("_joint")
    text = urdf(arm, robot, **vars(shape))
    model = mujoco.MjModel.from_xml_string(text)
    data = mujoco.MjData(model)
    chain = read(text, robot).chain
    base, tip = data.body(f"{arm}_link0"), data.body(f"{arm}_hand_tcp")
    for joints in np.random.default_rng(0).uniform(robot.joint_min, robot.joint_max, (30, 7)):
        data.qpos[:7] = joints
        mujoco.mj_kinematics(model, data)
        turn = base.xmat.reshape(3, 3).T
        pose = end_effector_matrix(joints, chain.fingertips, chain)
        np.testing.assert_allclose(pose[:3, 3], turn @ (tip.xpos - base.xpos), atol=1e-6)
        np.testing.assert_allclose(pose[:3, :3], turn @ tip.xmat.reshape(3, 3), atol=1e-6)


@pytest.mark.parametrize("robot", [PANDA, FR3], ids=lambda robot: robot.name)
def test_frankas_description_is_what_is_built_in(robot: RobotLimits) -> None:
    found = read(urdf(robot.joint_prefix.removesuffix("_joint"), robot), robot)
    for joints in np.random.default_rng(1).uniform(robot.joint_min, robot.joint_max, (20, 7)):
        np.testing.assert_allclose(
            end_effector_matrix(joints, found.chain.upright, found.chain),
            end_effector_matrix(joints),
            atol=1e-9,
        )
    assert found.joint_min == robot.joint_min
    assert found.joint_speed == tuple(min(2.0, own) for own in robot.joint_speed)


def test_inverse_kinematics_serves_an_arm_of_another_shape() -> None:
    found = read(urdf("fr3", FR3, STRANGE), FR3)
    joints = np.array([0.2, 0.3, -0.1, -1.8, 0.2, 1.9, 0.5])
    target = end_effector_state(joints, chain=found.chain)
    solved = InverseKinematics(found).solve(target, joints + 0.1, 300)
    np.testing.assert_allclose(
        end_effector_state(solved, chain=found.chain)[:3], target[:3], atol=1e-4
    )


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("<robot", "cannot be read as URDF"),
        ("<robot/>", "no revolute joint panda_joint1"),
        (urdf("fr3", FR3), "no revolute joint panda_joint1"),
        (urdf("panda", PANDA).replace("0 0 0.333", "0 nan 0.333"), "three numbers"),
        (urdf("panda", PANDA).replace('parent link="panda_link2"', 'parent link="x"'), "no way"),
        (urdf("panda", PANDA).replace('upper="2.8973"', 'upper="nan"'), "joint1' is no number"),
        (urdf("panda", PANDA).replace('link="panda_hand"/', 'link="panda_hand_tcp"/'), "no way"),
    ],
)
def test_a_description_that_does_not_tell_is_refused(text: str, told: str) -> None:
    with pytest.raises(DescriptionError, match=told):
        described(text, PANDA, PANDA.joint_prefix, "panda_link0")


def test_the_node_takes_up_a_description_that_is_published(tmp_path: Path) -> None:
    model = write_tiny_model(tmp_path / "tiny.safetensors")
    longer = (("0 0 0.433", "0 0 0"), *ORIGINS[1:])
    with neighbourhood(model) as node:
        latched = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
        publisher = node.client.create_publisher(String, "robot_description", latched)
        publisher.publish(String(data=urdf("panda", PANDA, longer)))

        def state_height() -> float:
            elsewhere = image_message(picture(HOME + np.array([0.1, 0.2, -0.1, 0, 0, 0, 0])))
            goal = SubGoal(image=elsewhere, energy_threshold=1e-6, step_budget=1)
            node.robot.place(HOME_JOINTS)
            _, result = node.client.send(goal).result()
            assert result.outcome == ReachGoal.Result.BUDGET_SPENT, result.reason
            wait_until(lambda: bool(node.client.plans), "the plan")
            return float(node.client.plans[0].state.position.z)

        wait_until(lambda: state_height() == pytest.approx(HOME[2] + 0.1, abs=1e-3), "10 cm more")
