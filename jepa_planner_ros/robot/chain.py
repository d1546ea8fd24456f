"""An arm as a chain of seven revolute joints: where its parts are, from how far each is turned."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.spatial.transform import Rotation

from jepa_planner_ros.types import Float64Array

# One row per joint of a (m), d (m) and alpha (rad): x_{i-1} along a, z_i along d.
_DENAVIT_HARTENBERG = np.array(
    [
        (0.0, 0.333, 0.0),
        (0.0, 0.0, -np.pi / 2),
        (0.0, 0.316, np.pi / 2),
        (0.0825, 0.0, np.pi / 2),
        (-0.0825, 0.384, -np.pi / 2),
        (0.0, 0.0, np.pi / 2),
        (0.088, 0.0, np.pi / 2),
    ]
)
_FLANGE_OFFSET = 0.107
_HAND_YAW = -np.pi / 4
_FINGERTIP_OFFSET = 0.1034


def transform(rotation: Rotation, translation: tuple[float, float, float]) -> Float64Array:
    """The pose (4, 4) of a frame that is turned and then moved, m."""
    matrix = np.eye(4)
    matrix[:3, :3] = rotation.as_matrix()
    matrix[:3, 3] = translation
    return matrix


@dataclass(frozen=True, eq=False)
class Chain:
    """What does not change while an arm moves.

    Attributes:
        links: pose of each joint's frame in the one before, base first, at angle 0 (7, 4, 4); a
            joint turns about its z axis.
        fingertips: pose of the point between the fingertips in the frame of joint 7 (4, 4), with z
            out of the hand.
    """

    links: Float64Array
    fingertips: Float64Array

    @property
    def upright(self) -> Float64Array:
        """The same point with z into the hand, so that angles are 0 for a gripper pointing down."""
        half_turn = transform(Rotation.from_euler("x", np.pi), (0.0, 0.0, 0.0))
        return self.fingertips @ half_turn

    def joint_frames(self, joints: Float64Array) -> Float64Array:
        """Poses (..., 7, 4, 4) of the frames of joints 1 to 7 in the base frame.

        Args:
            joints: positions (..., 7) in rad.
        """
        cos_q, sin_q = np.cos(joints)[..., np.newaxis], np.sin(joints)[..., np.newaxis]
        frames = np.empty((*joints.shape, 4, 4))
        frames[..., 0] = self.links[..., 0] * cos_q + self.links[..., 1] * sin_q
        frames[..., 1] = self.links[..., 1] * cos_q - self.links[..., 0] * sin_q
        frames[..., 2:] = self.links[..., 2:]
        for index in range(1, joints.shape[-1]):
            frames[..., index, :, :] = frames[..., index - 1, :, :] @ frames[..., index, :, :]
        return frames


def _denavit_hartenberg() -> Float64Array:
    a, d, alpha = _DENAVIT_HARTENBERG.T
    cos_alpha, sin_alpha = np.cos(alpha), np.sin(alpha)
    links = np.zeros((len(a), 4, 4))
    links[:, 0, 0], links[:, 0, 3] = 1.0, a
    links[:, 1, 1], links[:, 1, 2], links[:, 1, 3] = cos_alpha, -sin_alpha, -d * sin_alpha
    links[:, 2, 1], links[:, 2, 2], links[:, 2, 3] = sin_alpha, cos_alpha, d * cos_alpha
    links[:, 3, 3] = 1.0
    return links


FRANKA = Chain(
    _denavit_hartenberg(),
    transform(Rotation.from_euler("z", _HAND_YAW), (0.0, 0.0, _FLANGE_OFFSET + _FINGERTIP_OFFSET)),
)
"""Panda and FR3 with the Franka Hand, by Craig's (modified) Denavit-Hartenberg parameters.

From the Franka Control Interface documentation, "Denavit-Hartenberg parameters".
"""
