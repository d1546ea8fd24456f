"""What the view node draws of a plan."""

from __future__ import annotations

from array import array

import numpy as np
import pytest
import rclpy
from geometry_msgs.msg import Point32
from jepa_planner_msgs.msg import Goal, Plan, SubGoal
from node_under_test import image_message, spinning, wait_until
from rclpy.executors import SingleThreadedExecutor
from rclpy.parameter import Parameter
from rclpy.qos import DurabilityPolicy, QoSProfile
from sensor_msgs.msg import CameraInfo, CompressedImage, Image
from visualization_msgs.msg import Marker, MarkerArray

from jepa_planner_ros.photograph import photograph_file
from jepa_planner_ros.report.records import Camera
from jepa_planner_ros.report.view_node import ViewNode, plan_markers, plan_picture
from jepa_planner_ros.ros.clock import stamp_message
from jepa_planner_ros.ros.images import decode_image
from jepa_planner_ros.ros.poses import delta_message, state_message

# Looks straight down from 1 m above the base: x is up in the picture, y to the left.
POSE = np.array([0.0, 0.0, 1.0, *(np.array([1.0, -1.0, 0.0, 0.0]) / np.sqrt(2.0))])
INTRINSICS = np.array([[100.0, 0.0, 50.0], [0.0, 100.0, 50.0], [0.0, 0.0, 1.0]])
GREY = np.full((100, 100, 3), 90, np.uint8)
STATES = np.array([[0.1, 0.0, 0.0, 0, 0, 0, 0], [0.3, 0.0, 0.0, 0, 0, 0, 0]])


def plan() -> Plan:
    message = Plan(
        state=state_message(STATES[0]),
        actions=[delta_message(STATES[1] - STATES[0])],
        predicted_states=[state_message(STATES[1])],
        energy=0.4,
        predicted_energies=[0.25],
        candidates=[Point32(x=0.3), Point32(x=0.2), Point32(x=0.1)],
        candidate_energies=[0.2, 0.3, 0.4],
        candidate_elites=1,
    )
    message.header.stamp = stamp_message(5)
    message.header.frame_id = "panda_link0"
    return message


def test_a_placed_camera_sees_points_where_they_are() -> None:
    camera = Camera.placed(INTRINSICS, POSE)
    pixels = camera.pixels(np.array([[0.0, 0.0, 0.0], [0.2, 0.0, 0.0], [0.0, 0.2, 0.5]]))
    np.testing.assert_allclose(pixels, [[50, 50], [50, 30], [10, 50]], atol=1e-9)


def test_the_planned_motion_is_drawn_into_the_frame_beside_the_goal() -> None:
    camera, positions = Camera.placed(INTRINSICS, POSE), STATES[:, :3]
    drawn = plan_picture(GREY, GREY // 2, "caption", camera, positions, positions[:1])
    plain = plan_picture(GREY, GREY // 2, "caption", None, positions, positions[:1])
    assert drawn.shape == (508, 960, 3)
    changed = np.argwhere((drawn != plain).any(axis=2))
    # From (50, 40) to (50, 20) of the right picture, which is shown 4.8 times larger.
    np.testing.assert_allclose(changed.mean(axis=0), [144, 480 + 242], atol=6)


def test_a_plan_without_candidates_takes_away_those_of_the_last_one() -> None:
    message = plan()
    message.candidates, message.candidate_energies, message.candidate_elites = [], [], 0
    markers = plan_markers(message, STATES[:, :3], STATES[:1, :3]).markers
    gone = {marker.ns for marker in markers if marker.action == Marker.DELETE}
    assert gone == {"elites", "candidates"}


def test_the_node_publishes_markers_and_picture_of_each_plan() -> None:
    rclpy.init()
    try:
        view = ViewNode(parameter_overrides=[Parameter("camera_pose", value=POSE.tolist())])
        user = rclpy.create_node("user")
        latched = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
        goals = user.create_publisher(Goal, "jepa_planner/goal", latched)
        plans = user.create_publisher(Plan, "jepa_planner/plan", 10)
        frames = user.create_publisher(Image, "image_raw", 10)
        infos = user.create_publisher(CameraInfo, "camera_info", 10)
        markers: list[MarkerArray] = []
        pictures: list[Image] = []
        user.create_subscription(MarkerArray, "jepa_view/markers", markers.append, 10)
        user.create_subscription(Image, "jepa_view/image", pictures.append, 10)
        frame = image_message(GREY)
        frame.header.stamp = stamp_message(5)
        png = array("B", photograph_file(GREY, STATES[1], 1))
        photograph = CompressedImage(format="png", data=png)
        with spinning(SingleThreadedExecutor(), view), spinning(SingleThreadedExecutor(), user):
            infos.publish(CameraInfo(k=INTRINSICS.ravel().tolist()))
            goals.publish(Goal(subgoals=[SubGoal(compressed_image=photograph)]))

            def heard() -> bool:
                frames.publish(frame)
                plans.publish(plan())
                return bool(markers and pictures)

            wait_until(heard, "markers and a picture")
    finally:
        rclpy.try_shutdown()
    by_name = {marker.ns: marker for marker in markers[-1].markers}
    assert {marker.header.frame_id for marker in markers[-1].markers} == {"panda_link0"}
    assert [point.x for point in by_name["plan"].points] == [0.1, 0.3]
    assert by_name["action"].type == Marker.ARROW
    assert by_name["energy"].text == "0.250"
    assert [point.x for point in by_name["elites"].points] == pytest.approx([0.3])
    assert [point.x for point in by_name["candidates"].points] == pytest.approx([0.2, 0.1])
    greens = [colour.g for name in ("elites", "candidates") for colour in by_name[name].colors]
    assert greens == sorted(greens, reverse=True), "the better, the greener"
    assert by_name["goal"].pose.position.x == 0.3
    assert decode_image(pictures[-1]).shape == (508, 960, 3)
