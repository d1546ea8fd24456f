import numpy as np
import pytest
import torch
from scipy.spatial.transform import Rotation

from jepa_planner_ros.geometry import (
    action_between,
    apply_action,
    euler_from_matrix,
    integrate_sequence,
    integrate_state,
    matrix_from_euler,
)


@pytest.fixture
def draw():
    return np.random.default_rng(0)


def states(draw, count):
    angles = draw.uniform(-np.pi, np.pi, size=(count, 3)) * (1.0, 0.49, 1.0)
    return np.concatenate(
        (draw.uniform(-1, 1, (count, 3)), angles, draw.uniform(0, 1, (count, 1))), axis=1
    )


def test_integration_matches_scipy(draw):
    start, action = states(draw, 200), states(draw, 200) * 0.1
    moved = integrate_state(torch.from_numpy(start), torch.from_numpy(action)).numpy()
    rotation = Rotation.from_euler("xyz", action[:, 3:6]) * Rotation.from_euler(
        "xyz", start[:, 3:6]
    )
    np.testing.assert_allclose(moved[:, :3], start[:, :3] + action[:, :3])
    np.testing.assert_allclose(moved[:, 3:6], rotation.as_euler("xyz"), atol=1e-12)
    np.testing.assert_allclose(moved[:, 6], np.clip(start[:, 6] + action[:, 6], 0, 1))


def test_action_between_undoes_apply_action(draw):
    for start, end in zip(states(draw, 50), states(draw, 50), strict=True):
        reached = apply_action(start, action_between(start, end))
        np.testing.assert_allclose(reached[[0, 1, 2, 6]], end[[0, 1, 2, 6]], atol=1e-12)
        np.testing.assert_allclose(
            Rotation.from_euler("xyz", reached[3:6]).as_matrix(),
            Rotation.from_euler("xyz", end[3:6]).as_matrix(),
            atol=1e-9,
        )


def test_a_sequence_visits_what_single_actions_do(draw):
    start, actions = states(draw, 1)[0], states(draw, 3) * 0.1
    visited = integrate_sequence(torch.from_numpy(start), torch.from_numpy(actions)).numpy()
    for step, action in enumerate(actions):
        np.testing.assert_array_equal(visited[step + 1], apply_action(visited[step], action))


@pytest.mark.parametrize("pitch", [np.pi / 2, -np.pi / 2])
def test_gimbal_lock_keeps_the_rotation(pitch):
    angles = torch.tensor([0.4, pitch, -0.7], dtype=torch.float64)
    again = euler_from_matrix(matrix_from_euler(angles))
    assert again[2] == 0.0
    assert (matrix_from_euler(again) - matrix_from_euler(angles)).abs().max() < 1e-7
