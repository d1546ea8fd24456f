"""Smooth motions within limits, and the setpoints that are taken from them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.interpolate import CubicHermiteSpline
from scipy.spatial.transform import Rotation

from jepa_planner_ros.control import MotionSettings, SafetyLimits
from jepa_planner_ros.control.safety import distance
from jepa_planner_ros.control.setpoints import Setpoints, accelerated, tracking_twist
from jepa_planner_ros.robot.kinematics import HOME_JOINTS, InverseKinematics, end_effector_state
from jepa_planner_ros.robot.limits import PANDA
from jepa_planner_ros.robot.motion import CartesianMotion
from jepa_planner_ros.robot.trajectory import JointPath, halted, held, joint_path

HOME = end_effector_state(HOME_JOINTS)
LIMITS, MOTION = SafetyLimits(), MotionSettings()
PERIOD = 0.004
ROUNDING = 1.0 + 1e-6


def away(x: float = 0.0, y: float = 0.0, z: float = 0.0, yaw: float = 0.0) -> np.ndarray:
    return HOME + np.array([x, y, z, 0.0, 0.0, yaw, 0.0])


def highest(states: np.ndarray, limits: SafetyLimits) -> float:
    """Speed, acceleration and jerk of samples (n, 7) in parts of their limits; the highest.

    By differences of what is sent, independent of the formulas that it comes from.
    """
    turns = Rotation.from_euler("xyz", states[:, 3:6])
    turned = (turns[1:] * turns[:-1].inv()).as_rotvec()
    found = 0.0
    for steps, kind in ((np.diff(states[:, :3], axis=0), "translation"), (turned, "rotation")):
        for order, name in enumerate(("speed", "acceleration", "jerk"), start=1):
            slopes = np.linalg.norm(np.diff(steps, order - 1, axis=0), axis=1) / PERIOD**order
            bound = getattr(limits, f"{kind}_{name}")
            found = max(found, float(slopes.max(initial=0.0)) / bound)
    return found


def samples(motion: CartesianMotion) -> np.ndarray:
    return np.array([motion.at(time) for time in np.arange(motion.started, motion.ends, PERIOD)])


@pytest.mark.parametrize("way", [0.01, 0.05, 0.13, 0.5])
def test_a_motion_arrives_at_rest_and_keeps_to_the_limits(way: float) -> None:
    target = away(x=way, yaw=0.1)
    motion = CartesianMotion.at_rest(HOME, 3.0).towards(target, 3.0, 1.0, LIMITS.motion)
    np.testing.assert_allclose(motion.at(motion.ends), target, atol=1e-9)
    np.testing.assert_allclose(motion.at(3.0), HOME, atol=1e-9)
    assert highest(samples(motion), LIMITS) <= ROUNDING
    assert (motion.ends == 4.0) == (way <= 0.13)


def test_a_new_target_on_the_way_is_gone_to_after_a_stop() -> None:
    first = CartesianMotion.at_rest(HOME, 0.0).towards(away(x=0.1), 0.0, 1.0, LIMITS.motion)
    second = first.towards(away(x=0.05, y=0.1), 0.4, 1.0, LIMITS.motion)
    np.testing.assert_allclose(first.at(0.4), second.at(0.4), atol=1e-12)
    np.testing.assert_allclose(second.at(second.ends), away(x=0.05, y=0.1), atol=1e-9)
    path = samples(second)
    assert (path[:, 0] <= away(x=0.1)[0]).all(), "the checked way is not left"


@pytest.mark.parametrize("moment", [0.01, 0.1, 0.3, 0.5, 0.8, 0.95])
def test_braking_goes_on_a_little_and_never_back(moment: float) -> None:
    motion = CartesianMotion.at_rest(HOME, 0.0).towards(away(x=0.1), 0.0, 1.0, LIMITS.motion)
    braked = motion.braked(moment, LIMITS.motion)
    path = np.array([braked.at(time)[0] for time in np.linspace(moment, braked.ends, 200)])
    assert (np.diff(path) >= -1e-12).all()
    assert path[-1] <= away(x=0.1)[0] + 1e-9
    assert braked.ends <= motion.ends + 1e-9
    assert braked.ends - moment < 0.5


@given(
    st.lists(st.tuples(st.integers(0, 400), st.booleans(), st.integers(0, 99)), max_size=6),
    st.sampled_from([1.0, 0.3, 0.02]),
)
@settings(max_examples=100, deadline=None)
def test_whatever_is_asked_for_when_stays_within_the_limits(
    orders: list[tuple[int, bool, int]], duration: float
) -> None:
    motion, sent, time = CartesianMotion.at_rest(HOME, 0.0), [HOME], 0.0
    low = high = HOME
    for periods, brake, seed in [*orders, (600, True, 0)]:
        for _ in range(periods):
            time += PERIOD
            sent.append(motion.at(time))
        if brake:
            motion = motion.braked(time, LIMITS.motion)
        else:
            random = np.random.default_rng(seed)
            target = away(*random.uniform(-0.075, 0.075, 3), yaw=random.uniform(-0.2, 0.2))
            low, high = np.minimum(low, target), np.maximum(high, target)
            motion = motion.towards(target, time, duration, LIMITS.motion)
    assert highest(np.array(sent), LIMITS) <= ROUNDING
    positions = np.array(sent)[:, :3]
    assert (positions >= low[:3] - 1e-9).all()
    assert (positions <= high[:3] + 1e-9).all(), "nothing is beyond the box of what was asked for"


@given(st.floats(0.0, 1.0), st.floats(0.02, 1.0))
@settings(max_examples=50, deadline=None)
def test_a_stop_under_lower_limits_than_the_motion_had_still_stops(
    moment: float, share: float
) -> None:
    motion = CartesianMotion.at_rest(HOME, 0.0).towards(away(x=0.1), 0.0, 1.0, LIMITS.motion)
    lower = replace(
        LIMITS,
        translation_acceleration=share * LIMITS.translation_acceleration,
        translation_jerk=share * LIMITS.translation_jerk,
    )
    braked = motion.braked(moment, lower.motion)
    path = np.array([braked.at(time)[0] for time in np.linspace(moment, braked.ends, 200)])
    assert (np.diff(path) >= -1e-12).all()
    np.testing.assert_allclose(braked.velocity(braked.ends), 0.0, atol=1e-9)


def test_the_velocity_is_the_slope_of_the_way() -> None:
    motion = CartesianMotion.at_rest(HOME, 0.0).towards(
        away(x=0.1, yaw=0.2), 0.0, 1.0, LIMITS.motion
    )
    before, after = motion.at(0.3 - 1e-5), motion.at(0.3 + 1e-5)
    slope = (after - before) / 2e-5
    np.testing.assert_allclose(motion.velocity(0.3), slope[:6], atol=1e-6)


def test_setpoints_go_from_the_arm_to_the_target() -> None:
    setpoints = Setpoints().towards(away(x=0.05), HOME, 1.0, MOTION, LIMITS)
    assert setpoints.moving(1.5)
    np.testing.assert_allclose(setpoints.at(1.0), HOME, atol=1e-9)
    np.testing.assert_allclose(setpoints.at(2.5), away(x=0.05), atol=1e-9)
    assert not setpoints.moving(2.5)


def test_setpoints_go_on_from_the_last_unless_the_arm_was_moved() -> None:
    setpoints = Setpoints().towards(away(x=0.05), HOME, 0.0, MOTION, LIMITS)
    sagging = away(x=0.05, z=-0.01)
    np.testing.assert_allclose(
        setpoints.towards(away(x=0.1), sagging, 2.0, MOTION, LIMITS).at(2.0), away(x=0.05)
    )
    moved = away(x=0.05, z=-0.1)
    np.testing.assert_allclose(
        setpoints.towards(away(x=0.1), moved, 2.0, MOTION, LIMITS).at(2.0), moved, atol=1e-9
    )
    # As long as setpoints are sent they do not jump, but go back to the arm before they go on.
    back = setpoints.towards(away(x=0.1), moved, 1.2, MOTION, LIMITS)
    assert back.motion is not None
    path = samples(back.motion)
    np.testing.assert_allclose(path[0], away(x=0.05), atol=1e-9)
    assert highest(path, LIMITS) <= ROUNDING
    assert np.linalg.norm(path - moved, axis=1).min() < 1e-3
    np.testing.assert_allclose(back.at(back.motion.ends), away(x=0.1), atol=1e-9)


def test_a_silent_control_loop_makes_the_setpoints_brake() -> None:
    setpoints = Setpoints().towards(away(x=0.1), HOME, 0.0, MOTION, LIMITS)
    assert setpoints.watched(0.6, 0.4, (0.0, setpoints.at(0.6)), MOTION, LIMITS).fault is None
    stopped = setpoints.watched(0.6, 0.6, (0.0, setpoints.at(0.6)), MOTION, LIMITS)
    assert stopped.fault is not None
    assert "motion.watchdog = 0.5 s" in stopped.fault
    end = stopped.at(10.0)
    assert end is not None
    assert end[0] < away(x=0.1)[0]


def test_an_arm_that_stays_behind_is_not_pushed_on() -> None:
    setpoints = Setpoints().towards(away(x=0.12), HOME, 0.0, MOTION, LIMITS)
    assert setpoints.watched(0.4, 0.0, (0.0, HOME), MOTION, LIMITS).fault is None
    stopped = setpoints.watched(0.7, 0.0, (0.0, HOME), MOTION, LIMITS)
    assert stopped.fault is not None
    assert "reflex" in stopped.fault
    assert "limits.lag_distance" in stopped.fault
    assert stopped.motion is not None
    held = stopped.at(stopped.motion.ends)
    assert held is not None
    assert distance(held, HOME)[0] < 1e-9, "the setpoint goes back to where the arm is"
    assert highest(samples(stopped.motion), LIMITS) <= ROUNDING
    braked = stopped.braked(1.0, LIMITS)
    assert braked.motion is not None
    assert braked.motion.ends < stopped.motion.ends, "but for one who wants it to stand still"


@pytest.mark.parametrize(
    ("measured", "limits"),
    [
        (away(x=-0.3), LIMITS),
        (HOME, replace(LIMITS, forbidden_boxes=(((0.0, -1.0, 0.0), (HOME[0] + 0.01, 1.0, 1.0)),))),
    ],
    ids=["where no arm can have stayed behind", "in a box"],
)
def test_setpoints_do_not_go_back_to(measured: np.ndarray, limits: SafetyLimits) -> None:
    setpoints = Setpoints().towards(away(x=0.12), HOME, 0.0, MOTION, limits)
    stopped = setpoints.watched(0.7, 0.0, (0.0, measured), MOTION, limits)
    assert stopped.fault is not None
    assert stopped.motion is not None
    path = samples(stopped.motion)
    assert path[:, 0].min() >= setpoints.at(0.7)[0] - 1e-9
    assert highest(path, limits) <= ROUNDING


@pytest.mark.parametrize("lag_distance", [0.02, 0.03, 0.05])
def test_setpoints_go_back_however_soon_the_lag_is_noticed(lag_distance: float) -> None:
    limits = replace(LIMITS, lag_distance=lag_distance)
    setpoints = Setpoints().towards(away(x=0.07, y=0.07, z=0.07), HOME, 0.0, MOTION, limits)
    time = 0.0
    while setpoints.fault is None:
        time += 0.02
        # The encoders of an arm that is held are never still to the last bit.
        setpoints = setpoints.watched(time, 0.0, (0.02, away(x=1e-9 * time)), MOTION, limits)
    assert setpoints.motion is not None
    np.testing.assert_allclose(setpoints.at(setpoints.motion.ends), HOME, atol=1e-8)


def test_setpoints_go_back_to_the_edge_for_an_arm_that_sags_beyond_it() -> None:
    limits = replace(LIMITS, workspace_min=(0.2, -0.4, HOME[2] + 0.001))
    setpoints = Setpoints().towards(away(x=0.12, z=0.01), HOME, 0.0, MOTION, limits)
    stopped = setpoints.watched(0.7, 0.0, (0.0, HOME), MOTION, limits)
    assert stopped.motion is not None
    np.testing.assert_allclose(stopped.at(stopped.motion.ends), away(z=0.001), atol=1e-9)


def test_what_was_measured_before_a_motion_says_nothing_about_it() -> None:
    setpoints = Setpoints().towards(away(x=0.12), HOME, 0.0, MOTION, LIMITS)
    late = setpoints.at(0.2)
    braked = setpoints.braked(0.6, LIMITS)
    assert braked.watched(0.7, 0.0, (0.5, late), MOTION, LIMITS) is braked


@pytest.mark.parametrize("angle", [0.3, 0.7, 1.0])
def test_an_elbow_that_is_turned_comes_back_slowly(angle: float) -> None:
    joints = HOME_JOINTS
    while abs(joints[2] - HOME_JOINTS[2]) < angle:
        turned = joints + np.array([0.0, 0.0, 0.05, 0.0, 0.0, 0.0, 0.0])
        joints = InverseKinematics(rest=turned).solve(HOME, turned)
    there = CartesianMotion.at_rest(HOME, 0.0).towards(away(x=0.05), 0.0, 1.0, LIMITS.motion)
    back = CartesianMotion.at_rest(away(x=0.05), 0.0).towards(HOME, 0.0, 1.0, LIMITS.motion)
    end = joints
    for motion in (there, back):
        path = joint_path(motion, end, 0.02, PANDA, LIMITS.motion)
        end = path.positions[-1]
        np.testing.assert_allclose(end_effector_state(end)[:3], motion.at(1.0)[:3], atol=1e-3)
        assert (np.abs(path.velocities) / np.array(PANDA.joint_speed)).max() < 0.35
    assert abs(end[2]) < abs(joints[2]) - 0.05


def test_an_arm_is_held_against_the_setpoint_of_when_it_was_measured() -> None:
    setpoints = Setpoints().towards(away(x=0.12), HOME, 0.0, MOTION, LIMITS)
    late = setpoints.at(0.3)
    assert setpoints.watched(0.7, 0.0, (0.4, late), MOTION, LIMITS).fault is None
    assert setpoints.watched(0.7, 0.0, (0.0, late), MOTION, LIMITS).fault is not None
    assert setpoints.watched(0.99, 0.0, (0.3, HOME), MOTION, LIMITS).fault is not None


def test_a_twist_keeps_the_speed_and_makes_up_for_what_the_arm_is_off() -> None:
    velocity = np.array([0.1, 0.0, 0.0, 0.0, 0.0, 0.2])
    np.testing.assert_allclose(tracking_twist(HOME, velocity, HOME, LIMITS), velocity, atol=1e-12)
    behind = tracking_twist(HOME, velocity, away(x=-0.01, yaw=-0.02), LIMITS)
    np.testing.assert_allclose(behind, [0.14, 0.0, 0.0, 0.0, 0.0, 0.28], atol=1e-6)
    far = tracking_twist(HOME, velocity, away(x=-0.2, y=0.3, yaw=1.0), LIMITS)
    assert np.linalg.norm(far[:3]) == pytest.approx(LIMITS.translation_speed)
    assert np.linalg.norm(far[3:]) == pytest.approx(LIMITS.rotation_speed)


def test_twists_change_no_faster_than_the_limits_allow() -> None:
    twist, asked = np.zeros(6), np.array([0.3, 0.4, 0.0, 0.0, 0.0, -2.0])
    period = 0.02
    following = [twist]
    for _ in range(200):
        following.append(accelerated(following[-1], asked, period, LIMITS))
    np.testing.assert_allclose(following[-1], asked)
    changes = np.diff(following, axis=0) / period
    fastest = np.linalg.norm(changes[:, :3], axis=1).max()
    assert fastest == pytest.approx(LIMITS.translation_acceleration)
    assert np.abs(changes[:, 5]).max() == pytest.approx(LIMITS.rotation_acceleration)


def test_a_motion_becomes_a_path_of_the_joints() -> None:
    motion = CartesianMotion.at_rest(HOME, 5.0).towards(away(y=0.1), 5.0, 1.0, LIMITS.motion)
    path = joint_path(motion, HOME_JOINTS, 0.05, PANDA, LIMITS.motion)
    assert len(path.times) == len(path.positions) == len(path.velocities) == 20
    for time, joints in zip(path.times, path.positions, strict=True):
        np.testing.assert_allclose(
            end_effector_state(joints)[:3], motion.at(5.0 + time)[:3], atol=1e-4
        )
    np.testing.assert_array_equal(path.velocities[-1], 0.0)
    slope = np.gradient(path.positions, path.times, axis=0)[2:-2]
    np.testing.assert_allclose(path.velocities[2:-2], slope, atol=1e-3)


def test_a_path_that_the_joints_cannot_follow_is_refused() -> None:
    far = CartesianMotion.at_rest(HOME, 0.0).towards(away(x=0.6), 0.0, 1.0, LIMITS.motion)
    with pytest.raises(ValueError, match="No joint positions"):
        joint_path(far, HOME_JOINTS, 0.05, PANDA, LIMITS.motion)
    near = CartesianMotion.at_rest(HOME, 0.0).towards(away(yaw=0.2), 0.0, 1.0, LIMITS.motion)
    slow = replace(PANDA, joint_speed=(0.2,) * 7)
    with pytest.raises(ValueError, match=r"Joint 7 would .* times faster than robot = panda"):
        joint_path(near, HOME_JOINTS, 0.02, slow, LIMITS.motion)


RESTING = CartesianMotion.at_rest(HOME, 0.0)
STEP = RESTING.towards(away(x=0.12), 0.0, 1.0, LIMITS.motion)
BRAKED = STEP.braked(0.5, LIMITS.motion)
DIVERTED = STEP.towards(away(y=0.05), 0.5, 1.0, LIMITS.motion)
GOES_BACK = STEP.towards(HOME, 0.7, 0.0, LIMITS.motion)
STILL = RESTING.towards(HOME, 0.0, 1.0, LIMITS.motion).braked(0.5, LIMITS.motion)
TURNED = HOME + np.array([0.0, 0.0, 0.0, 0.0, 0.0, 0.18, 0.0])


def followed(path: JointPath, joints: np.ndarray, velocity: np.ndarray) -> np.ndarray:
    """Where a joint_trajectory_controller leads the tip (n, 3), once its speeds have been judged.

    It begins with the arm's own position and velocity.
    """
    controller = CubicHermiteSpline(
        np.append(0.0, path.times),
        np.vstack((joints, path.positions)),
        np.vstack((velocity, path.velocities)),
    )
    times = np.arange(0.0, path.times[-1], 0.001)
    assert (np.abs(controller(times, 1)) <= PANDA.joint_speed).all()
    tip = end_effector_state(controller(times))[:, :3]
    fastest = np.linalg.norm(np.diff(tip, axis=0), axis=1).max() / 0.001
    assert fastest <= 1.01 * LIMITS.translation_speed
    return tip


@pytest.mark.parametrize(
    ("motion", "before", "measured", "end"),
    [
        pytest.param(STEP, away(z=-0.025), away(z=-0.025), away(x=0.12), id="off its setpoint"),
        pytest.param(STEP, TURNED, TURNED, away(x=0.12), id="turned"),
        pytest.param(BRAKED, STEP.at(0.44), STEP.at(0.46), BRAKED.at(9.0), id="braked"),
        pytest.param(DIVERTED, STEP.at(0.44), STEP.at(0.46), away(y=0.05), id="sent elsewhere"),
        pytest.param(GOES_BACK, HOME, HOME, HOME, id="does not follow"),
        pytest.param(STILL, away(z=-0.025), away(z=-0.025), away(z=-0.025), id="stands"),
    ],
)
def test_a_trajectory_keeps_the_limits_from_where_the_arm_is(
    motion: CartesianMotion, before: np.ndarray, measured: np.ndarray, end: np.ndarray
) -> None:
    inverse_kinematics = InverseKinematics()
    earlier = inverse_kinematics.solve(before, HOME_JOINTS)
    joints = inverse_kinematics.solve(measured, earlier)
    path = joint_path(motion, joints, 0.02, PANDA, LIMITS.motion)
    tip = followed(path, joints, (joints - earlier) / 0.02)
    np.testing.assert_allclose(tip[-1], end[:3], atol=1e-3)
    if np.array_equal(measured, end):
        np.testing.assert_allclose(tip, np.broadcast_to(end[:3], tip.shape), atol=1e-4)


@pytest.mark.parametrize("age", [0.0, 0.1, 0.3])
def test_an_arm_halted_where_it_was_some_time_ago_keeps_the_limits(age: float) -> None:
    inverse_kinematics = InverseKinematics()
    joints = inverse_kinematics.solve(STEP.at(0.4), HOME_JOINTS)
    gone_on = inverse_kinematics.solve(STEP.at(0.4 + age), joints)
    velocity = (inverse_kinematics.solve(STEP.at(0.42 + age), gone_on) - gone_on) / 0.02
    tip = followed(held(joints, age), gone_on, velocity)
    np.testing.assert_allclose(tip[-1], STEP.at(0.4)[:3], atol=1e-3)


@pytest.mark.parametrize("time", [0.005, 0.1, 0.5, 0.9, 2.0])
def test_an_arm_that_is_not_measured_is_halted_on_its_way(time: float) -> None:
    path = joint_path(STEP, HOME_JOINTS, 0.02, PANDA, LIMITS.motion)
    speed = (path.at(time + 0.001) - path.at(time)) / 0.001
    tip = followed(halted(path, time), path.at(time), speed)
    np.testing.assert_allclose(tip[-1], STEP.at(time + 0.1)[:3], atol=2e-3)
    assert tip[-1, 0] == pytest.approx(tip[:, 0].max(), abs=1e-3), "it does not turn back"


def test_an_arm_that_brakes_already_is_halted_no_sooner() -> None:
    braking = joint_path(BRAKED, HOME_JOINTS, 0.02, PANDA, LIMITS.motion)
    stop = halted(braking, 0.05)
    np.testing.assert_array_equal(stop.positions, braking.positions)
    assert stop.times[-1] == pytest.approx(braking.times[-1] - 0.05)
