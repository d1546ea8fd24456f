"""Smooth motions within limits, and the setpoints that are taken from them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jepa_planner_ros.control import MotionSettings, SafetyLimits
from jepa_planner_ros.control.safety import distance
from jepa_planner_ros.control.setpoints import Setpoints
from jepa_planner_ros.robot.kinematics import HOME_JOINTS, end_effector_state
from jepa_planner_ros.robot.limits import FR3, PANDA
from jepa_planner_ros.robot.motion import CartesianMotion, MinimumJerkMotion, Reference
from jepa_planner_ros.robot.trajectory import joint_path

HOME = end_effector_state(HOME_JOINTS)
LIMITS, MOTION = SafetyLimits(), MotionSettings()
PERIOD = 0.002


def away(x: float = 0.0, y: float = 0.0, z: float = 0.0, yaw: float = 0.0) -> np.ndarray:
    return HOME + np.array([x, y, z, 0.0, 0.0, yaw, 0.0])


def peaks(motion: CartesianMotion, until: float) -> tuple[float, float, float]:
    """Speed, acceleration and jerk by differences of what is sent, independent of the formulas."""
    times = np.arange(motion.started, until, PERIOD)
    path = np.array([motion.at(time)[:3] for time in times])
    speed, acceleration, jerk = (
        np.linalg.norm(np.diff(path, order, axis=0), axis=1).max(initial=0.0) / PERIOD**order
        for order in (1, 2, 3)
    )
    return speed, acceleration, jerk


@pytest.mark.parametrize("way", [0.01, 0.05, 0.13, 0.5])
def test_a_motion_arrives_at_rest_and_keeps_to_the_limits(way: float) -> None:
    target = away(x=way, yaw=0.1)
    motion = CartesianMotion.at_rest(HOME, 3.0).towards(target, 3.0, 1.0, LIMITS.motion)
    np.testing.assert_allclose(motion.at(motion.ends), target, atol=1e-9)
    np.testing.assert_allclose(motion.at(3.0), HOME, atol=1e-9)
    speed, acceleration, jerk = peaks(motion, motion.ends)
    assert speed <= LIMITS.translation_speed + 1e-3
    assert acceleration <= LIMITS.translation_acceleration + 1e-2
    assert jerk <= LIMITS.translation_jerk * 1.05
    assert (motion.curve.duration == 1.0) == (way <= 0.13)


def test_a_new_target_on_the_way_is_joined_without_a_jump() -> None:
    first = CartesianMotion.at_rest(HOME, 0.0).towards(away(x=0.1), 0.0, 1.0, LIMITS.motion)
    second = first.towards(away(x=0.05, y=0.1), 0.4, 1.0, LIMITS.motion)
    before = np.array([first.at(0.4 - step * PERIOD)[:3] for step in (1, 0)])
    after = np.array([second.at(0.4 + step * PERIOD)[:3] for step in (0, 1)])
    np.testing.assert_allclose(before[1], after[0], atol=1e-12)
    change = np.diff(after, axis=0) - np.diff(before, axis=0)
    assert np.linalg.norm(change) / PERIOD**2 <= 1.1 * LIMITS.translation_acceleration
    np.testing.assert_allclose(second.at(second.ends), away(x=0.05, y=0.1), atol=1e-9)


@pytest.mark.parametrize("moment", [0.1, 0.3, 0.5, 0.8])
def test_braking_goes_on_a_little_and_never_back(moment: float) -> None:
    motion = CartesianMotion.at_rest(HOME, 0.0).towards(away(x=0.1), 0.0, 1.0, LIMITS.motion)
    braked = motion.braked(moment, LIMITS.motion)
    times = np.linspace(moment, braked.ends, 200)
    path = np.array([braked.at(time)[0] for time in times])
    assert (np.diff(path) >= -1e-9).all()
    assert braked.at(braked.ends)[0] < HOME[0] + 0.13
    assert braked.curve.duration < 1.0
    assert braked.curve.excess(LIMITS.motion) <= 1.05


@given(st.lists(st.tuples(st.floats(0.0, 1.5), st.booleans(), st.integers(0, 99)), max_size=6))
@settings(max_examples=60, deadline=None)
def test_whatever_is_asked_for_when_stays_within_the_limits(
    orders: list[tuple[float, bool, int]],
) -> None:
    motion, time = CartesianMotion.at_rest(HOME, 0.0), 0.0
    for wait, brake, seed in orders:
        time += wait
        if brake:
            motion = motion.braked(time, LIMITS.motion)
        else:
            random = np.random.default_rng(seed)
            target = away(*random.uniform(-0.075, 0.075, 3), yaw=random.uniform(-0.2, 0.2))
            motion = motion.towards(target, time, 1.0, LIMITS.motion)
        # A motion left at its steepest may exceed a limit by a few percent, far from the robot's.
        assert motion.curve.excess(LIMITS.motion) <= 1.1
        assert motion.curve.excess(FR3.motion) < 1.0
        assert motion.curve.excess(PANDA.motion) < 1.0


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


def test_a_silent_control_loop_makes_the_setpoints_brake() -> None:
    setpoints = Setpoints().towards(away(x=0.1), HOME, 0.0, MOTION, LIMITS)
    assert setpoints.watched(0.4, setpoints.at(0.4), MOTION, LIMITS).fault is None
    alive = setpoints.heard_at(0.3)
    assert alive.watched(0.6, alive.at(0.6), MOTION, LIMITS).fault is None
    stopped = setpoints.watched(0.6, setpoints.at(0.6), MOTION, LIMITS)
    assert stopped.fault is not None
    assert "motion.watchdog = 0.5 s" in stopped.fault
    end = stopped.at(10.0)
    assert end is not None
    assert end[0] < away(x=0.1)[0]


def test_an_arm_that_stays_behind_is_not_pushed_on() -> None:
    setpoints = Setpoints().towards(away(x=0.12), HOME, 0.0, MOTION, LIMITS)
    going = setpoints.heard_at(0.4)
    assert going.watched(0.4, HOME, MOTION, LIMITS).fault is None
    stopped = going.heard_at(0.7).watched(0.7, HOME, MOTION, LIMITS)
    assert stopped.fault is not None
    assert "reflex" in stopped.fault
    assert "limits.lag_distance" in stopped.fault
    held = stopped.at(0.72)
    assert held is not None
    assert distance(held, HOME)[0] < 1e-9, "the setpoint goes back to where the arm is"


def test_a_motion_becomes_a_path_of_the_joints() -> None:
    motion = CartesianMotion.at_rest(HOME, 5.0).towards(away(y=0.1), 5.0, 1.0, LIMITS.motion)
    path = joint_path(motion, HOME_JOINTS, 0.05, PANDA)
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
        joint_path(far, HOME_JOINTS, 0.05, PANDA)
    still = np.zeros(7)
    turn = MinimumJerkMotion(np.array([0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0]), 0.3, still, still)
    hasty = CartesianMotion(Reference.from_state(HOME), turn, 0.0)
    with pytest.raises(ValueError, match="times faster than robot = panda"):
        joint_path(hasty, HOME_JOINTS, 0.02, PANDA)
