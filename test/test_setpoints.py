"""Setpoints by how the arm answers to them, from step to step and from goal to goal."""

from __future__ import annotations

import numpy as np
import pytest

from jepa_planner_ros.control import MotionSettings, SafetyLimits
from jepa_planner_ros.control.setpoints import Setpoints, accelerated
from jepa_planner_ros.robot.kinematics import HOME_JOINTS, end_effector_state

HOME = end_effector_state(HOME_JOINTS)
LIMITS, MOTION = SafetyLimits(), MotionSettings()
PERIOD = 0.02


def away(x: float = 0.0, y: float = 0.0, z: float = 0.0, yaw: float = 0.0) -> np.ndarray:
    return HOME + np.array([x, y, z, 0.0, 0.0, yaw, 0.0])


@pytest.mark.parametrize(
    ("target", "metres", "radians"),
    [
        (away(x=0.075, y=0.075, z=0.075), 0.07, 0.0),
        (away(x=0.02), 0.02, 0.0),
        (away(yaw=0.2), 0.0, 0.15),
    ],
    ids=["step", "short step", "turn"],
)
def test_setpoints_stop_where_the_arm_is_measured_at_the_very_same_place(
    target: np.ndarray, metres: float, radians: float
) -> None:
    setpoints = Setpoints().towards(target, HOME, 0.0, MOTION, LIMITS)
    for time in np.arange(0.0, 2.0, PERIOD):
        setpoints = setpoints.watched(time, 0.0, (0.01, HOME), MOTION, LIMITS)
    assert "the very same, to the bit" in str(setpoints.fault)
    gone = np.abs(setpoints.at(2.0) - HOME)
    assert np.linalg.norm(gone[:3]) <= metres
    assert gone[5] <= radians + 1e-9


def test_steps_too_short_to_tell_add_up() -> None:
    setpoints, time = Setpoints(), 0.0
    for number in range(1, 6):
        setpoints = setpoints.towards(away(x=0.006 * number), HOME, time, MOTION, LIMITS)
        for _ in range(60):
            time += PERIOD
            setpoints = setpoints.watched(time, 0.0, (0.01, HOME), MOTION, LIMITS)
        if setpoints.fault is not None:
            break
    assert "to the bit" in str(setpoints.fault)
    assert setpoints.at(time)[0] - HOME[0] < 0.015


def test_an_arm_that_is_held_is_not_said_to_be_measured_wrongly() -> None:
    """Its encoders are never still to the last bit."""
    setpoints = Setpoints().towards(away(x=0.05), HOME, 0.0, MOTION, LIMITS)
    for count, time in enumerate(np.arange(0.0, 2.0, PERIOD)):
        held = away(x=1e-12 * (count % 2))
        setpoints = setpoints.watched(time, 0.0, (0.01, held), MOTION, LIMITS)
    assert setpoints.fault is None


@pytest.mark.parametrize("late", [0.05, 0.5])
def test_an_arm_that_is_measured_seldom_is_not_said_to_be_measured_wrongly(late: float) -> None:
    setpoints = Setpoints().towards(away(x=0.075), HOME, 0.0, MOTION, LIMITS)
    for time in np.arange(0.0, 2.0, PERIOD):
        age = time % 0.3
        measured = setpoints.at(max(0.0, time - age - late))
        setpoints = setpoints.watched(time, 0.0, (age, measured), MOTION, LIMITS)
    assert setpoints.fault is None


def test_an_arm_led_by_twists_does_not_run_on_when_its_measurement_is_frozen() -> None:
    setpoints = Setpoints().towards(away(x=0.075), HOME, 0.0, MOTION, LIMITS)
    arm, twist, path = HOME.copy(), np.zeros(6), []
    for time in np.arange(0.0, 2.0, PERIOD):
        measured = (0.01, HOME)
        setpoints = setpoints.watched(time, 0.0, measured, MOTION, LIMITS)
        twist = accelerated(twist, setpoints.twist(time, measured, LIMITS), PERIOD, LIMITS)
        arm[:6] += PERIOD * twist
        path.append(arm[0] - HOME[0])
    assert max(path) < 0.05
    np.testing.assert_allclose(twist, 0.0, atol=1e-9)


def at_rest_after(target: np.ndarray, measured: np.ndarray) -> Setpoints:
    """Setpoints that have gone to a target, long ago, with an arm that came to rest beside it."""
    setpoints = Setpoints().towards(target, HOME, 0.0, MOTION, LIMITS)
    for time in np.arange(0.0, 2.0, PERIOD):
        arm = setpoints.at(time) + (measured - target)
        setpoints = setpoints.watched(time, 0.0, (0.0, arm), MOTION, LIMITS)
    return setpoints


@pytest.mark.parametrize("sag", [0.0, 0.01])
def test_an_arm_that_was_moved_by_hand_is_not_jerked_back(sag: float) -> None:
    reached = at_rest_after(away(x=0.05), away(x=0.05, z=-sag))
    for guided in (away(x=0.075, z=-sag), away(x=0.05, yaw=0.1, z=-sag)):
        setpoints = reached.towards(away(x=0.1), guided, 9.0, MOTION, LIMITS)
        np.testing.assert_allclose(setpoints.at(9.0), guided, atol=1e-9)


def test_an_arm_that_sags_goes_on_from_its_setpoint() -> None:
    sagging = away(x=0.05, z=-0.02)
    reached = at_rest_after(away(x=0.05), sagging)
    setpoints = reached.towards(away(x=0.1), sagging + 1e-4, 9.0, MOTION, LIMITS)
    np.testing.assert_allclose(setpoints.at(9.0), away(x=0.05), atol=1e-9)


def test_an_arm_that_is_late_is_not_sent_through_a_box_on_the_inside_of_a_bend() -> None:
    x, y, z = HOME[:3]
    inside = ((x + 0.02, y + 0.015, z - 0.1), (x + 0.042, y + 0.045, z + 0.1))
    corner, end = away(x=0.05), away(x=0.05, y=0.05)
    limits = SafetyLimits(forbidden_boxes=(inside,))
    under_way = Setpoints().towards(corner, HOME, 0.0, MOTION, limits)
    late = under_way.towards(end, under_way.at(0.5), 0.5, MOTION, limits)
    assert "leads through a box of limits.forbidden_boxes" in str(late.fault)
    assert late.motion is not None
    np.testing.assert_allclose(late.at(late.motion.ends)[1:], HOME[1:], atol=1e-9)
    in_time = under_way.towards(end, under_way.at(0.98), 0.98, MOTION, limits)
    assert in_time.fault is None
    np.testing.assert_allclose(in_time.at(9.0), end, atol=1e-9)


def test_setpoints_do_not_go_through_a_box_to_an_arm_that_was_moved() -> None:
    x, y, z = HOME[:3]
    wall = ((x + 0.06, y - 0.1, z - 0.1), (x + 0.07, y + 0.1, z + 0.1))
    limits = SafetyLimits(forbidden_boxes=(wall,))
    resting = Setpoints().towards(away(x=0.05), HOME, 0.0, MOTION, limits)
    beyond = away(x=0.1)
    blocked = resting.towards(away(x=0.12), beyond, 1.2, MOTION, limits)
    assert "leads through a box of limits.forbidden_boxes" in str(blocked.fault)
    np.testing.assert_allclose(blocked.at(9.0), away(x=0.05), atol=1e-9)
    assert resting.towards(away(x=0.12), beyond, 9.0, MOTION, limits).fault is None
