"""Each check between a plan and the arm, at and beyond its limit."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from jepa_planner_ros.control import MotionSettings, SafetyLimits
from jepa_planner_ros.control.safety import (
    Stream,
    UnsafeCommandError,
    bounded_rotation,
    bounded_translation,
    distance,
    drift,
    inside_workspace,
    motion_time,
    next_target,
    outside_boxes,
    require_model,
    staleness,
    within_reach,
)
from jepa_planner_ros.robot.limits import FR3

LIMITS = SafetyLimits()
MIDDLE = np.array([0.5, 0.0, 0.3, 0.0, 0.0, 0.0, 0.0])


def action(**axes: float) -> np.ndarray:
    names = ("x", "y", "z", "roll", "pitch", "yaw", "gripper")
    return np.array([axes.get(name, 0.0) for name in names])


def test_a_step_within_the_limits_is_left_alone() -> None:
    target, notes = next_target(MIDDLE, action(x=0.05, z=-0.02, gripper=1.0), LIMITS)
    np.testing.assert_allclose(target, MIDDLE + action(x=0.05, z=-0.02, gripper=1.0))
    assert notes == ()


@pytest.mark.parametrize("broken", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("index", range(7))
def test_nothing_that_is_not_finite_becomes_a_target(broken: float, index: int) -> None:
    asked = np.zeros(7)
    asked[index] = broken
    with pytest.raises(UnsafeCommandError, match="not finite"):
        next_target(MIDDLE, asked, LIMITS)
    with pytest.raises(UnsafeCommandError, match="not finite"):
        next_target(MIDDLE + asked, np.zeros(7), LIMITS)


def test_a_long_step_is_cut_on_each_axis_and_says_so() -> None:
    bounded, note = bounded_translation(action(x=0.2, y=-0.3, z=0.01), 0.075)
    np.testing.assert_allclose(bounded[:3], [0.075, -0.075, 0.01])
    assert note is not None
    assert "limits.step_translation" in note


def test_a_wide_turn_is_cut_about_its_own_axis() -> None:
    bounded, note = bounded_rotation(action(yaw=1.0), 0.2)
    np.testing.assert_allclose(bounded, action(yaw=0.2), atol=1e-12)
    assert note is not None
    assert "limits.step_rotation" in note


def test_a_target_outside_moves_to_the_face_of_the_workspace() -> None:
    inside, note = inside_workspace(MIDDLE + action(z=-0.5), LIMITS)
    np.testing.assert_allclose(inside[:3], [0.5, 0.0, LIMITS.workspace_min[2]])
    assert note is not None
    assert "workspace" in note


def test_an_arm_far_outside_the_workspace_does_not_leap_into_it() -> None:
    with pytest.raises(UnsafeCommandError, match="move it inside or widen the box"):
        next_target(MIDDLE + action(x=-0.5), action(x=0.01), LIMITS)
    target, _ = next_target(MIDDLE + action(x=-0.35), action(), LIMITS)
    assert target[0] == LIMITS.workspace_min[0], "a little outside, it comes back"


@given(
    hnp.arrays(np.float64, 7, elements=st.floats(-3.0, 3.0)),
    hnp.arrays(np.float64, 3, elements=st.floats(-1.0, 1.0)),
)
def test_no_action_whatever_leads_beyond_a_limit(asked: np.ndarray, position: np.ndarray) -> None:
    base = np.concatenate((position, np.zeros(4)))
    try:
        target, _ = next_target(base, asked, LIMITS)
    except UnsafeCommandError:
        assert (position < LIMITS.workspace_min).any() or (position > LIMITS.workspace_max).any()
        return
    assert (target[:3] >= LIMITS.workspace_min).all()
    assert (target[:3] <= LIMITS.workspace_max).all()
    assert np.abs(target[:3] - position).max() <= LIMITS.step_translation + 1e-8
    assert distance(base, target)[1] <= LIMITS.step_rotation + 1e-8
    assert 0.0 <= target[6] <= 1.0


def test_drift_is_what_exceeds_either_limit() -> None:
    assert drift(MIDDLE, MIDDLE + action(x=0.02), LIMITS) is None
    assert "40 mm" in str(drift(MIDDLE, MIDDLE + action(x=0.04), LIMITS))
    assert "0.30 rad" in str(drift(MIDDLE, MIDDLE + action(yaw=0.3), LIMITS))


def test_the_gripper_does_not_count_as_drift() -> None:
    assert drift(MIDDLE, MIDDLE + action(gripper=0.6), LIMITS) is None


def test_plans_of_another_model_are_refused() -> None:
    require_model("abc", "abc")
    with pytest.raises(UnsafeCommandError, match=r"world_model\.checkpoint"):
        require_model("abc", "def")


@pytest.mark.parametrize(
    ("stream", "waited", "expected"),
    [
        (Stream("/image_raw", 0.9, 1.0), 5.0, None),
        (Stream("/image_raw", None, 1.0), 0.5, None),
        (Stream("/image_raw", None, 1.0), 1.5, "Nothing has been received on /image_raw in 1.5 s"),
        (Stream("/joint_states", 2.0, 1.0), 9.0, "on /joint_states is 2.0 s old"),
        (Stream("/joint_states", 2.0, 1.0, "no stamp"), 9.0, "cannot be used: no stamp"),
    ],
)
def test_stale_streams_say_topic_age_and_cause(
    stream: Stream, waited: float, expected: str | None
) -> None:
    reason = staleness(stream, waited)
    assert reason is None if expected is None else expected in str(reason)


def test_limits_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ValueError, match=r"limits\.workspace_min y"):
        SafetyLimits(workspace_min=(0.2, 0.5, 0.0), workspace_max=(0.8, 0.5, 0.9))
    with pytest.raises(ValueError, match=r"motion\.time_limit"):
        MotionSettings(duration=5.0, time_limit=5.0)
    with pytest.raises(ValueError, match=r"motion\.still_time"):
        MotionSettings(still_time=math.nan)


BOX = ((0.55, -0.1, 0.0), (0.7, 0.1, 0.5))


def test_a_way_into_a_forbidden_box_ends_before_it() -> None:
    limits = SafetyLimits(forbidden_boxes=(BOX,))
    target, note = outside_boxes(MIDDLE, MIDDLE + action(x=0.075), limits)
    np.testing.assert_allclose(target[:3], [0.54, 0.0, 0.3])
    assert note is not None
    assert "box 1 of limits.forbidden_boxes" in note


def test_a_way_through_a_thin_box_ends_before_it_though_its_end_is_outside() -> None:
    wall = ((0.52, -1.0, 0.0), (0.53, 1.0, 1.0))
    target, _ = next_target(MIDDLE, action(x=0.07), SafetyLimits(forbidden_boxes=(wall,)))
    assert target[0] == pytest.approx(0.51)


def test_a_way_past_a_box_is_left_alone_and_one_inside_is_refused() -> None:
    limits = SafetyLimits(forbidden_boxes=(BOX,))
    aside = MIDDLE + action(y=0.075, z=0.05)
    assert outside_boxes(MIDDLE, aside, limits) == (aside, None)
    with pytest.raises(UnsafeCommandError, match="inside box 1"):
        next_target(MIDDLE + action(x=0.1), action(x=0.01), limits)


def test_a_target_or_a_way_too_near_to_a_box_ends_at_the_clearance() -> None:
    limits = SafetyLimits(forbidden_boxes=(BOX,))
    target, note = outside_boxes(MIDDLE, MIDDLE + action(x=0.0499), limits)
    assert target[0] == pytest.approx(0.54)
    assert "drawn back to (540, 0, 300) mm" in str(note)
    grazing = MIDDLE + action(x=0.03, y=-0.05)
    target, _ = outside_boxes(grazing, grazing + action(x=0.03, y=0.06), limits)
    assert target[:2] == pytest.approx([0.54, -0.03])


@pytest.mark.parametrize("room", [0.0001, 0.001, 0.01])
def test_a_start_within_the_clearance_leads_away_or_along_but_no_nearer(room: float) -> None:
    limits = SafetyLimits(forbidden_boxes=(BOX,))
    start = MIDDLE + action(x=0.05 - room)
    for way in (action(), action(x=-0.02), action(y=0.05), action(x=-0.01, y=0.05, z=0.01)):
        target, note = outside_boxes(start, start + way, limits)
        assert target == pytest.approx(start + way)
        assert note is None
    for nearer in (action(x=0.0005), action(x=0.05), action(x=0.01, y=0.05)):
        target, note = outside_boxes(start, start + nearer, limits)
        assert target == pytest.approx(start, abs=1e-6)
        assert note is not None


@given(
    hnp.arrays(np.float64, 3, elements=st.floats(-0.2, 0.2)),
    st.lists(hnp.arrays(np.float64, 3, elements=st.floats(-0.075, 0.075)), max_size=8),
)
def test_no_sequence_of_steps_comes_nearer_to_a_box_than_the_clearance(
    offset: np.ndarray, steps: list[np.ndarray]
) -> None:
    low, high = np.array(BOX)
    limits = SafetyLimits(forbidden_boxes=(BOX,))
    state = MIDDLE + action(**dict(zip("xyz", offset, strict=True)))

    def room(position: np.ndarray) -> float:
        return float(np.maximum(low - position, position - high).max())

    allowed = min(limits.clearance, room(state[:3]))
    assume(allowed > 1e-6)
    for step in steps:
        before = state
        state, _ = outside_boxes(before, before + np.append(step, [0] * 4), limits)
        for way in np.linspace(before, state, 11):
            assert room(way[:3]) >= allowed - 1e-7


def test_a_target_beyond_the_joints_is_drawn_back_on_the_straight_way() -> None:
    stretched = MIDDLE + action(x=0.15)
    target, note = within_reach(stretched, stretched + action(x=0.2), LIMITS)
    assert stretched[0] <= target[0] < stretched[0] + 0.15
    np.testing.assert_allclose(target[1:6], stretched[1:6], atol=1e-9)
    assert note is not None
    assert "as far as the joints of robot = panda reach" in note
    near, none = within_reach(MIDDLE, MIDDLE + action(y=0.05), LIMITS)
    np.testing.assert_array_equal(near, MIDDLE + action(y=0.05))
    assert none is None


def test_a_gripper_closes_however_far_the_joints_reach() -> None:
    stretched = MIDDLE + action(x=0.15)
    target, note = within_reach(stretched, stretched + action(x=0.2, gripper=1.0), LIMITS)
    assert note is not None
    assert target[0] < stretched[0] + 0.15
    assert target[6] == 1.0


def test_a_start_that_no_joints_reach_is_refused() -> None:
    with pytest.raises(UnsafeCommandError, match=r"limits\.joint_margin"):
        within_reach(MIDDLE + action(x=0.6), MIDDLE + action(x=0.61), LIMITS)


def test_limits_beyond_the_arms_own_are_refused() -> None:
    with pytest.raises(ValueError, match=r"limits\.translation_speed = 2.0 exceeds .* panda"):
        SafetyLimits(translation_speed=2.0)
    SafetyLimits(translation_speed=2.0, robot=FR3)
    with pytest.raises(ValueError, match=r"limits\.forbidden_boxes"):
        SafetyLimits(forbidden_boxes=((BOX[1], BOX[0]),))


def test_a_longer_way_takes_more_time_than_asked_for_where_the_limits_say_so() -> None:
    assert motion_time(MIDDLE, MIDDLE + action(x=0.05), 1.0, LIMITS) == 1.0
    long = motion_time(MIDDLE, MIDDLE + action(x=0.4), 1.0, LIMITS)
    assert long == pytest.approx(15 / 8 * 0.4 / LIMITS.translation_speed)
