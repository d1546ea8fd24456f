"""What the planner sees and intends, for RViz and Foxglove.

A node of its own, since drawing must not delay the planner: it may run on another computer, and on
the topics of a recording. Heard: the planner's ``~/goal``, ``~/plan`` and ``~/outcome``, and the
camera's ``image_raw`` and ``camera_info``. Published: ``~/markers`` (the arm's way so far, where
the search imagined to go, the planned sequence with its expected energies, the action that is
executed, and the goal, where the photograph tells it) and ``~/image`` (the goal photograph beside
the frame that was planned from, with the planned motion drawn in).
"""

from __future__ import annotations

from array import array
from collections import deque
from contextlib import suppress
from typing import Any

import numpy as np
import rclpy
from geometry_msgs.msg import Point
from jepa_planner_msgs.msg import Goal, Outcome, Plan
from numpy.typing import NDArray
from PIL import Image as Picture
from PIL import ImageDraw
from rcl_interfaces.msg import ParameterDescriptor
from rclpy.executors import ExternalShutdownException
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile, qos_profile_sensor_data
from sensor_msgs.msg import CameraInfo, Image
from std_msgs.msg import ColorRGBA
from visualization_msgs.msg import Marker, MarkerArray

from jepa_planner_ros.geometry import POSITION
from jepa_planner_ros.photograph import state_inside
from jepa_planner_ros.report.records import Camera
from jepa_planner_ros.ros.images import decode_compressed_image, decode_image
from jepa_planner_ros.ros.interrupt import ignore_interrupts
from jepa_planner_ros.ros.reading import stamp_of, state_array, states_array
from jepa_planner_ros.types import Float64Array

_FRAMES_KEPT = 60
_HEIGHT = 480
"""Of the published picture, pixels."""
_CAPTION = 28
_WAY, _PLANNED, _FIRST, _GOAL = (230, 230, 230), (255, 213, 74), (255, 79, 135), (255, 79, 135)
_BEST, _WORST = (95, 240, 181), (200, 80, 110)


class ViewNode(Node):
    """Draws every plan."""

    def __init__(self, **options: Any) -> None:
        super().__init__("jepa_view", **options)
        planner: str = self.declare_parameter(
            "planner",
            "jepa_planner",
            ParameterDescriptor(description="Name of the planner node.", read_only=True),
        ).value
        pose: list[float] = self.declare_parameter(
            "camera_pose",
            [0.0] * 7,
            ParameterDescriptor(
                description="Pose of the camera's optical frame in the robot's base frame: x, y, z "
                "(m) and quaternion x, y, z, w. Zeros: unknown, nothing is drawn into the picture.",
                read_only=True,
            ),
        ).value
        self._camera_pose = np.array(pose, dtype=np.float64)
        self._camera: Camera | None = None
        self._photographs: list[NDArray[np.uint8]] = []
        self._frames: deque[Image] = deque(maxlen=_FRAMES_KEPT)
        self._way: list[Float64Array] = []
        self._places: list[Float64Array | None] = []
        latched = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
        reliable = QoSProfile(depth=10)
        self._markers = self.create_publisher(MarkerArray, "~/markers", reliable)
        self._image = self.create_publisher(Image, "~/image", reliable)
        for kind, topic, receive, qos in (
            (Goal, f"{planner}/goal", self._begin, latched),
            (Plan, f"{planner}/plan", self._show, reliable),
            (Outcome, f"{planner}/outcome", self._end, reliable),
            (Image, "image_raw", self._keep_frame, qos_profile_sensor_data),
            (CameraInfo, "camera_info", self._place_camera, qos_profile_sensor_data),
        ):
            self.create_subscription(kind, topic, receive, qos)

    def _keep_frame(self, frame: Image) -> None:
        self._frames.append(frame)

    def _place_camera(self, info: CameraInfo) -> None:
        if self._camera is None and self._camera_pose.any():
            self._camera = Camera.placed(np.array(info.k).reshape(3, 3), self._camera_pose)

    def _begin(self, goal: Goal) -> None:
        self._photographs = [decode_compressed_image(one.compressed_image) for one in goal.subgoals]
        states = [state_inside(bytes(one.compressed_image.data)) for one in goal.subgoals]
        self._places = [None if state is None else state[POSITION] for state in states]
        self._way = []

    def _show(self, plan: Plan) -> None:
        states = np.vstack((state_array(plan.state), states_array(plan.predicted_states)))
        self._way.append(states[0, POSITION])
        markers = plan_markers(plan, states[:, POSITION], np.stack(self._way))
        place = dict(enumerate(self._places)).get(plan.subgoal)
        if place is not None:
            markers.markers.append(goal_marker(plan, place))
        self._markers.publish(markers)
        stamp = stamp_of(plan)
        frames = sorted(self._frames, key=lambda frame: abs(stamp_of(frame) - stamp))
        if frames and plan.subgoal < len(self._photographs):
            picture = plan_picture(
                decode_image(frames[0]),
                self._photographs[plan.subgoal],
                _caption(plan),
                self._camera,
                states[:, POSITION],
                np.stack(self._way),
            )
            self._image.publish(_image_message(picture, plan))

    def _end(self, _outcome: Outcome) -> None:
        self._markers.publish(MarkerArray(markers=[Marker(action=Marker.DELETEALL)]))


def plan_markers(plan: Plan, planned: Float64Array, way: Float64Array) -> MarkerArray:
    """A plan in space, in the base frame.

    Args:
        plan: gives the header and the energies.
        planned: positions (horizon + 1, 3), from where the arm is to where the plan ends.
        way: positions (count, 3) that earlier plans started from, and this one.
    """
    markers = [
        *candidate_markers(plan),
        _line(plan, "way", 0, way, _WAY, 0.003),
        _line(plan, "plan", 0, planned, _PLANNED, 0.006),
        _arrow(plan, planned[0], planned[1]),
    ]
    for index, (position, energy) in enumerate(
        zip(planned[1:], plan.predicted_energies, strict=False)
    ):
        label = _marker(plan, "energy", index, Marker.TEXT_VIEW_FACING, _PLANNED)
        label.pose.position = _point(position + np.array([0.0, 0.0, 0.03]))
        label.scale.z = 0.02
        label.text = f"{energy:.3f}"
        markers.append(label)
    return MarkerArray(markers=markers)


def candidate_markers(plan: Plan) -> list[Marker]:
    """Where the last round's candidates end: one point each, from best to worst; elites larger.

    Where an earlier plan told of candidates and this one does not, their markers are taken away.
    """
    points = [Point(x=float(one.x), y=float(one.y), z=float(one.z)) for one in plan.candidates]
    colours = [_colour(rank) for rank in ranks(np.array(plan.candidate_energies))]
    elites = int(plan.candidate_elites)
    return [
        _points(plan, "elites", points[:elites], colours[:elites], 0.009),
        _points(plan, "candidates", points[elites:], colours[elites:], 0.005),
    ]


def ranks(energies: Float64Array) -> Float64Array:
    """How energies (count,) compare: 0 for the lowest, 1 for the highest."""
    if len(energies) == 0:
        return energies
    lowest = energies.min()
    return (energies - lowest) / max(float(energies.max() - lowest), np.finfo(float).tiny)


def goal_marker(told: Any, place: Float64Array) -> Marker:
    """Where (3,) a photograph was taken at, in the frame of a message with a header."""
    sphere = _marker(told, "goal", 0, Marker.SPHERE, _GOAL)
    sphere.pose.position = _point(place)
    sphere.scale.x = sphere.scale.y = sphere.scale.z = 0.02
    return sphere


def plan_picture(
    frame: NDArray[np.uint8],
    photograph: NDArray[np.uint8],
    caption: str,
    camera: Camera | None,
    planned: Float64Array,
    way: Float64Array,
) -> NDArray[np.uint8]:
    """The goal photograph beside the frame, RGB, with a line of text below.

    Args:
        frame: what was planned from, RGB (height, width, 3).
        photograph: of the goal.
        caption: the text.
        camera: where to draw the motion in the frame; None draws none.
        planned: positions (horizon + 1, 3).
        way: positions (count, 3).
    """
    view = Picture.fromarray(frame)
    if camera is not None:
        draw, width = ImageDraw.Draw(view), max(1, view.width // 130)
        for points, colour in ((way, _WAY), (planned, _PLANNED), (planned[:2], _FIRST)):
            pixels = [(float(x), float(y)) for x, y in camera.pixels(points)]
            if len(pixels) > 1:
                draw.line(pixels, fill=colour, width=width)
    parts = [_scaled(Picture.fromarray(photograph)), _scaled(view)]
    whole = Picture.new("RGB", (sum(part.width for part in parts), _HEIGHT + _CAPTION))
    left = 0
    for part in parts:
        whole.paste(part, (left, 0))
        left += part.width
    ImageDraw.Draw(whole).text((8, _HEIGHT + 7), caption, fill=(255, 255, 255))
    return np.asarray(whole)


def _caption(plan: Plan) -> str:
    expected = ", ".join(f"{energy:.3f}" for energy in plan.predicted_energies)
    return (
        f"goal | frame   sub-goal {plan.subgoal + 1}, step {plan.step}: energy {plan.energy:.3f}, "
        f"expected {expected} after {1000.0 * plan.latency.plan:.0f} ms of search"
    )


def _scaled(picture: Picture.Image) -> Picture.Image:
    return picture.resize((round(picture.width * _HEIGHT / picture.height), _HEIGHT))


def _image_message(picture: NDArray[np.uint8], plan: Plan) -> Image:
    height, width = picture.shape[:2]
    return Image(
        header=plan.header,
        height=height,
        width=width,
        encoding="rgb8",
        step=3 * width,
        data=array("B", picture.tobytes()),
    )


def _marker(told: Any, namespace: str, index: int, kind: int, colour: Any) -> Marker:
    """A marker in the frame, and of the time, of a message with a header."""
    marker = Marker(header=told.header, ns=namespace, id=index, type=kind, action=Marker.ADD)
    marker.pose.orientation.w = 1.0
    marker.color = _rgba(colour)
    return marker


def _points(
    plan: Plan, namespace: str, points: list[Point], colours: list[ColorRGBA], size: float
) -> Marker:
    marker = _marker(plan, namespace, 0, Marker.POINTS, _BEST)
    if not points:
        marker.action = Marker.DELETE
    marker.scale.x = marker.scale.y = size
    marker.points, marker.colors = points, colours
    return marker


def _colour(rank: float) -> ColorRGBA:
    """Between the colours of the best (0) and the worst (1)."""
    return _rgba((1.0 - rank) * np.array(_BEST) + rank * np.array(_WORST))


def _rgba(colour: Any) -> ColorRGBA:
    red, green, blue = (float(part) / 255.0 for part in colour)
    return ColorRGBA(r=red, g=green, b=blue, a=1.0)


def _line(
    plan: Plan, namespace: str, index: int, points: Float64Array, colour: Any, width: float
) -> Marker:
    line = _marker(plan, namespace, index, Marker.LINE_STRIP, colour)
    line.scale.x = width
    line.points = [_point(point) for point in points]
    return line


def _arrow(plan: Plan, start: Float64Array, end: Float64Array) -> Marker:
    arrow = _marker(plan, "action", 0, Marker.ARROW, _FIRST)
    arrow.scale.x, arrow.scale.y, arrow.scale.z = 0.006, 0.014, 0.02
    arrow.points = [_point(start), _point(end)]
    return arrow


def _point(position: Float64Array) -> Point:
    x, y, z = map(float, position)
    return Point(x=x, y=y, z=z)


def main(args: list[str] | None = None) -> None:
    """Run the node until it is interrupted."""
    rclpy.init(args=args)
    with suppress(KeyboardInterrupt, ExternalShutdownException):
        rclpy.spin(ViewNode())
    ignore_interrupts()
    rclpy.try_shutdown()


if __name__ == "__main__":
    main()
