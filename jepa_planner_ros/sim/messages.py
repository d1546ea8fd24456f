"""The simulated robot's readings as ROS messages."""

from __future__ import annotations

import array
import io
from collections.abc import Callable, Mapping

import numpy as np
import PIL.Image
from builtin_interfaces.msg import Time
from geometry_msgs.msg import Point, Pose, PoseStamped, Quaternion, Vector3
from jepa_planner_msgs.msg import EndEffectorState
from numpy.typing import NDArray
from sensor_msgs.msg import CameraInfo, CompressedImage, Image, JointState
from std_msgs.msg import Header

from jepa_planner_ros.geometry import (
    GRIPPER,
    POSITION,
    ROTATION,
    euler_from_quaternion,
    quaternion_from_euler,
)
from jepa_planner_ros.sim.franka import JointReading

Float64Array = NDArray[np.float64]
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
    x, y, z, w = quaternion_from_euler(state[ROTATION]).tolist()
    pose = Pose(position=_point(state), orientation=Quaternion(x=x, y=y, z=z, w=w))
    return PoseStamped(header=header, pose=pose)


def state_message(state: Float64Array) -> EndEffectorState:
    """A state (7,)."""
    roll, pitch, yaw = state[ROTATION].tolist()
    return EndEffectorState(
        position=_point(state),
        rotation=Vector3(x=roll, y=pitch, z=yaw),
        gripper=float(state[GRIPPER]),
    )


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
    return np.concatenate((position, euler_from_quaternion(quaternion)))


def stamped(time: Time, frame: str) -> Header:
    """A header of a moment and a frame."""
    return Header(stamp=time, frame_id=frame)


def _point(state: Float64Array) -> Point:
    x, y, z = state[POSITION].tolist()
    return Point(x=x, y=y, z=z)
