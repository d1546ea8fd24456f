"""End-effector pose algebra: how an action moves a state, and which action joins two states.

A **state** is ``[x, y, z, roll, pitch, yaw, gripper]``: metres in the robot's base frame, extrinsic
xyz Euler angles in radians, and the gripper's closedness from 0 (open) to 1 (closed).
An **action** is a change of state with the same layout. Translations add in the base frame; the
rotation of the action multiplies from the left, ``R_new = R(action) @ R(state)``; the gripper's
closedness is clipped to 0..1 (V-JEPA 2, Sec. 3.2; upstream ``notebooks/utils/mpc_utils.py``).

The tensor functions work on any leading dimensions and devices, because rollouts integrate a
whole batch of candidates at once; the array functions serve the control loop, one pose at a time.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

STATE_DIM = 7
ACTION_DIM = 7
POSITION = slice(0, 3)
ROTATION = slice(3, 6)
GRIPPER = 6

# Below this cosine of the pitch, roll and yaw turn about the same axis and only their
# combination is defined (gimbal lock); yaw is then taken to be zero, as SciPy does.
_GIMBAL_LOCK_COSINE = 1e-7


def matrix_from_euler(angles: Tensor) -> Tensor:
    """Rotation matrices (..., 3, 3) of extrinsic xyz Euler angles (..., 3) in radians."""
    (sin_r, sin_p, sin_y), (cos_r, cos_p, cos_y) = angles.sin().unbind(-1), angles.cos().unbind(-1)
    rows = (
        torch.stack(
            (
                cos_y * cos_p,
                cos_y * sin_p * sin_r - sin_y * cos_r,
                cos_y * sin_p * cos_r + sin_y * sin_r,
            ),
            dim=-1,
        ),
        torch.stack(
            (
                sin_y * cos_p,
                sin_y * sin_p * sin_r + cos_y * cos_r,
                sin_y * sin_p * cos_r - cos_y * sin_r,
            ),
            dim=-1,
        ),
        torch.stack((-sin_p, cos_p * sin_r, cos_p * cos_r), dim=-1),
    )
    return torch.stack(rows, dim=-2)


def euler_from_matrix(matrix: Tensor) -> Tensor:
    """Extrinsic xyz Euler angles (..., 3) in radians of rotation matrices (..., 3, 3)."""
    cos_pitch = torch.hypot(matrix[..., 0, 0], matrix[..., 1, 0])
    locked = cos_pitch < _GIMBAL_LOCK_COSINE
    pitch = torch.atan2(-matrix[..., 2, 0], cos_pitch)
    roll = torch.where(
        locked,
        torch.atan2(-matrix[..., 1, 2], matrix[..., 1, 1]),
        torch.atan2(matrix[..., 2, 1], matrix[..., 2, 2]),
    )
    yaw = torch.where(locked, 0.0, torch.atan2(matrix[..., 1, 0], matrix[..., 0, 0]))
    return torch.stack((roll, pitch, yaw), dim=-1)


def integrate_state(state: Tensor, action: Tensor) -> Tensor:
    """The states (..., 7) that actions (..., 7) lead to from states (..., 7)."""
    rotation = matrix_from_euler(action[..., ROTATION]) @ matrix_from_euler(state[..., ROTATION])
    gripper = (state[..., GRIPPER:] + action[..., GRIPPER:]).clamp(0.0, 1.0)
    position = state[..., POSITION] + action[..., POSITION]
    return torch.cat((position, euler_from_matrix(rotation), gripper), dim=-1)


def integrate_sequence(state: Tensor, actions: Tensor) -> Tensor:
    """States (..., horizon + 1, 7) along actions (..., horizon, 7); the first is `state` itself."""
    states = [state]
    for action in actions.unbind(-2):
        states.append(integrate_state(states[-1], action))
    return torch.stack(states, dim=-2)


def apply_action(state: NDArray[np.float64], action: NDArray[np.float64]) -> NDArray[np.float64]:
    """The state (7,) that `action` (7,) leads to from `state` (7,)."""
    return integrate_state(torch.from_numpy(state), torch.from_numpy(action)).numpy()


def action_between(start: NDArray[np.float64], end: NDArray[np.float64]) -> NDArray[np.float64]:
    """The action (7,) that leads from state `start` (7,) to state `end` (7,)."""
    from scipy.spatial.transform import Rotation  # Here: machines that only roll out need none.

    turn = (
        Rotation.from_euler("xyz", end[ROTATION])
        * Rotation.from_euler("xyz", start[ROTATION]).inv()
    )
    return np.concatenate(
        (
            end[POSITION] - start[POSITION],
            turn.as_euler("xyz"),
            end[GRIPPER:] - start[GRIPPER:],
        )
    )
