"""End-effector states to and from ROS messages, in the frame that the controller speaks of."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

import numpy as np
from geometry_msgs.msg import Point, Pose, PoseStamped, Quaternion, Vector3
from jepa_planner_msgs.msg import EndEffectorDelta, EndEffectorState
from scipy.spatial.transform import Rotation

from jepa_planner_ros.geometry import GRIPPER, POSITION, ROTATION
from jepa_planner_ros.ros.clock import stamp_message
from jepa_planner_ros.types import Float64Array


class ControllerFrame(Enum):
    """Which way the end-effector frame of the robot's controller is turned.

    The planner's states are those of the upright fingertip frame, whose axes are the base's when
    the gripper points down; Franka's own frame has its z axis out of the hand.
    """

    FINGERTIPS = "fingertips"
    UPRIGHT = "upright"


_FROM_UPRIGHT: Mapping[ControllerFrame, Rotation] = {
    ControllerFrame.FINGERTIPS: Rotation.from_euler("x", np.pi),
    ControllerFrame.UPRIGHT: Rotation.identity(),
}


def pose_message(state: Float64Array, frame: ControllerFrame) -> Pose:
    """Pose of the controller's end-effector frame when the end effector is in a state (7,)."""
    x, y, z = map(float, state[POSITION])
    turn = Rotation.from_euler("xyz", state[ROTATION]) * _FROM_UPRIGHT[frame]
    qx, qy, qz, qw = map(float, turn.as_quat())
    return Pose(position=Point(x=x, y=y, z=z), orientation=Quaternion(x=qx, y=qy, z=qz, w=qw))


def pose_stamped_message(
    state: Float64Array, frame: ControllerFrame, frame_id: str, stamp: int
) -> PoseStamped:
    """The same with a header: the base frame's name and a stamp in nanoseconds."""
    message = PoseStamped(pose=pose_message(state, frame))
    message.header.frame_id = frame_id
    message.header.stamp = stamp_message(stamp)
    return message


def check_frame(message: PoseStamped, base_frame: str) -> None:
    """Make sure that a pose is given in the base frame; one that names no frame counts as such.

    Raises:
        ValueError: it is given in another.
    """
    given_in = message.header.frame_id
    if given_in and given_in != base_frame:
        raise ValueError(
            f"the pose is given in the frame '{given_in}' but base_frame is '{base_frame}'; have "
            "it published in the base frame, or set base_frame if only the name differs."
        )


def read_pose(message: PoseStamped, frame: ControllerFrame) -> Float64Array:
    """The state (7,) of a measured pose, with the gripper open.

    Raises:
        ValueError: the pose is not finite or its quaternion is not of unit length.
    """
    p, q = message.pose.position, message.pose.orientation
    position, quaternion = np.array([p.x, p.y, p.z]), np.array([q.x, q.y, q.z, q.w])
    if not (np.isfinite(position).all() and np.isfinite(quaternion).all()):
        raise ValueError("the pose holds a value that is not finite (NaN or infinity).")
    if abs(np.linalg.norm(quaternion) - 1.0) > 1e-2:
        raise ValueError(
            f"the pose's quaternion has length {np.linalg.norm(quaternion):.3f} instead of 1."
        )
    turn = Rotation.from_quat(quaternion) * _FROM_UPRIGHT[frame].inv()
    return np.concatenate((position, turn.as_euler("xyz"), [0.0]))


def state_message(state: Float64Array) -> EndEffectorState:
    """A state (7,) as a message."""
    x, y, z, roll, pitch, yaw = map(float, state[:GRIPPER])
    return EndEffectorState(
        position=Point(x=x, y=y, z=z),
        rotation=Vector3(x=roll, y=pitch, z=yaw),
        gripper=float(state[GRIPPER]),
    )


def delta_message(action: Float64Array) -> EndEffectorDelta:
    """An action (7,) as a message."""
    x, y, z, roll, pitch, yaw = map(float, action[:GRIPPER])
    return EndEffectorDelta(
        translation=Vector3(x=x, y=y, z=z),
        rotation=Vector3(x=roll, y=pitch, z=yaw),
        gripper=float(action[GRIPPER]),
    )
