"""The live page: what it makes of messages, what it serves, and what a browser shows of it."""

from __future__ import annotations

import asyncio
import io
import json
import math
import threading
import urllib.error
import urllib.request
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import rclpy
from action_msgs.msg import GoalStatus, GoalStatusArray
from browser import CHROMIUM, NO_CHROMIUM, Page, browser
from builtin_interfaces.msg import Duration
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from geometry_msgs.msg import Point32
from jepa_planner_msgs.action import ReachGoal
from jepa_planner_msgs.msg import Goal, Latency, Outcome, Plan, SubGoal
from node_under_test import image_message, spinning, wait_until
from PIL import Image as PillowImage
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile, qos_profile_sensor_data
from sensor_msgs.msg import CameraInfo, CompressedImage, Image, JointState
from std_msgs.msg import String

from jepa_planner_ros.cli.main import main
from jepa_planner_ros.photograph import photograph_file
from jepa_planner_ros.report.records import Camera
from jepa_planner_ros.ros.diagnostics import planner_status
from jepa_planner_ros.ros.poses import delta_message, state_message
from jepa_planner_ros.serving.messages import ServingReport
from jepa_planner_ros.types import ModelDescription
from jepa_planner_ros.watch import hearing
from jepa_planner_ros.watch.listener import Listener
from jepa_planner_ros.watch.overlay import View
from jepa_planner_ros.watch.pictures import Album, Source
from jepa_planner_ros.watch.records import Watched
from jepa_planner_ros.watch.server import address, is_loopback, listen, serve
from jepa_planner_ros.watch.snapshot import Pictures, latency_parts, snapshot
from jepa_planner_ros.watch.timeline import Bar, arm_bars

NODE = "/jepa_planner"
NASTY = "<img src=x onerror='document.title=1'><b>&"
GREY = np.full((48, 64, 3), 90, np.uint8)
GOAL_STATE = np.array([0.5, 0.0, 0.3, 0.0, 0.0, 0.0, 0.0])
# Looks straight down from 1 m above the base.
POSE = np.array([0.0, 0.0, 1.0, *(np.array([1.0, -1.0, 0.0, 0.0]) / np.sqrt(2.0))])
INTRINSICS = [100.0, 0.0, 32.0, 0.0, 100.0, 24.0, 0.0, 0.0, 1.0]
UNSEEN = Watched(NODE)
SCRIPTS = ("pictures.js", "charts.js", "format.js", "dom.js")


def identifier(number: int) -> np.ndarray:
    return np.full(16, number, np.uint8)


def goal_message(number: int = 1, stamp: int = 0) -> Goal:
    png = array("B", photograph_file(GREY, GOAL_STATE, 1))
    subgoal = SubGoal(
        compressed_image=CompressedImage(format="png", data=png),
        energy_threshold=0.04,
        step_budget=12,
    )
    message = Goal(goal_id=identifier(number), subgoals=[subgoal], control_mode="blocking")
    message.header.stamp.sec = stamp
    return message


def plan_message(step: int = 0, number: int = 1, energy: float = 0.4) -> Plan:
    state = np.array([0.3 + 0.05 * step, 0.1, 0.3, 0.0, 0.0, 0.0, 0.0])
    action = np.array([0.05, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0])
    return Plan(
        goal_id=identifier(number),
        step=step,
        state=state_message(state),
        actions=[delta_message(action)],
        predicted_states=[state_message(state + action)],
        energy=energy,
        predicted_energies=[energy / 2],
        round_best_energies=[0.3, 0.2],
        round_elite_energies=[0.35, 0.25],
        candidates=[Point32(x=0.4, y=0.1, z=0.3), Point32(x=0.3, y=0.2, z=0.3)],
        candidate_energies=[0.2, 0.5],
        candidate_elites=1,
        rollouts=35,
        search="fast",
        latency=Latency(capture_age=0.02, encode=0.03, plan=0.2, network=0.01),
    )


def joints(angle: float, stamp: float = 0.0) -> JointState:
    message = JointState(
        name=[f"panda_joint{index}" for index in range(1, 8)], position=[angle] * 7
    )
    message.header.stamp.sec, message.header.stamp.nanosec = int(stamp), int(stamp % 1 * 1e9)
    return message


def told(watched: Watched, now: float, view: View | None = None) -> dict[str, Any]:
    """The snapshot as the page gets it."""
    return json.loads(json.dumps(snapshot(watched, Pictures(), view, now), allow_nan=False))


def pursuing(steps: int = 2) -> Watched:
    """A goal that began at 100 s, and has been planned for at 101 s, 102 s, ..."""
    watched = hearing.looked(UNSEEN, True, 100.0)
    watched = hearing.heard_goal(watched, goal_message(), 100.0)
    for step in range(steps):
        plan = plan_message(step, energy=0.4 - 0.1 * step)
        watched = hearing.heard_plan(watched, plan, 101.0 + step)
    return watched


def outcome_message(outcome: int = ReachGoal.Result.REACHED) -> Outcome:
    return Outcome(
        goal_id=identifier(1),
        outcome=outcome,
        reason="So it is.",
        final_energy=0.03,
        elapsed=Duration(sec=3),
    )


# --- What is made of messages -------------------------------------------------------------------


def test_the_headline_follows_the_node_from_nowhere_to_the_goal_and_away() -> None:
    here = hearing.looked(UNSEEN, True, 100.0)
    reached = hearing.heard_outcome(pursuing(), outcome_message(), 103.0)
    spent = hearing.heard_outcome(
        pursuing(1), outcome_message(ReachGoal.Result.BUDGET_SPENT), 103.0
    )
    course = {
        "waiting": (UNSEEN, "Waiting for the node at /jepa_planner"),
        "idle": (here, "Ready: no goal yet"),
        "pursuing": (pursuing(), "Step 2 of 12: planning"),
        "reached": (reached, "Reached after 2 steps"),
        "budget_spent": (spent, "Not reached: the budget of steps is spent after 1 step"),
        "gone": (hearing.looked(here, False, 110.0), "/jepa_planner has been gone for 4 s"),
    }
    for name, (watched, headline) in course.items():
        state = told(watched, 104.0)["state"]
        assert (state["name"], state["headline"]) == (name, headline)
    assert "--namespace" in told(UNSEEN, 104.0)["state"]["detail"]


def test_an_arm_that_holds_without_a_plan_is_told_until_it_goes_on() -> None:
    message = ReachGoal.Impl.FeedbackMessage()
    message.feedback.holding = "The planner is away."
    held = hearing.heard_feedback(pursuing(), message, 103.0)
    state = told(held, 103.1)["state"]
    assert (state["name"], state["detail"]) == ("held", "The planner is away.")
    message.feedback.holding = ""
    again = hearing.heard_feedback(held, message, 104.0)
    assert told(again, 104.1)["state"]["name"] == "pursuing"


def test_a_step_carries_energies_rounds_and_latency() -> None:
    step = told(pursuing(), 103.0)["steps"][-1]
    assert (step["step"], step["energy"], step["predicted"]) == (1, 0.3, [0.15])
    assert (step["best"], step["elites"]) == ([0.3, 0.2], [0.35, 0.25])
    assert step["latency"] == {"capture_age": 20, "encode": 30, "plan": 200, "network": 10}
    assert step["action_mm"] == [50, 0, 0]


def test_a_part_of_the_latency_that_nobody_knew_is_shown_too() -> None:
    (step,) = pursuing(1).steps
    parts = latency_parts([replace(step, latency={**step.latency, "in_queue": 0.1})])
    assert [part["name"] for part in parts][:4] == ["capture_age", "encode", "plan", "network"]
    assert parts[4]["label"] == "in queue"


def test_a_new_goal_begins_anew() -> None:
    ended = hearing.heard_outcome(pursuing(), outcome_message(), 103.0)
    # The first plan of a goal may overtake the goal itself.
    early = hearing.heard_plan(ended, plan_message(0, number=2), 104.0)
    again = told(hearing.heard_goal(early, goal_message(2), 104.1), 104.2)
    assert again["state"]["name"] == "pursuing"
    assert len(again["steps"]) == 1
    assert again["goal"]["final_energy"] is None


def test_a_goal_that_ended_before_the_page_was_opened_is_not_pursued() -> None:
    status = GoalStatus(status=GoalStatus.STATUS_SUCCEEDED)
    status.goal_info.goal_id.uuid = identifier(1)
    watched = hearing.heard_action_status(pursuing(0), GoalStatusArray(status_list=[status]), 101.0)
    assert told(watched, 102.0)["state"]["headline"] == "Reached"
    others = GoalStatusArray(status_list=[GoalStatus(status=GoalStatus.STATUS_SUCCEEDED)])
    assert hearing.heard_action_status(pursuing(0), others, 101.0).outcome is None


def test_a_goal_is_known_to_have_ended_whatever_is_heard_first() -> None:
    status = GoalStatus(status=GoalStatus.STATUS_CANCELED)
    status.goal_info.goal_id.uuid = identifier(1)
    here = hearing.looked(UNSEEN, True, 100.0)
    early = hearing.heard_action_status(here, GoalStatusArray(status_list=[status]), 100.1)
    assert told(hearing.heard_goal(early, goal_message(1), 100.2), 101.0)["goal"]["ended"]
    assert not told(hearing.heard_goal(early, goal_message(2), 100.2), 101.0)["goal"]["ended"]


def test_a_node_that_was_started_again_pursues_no_goal_of_its_former_life() -> None:
    gone = hearing.looked(pursuing(), False, 103.0)
    assert len(told(gone, 103.1)["steps"]) == 2, "what it did last is still shown"
    back = told(hearing.looked(gone, True, 110.0), 110.1)
    assert (back["state"]["headline"], back["steps"]) == ("Ready: no goal yet", [])
    # Its new goal may be heard before anybody has looked.
    again = hearing.heard_goal(gone, goal_message(2), 110.0)
    again = hearing.looked(again, True, 110.3)
    assert told(again, 110.4)["state"]["name"] == "pursuing"


def test_the_timeline_shows_planning_moving_and_holding() -> None:
    watched = hearing.looked(UNSEEN, True, 99.0)
    # The robot's clock is 1000 s ahead.
    for tick in range(60):
        now = 100.0 + 0.05 * tick
        angle = 0.05 * min(max(tick - 20, 0), 20)
        watched = hearing.heard_joints(watched, joints(angle, now + 1000.0), now)
    watched = hearing.heard_goal(watched, goal_message(stamp=1100), 100.2)
    plan = plan_message()
    plan.header.stamp.sec, plan.header.stamp.nanosec = 1100, 500_000_000
    # It was told late, since the arm was still moving.
    watched = hearing.heard_plan(watched, plan, 102.0)
    planner, arm = told(watched, 102.95)["timeline"]["lanes"]
    assert [bar["kind"] for bar in planner["bars"]] == ["encode", "plan"]
    assert planner["bars"][0]["start"] == pytest.approx(0.52)
    assert planner["bars"][1]["end"] == pytest.approx(0.52 + 0.24)
    assert [bar["kind"] for bar in arm["bars"]] == ["hold", "move", "hold"]
    move = arm["bars"][1]
    assert (move["start"], move["end"]) == pytest.approx((1.0, 2.0), abs=0.2)
    assert told(watched, 102.95)["state"]["arm"] == "holds"
    assert told(watched, 200.0)["state"]["arm"] is None, "nothing is known of an arm unheard of"


def test_holding_fills_what_motion_leaves() -> None:
    bars = list(arm_bars([(0.0, 1.5), (2.0, 3.0), (9.0, 10.0)], 1.0, 4.0))
    expected = [("move", 1.0, 1.5), ("hold", 1.5, 2.0), ("move", 2.0, 3.0), ("hold", 3.0, 4.0)]
    assert bars == [Bar(*bar) for bar in expected]


def test_old_data_are_called_stale() -> None:
    watched = hearing.heard_frame(hearing.heard_joints(UNSEEN, joints(0.0), 100.0), 100.0)
    assert not told(watched, 100.5)["pictures"]["camera"]["stale"]
    late = told(watched, 103.2)
    assert (late["pictures"]["camera"]["age"], late["arm"]["age"]) == (3.2, 3.2)
    assert late["pictures"]["camera"]["stale"]
    assert late["arm"]["stale"]


def test_what_is_not_finite_is_unknown() -> None:
    message = plan_message(energy=math.nan)
    message.predicted_energies = [math.inf]
    step = told(hearing.heard_plan(pursuing(0), message, 101.0), 102.0)["steps"][0]
    assert (step["energy"], step["predicted"]) == (None, [None])


def diagnosed(retries: int) -> DiagnosticStatus:
    """What the node publishes of a planner whose replicas made five shards of the last plan."""
    told = SimpleNamespace(last_plan=0.1, status="Ready.", planner_error=None, pace=None)
    model = ModelDescription("abc", 64, 128, (128, 128), 16, "cpu", "fp32", replicas=2)
    report = ServingReport({"b": 2, "a": 3}, collisions=0, retries=retries)
    status = planner_status("jepa_planner", told, model, report, None)  # type: ignore[arg-type]
    status.hardware_id = NODE
    return status


def test_a_replica_that_died_is_a_warning_and_the_others_are_told() -> None:
    for retries, level in ((0, "ok"), (1, "warning")):
        array = DiagnosticArray(status=[diagnosed(retries)])
        page = told(hearing.heard_diagnostics(UNSEEN, array, 100.0), 101.0)
        (entry,) = page["diagnostics"]["entries"]
        assert (entry["name"], entry["level"]) == ("planner", level)
        assert ("a replica died" in entry["message"]) == bool(retries)
        assert page["replicas"]["count"] == "2"
        assert page["replicas"]["shards"] == [
            {"replica": "a", "shards": "3"},
            {"replica": "b", "shards": "2"},
        ]


def test_diagnostics_of_another_robots_node_are_not_this_ones() -> None:
    other = diagnosed(1)
    other.hardware_id = "/left/jepa_planner"
    watched = hearing.heard_diagnostics(UNSEEN, DiagnosticArray(status=[diagnosed(0)]), 100.0)
    watched = hearing.heard_diagnostics(watched, DiagnosticArray(status=[other]), 101.0)
    page = told(watched, 104.5)
    assert [entry["level"] for entry in page["diagnostics"]["entries"]] == ["ok"]
    assert page["diagnostics"]["stale"]


def test_plans_candidates_and_goal_are_drawn_where_the_camera_sees_them() -> None:
    view = View(Camera.placed(np.array(INTRINSICS).reshape(3, 3), POSE), 64, 48)
    page = told(pursuing(1), 102.0, view)
    overlay = page["overlay"]
    # 0.7 m below the camera, x is up in the picture and y to the left.
    assert overlay["planned"] == [[17.7, -18.9], [17.7, -26.0]]
    assert overlay["goal"] == [32.0, -47.4]
    assert len(overlay["candidates"]) == 2
    assert overlay["ranks"] == [0.0, 1.0]
    assert page["goal"]["distance_cm"] == pytest.approx(22.4)


def test_what_has_no_pixel_is_not_drawn() -> None:
    view = View(Camera.placed(np.array(INTRINSICS).reshape(3, 3), POSE), 64, 48)
    message, goal = plan_message(), goal_message()
    # Beside the camera, and an energy that is not finite.
    message.candidates.insert(0, Point32(x=0.3, y=0.1, z=1.0))
    message.candidates.append(Point32(x=0.3, y=0.1, z=0.3))
    message.candidate_energies = [0.1, 0.2, 0.5, math.nan]
    beside = np.array([0.5, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0])
    png = array("B", photograph_file(GREY, beside, 1))
    goal.subgoals[0].compressed_image.data = png
    watched = hearing.heard_plan(hearing.heard_goal(UNSEEN, goal, 100.0), message, 101.0)
    overlay = told(watched, 102.0, view)["overlay"]
    assert overlay["goal"] is None
    assert (len(overlay["candidates"]), overlay["ranks"]) == (2, [0.0, 1.0])


def test_nothing_is_said_of_an_arm_whose_joints_are_not_found() -> None:
    message = joints(0.0)
    message.name = [f"left_{name}" for name in message.name]
    unknown = hearing.heard_joints(pursuing(), message, 103.0)
    page = told(unknown, 103.1)
    assert (page["state"]["headline"], page["state"]["arm"]) == ("Step 2 of 12: planning", None)
    assert "names no Franka arm" in page["arm"]["problem"]
    assert page["timeline"]["lanes"][1]["bars"] == []
    found = told(hearing.heard_joints(unknown, message, 103.2, "left_panda_joint"), 103.3)
    assert (found["state"]["arm"], found["arm"]["problem"]) == ("holds", None)


def test_a_picture_is_made_seldom_and_small_however_often_it_is_asked_for() -> None:
    decoded: list[int] = []

    def source(number: int) -> Source:
        def decode() -> np.ndarray:
            decoded.append(number)
            return np.full((1200, 1600, 3), number, np.uint8)

        return Source(number, decode)

    now = 0.0
    album = Album(lambda: now)
    for number in range(30):
        now = 0.01 * number
        content = album.get("camera", {"camera": source(number)})
    assert decoded == [0, 15]
    assert content is not None
    assert content.startswith(b"\xff\xd8")
    assert len(content) < 100_000
    assert album.get("goal-0", {}) is None


# --- What is served -----------------------------------------------------------------------------


class Planner(Node):
    """Publishes what a planner node and its robot publish, of an episode that goes on for ever."""

    def __init__(self) -> None:
        super().__init__("jepa_planner")
        latched = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
        feedback = ReachGoal.Impl.FeedbackMessage
        self._goals = self.create_publisher(Goal, "~/goal", latched)
        self._plans = self.create_publisher(Plan, "~/plan", 10)
        self._statuses = self.create_publisher(String, "~/status", latched)
        self._feedback = self.create_publisher(feedback, "~/reach_goal/_action/feedback", 10)
        self._diagnostics = self.create_publisher(DiagnosticArray, "/diagnostics", 10)
        self._frames = self.create_publisher(Image, "image_raw", qos_profile_sensor_data)
        self._infos = self.create_publisher(CameraInfo, "camera_info", qos_profile_sensor_data)
        self._joints = self.create_publisher(JointState, "joint_states", qos_profile_sensor_data)
        self._step = 0
        self.sees, self.spoiled = True, False
        self._statuses.publish(String(data=NASTY))
        self._goals.publish(goal_message())
        self.create_timer(0.05, self._measure)
        self.create_timer(0.3, self._plan)

    def _measure(self) -> None:
        stamp = self.get_clock().now()
        message = joints(0.1 * math.sin(3.0 * stamp.nanoseconds / 1e9))
        message.header.stamp = stamp.to_msg()
        self._joints.publish(message)
        if self.sees:
            shade = np.full((48, 64, 3), self._step % 200, np.uint8)
            frame = image_message(shade)
            if self.spoiled:
                frame.data = frame.data[:-1]
            self._frames.publish(frame)
            self._infos.publish(CameraInfo(width=64, height=48, k=INTRINSICS))

    def _plan(self) -> None:
        self.get_logger().warning(NASTY)
        plan = plan_message(self._step % 12, energy=0.4 / (1 + self._step % 12))
        plan.header.stamp = self.get_clock().now().to_msg()
        self._plans.publish(plan)
        message = ReachGoal.Impl.FeedbackMessage()
        message.feedback.target_pose.pose.position.x = 0.45
        self._feedback.publish(message)
        status = DiagnosticStatus(
            level=DiagnosticStatus.ERROR,
            name=f"jepa_planner: {NASTY}",
            message=NASTY,
            hardware_id=NODE,
            values=[KeyValue(key=NASTY, value=NASTY)],
        )
        self._diagnostics.publish(DiagnosticArray(status=[status]))
        self._step += 1


@contextmanager
def served(listener: Listener, port: int = 0) -> Iterator[str]:
    """The page's server in a thread; gives its address."""
    listening = listen("127.0.0.1", port)
    loop, ended = asyncio.new_event_loop(), asyncio.Event()
    thread = threading.Thread(
        target=loop.run_until_complete, args=(serve(listener, "127.0.0.1", listening, ended),)
    )
    thread.start()
    try:
        yield address("127.0.0.1", listening)
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join(10.0)
        assert not thread.is_alive()
        loop.close()


@pytest.fixture(scope="module")
def planner() -> Iterator[Planner]:
    rclpy.init()
    try:
        node = Planner()
        with spinning(SingleThreadedExecutor(), node):
            yield node
    finally:
        rclpy.try_shutdown()


@pytest.fixture(scope="module")
def listener(planner: Planner) -> Iterator[Listener]:
    with Listener(camera_pose=POSE) as listening:
        wait_until(lambda: len(listening.watched.steps) > 1, "plans")
        wait_until(lambda: "camera" in listening.sources, "a frame")
        wait_until(lambda: bool(listening.watched.log), "the log")
        wait_until(lambda: bool(listening.watched.diagnoses), "diagnostics")
        wait_until(lambda: listening.watched.goal is not None, "the goal")
        wait_until(lambda: listening.watched.command is not None, "feedback")
        wait_until(lambda: listening.watched.present is True, "the node")
        yield listening


def fetch(page: str, path: str, host: str | None = None) -> tuple[int, Any, bytes]:
    """Status, headers and content of an answer."""
    request = urllib.request.Request(page + path)
    if host is not None:
        request.add_header("Host", host)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read()


def test_what_was_published_is_served(listener: Listener) -> None:
    with served(listener) as page:
        _, _, content = fetch(page, "snapshot.json")
        status, headers, picture = fetch(page, "pictures/camera.jpg?1")
        goal_status, _, goal = fetch(page, "pictures/goal-0.jpg")
        missing, _, _ = fetch(page, "pictures/goal-7.jpg")
    known = json.loads(content)
    assert known["node"] == NODE
    assert known["state"]["detail"] == NASTY
    assert known["goal"]["subgoals"] == [{"threshold": 0.04, "budget": 12}]
    assert known["arm"]["command"]["position"][0] == 0.45
    assert known["log"][0]["level"] == "warning"
    assert (status, headers["Content-Type"]) == (200, "image/jpeg")
    assert PillowImage.open(io.BytesIO(picture)).size == (64, 48)
    assert goal_status == 200
    assert goal.startswith(b"\xff\xd8")
    assert missing == 404


def test_a_message_that_cannot_be_taken_apart_does_not_end_the_hearing(
    listener: Listener, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    broken = threading.Event()

    def fail(watched: Watched, _: float) -> Watched:
        broken.set()
        raise ValueError("not to be taken apart")

    with monkeypatch.context() as patched:
        patched.setattr(hearing, "heard_frame", fail)
        wait_until(broken.is_set, "a frame")
    last = listener.watched.camera.newest
    wait_until(lambda: listener.watched.camera.newest != last, "another frame")
    assert "not to be taken apart" in capfd.readouterr().err


def test_the_stream_tells_again_and_again(listener: Listener) -> None:
    with served(listener) as page, urllib.request.urlopen(page + "events", timeout=30) as stream:
        assert stream.headers["Content-Type"] == "text/event-stream"
        lines = [stream.readline() for _ in range(6)]
    events = [json.loads(line.removeprefix(b"data: ")) for line in lines if line.strip()]
    assert len(events) == 3
    assert {event["node"] for event in events} == {NODE}


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:9", 200),
        ("localhost", 200),
        ("[::1]:9", 200),
        ("evil.example", 403),
        ("evil.example:80", 403),
        ("127.0.0.1.evil.example", 403),
        ("[", 403),
    ],
)
def test_a_page_that_points_its_own_name_here_is_refused(
    host: str, status: int, listener: Listener
) -> None:
    with served(listener) as page:
        answers = [fetch(page, path, host)[0] for path in ("", "snapshot.json", "page.js")]
    assert set(answers) == {status}


def test_the_page_needs_nothing_from_elsewhere_and_makes_no_html_of_messages(
    listener: Listener,
) -> None:
    paths = ("", "style.css", "page.css", "page.js", *SCRIPTS, "icon.svg")
    with served(listener) as page:
        answers = [fetch(page, path) for path in paths]
    for status, headers, _ in answers:
        assert status == 200
        assert "script-src 'self';" in headers["Content-Security-Policy"]
        assert headers["X-Content-Type-Options"] == "nosniff"
    text = b"".join(content for _, _, content in answers).decode()
    assert "innerHTML" not in text
    assert "insertAdjacentHTML" not in text
    addresses = {word for word in text.split('"') if word.startswith("http")}
    assert addresses == {"http://www.w3.org/2000/svg"}


def test_watching_is_not_taken_for_a_controller(planner: Planner, listener: Listener) -> None:
    commands = (
        "target_pose",
        "servo_node/pose_target_cmds",
        "joint_trajectory_controller/joint_trajectory",
        "gripper/gripper_position_controller/commands",
    )
    assert planner.count_subscribers(f"{NODE}/plan") == 1
    assert [planner.count_subscribers(topic) for topic in commands] == [0, 0, 0, 0]


def test_only_this_computers_addresses_are_loopback() -> None:
    assert all(map(is_loopback, ("localhost", "127.0.0.1", "127.1.2.3", "::1")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "192.168.1.7", "robot", "127.0.0.1.evil")))


def test_a_port_in_use_is_refused_with_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    taken = listen("127.0.0.1", 0)
    with taken:
        port = taken.getsockname()[1]
        assert main(["watch", "--port", str(port)]) == 1
    assert f"--port {port} cannot be listened on" in capsys.readouterr().err


def test_the_help_of_watch_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["watch", "--help"])
    explained = capsys.readouterr().out
    assert all(word in explained for word in ("--namespace", "cannot", "examples", "ssh -L"))


# --- What a browser shows -----------------------------------------------------------------------

SHOWN = (
    "document.querySelector('h1').textContent.startsWith('Step ')",
    "document.querySelector('#camera img')",
    "document.querySelector('#goal img')",
    "document.querySelectorAll('#camera svg .candidate').length === 2",
    "document.querySelectorAll('#latency .bar').length > 3",
    "document.querySelectorAll('#rounds .dot').length > 3",
    "document.querySelectorAll('#energy .dot').length > 0",
    "document.querySelector('#timeline .move')",
    "document.querySelector('#log .warning')",
    "document.querySelector('#health .error')",
)


@pytest.mark.skipif(CHROMIUM is None, reason=NO_CHROMIUM)
def test_a_browser_shows_an_episode_and_outlives_the_server(
    planner: Planner, listener: Listener, tmp_path: Path
) -> None:
    async def look() -> None:
        async with browser(tmp_path) as page:
            with served(listener) as where:
                port = int(where.rsplit(":", 1)[1].strip("/"))
                for width, height in ((390, 844), (1360, 900)):
                    await page.open(where, width, height, dark=width < 600)
                    await see_everything(page, width)
                planner.sees = False
                await page.wait_for("document.querySelector('#camera.stale')")
                assert "stale" in await page.evaluate(
                    "document.querySelector('#camera-badge').textContent"
                )
                assert page.complaints == []
                planner.spoiled = planner.sees = True
                await page.wait_for("document.querySelector('#camera .empty')")
                assert "the image holds" in await page.evaluate(
                    "document.querySelector('#camera').textContent"
                )
                planner.spoiled = False
                await page.wait_for("document.querySelector('#camera img')")
            await page.wait_for("document.body.classList.contains('lost-page')")
            assert "lost" in await page.evaluate(
                "document.querySelector('#connection').textContent"
            )
            with served(listener, port):
                await page.wait_for("!document.body.classList.contains('lost-page')")
                await page.wait_for("!document.querySelector('#camera.stale')")

    asyncio.run(look())


async def see_everything(page: Page, width: int) -> None:
    for expression in SHOWN:
        await page.wait_for(expression)
    # What came in messages is shown as it was written.
    assert await page.evaluate("document.querySelector('#detail').textContent") == NASTY
    assert await page.evaluate("document.querySelectorAll('img[src=x]').length") == 0
    assert await page.evaluate("document.title") != "1"
    assert await page.evaluate("document.documentElement.scrollWidth") <= width
    unnamed = "[...document.querySelectorAll('svg.chart')].filter(one => !one.ariaLabel).length"
    assert await page.evaluate(unnamed) == 0
