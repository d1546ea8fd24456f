"""Pictures, poses and stamps between ROS messages and arrays."""

from __future__ import annotations

import io
import os
from array import array
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import rclpy
from PIL import Image as PillowImage
from PIL.PngImagePlugin import PngInfo
from rclpy.serialization import serialize_message
from rosbags.typesys import Stores, get_typestore
from scipy.spatial.transform import Rotation
from sensor_msgs.msg import CompressedImage, Image

from jepa_planner_ros.photograph import STATE_KEY, photograph_file, read_photograph, state_inside
from jepa_planner_ros.ros.clock import duration_message, nanoseconds, seconds, stamp_message
from jepa_planner_ros.ros.driver import DriverState, mode_fault
from jepa_planner_ros.ros.goals import (
    GoalError,
    ReachRequest,
    SubGoalRequest,
    require_shape_of,
)
from jepa_planner_ros.ros.images import (
    ImageError,
    decode_compressed_image,
    decode_image,
    read_image_file,
)
from jepa_planner_ros.ros.parameters import PARAMETERS
from jepa_planner_ros.ros.poses import (
    ControllerFrame,
    check_frame,
    pose_message,
    pose_stamped_message,
    read_pose,
)
from jepa_planner_ros.ros.settings import read_episode_defaults

RANDOM = np.random.default_rng(0)
PICTURE = RANDOM.integers(0, 256, (6, 10, 3), dtype=np.uint8)
GREY = np.repeat(PICTURE[..., :1], 3, axis=2)
ALPHA = np.full((6, 10, 1), 255, np.uint8)


@pytest.mark.parametrize(("mode", "found"), [(4, "in reflex"), (5, "stopped by its user")])
def test_a_robot_mode_that_follows_no_command_is_a_fault(mode: int, found: str) -> None:
    assert found in str(mode_fault(mode))
    assert mode_fault(1) is None, "idle"
    assert mode_fault(2) is None, "moving"


def test_a_fault_of_a_driver_that_falls_silent_is_forgotten() -> None:
    rclpy.init()
    try:
        node = rclpy.create_node("listener")
        driver = DriverState(node, node.default_callback_group)
        assert driver.fault is None
        driver._receive(SimpleNamespace(robot_mode=4))
        assert "in reflex" in str(driver.fault)
        driver._heard -= 10.0
        assert driver.fault is None
    finally:
        rclpy.shutdown()


def message(pixels: np.ndarray, encoding: str, padding: int = 0) -> Image:
    height, width = pixels.shape[:2]
    rows = np.ascontiguousarray(pixels).view(np.uint8).reshape(height, -1)
    padded = np.pad(rows, ((0, 0), (0, padding)), constant_values=99)
    return Image(
        height=height,
        width=width,
        encoding=encoding,
        step=padded.shape[1],
        data=array("B", padded.tobytes()),
    )


@pytest.mark.parametrize("padding", [0, 2, 7])
@pytest.mark.parametrize(
    ("encoding", "pixels", "expected"),
    [
        ("rgb8", PICTURE, PICTURE),
        ("bgr8", PICTURE[..., ::-1], PICTURE),
        ("rgba8", np.concatenate((PICTURE, ALPHA), 2), PICTURE),
        ("bgra8", np.concatenate((PICTURE[..., ::-1], ALPHA), 2), PICTURE),
        ("mono8", PICTURE[..., 0], GREY),
        ("mono16", PICTURE[..., 0].astype(np.uint16) * 257, GREY),
        ("rgb16", PICTURE.astype(np.uint16) * 257, PICTURE),
        ("bgr16", PICTURE[..., ::-1].astype(np.uint16) * 257, PICTURE),
        ("rgba16", np.concatenate((PICTURE, ALPHA), 2).astype(np.uint16) * 257, PICTURE),
        ("bgra16", np.concatenate((PICTURE[..., ::-1], ALPHA), 2).astype(np.uint16) * 257, PICTURE),
    ],
)
def test_every_encoding_becomes_rgb(
    encoding: str, pixels: np.ndarray, expected: np.ndarray, padding: int
) -> None:
    decoded = decode_image(message(pixels, encoding, padding))
    assert decoded.dtype == np.uint8
    assert decoded.flags.c_contiguous
    np.testing.assert_array_equal(decoded, expected)


@pytest.mark.parametrize(("encoding", "expected"), [("mono16", GREY), ("rgb16", PICTURE)])
def test_big_endian_pixels_are_understood(encoding: str, expected: np.ndarray) -> None:
    values = PICTURE if encoding == "rgb16" else PICTURE[..., 0]
    sent = message((values.astype(np.uint16) * 256).astype(">u2"), encoding, padding=6)
    sent.is_bigendian = 1
    np.testing.assert_allclose(decode_image(sent), expected, atol=1)


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("order", ["rggb", "bggr", "gbrg", "grbg"])
def test_bayer_patterns_keep_their_colours(order: str, bits: int) -> None:
    colour = (200, 100, 50)
    tile = np.array(["rgb".index(letter) for letter in order]).reshape(2, 2)
    pixels = np.asarray(colour, np.uint8)[np.tile(tile, (4, 4))]
    if bits == 16:
        pixels = pixels.astype(np.uint16) * 257
    decoded = decode_image(message(pixels, f"bayer_{order}{bits}"))
    np.testing.assert_allclose(decoded[2:-2, 2:-2].reshape(-1, 3).mean(0), colour, atol=1.0)


@pytest.mark.parametrize(
    ("encoding", "luminance_first"),
    [("yuv422", False), ("uyvy", False), ("yuv422_yuy2", True), ("yuyv", True)],
)
def test_colours_at_half_resolution_are_understood(encoding: str, luminance_first: bool) -> None:
    # Red of full range in BT.601: Y 81, U 90, V 240.
    pair = (81, 90, 81, 240) if luminance_first else (90, 81, 240, 81)
    pixels = np.tile(np.array(pair, np.uint8).reshape(2, 2), (4, 4, 1))
    decoded = decode_image(message(pixels, encoding))
    assert decoded.shape == (4, 8, 3)
    np.testing.assert_allclose(decoded.reshape(-1, 3).mean(0), (255, 0, 0), atol=3.0)


def test_images_of_a_recording_are_decoded_alike() -> None:
    sent = message(PICTURE, "bgr8", padding=3)
    types = get_typestore(Stores.LATEST)
    read = types.deserialize_cdr(serialize_message(sent), "sensor_msgs/msg/Image")
    np.testing.assert_array_equal(decode_image(read), decode_image(sent))


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        (message(np.zeros((4, 4), np.uint16), "16UC1"), "depth image"),
        (message(np.zeros((4, 4), np.float32), "32FC1"), "depth image"),
        (message(PICTURE, "cmyk8"), "unknown encoding"),
        (message(PICTURE, ""), "unknown encoding"),
        (Image(encoding="rgb8"), "empty"),
        (message(PICTURE[:, :1, :2], "yuv422"), "cannot be converted"),
        (Image(encoding="rgb8", height=2, width=2, step=6, data=[0] * 11), "11 bytes where"),
        (Image(encoding="rgb8", height=2, width=2, step=4, data=[0] * 8), "shorter than a row"),
    ],
)
def test_images_that_show_nothing_are_refused(broken: Image, reason: str) -> None:
    with pytest.raises(ImageError, match=reason):
        decode_image(broken)


def encoded(picture: PillowImage.Image, kind: str) -> array[int]:
    buffer = io.BytesIO()
    picture.save(buffer, kind)
    return array("B", buffer.getvalue())


def test_png_is_decoded_and_jpeg_nearly() -> None:
    flat = np.full((16, 16, 3), (200, 30, 60), np.uint8)
    picture = PillowImage.fromarray(flat)
    png = CompressedImage(format="png", data=encoded(picture, "PNG"))
    jpeg = CompressedImage(format="rgb8; jpeg compressed bgr8", data=encoded(picture, "JPEG"))
    np.testing.assert_array_equal(decode_compressed_image(png), flat)
    np.testing.assert_allclose(decode_compressed_image(jpeg), flat, atol=4)


def test_compressed_images_that_show_nothing_are_refused() -> None:
    depth = PillowImage.fromarray(np.zeros((4, 4), np.uint16))
    for broken, reason in (
        (CompressedImage(format="jpeg"), "empty"),
        (CompressedImage(format="16UC1; compressedDepth", data=[1]), "depth image"),
        (CompressedImage(format="png", data=encoded(depth, "PNG")), "depth image"),
        (CompressedImage(format="jpeg", data=[255, 216, 0]), "cannot be read"),
    ):
        with pytest.raises(ImageError, match=reason):
            decode_compressed_image(broken)


def test_files_are_read_and_missing_ones_named(tmp_path: Path) -> None:
    PillowImage.fromarray(PICTURE).save(tmp_path / "goal.png")
    np.testing.assert_array_equal(read_image_file(str(tmp_path / "goal.png")), PICTURE)
    (tmp_path / "cut.png").write_bytes((tmp_path / "goal.png").read_bytes()[:-60])
    os.mkfifo(tmp_path / "pipe.png")
    (tmp_path / "empty.png").touch()
    with (tmp_path / "huge.png").open("wb") as huge:
        huge.truncate(65 * 2**20)
    for name, reason in (
        ("missing.png", "No such file"),
        ("", "not a regular file"),
        ("pipe.png", "not a regular file"),
        ("empty.png", "is empty"),
        ("huge.png", "65 MiB, more than the 64 MiB"),
        ("cut.png", "cannot be read as a JPEG or PNG"),
    ):
        with pytest.raises(ImageError, match=reason):
            read_image_file(str(tmp_path / name))


def test_a_photograph_keeps_the_state_that_it_was_taken_at_and_may_have_none() -> None:
    state = np.arange(7.0)
    kept = photograph_file(PICTURE, state, 1)
    np.testing.assert_array_equal(state_inside(kept), state)
    np.testing.assert_array_equal(
        decode_compressed_image(CompressedImage(format="png", data=array("B", kept))), PICTURE
    )
    assert state_inside(photograph_file(PICTURE, None, 1)) is None
    assert state_inside(photograph_file(PICTURE, np.full(7, np.nan), 1)) is None
    assert state_inside(photograph_file(PICTURE, np.zeros(3), 1)) is None
    assert state_inside(b"no picture") is None


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("[1" + "0" * 400 + ",0,0,0,0,0,0]", id="too large"),
        pytest.param("[" * 10_000, id="nested beyond bounds"),
        "{}",
        "up",
    ],
)
def test_a_photograph_with_a_state_that_is_none_is_still_a_photograph(
    tmp_path: Path, text: str
) -> None:
    texts, path = PngInfo(), tmp_path / "goal.png"
    texts.add_text(STATE_KEY, text)
    PillowImage.fromarray(PICTURE).save(path, pnginfo=texts)
    assert state_inside(path.read_bytes()) is None
    pixels, state = read_photograph(path)
    np.testing.assert_array_equal(pixels, PICTURE)
    assert state is None


@pytest.mark.parametrize(
    ("height", "width"),
    [pytest.param(480, 640, id="itself"), pytest.param(61, 80, id="scaled down, and rounded")],
)
def test_a_photograph_may_be_of_another_size_than_the_cameras(height: int, width: int) -> None:
    require_shape_of(np.zeros((480, 640, 3), np.uint8), requested(height, width))


@pytest.mark.parametrize(("height", "width"), [(640, 480), (480, 480), (1062, 1360), (37, 100)])
def test_a_photograph_of_another_shape_than_the_cameras_is_refused(height: int, width: int) -> None:
    with pytest.raises(GoalError, match=f"has {width} x {height} pixels and the camera 640 x 480"):
        require_shape_of(np.zeros((480, 640, 3), np.uint8), requested(height, width))


def requested(height: int, width: int) -> ReachRequest:
    photograph = SubGoalRequest(np.zeros((height, width, 3), np.uint8), 0.1, 3, None)
    declared = {parameter.name: parameter.default for parameter in PARAMETERS}
    return ReachRequest((photograph,), 10.0, "blocking", read_episode_defaults(declared))


@pytest.mark.parametrize("frame", ControllerFrame)
def test_poses_come_back_as_the_state_that_was_sent(frame: ControllerFrame) -> None:
    state = np.array([0.4, -0.1, 0.3, 0.2, -0.3, 0.5, 0.0])
    sent = pose_stamped_message(state, frame, "base", 12_500_000_001)
    np.testing.assert_allclose(read_pose(sent, frame), state, atol=1e-12)
    assert sent.header.frame_id == "base"
    assert nanoseconds(sent.header.stamp) == 12_500_000_001


def test_frankas_frame_points_out_of_a_gripper_that_points_down() -> None:
    down = np.array([0.4, 0.0, 0.3, 0.0, 0.0, 0.0, 0.0])
    q = pose_message(down, ControllerFrame.FINGERTIPS).orientation
    expected = Rotation.from_euler("xyz", np.array([np.pi, 0.0, 0.0])).as_quat()
    np.testing.assert_allclose(np.abs([q.x, q.y, q.z, q.w]), np.abs(expected), atol=1e-12)


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [("position", float("nan"), "not finite"), ("orientation", 0.5, "length")],
)
def test_poses_that_are_none_are_refused(field: str, value: float, reason: str) -> None:
    sent = pose_stamped_message(np.zeros(7), ControllerFrame.UPRIGHT, "base", 1)
    getattr(sent.pose, field).x = value
    with pytest.raises(ValueError, match=reason):
        read_pose(sent, ControllerFrame.UPRIGHT)


def test_poses_in_another_frame_are_refused() -> None:
    state = np.zeros(7)
    for same in ("panda_link0", ""):
        check_frame(pose_stamped_message(state, ControllerFrame.UPRIGHT, same, 1), "panda_link0")
    sent = pose_stamped_message(state, ControllerFrame.UPRIGHT, "world", 1)
    with pytest.raises(ValueError, match="'world' but base_frame is 'panda_link0'"):
        check_frame(sent, "panda_link0")


def test_times_survive_the_way_through_messages() -> None:
    assert seconds(duration_message(1.75)) == 1.75
    assert nanoseconds(stamp_message(1_796_038_080_123_456_789)) == 1_796_038_080_123_456_789
    assert duration_message(0.9999999999).sec == 1
