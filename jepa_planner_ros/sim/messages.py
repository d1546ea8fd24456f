"""The simulated robot's readings as ROS messages."""

from __future__ import annotations

import array
import io
from collections.abc import Callable, Mapping

import numpy as np
import PIL.Image
from builtin_interfaces.msg import Time
from geometry_msgs.msg import Pose, PoseStamped
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation
from sensor_msgs.msg import CameraInfo, CompressedImage, Image, JointState
from std_msgs.msg import Header
from trajectory_msgs.msg import JointTrajectory

from jepa_planner_ros.ros import poses
from jepa_planner_ros.ros.clock import seconds
from jepa_planner_ros.sim import scene
from jepa_planner_ros.sim.franka import JointReading
from jepa_planner_ros.types import Float64Array

Picture = NDArray[np.uint8]

_JPEG_QUALITY = 95


def _luminance(picture: Picture) -> Picture:
    return np.asarray(PIL.Image.fromarray(picture).convert("L"))


ENCODINGS: Mapping[str, Callable[[Picture], Picture]] = {
    "rgb8": lambda picture: picture,
    "bgr8": lambda picture: picture[..., ::-1],
    "mono8": _luminance,
}
"""The encodings of an image message, each with what makes it of an RGB picture."""


def image_message(picture: Picture, encoding: str, header: Header) -> Image:
    """An RGB picture (height, width, 3) in one of `ENCODINGS`."""
    pixels = np.ascontiguousarray(ENCODINGS[encoding](picture))
    height, width = pixels.shape[:2]
    return Image(
        header=header,
        height=height,
        width=width,
        encoding=encoding,
        step=pixels.nbytes // height,
        # rclpy checks every byte of anything but an array, which takes longer than rendering.
        data=array.array("B", pixels.tobytes()),
    )


def compressed_message(picture: Picture, header: Header) -> CompressedImage:
    """An RGB picture (height, width, 3) as JPEG."""
    buffer = io.BytesIO()
    PIL.Image.fromarray(picture).save(buffer, "JPEG", quality=_JPEG_QUALITY)
    data = array.array("B", buffer.getvalue())
    return CompressedImage(header=header, format="rgb8; jpeg compressed bgr8", data=data)


def camera_info_message(focal_length: float, width: int, height: int, header: Header) -> CameraInfo:
    """An ideal pinhole camera that looks through the middle of its image.

    Args:
        focal_length: pixels, the same along both axes.
        width: of the image, pixels.
        height: of the image, pixels.
        header: of the image.
    """
    # Pixel centres have whole coordinates, so the middle lies half a pixel short of the half.
    centre_x, centre_y = 0.5 * (width - 1), 0.5 * (height - 1)
    f = focal_length
    return CameraInfo(
        header=header,
        height=height,
        width=width,
        distortion_model="plumb_bob",
        d=[0.0] * 5,
        k=[f, 0.0, centre_x, 0.0, f, centre_y, 0.0, 0.0, 1.0],
        r=[1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0],
        p=[f, 0.0, centre_x, 0.0, 0.0, f, centre_y, 0.0, 0.0, 0.0, 1.0, 0.0],
    )


def joint_state_message(reading: JointReading, header: Header) -> JointState:
    """The joints of arm and fingers."""
    return JointState(
        header=header,
        name=list(reading.names),
        position=reading.positions.tolist(),
        velocity=reading.velocities.tolist(),
    )


def pose_message(state: Float64Array, header: Header) -> PoseStamped:
    """The pose of a state (7,)."""
    pose = poses.pose_message(state, poses.ControllerFrame.UPRIGHT)
    return PoseStamped(header=header, pose=pose)


def position_and_rotation(pose: Pose) -> Float64Array:
    """The position and the extrinsic xyz Euler angles (6,) of a pose; the quaternion may be scaled.

    Raises:
        ValueError: an entry is not finite, or the quaternion is zero.
    """
    position = (pose.position.x, pose.position.y, pose.position.z)
    rotation = pose.orientation
    quaternion = np.array((rotation.x, rotation.y, rotation.z, rotation.w))
    if not np.isfinite((*position, *quaternion)).all():
        raise ValueError("an entry is not finite")
    if not quaternion.any():
        raise ValueError("the quaternion is zero")
    return np.concatenate((position, Rotation.from_quat(quaternion).as_euler("xyz")))


def joint_path(message: JointTrajectory) -> tuple[Float64Array, Float64Array]:
    """Times (n,) in s and joint positions (n, 7) in rad of a trajectory of the whole arm.

    Raises:
        ValueError: it is not one that a ``joint_trajectory_controller`` takes.
    """
    if sorted(message.joint_names) != sorted(scene.ARM_JOINTS):
        raise ValueError(f"it must name {', '.join(scene.ARM_JOINTS)}")
    if not message.points or any(len(one.positions) != 7 for one in message.points):
        raise ValueError("every point must have seven positions")
    if any(message.points[-1].velocities):
        raise ValueError("it does not end at rest")
    order = [message.joint_names.index(name) for name in scene.ARM_JOINTS]
    times = np.array([seconds(one.time_from_start) for one in message.points])
    return times, np.array([one.positions for one in message.points])[:, order]


def stamped(time: Time, frame: str) -> Header:
    """A header of a moment and a frame."""
    return Header(stamp=time, frame_id=frame)
