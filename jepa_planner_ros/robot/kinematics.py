"""Forward and inverse kinematics of the Franka Panda and FR3.

Two end-effector frames share the point between the fingertips:

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
from jepa_planner_ros.robot.chain import FRANKA, Chain
from jepa_planner_ros.robot.limits import PANDA, RobotLimits
from jepa_planner_ros.types import Float64Array

HOME_JOINTS: Float64Array = np.array([0.0, -0.3, 0.0, -2.2, 0.0, 1.9, np.pi / 4])
"""A relaxed elbow with the gripper pointing down; the null space is drawn towards it."""

_IDENTITY = np.eye(6)
# Makes the projection onto the null space solvable at singular postures without being felt.
_REGULAR = 1e-9


FINGERTIPS: Float64Array = FRANKA.fingertips
"""Pose of Franka's fingertip frame in the frame of joint 7 (4, 4)."""

UPRIGHT: Float64Array = FRANKA.upright
"""Pose of the upright fingertip frame in the frame of joint 7 (4, 4)."""


def end_effector_matrix(
    joints: Float64Array, tool: Float64Array = UPRIGHT, chain: Chain = FRANKA
) -> Float64Array:
    """Poses (..., 4, 4) of the end effector in the base frame, from joints (..., 7) in rad."""
    return chain.joint_frames(joints)[..., -1, :, :] @ tool


def end_effector_state(
    joints: Float64Array, gripper: float | Float64Array = 0.0, chain: Chain = FRANKA
) -> Float64Array:
    """End-effector states (..., 7) in the base frame, from joints (..., 7) in rad.

    Args:
        joints: positions of the arm's joints, rad.
        gripper: closedness, 0 open to 1 closed, copied into the states.
        chain: the arm.
    """
    return state_from_matrix(end_effector_matrix(joints, chain.upright, chain), gripper)


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
        frames: poses of the joints (7, 4, 4), see `Chain.joint_frames`.
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
    """Of the arm, whose chain they come with."""
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
        chain, tool = self.limits.chain, self.limits.chain.upright
        for _ in range(iterations):
            frames = chain.joint_frames(joints)
            pose = frames[6] @ tool
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
