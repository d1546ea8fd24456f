"""The simulated robot without ROS: it goes where it is told, and does so again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from jepa_planner_ros.geometry import action_between
from jepa_planner_ros.robot.kinematics import end_effector_state
from jepa_planner_ros.robot.motion import shortest_duration
from jepa_planner_ros.sim import scene
from jepa_planner_ros.sim.episodes import sample_reach_task
from jepa_planner_ros.sim.franka import FrankaSim, SimSettings
from jepa_planner_ros.sim.minimum_jerk import MinimumJerkMotion

MIDDLE = np.array([0.5, 0.0, 0.3, 0.0, 0.0, 0.0, 0.0])


@pytest.fixture(scope="module")
def sim() -> Iterator[FrankaSim]:
    with FrankaSim() as sim:
        yield sim


def with_settings(**changes: float) -> FrankaSim:
    return FrankaSim(replace(SimSettings(), **changes))


def test_target_is_reached_within_half_a_millimetre(sim: FrankaSim) -> None:
    sim.place(MIDDLE)
    action = np.array([0.07, -0.05, 0.06, 0.05, -0.05, 0.2, 0.6])
    reached = sim.move(action)
    np.testing.assert_allclose(action_between(sim.target, reached)[:6], 0.0, atol=5e-4)
    assert reached[6] == pytest.approx(0.6, abs=0.02)
    assert not sim.moving


def test_a_path_of_the_joints_is_followed_and_its_end_held(sim: FrankaSim) -> None:
    sim.place(MIDDLE)
    start = sim.joints.positions[:7]
    end = start + np.array([0.1, 0.0, 0.0, 0.05, 0.0, 0.0, -0.1])
    times = np.linspace(0.1, 1.0, 10)
    sim.follow_joints(times, start + times[:, None] * (end - start))
    sim.advance(0.5)
    assert sim.moving
    np.testing.assert_allclose(sim.joints.positions[:7], 0.5 * (start + end), atol=5e-3)
    sim.settle()
    np.testing.assert_allclose(sim.joints.positions[:7], end, atol=2e-3)
    sim.set_target(MIDDLE)
    sim.settle()
    np.testing.assert_allclose(sim.state[:3], MIDDLE[:3], atol=1e-3)


@pytest.mark.parametrize(
    ("times", "positions"),
    [([], []), ([1.0], [[0.0] * 6]), ([1.0, 0.5], [[0.0] * 7] * 2), ([1.0], [[np.nan] * 7])],
)
def test_a_path_that_is_none_is_refused(
    sim: FrankaSim, times: list[float], positions: list[list[float]]
) -> None:
    with pytest.raises(ValueError, match="seven finite joint positions"):
        sim.follow_joints(np.array(times), np.array(positions))


def test_state_agrees_with_the_joints(sim: FrankaSim) -> None:
    sim.reset(1)
    joints = sim.joints
    assert joints.names[0] == "panda_joint1"
    assert joints.names[7:] == ("panda_finger_joint1", "panda_finger_joint2")
    np.testing.assert_allclose(end_effector_state(joints.positions[:7]), sim.state, atol=1e-9)


def test_motion_lasts_as_long_as_set_and_respects_the_speed_limit(sim: FrankaSim) -> None:
    sim.place(MIDDLE)
    sim.set_target(MIDDLE + np.array([0.0, 0.2, 0.0, 0.0, 0.0, 0.0, 0.0]))
    path = [sim.state]
    while sim.moving:
        sim.advance(0.01)
        path.append(sim.state)
    speeds = np.linalg.norm(np.diff(np.array(path)[:, :3], axis=0), axis=1) / 0.01
    assert speeds.max() <= sim.settings.translation_speed * 1.1
    # 20 cm in the quarter second that is set would take a peak of 1.5 m/s.
    assert len(path) * 0.01 > 0.4


def test_a_new_target_on_the_way_makes_no_jump(sim: FrankaSim) -> None:
    sim.place(MIDDLE)
    path = [sim.state]
    for shift in (0.06, 0.0, 0.06):
        sim.set_target(MIDDLE + np.array([shift, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]))
        for _ in range(12):
            sim.advance(0.01)
            path.append(sim.state)
    speeds = np.diff(np.array(path)[:, 0]) / 0.01
    assert np.abs(np.diff(speeds)).max() / 0.01 < 2.0 * sim.settings.translation_acceleration


def test_minimum_jerk_keeps_what_it_starts_with_and_comes_to_rest() -> None:
    start = np.array([0.3]), np.array([-1.0])
    motion = MinimumJerkMotion(np.array([0.1]), 0.5, *start)
    distance, velocity, acceleration = motion.at(0.0)
    assert (distance, velocity, acceleration) == (0.0, *start)
    nearly = motion.at(0.5 - 1e-9)
    np.testing.assert_allclose(nearly, [[0.1], [0.0], [0.0]], atol=1e-6)
    np.testing.assert_array_equal(motion.at(7.0), [[0.1], [0.0], [0.0]])


def test_shortest_duration_touches_the_limits() -> None:
    still = np.zeros(1)
    for speed, acceleration in ((0.5, 100.0), (100.0, 4.0)):
        duration = shortest_duration(0.2, speed, acceleration)
        motion = MinimumJerkMotion(np.array([0.2]), duration, still, still)
        _, speeds, accelerations = np.array(
            [motion.at(time) for time in np.linspace(0.0, duration, 1001)]
        ).transpose(1, 0, 2)
        used = max(np.abs(speeds).max() / speed, np.abs(accelerations).max() / acceleration)
        assert used == pytest.approx(1.0, abs=1e-3)


def test_same_seed_and_commands_give_the_same_states_and_frames(sim: FrankaSim) -> None:
    def episode(robot: FrankaSim) -> list[np.ndarray]:
        robot.reset(5)
        steps = np.random.default_rng(2).uniform(-0.03, 0.03, (3, 7))
        return [part for step in steps for part in (robot.move(step), robot.render())]

    first = episode(sim)
    sim.reset(6)
    with FrankaSim() as other:
        for again in (episode(sim), episode(other)):
            for one, two in zip(first, again, strict=True):
                np.testing.assert_array_equal(one, two)


def test_execution_error_has_the_size_that_is_set_and_comes_from_the_seed() -> None:
    with with_settings(execution_noise_m=0.01) as sim:

        def errors(seed: int) -> np.ndarray:
            sim.reset(seed)
            sim.place(MIDDLE)
            step = np.array([0.02, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0])
            return np.array([(sim.move(step * (-1) ** n) - sim.target)[:3] for n in range(20)])

        first = errors(1)
        assert 0.006 < first.std() < 0.014
        np.testing.assert_array_equal(first, errors(1))
        assert not np.allclose(first, errors(2))

        # The gripper alone, or the same target again, makes no new error.
        before = sim.state
        sim.set_target(sim.target)
        sim.settle()
        np.testing.assert_allclose(sim.state[:3], before[:3], atol=5e-4)


def test_jitter_of_camera_and_light_is_off_unless_set(sim: FrankaSim) -> None:
    frames = []
    for seed in (1, 2):
        sim.reset(seed)
        sim.place(MIDDLE)
        frames.append(sim.render().astype(int))
    # Beside the robot nothing but the cube differs between seeds.
    assert (np.abs(frames[0] - frames[1]).max(axis=2) > 8).mean() < 0.03

    with with_settings(camera_jitter_m=0.01, light_jitter=0.3) as varied:
        varied.reset(1)
        varied.place(MIDDLE)
        assert (np.abs(varied.render().astype(int) - frames[0]).max(axis=2) > 8).mean() > 0.1


def test_reach_task_starts_where_it_says_and_shows_the_goal(sim: FrankaSim) -> None:
    for seed in range(4):
        task = sample_reach_task(sim, seed)
        assert 0.15 <= task.distance <= 0.25 + 1e-3
        np.testing.assert_array_equal(sim.state, task.start_state)
        assert task.goal_image.shape == (256, 256, 3)
        np.testing.assert_allclose(task.start_state[3:], task.goal_state[3:], atol=1e-4)
        cube = sim.cube_position
        # Really going there shows what the photograph shows.
        for part in np.diff(np.linspace(task.start_state, task.goal_state, 4), axis=0):
            sim.move(part)
        difference = np.abs(sim.render().astype(int) - task.goal_image).max(axis=2)
        assert (difference > 40).mean() < 0.01
        np.testing.assert_allclose(sim.cube_position, cube, atol=1e-4)

    first, second = (sample_reach_task(sim, 0) for _ in range(2))
    np.testing.assert_array_equal(first.goal_image, second.goal_image)


def test_arm_shows_in_the_camera_everywhere_in_the_workspace(sim: FrankaSim) -> None:
    settings = sim.settings
    corners = np.stack(
        np.meshgrid(*zip(settings.workspace_min, settings.workspace_max, strict=True)), axis=-1
    ).reshape(-1, 3)
    sim.reset(0)
    for corner in corners:
        sim.place(np.array([*corner, 0.0, 0.0, 0.0, 0.0]))
        opened = sim.render().astype(int)
        sim.place(np.array([*corner, 0.0, 0.0, 0.0, 1.0]))
        closed = sim.render().astype(int)
        # The fingers are in the picture, for opening them changes it.
        assert (np.abs(opened - closed).max(axis=2) > 30).sum() > 20


def test_focal_length_puts_the_cube_where_the_picture_shows_it(sim: FrankaSim) -> None:
    sim.reset(0)
    picture = sim.render(width=320, height=240).astype(int)
    red = picture[..., 0] > 1.8 * picture[..., 1:].max(axis=2)
    seen = np.argwhere(red).mean(axis=0)[::-1]

    # MuJoCo's cameras look along -z with y up.
    camera = scene.build_model().camera(scene.CAMERA)
    orientation = Rotation.from_quat(np.roll(camera.quat, -1))
    x, y, z = orientation.inv().apply(sim.cube_position - camera.pos)
    projected = sim.focal_length(240) * np.array([x, -y]) / -z + (159.5, 119.5)
    np.testing.assert_allclose(seen, projected, atol=2.0)


def test_hand_does_not_go_through_the_table(sim: FrankaSim) -> None:
    sim.reset(0)
    sim.place(MIDDLE)
    for _ in range(8):
        sim.move(np.array([0.0, 0.2 / 8, -0.05, 0.0, 0.0, 0.0, 0.0]))
    assert sim.state[2] > -0.005


@pytest.mark.parametrize("away", [(2.0, 0.0, 0.4), (-0.5, 0.1, 0.3), (0.0, 0.0, 2.0)])
def test_a_target_out_of_reach_does_not_shake_the_arm(
    sim: FrankaSim, away: tuple[float, float, float]
) -> None:
    sim.reset(0)
    sim.place(MIDDLE)
    sim.set_target(np.array([*away, 0.0, 0.0, 0.0, 0.0]))
    fastest = 0.0
    for _ in range(300):
        sim.advance(0.01)
        fastest = max(fastest, np.abs(sim.joints.velocities[:7]).max())
    assert fastest < 3.0
    assert np.abs(sim.joints.velocities[:7]).max() < 0.05
    # And it comes back when told.
    for _ in range(3):
        sim.set_target(MIDDLE)
        sim.settle()
    np.testing.assert_allclose(sim.state[:3], MIDDLE[:3], atol=2e-3)


@pytest.mark.parametrize("state", [MIDDLE * np.nan, MIDDLE[:3]])
def test_targets_that_are_no_states_are_refused(sim: FrankaSim, state: np.ndarray) -> None:
    sim.place(MIDDLE)
    with pytest.raises(ValueError, match="7 finite entries"):
        sim.set_target(state)
    np.testing.assert_array_equal(sim.target, MIDDLE)


def test_places_out_of_reach_are_refused(sim: FrankaSim) -> None:
    with pytest.raises(ValueError, match="cannot reach"):
        sim.place(MIDDLE + np.array([1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]))


def test_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="motion_duration_s"):
        SimSettings(motion_duration_s=0.0)
    with pytest.raises(ValueError, match="execution_noise_m"):
        SimSettings(execution_noise_m=-0.01)
    with pytest.raises(ValueError, match="workspace_min"):
        SimSettings(workspace_min=(0.7, 0.0, 0.0))


def test_no_room_for_the_distance_is_told(sim: FrankaSim) -> None:
    with pytest.raises(ValueError, match="between 2"):
        sample_reach_task(sim, 0, (2.0, 3.0))


def test_smooth_pictures_have_the_size_asked_for(sim: FrankaSim) -> None:
    sim.place(MIDDLE)
    rough, smooth = sim.render(width=200, height=100), sim.render("camera", 200, 100, supersample=2)
    assert rough.shape == smooth.shape == (100, 200, 3)
    assert np.abs(rough.astype(int) - smooth).mean() < 4.0
