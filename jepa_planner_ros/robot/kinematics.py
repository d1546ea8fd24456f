"""Forward and inverse kinematics of the Franka Panda and FR3.

Both arms have one geometry, given by Craig's (modified) Denavit-Hartenberg parameters (Franka
Control Interface documentation, "Denavit-Hartenberg parameters"). Two end-effector frames share
the point between the fingertips:

- `FINGERTIPS`, Franka's own: z points out of the hand, so that a gripper pointing down has a roll
  of +-pi, where Euler angles jump.
- `UPRIGHT`, the default here and in the simulation: `FINGERTIPS` turned by pi about its x axis.
  A gripper pointing down with x forward has roll = pitch = yaw = 0, far from any jump.

Since actions rotate from the left in the base frame, an action is the same in either frame; only
the angles of a state differ.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from scipy.spatial.transform import Rotation

from jepa_planner_ros.geometry import POSITION, ROTATION
from jepa_planner_ros.robot.limits import PANDA, RobotLimits
from jepa_planner_ros.types import Float64Array

HOME_JOINTS: Float64Array = np.array([0.0, -0.3, 0.0, -2.2, 0.0, 1.9, np.pi / 4])
"""A relaxed elbow with the gripper pointing down; the null space is drawn towards it."""

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

_IDENTITY = np.eye(6)
# Makes the projection onto the null space solvable at singular postures without being felt.
_REGULAR = 1e-9


def _transform(rotation: Rotation, translation: tuple[float, float, float]) -> Float64Array:
    matrix = np.eye(4)
    matrix[:3, :3] = rotation.as_matrix()
    matrix[:3, 3] = translation
    return matrix


FINGERTIPS: Float64Array = _transform(
    Rotation.from_euler("z", _HAND_YAW), (0.0, 0.0, _FLANGE_OFFSET + _FINGERTIP_OFFSET)
)
"""Pose of Franka's fingertip frame in the frame of joint 7 (4, 4)."""

UPRIGHT: Float64Array = FINGERTIPS @ _transform(Rotation.from_euler("x", np.pi), (0.0, 0.0, 0.0))
"""Pose of the upright fingertip frame in the frame of joint 7 (4, 4)."""


def joint_frames(joints: Float64Array) -> Float64Array:
    """Poses (..., 7, 4, 4) of the frames of joints 1 to 7 in the base frame.

    Args:
        joints: positions (..., 7) in rad.
    """
    a, d, alpha = _DENAVIT_HARTENBERG.T
    cos_q, sin_q = np.cos(joints), np.sin(joints)
    cos_alpha, sin_alpha = np.cos(alpha), np.sin(alpha)
    links = np.zeros((*joints.shape, 4, 4))
    links[..., 0, 0], links[..., 0, 1], links[..., 0, 3] = cos_q, -sin_q, a
    links[..., 1, 0], links[..., 1, 1] = sin_q * cos_alpha, cos_q * cos_alpha
    links[..., 1, 2], links[..., 1, 3] = -sin_alpha, -d * sin_alpha
    links[..., 2, 0], links[..., 2, 1] = sin_q * sin_alpha, cos_q * sin_alpha
    links[..., 2, 2], links[..., 2, 3] = cos_alpha, d * cos_alpha
    links[..., 3, 3] = 1.0
    for index in range(1, 7):
        links[..., index, :, :] = links[..., index - 1, :, :] @ links[..., index, :, :]
    return links


def end_effector_matrix(joints: Float64Array, tool: Float64Array = UPRIGHT) -> Float64Array:
    """Poses (..., 4, 4) of the end effector in the base frame, from joints (..., 7) in rad."""
    return joint_frames(joints)[..., 6, :, :] @ tool


def end_effector_state(
    joints: Float64Array, gripper: float | Float64Array = 0.0, tool: Float64Array = UPRIGHT
) -> Float64Array:
    """End-effector states (..., 7) in the base frame, from joints (..., 7) in rad.

    Args:
        joints: positions of the arm's joints, rad.
        gripper: closedness, 0 open to 1 closed, copied into the states.
        tool: pose of the end effector in the frame of joint 7.
    """
    return state_from_matrix(end_effector_matrix(joints, tool), gripper)


def state_from_matrix(matrix: Float64Array, gripper: float | Float64Array = 0.0) -> Float64Array:
    """States (..., 7) of end-effector poses (..., 4, 4) and closedness."""
    states = np.empty((*matrix.shape[:-2], 7))
    states[..., POSITION] = matrix[..., :3, 3]
    rotations = Rotation.from_matrix(matrix[..., :3, :3].reshape(-1, 3, 3))
    states[..., ROTATION] = rotations.as_euler("xyz").reshape(*matrix.shape[:-2], 3)
    states[..., 6] = gripper
    return states


def geometric_jacobian(frames: Float64Array, point: Float64Array) -> Float64Array:
    """Geometric Jacobian (6, 7), linear rows above angular ones, in the base frame.

    Args:
        frames: poses of the joints (7, 4, 4), see `joint_frames`.
        point: the moved point (3,) in the base frame, m.
    """
    jacobian = np.empty((6, 7))
    x, y, z = jacobian[3:] = frames[:, :3, 2].T
    arm_x, arm_y, arm_z = point[:, np.newaxis] - frames[:, :3, 3].T
    jacobian[0] = y * arm_z - z * arm_y
    jacobian[1] = z * arm_x - x * arm_z
    jacobian[2] = x * arm_y - y * arm_x
    return jacobian


def _rotation_error(current: Float64Array, goal: Float64Array) -> Float64Array:
    """Axis times sine of the angle (3,) that turns one rotation matrix (3, 3) into another."""
    turn = goal @ current.T
    return 0.5 * np.array(
        (turn[2, 1] - turn[1, 2], turn[0, 2] - turn[2, 0], turn[1, 0] - turn[0, 1])
    )


def _shortened(vector: Float64Array, longest: float) -> Float64Array:
    return vector * (longest / max(longest, float(np.linalg.norm(vector))))


@dataclass(frozen=True, eq=False)
class InverseKinematics:
    """Damped least squares with the null space drawn to a rest posture.

    Each iteration solves ``dq = J^T (J J^T + damping I)^-1 e`` for the pose error ``e`` and adds a
    pull towards `rest` that the task does not feel (Buss, "Introduction to Inverse Kinematics with
    Jacobian Transpose, Pseudoinverse and Damped Least Squares Methods", 2004). Damping and a bound
    on the error that one iteration sees keep the steps small near singular postures and far from
    the target.
    """

    limits: RobotLimits = PANDA
    tool: Float64Array = field(default_factory=lambda: UPRIGHT)
    """Pose of the end effector in the frame of joint 7 (4, 4)."""
    rest: Float64Array = field(default_factory=lambda: HOME_JOINTS)
    """Posture (7,), rad."""
    damping: float = 1e-3
    rest_gain: float = 0.05
    """Part of the way to the rest posture that an iteration goes in the null space."""
    longest_step: float = 0.1
    """What an iteration sees of the error at most, m and rad."""
    tolerance: float = 1e-5
    """Error, in m and rad together, below which the solution is accepted."""

    def solve(
        self, target: Float64Array, start: Float64Array, iterations: int = 100
    ) -> Float64Array:
        """Joints (7,), within the limits, that bring the end effector to a state.

        Where the target cannot be reached, the joints bring the end effector as near as the
        iterations allow; compare `end_effector_state` with the target to know.

        Args:
            target: end-effector state (7,) in the base frame; its gripper is ignored.
            start: joints (7,) to start from, rad; the result is the solution near them.
            iterations: bound on the work.
        """
        goal = Rotation.from_euler("xyz", target[ROTATION]).as_matrix()
        joints = np.array(start, dtype=np.float64)
        for _ in range(iterations):
            frames = joint_frames(joints)
            pose = frames[6] @ self.tool
            error = np.concatenate(
                (target[POSITION] - pose[:3, 3], _rotation_error(pose[:3, :3], goal))
            )
            if np.linalg.norm(error) < self.tolerance:
                break
            error[POSITION] = _shortened(error[POSITION], self.longest_step)
            error[ROTATION] = _shortened(error[ROTATION], self.longest_step)
            jacobian = geometric_jacobian(frames, pose[:3, 3])
            gram = jacobian @ jacobian.T
            pull = self.rest_gain * (self.rest - joints)
            towards_target = np.linalg.solve(gram + self.damping * _IDENTITY, error)
            felt_by_task = np.linalg.solve(gram + _REGULAR * _IDENTITY, jacobian @ pull)
            joints += jacobian.T @ (towards_target - felt_by_task) + pull
            joints = np.clip(joints, self.limits.joint_min, self.limits.joint_max)
        return joints
