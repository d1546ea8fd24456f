"""Pictures in every form that ROS delivers them, to RGB arrays.

Messages may be rclpy's, or those that `rosbags` reads from a recording where there is no ROS.

Colours are converted by cv_bridge where ROS 2 has it installed, and by `rosbags.image` otherwise.
Neither checks that a message holds the bytes it promises, and padded rows come out wrong from both,
so that sizes are checked and rows repacked here first.
"""

from __future__ import annotations

import io
import stat
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image as PillowImage

from jepa_planner_ros.types import RgbImage

if TYPE_CHECKING:
    from sensor_msgs.msg import CompressedImage, Image


_BYTES_PER_PIXEL = {
    "rgb8": 3,
    "bgr8": 3,
    "rgba8": 4,
    "bgra8": 4,
    "rgb16": 6,
    "bgr16": 6,
    "rgba16": 8,
    "bgra16": 8,
    "mono8": 1,
    "mono16": 2,
    "bayer_rggb8": 1,
    "bayer_bggr8": 1,
    "bayer_gbrg8": 1,
    "bayer_grbg8": 1,
    "bayer_rggb16": 2,
    "bayer_bggr16": 2,
    "bayer_gbrg16": 2,
    "bayer_grbg16": 2,
    "yuv422": 2,
    "yuv422_yuy2": 2,
    "uyvy": 2,
    "yuyv": 2,
}
_DEPTH_PREFIXES = ("16UC", "16SC", "32FC", "64FC")
# Pillow's modes of pictures whose values are no 8-bit brightness or colour.
_DEPTH_MODES = ("I", "F")
_MAX_FILE_SIZE = 64 * 2**20
"""Size of the largest file that can be a photograph, bytes."""


class ImageError(ValueError):
    """A picture cannot be used; the message says what is wrong with it."""


def check_image(message: Image) -> None:
    """Make sure that a raw image is complete and of a kind that shows colours or brightness.

    Raises:
        ImageError: it is not.
    """
    encoding = message.encoding
    if encoding not in _BYTES_PER_PIXEL:
        kind = "a depth image" if encoding.startswith(_DEPTH_PREFIXES) else "of unknown encoding"
        raise ImageError(
            f"the image is {kind} ('{encoding}'); give a colour image such as rgb8 or bgr8."
        )
    if message.height == 0 or message.width == 0 or len(message.data) == 0:
        raise ImageError(
            f"the image is empty ({message.width} x {message.height} pixels, "
            f"{len(message.data)} bytes)."
        )
    row = message.width * _BYTES_PER_PIXEL[encoding]
    if message.step < row:
        raise ImageError(
            f"the image's step of {message.step} bytes is shorter than a row of {message.width} "
            f"pixels in {encoding}, {row} bytes."
        )
    if len(message.data) != message.step * message.height:
        raise ImageError(
            f"the image holds {len(message.data)} bytes where step {message.step} x height "
            f"{message.height} promises {message.step * message.height}."
        )


def decode_image(message: Image) -> RgbImage:
    """RGB pixels (height, width, 3) of a raw image.

    Raises:
        ImageError: the image is incomplete or of a kind without colours or brightness.
    """
    check_image(message)
    try:
        return np.require(_converter()(_without_padding(message)), requirements=("C", "W"))
    except Exception as error:
        # Each converter raises errors of its own, OpenCV's among them.
        raise ImageError(
            f"the image of {message.width} x {message.height} pixels in {message.encoding} cannot "
            f"be converted to rgb8: {error}"
        ) from error


def check_compressed_image(message: CompressedImage) -> None:
    """Make sure that a compressed image is not empty and holds no depth.

    Raises:
        ImageError: it does.
    """
    if len(message.data) == 0:
        raise ImageError("the compressed image is empty.")
    if "compressedDepth" in message.format:
        raise ImageError(
            f"the compressed image is a depth image ('{message.format}'); give a colour image."
        )


def decode_compressed_image(message: CompressedImage) -> RgbImage:
    """RGB pixels (height, width, 3) of a JPEG or PNG image.

    Raises:
        ImageError: the image cannot be decoded or holds depth.
    """
    check_compressed_image(message)
    return decode_file(bytes(message.data), "the compressed image")


def read_image_file(path: str) -> RgbImage:
    """RGB pixels (height, width, 3) of an image file.

    Raises:
        ImageError: there is no such file, or it is no image.
    """
    return decode_file(read_file(path), f"the file {path}")


def read_file(path: str) -> bytes:
    """The content of a file that can be a photograph.

    Raises:
        ImageError: there is no such file.
    """
    try:
        file = Path(path).expanduser().absolute()
        _check_file(file)
        return file.read_bytes()
    except ImageError:
        raise
    except (OSError, RuntimeError, ValueError) as error:
        # RuntimeError: no such user's home; ValueError: no such character in paths.
        cause = error.strerror if isinstance(error, OSError) else str(error).rstrip(".")
        raise ImageError(
            f"the image file {path} cannot be read on the robot's computer: {cause}."
        ) from error


def _check_file(file: Path) -> None:
    """Refuse what would never end to be read, such as devices and pipes."""
    status = file.stat()
    if not stat.S_ISREG(status.st_mode):
        raise ImageError(f"{file} is not a regular file; give a JPEG or PNG picture.")
    if status.st_size > _MAX_FILE_SIZE:
        raise ImageError(
            f"the file {file} has {status.st_size / 2**20:.0f} MiB, more than the "
            f"{_MAX_FILE_SIZE // 2**20} MiB that a photograph may have."
        )
    if status.st_size == 0:
        raise ImageError(f"the file {file} is empty.")


def decode_file(content: bytes, name: str) -> RgbImage:
    """RGB pixels (height, width, 3) of the content of an image file, which errors call `name`.

    Raises:
        ImageError: it is no image.
    """
    try:
        with PillowImage.open(io.BytesIO(content)) as picture:
            depth = picture.mode.startswith(_DEPTH_MODES)
            pixels = np.array(picture.convert("RGB"))
    except Exception as error:
        # Damaged files lead Pillow's decoders to errors of every kind.
        raise ImageError(
            f"{name} ({len(content)} bytes) cannot be read as a JPEG or PNG picture; is it damaged?"
        ) from error
    if depth:
        raise ImageError(f"{name} is a depth image; give a colour image.")
    return pixels


def _without_padding(message: Image) -> Any:
    row = message.width * _BYTES_PER_PIXEL[message.encoding]
    if message.step == row:
        return message
    rows = np.frombuffer(message.data, np.uint8).reshape(message.height, message.step)
    return SimpleNamespace(
        height=message.height,
        width=message.width,
        encoding=message.encoding,
        is_bigendian=message.is_bigendian,
        step=row,
        data=rows[:, :row].tobytes(),
    )


@cache
def _converter() -> Callable[[Any], RgbImage]:
    try:
        from cv_bridge import CvBridge
    except (ImportError, AttributeError):  # AttributeError: built for NumPy 1, loaded with 2.
        from rosbags.image import image_to_cvimage

        return lambda message: np.asarray(image_to_cvimage(message, "rgb8"))
    return lambda message: np.asarray(CvBridge().imgmsg_to_cv2(message, "rgb8"))
