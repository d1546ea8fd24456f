"""The Franka's geometry, limits and joint names."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest

from jepa_planner_ros.robot.chain import FRANKA
from jepa_planner_ros.robot.joints import JointsError, read_arm, require_range
from jepa_planner_ros.robot.kinematics import (
    FINGERTIPS,
    HOME_JOINTS,
    InverseKinematics,
    end_effector_matrix,
    end_effector_state,
    geometric_jacobian,
)
from jepa_planner_ros.robot.leaps import joint_leap, pose_leap
from jepa_planner_ros.robot.limits import FR3, LIMITS, PANDA, RobotLimits
from jepa_planner_ros.sim import scene


def random_joints(count: int, margin: float = 0.0) -> np.ndarray:
    low, high = np.array(PANDA.joint_min) + margin, np.array(PANDA.joint_max) - margin
    return np.random.default_rng(0).uniform(low, high, (count, 7))


@pytest.fixture(scope="module")
def model() -> mujoco.MjModel:
    return scene.build_model()


def test_fingertips_agree_with_mujoco(model: mujoco.MjModel) -> None:
    data = mujoco.MjData(model)
    site = data.site("hand/TCP")
    for joints in random_joints(50):
        data.qpos[:7] = joints
        mujoco.mj_kinematics(model, data)
        pose = end_effector_matrix(joints, FINGERTIPS)
        np.testing.assert_allclose(pose[:3, 3], site.xpos, atol=1e-6)
        np.testing.assert_allclose(pose[:3, :3], site.xmat.reshape(3, 3), atol=1e-6)


def test_gripper_down_is_far_from_the_jump_of_euler_angles() -> None:
    state = end_effector_state(HOME_JOINTS, gripper=0.25)
    np.testing.assert_allclose(state[3:6], 0.0, atol=1e-12)
    assert state[6] == 0.25
    # Franka's own frame shows the same pose with its z axis pointing down.
    np.testing.assert_allclose(
        end_effector_matrix(HOME_JOINTS, FINGERTIPS)[:3, 2], [0, 0, -1], atol=1e-12
    )


def test_states_of_many_joint_vectors_equal_those_of_each() -> None:
    joints = random_joints(12)
    together = end_effector_state(joints.reshape(3, 4, 7), gripper=0.5)
    assert together.shape == (3, 4, 7)
    one_by_one = [end_effector_state(each, gripper=0.5) for each in joints]
    np.testing.assert_allclose(together.reshape(12, 7), one_by_one, atol=1e-12)


def test_jacobian_is_the_derivative_of_the_pose() -> None:
    step = 1e-6
    for joints in random_joints(5):
        frames = FRANKA.joint_frames(joints)
        pose = end_effector_matrix(joints)
        jacobian = geometric_jacobian(frames, pose[:3, 3])
        for index in range(7):
            moved = end_effector_matrix(joints + step * np.eye(7)[index])
            turn = (moved[:3, :3] @ pose[:3, :3].T - np.eye(3)) / step
            angular = np.array((turn[2, 1], turn[0, 2], turn[1, 0]))
            linear = (moved[:3, 3] - pose[:3, 3]) / step
            np.testing.assert_allclose(jacobian[:, index], [*linear, *angular], atol=1e-5)


def within_limits(joints: np.ndarray) -> bool:
    return bool(np.all((joints >= PANDA.joint_min) & (joints <= PANDA.joint_max)))


def test_inverse_kinematics_reaches_the_workspace_within_the_limits() -> None:
    random = np.random.default_rng(1)
    inverse_kinematics = InverseKinematics()
    for _ in range(40):
        position = random.uniform((0.35, -0.25, 0.1), (0.65, 0.25, 0.5))
        angles = random.uniform(-0.3, 0.3, 3)
        target = np.array([*position, *angles, 0.0])
        joints = inverse_kinematics.solve(target, HOME_JOINTS)
        np.testing.assert_allclose(end_effector_state(joints), target, atol=5e-5)
        assert within_limits(joints)


def test_inverse_kinematics_of_the_unreachable_stays_bounded_and_points_there() -> None:
    target = np.array([2.0, 0.0, 0.4, 0.0, 0.0, 0.0, 0.0])
    joints = InverseKinematics().solve(target, HOME_JOINTS)
    assert within_limits(joints)
    assert end_effector_state(joints)[0] > 0.7


def test_the_models_of_arm_keep_their_own_limits() -> None:
    assert within_limits(HOME_JOINTS)
    assert set(LIMITS) == {"panda", "fr3"}
    assert FR3.joint_min[5] == 0.5445


NAMES = [f"panda_joint{index}" for index in range(1, 8)]
FINGERS = ["panda_finger_joint1", "panda_finger_joint2"]


def test_joints_are_found_in_any_order_among_others() -> None:
    names = [*FINGERS, "lift", *reversed(NAMES)]
    positions = [0.04, 0.02, 9.0, *HOME_JOINTS[::-1]]
    reading = read_arm(names, positions)
    np.testing.assert_array_equal(reading.positions, HOME_JOINTS)
    assert reading.gripper == pytest.approx(0.25)
    assert reading.joint_prefix == "panda_joint"


@pytest.mark.parametrize(
    ("fingers", "closedness"), [([0.0], 1.0), ([0.04], 0.0), ([0.05], 0.0), ([], None)]
)
def test_gripper_with_fingers_missing(fingers: list[float], closedness: float | None) -> None:
    reading = read_arm([*NAMES, *FINGERS[: len(fingers)]], [*HOME_JOINTS, *fingers])
    assert reading.gripper == closedness


def test_fr3_and_a_prefix_of_ones_own() -> None:
    fr3 = [name.replace("panda", "fr3") for name in NAMES]
    assert read_arm(fr3, HOME_JOINTS).joint_prefix == "fr3_joint"
    left = [f"left_{name}" for name in fr3]
    names = [*left, *fr3, "left_fr3_finger_joint1"]
    reading = read_arm(names, [*HOME_JOINTS, *np.zeros(7), 0.04], "left_fr3_joint")
    np.testing.assert_array_equal(reading.positions, HOME_JOINTS)
    assert reading.gripper == 0.0


@pytest.mark.parametrize(
    ("names", "positions", "told"),
    [
        (NAMES[:4] + NAMES[5:], np.zeros(6), "lacks panda_joint5"),
        ([], [], "no joint at all"),
        (["joint_a", "joint_b"], [0.0, 0.0], "expected are panda_joint1 to panda_joint7 or fr3_"),
        (NAMES, np.zeros(6), "names 7 joints but gives 6 positions"),
        (NAMES, [0.0, np.nan, *np.zeros(5)], "no finite position for panda_joint2"),
        ([*NAMES, FINGERS[0]], [*np.zeros(7), np.inf], "for panda_finger_joint1"),
        ([*NAMES, "fr3_joint1"], np.zeros(8), "several arms, panda_joint, fr3_joint"),
    ],
)
def test_unusable_joint_states_are_explained(
    names: list[str], positions: list[float], told: str
) -> None:
    with pytest.raises(JointsError, match=told):
        read_arm(names, positions)


@pytest.mark.parametrize("robot", LIMITS.values(), ids=LIMITS)
def test_joints_at_zero_are_no_arm(robot: RobotLimits) -> None:
    require_range(HOME_JOINTS, robot)
    with pytest.raises(JointsError, match=r"Joint 4 of robot = .* cannot be at 0.00 rad"):
        require_range(np.zeros(7), robot)


def test_joints_do_not_leap() -> None:
    fast = HOME_JOINTS + 0.02 * np.array(PANDA.joint_speed)
    assert joint_leap(HOME_JOINTS, fast, 0.02, PANDA) is None
    elsewhere = HOME_JOINTS + np.array([0, 0.3, 0, 0, 0, 0, 0])
    assert joint_leap(HOME_JOINTS, elsewhere, 0.2, PANDA) is None
    assert "joint 2 is 0.30 rad from where it was 20 ms ago" in str(
        joint_leap(HOME_JOINTS, elsewhere, 0.02, PANDA)
    )


def test_poses_do_not_leap() -> None:
    home = end_effector_state(HOME_JOINTS)
    near, far = home + 0.02, home + np.array([0.2, 0, 0, 0, 0, 0, 0])
    assert pose_leap(home, near, 0.02, PANDA) is None
    assert pose_leap(home, far, 0.2, PANDA) is None
    assert "200 mm and 0.00 rad from where it was 20 ms ago" in str(
        pose_leap(home, far, 0.02, PANDA)
    )
