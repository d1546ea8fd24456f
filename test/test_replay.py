"""Episodes recorded by the real node, and their plans made anew from the bag."""

from __future__ import annotations

import json
import re
import shutil
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import rclpy
from bags import rewrite
from jepa_planner_msgs.action import ReachGoal
from jepa_planner_msgs.msg import SubGoal
from node_under_test import (
    HOME,
    image_message,
    neighbourhood,
    picture,
    wait_until,
    write_tiny_model,
)
from PIL import Image as PillowImage
from rclpy.executors import SingleThreadedExecutor
from rosbags.rosbag2 import StoragePlugin, Writer

from jepa_planner_ros.cli.main import main
from jepa_planner_ros.planning import InProcessPlanner
from jepa_planner_ros.replay.bag import Bag, BagError
from jepa_planner_ros.replay.pipeline import (
    Overrides,
    Replayed,
    Skipped,
    recorded_moments,
    replay,
)
from jepa_planner_ros.replay.recording import Recording, Topics, read_recording
from jepa_planner_ros.replay.verdict import judge
from jepa_planner_ros.replay.writing import plans_as_lines
from jepa_planner_ros.ros.recorder import Recorder, Storage
from jepa_planner_ros.search import FAST_SEARCH
from jepa_planner_ros.search.profiles import in_words, load_profile, profile_names
from jepa_planner_ros.search.text import search_from_json, search_to_json
from jepa_planner_ros.serving import LocalRayPlanner
from jepa_planner_ros.types import Planner
from jepa_planner_ros.world_model import load_world_model

STEPS = 3
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
ELSEWHERE = SubGoal(
    image=image_message(picture(HOME + np.array([0.1, 0.2, -0.1, 0, 0, 0, 0]))),
    energy_threshold=1e-6,
    step_budget=STEPS,
)
TOPICS = (
    *("image_raw", "joint_states", "current_pose", "target_pose"),
    *(f"jepa_planner/{name}" for name in ("goal", "plan", "outcome", "status")),
)


@dataclass(frozen=True)
class Recorded:
    """An episode of the real node, in both formats, with the model that planned."""

    model: Path
    mcap: Path
    sqlite3: Path


class BackgroundRecorder(threading.Thread):
    """Records until a goal has ended."""

    def __init__(self, path: Path, storage: Storage) -> None:
        super().__init__(daemon=True)
        self.ready = threading.Event()
        self._bag = path, storage
        self.start()

    def run(self) -> None:
        path, storage = self._bag
        node = rclpy.create_node(f"{storage.value}_recorder")
        executor = SingleThreadedExecutor()
        executor.add_node(node)
        with Recorder(node, path, TOPICS, storage) as recorder:
            while not recorder.counts.get("/jepa_planner/outcome"):
                executor.spin_once(timeout_sec=0.1)
                if not recorder.unheard:
                    self.ready.set()
        executor.shutdown()
        node.destroy_node()


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    directory = tmp_path_factory.mktemp("recorded")
    bags = Recorded(
        write_tiny_model(directory / "tiny.safetensors"), directory / "mcap", directory / "sqlite3"
    )
    with neighbourhood(bags.model, "control_mode:=blocking") as neighbours:
        recorders = [
            BackgroundRecorder(bags.mcap, Storage.MCAP),
            BackgroundRecorder(bags.sqlite3, Storage.SQLITE3),
        ]
        for recorder in recorders:
            wait_until(recorder.ready.is_set, "all topics")
        _, result = neighbours.client.send(ELSEWHERE).result()
        assert result.outcome == ReachGoal.Result.BUDGET_SPENT, result.reason
        for recorder in recorders:
            recorder.join()
    return bags


@pytest.fixture
def bag(recorded: Recorded, tmp_path: Path) -> Path:
    """A copy to be damaged."""
    return Path(shutil.copytree(recorded.mcap, tmp_path / "bag"))


def results_of(
    recording: Recording, model: Path, planner: Planner | None = None, **overrides: object
) -> list[Replayed | Skipped]:
    world_model = load_world_model(model)
    moments = recorded_moments(recording, Overrides(**overrides))  # type: ignore[arg-type]
    asked = planner or InProcessPlanner(world_model)
    return list(replay(recording, moments, world_model.encode, asked))


@pytest.mark.parametrize("storage", ["mcap", "sqlite3"])
def test_a_recorded_episode_is_planned_again_bit_for_bit(recorded: Recorded, storage: str) -> None:
    recording = read_recording(getattr(recorded, storage))
    assert recording.problems == []
    assert [plan.search_step for plan in recording.plans] == list(range(STEPS))
    verdict = judge(results_of(recording, recorded.model))
    assert verdict.as_dict() == {
        "plans": STEPS,
        "identical": True,
        "max_action_diff_m": 0.0,
        "energy_diff_max": 0.0,
        "skipped": 0,
        "reasons": [],
    }
    assert verdict.passed


def test_a_local_ray_cluster_plans_it_again_bit_for_bit(recorded: Recorded) -> None:
    planner = LocalRayPlanner(recorded.model, replicas=2, device="cpu", start_timeout_s=300.0)
    try:
        verdict = judge(results_of(read_recording(recorded.mcap), recorded.model, planner))
    finally:
        planner.close()
    assert verdict.identical


def test_every_step_was_recorded_with_what_it_started_from(recorded: Recorded) -> None:
    recording = read_recording(recorded.mcap)
    first, second, third = recording.plans
    assert first.previous is None
    assert second.previous is not None
    np.testing.assert_array_equal(second.previous, first.actions)
    assert third.previous is not None
    np.testing.assert_array_equal(third.previous, second.actions)
    assert not any(plan.start_latents.size for plan in recording.plans)
    (goal,) = recording.goals.values()
    np.testing.assert_array_equal(
        goal.photographs[0], picture(HOME + np.array([0.1, 0.2, -0.1, 0, 0, 0, 0]))
    )
    (outcome,) = recording.outcomes.values()
    assert "The budget was spent" in outcome.reason
    assert recording.joints is not None
    apart = recording.joints.at(first.stamp) - first.state
    assert np.abs(apart).max() < 1e-3


@pytest.mark.parametrize(
    "override",
    [{"seed": 1}, {"search": replace(FAST_SEARCH, max_translation=0.05)}],
    ids=["seed", "search"],
)
def test_another_seed_or_search_is_noticed(recorded: Recorded, override: dict[str, object]) -> None:
    recording = read_recording(recorded.mcap)
    verdict = judge(results_of(recording, recorded.model, **override))
    assert verdict.plans == STEPS
    assert verdict.identical is False
    assert verdict.max_action_diff_m is not None
    assert verdict.max_action_diff_m > 1e-3
    assert not verdict.passed
    assert "Plans differ from the recorded ones by up to" in verdict.sentence()


def test_a_plan_that_its_deadline_cut_short_is_told_of_and_not_compared(recorded: Recorded) -> None:
    recording = read_recording(recorded.mcap)
    first, *others = recording.plans
    cut = replace(first, deadline=0.05, rollouts=8, actions=first.actions + 0.01)
    hurried = [replace(plan, deadline=60.0) for plan in others]
    results = results_of(replace(recording, plans=(cut, *hurried)), recorded.model)
    verdict = judge(results)
    assert (verdict.plans, verdict.cut, verdict.skipped) == (STEPS, 1, 0)
    assert verdict.identical, "the others, which had time enough, are compared"
    assert verdict.passed
    assert "plans of step 0 were recorded" in verdict.reasons[0]
    assert "1 not compared, cut short by a deadline" in verdict.sentence()
    assert [json.loads(line)["cut_short"] for line in plans_as_lines(results).splitlines()] == [
        True,
        *([False] * (STEPS - 1)),
    ]


@pytest.mark.parametrize("name", profile_names())
def test_every_search_survives_its_recording(name: str) -> None:
    settings = load_profile(name)
    assert search_from_json(search_to_json(settings)) == settings


@pytest.mark.parametrize(
    "text", ["", "{", "{}", '{"method": "luck"}', '{"method": "mppi", "a": 1}']
)
def test_search_settings_of_another_version_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="cannot be read"):
        search_from_json(text)


# --- Damage --------------------------------------------------------------------------------------


def cut(file: Path, share: float) -> None:
    content = file.read_bytes()
    file.write_bytes(content[: int(share * len(content))])


def test_a_bag_without_metadata_is_read_and_says_so(bag: Path, recorded: Recorded) -> None:
    (bag / "metadata.yaml").unlink()
    recording = read_recording(bag)
    assert judge(results_of(recording, recorded.model)).identical
    (problem,) = recording.problems
    assert "metadata.yaml is missing; 'ros2 bag reindex' writes it" in problem


def test_a_single_file_is_read(bag: Path, recorded: Recorded) -> None:
    recording = read_recording(bag / "mcap.mcap")
    assert judge(results_of(recording, recorded.model)).identical


def test_metadata_that_is_no_yaml_is_done_without(bag: Path, recorded: Recorded) -> None:
    (bag / "metadata.yaml").write_text("rosbag2_bagfile_information: [")
    recording = read_recording(bag)
    assert judge(results_of(recording, recorded.model)).identical
    assert "Could not load YAML" in recording.problems[0]


def test_a_truncated_mcap_is_used_as_far_as_it_goes(recorded: Recorded, tmp_path: Path) -> None:
    long = Path(shutil.copytree(recorded.mcap, tmp_path / "bag"))
    rewrite(long, chunk=10)
    cut(long / "bag.mcap", 0.5)
    recording = read_recording(long)
    results = results_of(recording, recorded.model)
    verdict = judge(results, recording.problems)
    assert 1 <= verdict.plans <= STEPS
    assert len(recording.frame_stamps) < len(read_recording(recorded.mcap).frame_stamps)
    assert verdict.identical
    assert any("bag.mcap is damaged" in reason for reason in verdict.reasons)


def test_a_truncated_sqlite_bag_is_used_as_far_as_it_goes(
    recorded: Recorded, tmp_path: Path
) -> None:
    damaged = Path(shutil.copytree(recorded.sqlite3, tmp_path / "bag"))
    cut(damaged / "sqlite3.db3", 0.6)
    recording = read_recording(damaged)
    verdict = judge(results_of(recording, recorded.model), recording.problems)
    assert any("sqlite3.db3 is damaged" in reason for reason in verdict.reasons)
    assert recording.frame_stamps
    assert verdict.identical is not False


def test_a_damaged_chunk_ends_the_bag_there(bag: Path, recorded: Recorded) -> None:
    rewrite(bag, chunk=20)
    content = bytearray((bag / "bag.mcap").read_bytes())
    chunks = [match.end() for match in re.finditer(re.escape(ZSTD_MAGIC), content)]
    middle = chunks[len(chunks) // 2]
    content[middle : middle + 64] = bytes(64)
    (bag / "bag.mcap").write_bytes(content)
    recording = read_recording(bag)
    verdict = judge(results_of(recording, recorded.model), recording.problems)
    assert verdict.identical is not False
    assert any("is damaged after" in reason for reason in verdict.reasons)


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda bag: shutil.rmtree(bag), "There is no bag at"),
        (lambda bag: [file.unlink() for file in bag.iterdir()], "holds no .mcap or .db3 file"),
        (lambda bag: (bag / "mcap.mcap").write_text("no bag"), "File magic is invalid"),
        (lambda bag: (bag / "mcap.mcap").write_bytes(b""), "is empty: the recorder"),
        (lambda bag: (bag / "mcap.mcap").unlink(), "holds no .mcap or .db3 file"),
    ],
    ids=["gone", "empty directory", "text", "empty file", "missing file"],
)
def test_what_is_no_bag_is_refused(
    bag: Path, damage: Callable[[Path], object], sentence: str
) -> None:
    damage(bag)
    with pytest.raises(BagError, match=sentence):
        read_recording(bag)


@pytest.mark.parametrize(
    ("left_out", "sentence"),
    [
        ("/image_raw", "has no camera: images are missing. It has: /current_pose,"),
        ("/jepa_planner/goal", "is for a goal that the bag does not hold"),
        ("/jepa_planner/plan", "holds no plans of the planner node to make anew: give the"),
    ],
)
def test_missing_topics_are_named(
    bag: Path, capsys: pytest.CaptureFixture[str], recorded: Recorded, left_out: str, sentence: str
) -> None:
    rewrite(bag, keep=lambda topic, _: topic != left_out)
    code = main(["replay", str(bag), "--checkpoint", str(recorded.model)])
    told = capsys.readouterr()
    assert code == 1
    assert sentence in told.out + told.err


def test_a_missing_frame_costs_its_plan_only(bag: Path, recorded: Recorded) -> None:
    second = read_recording(bag).plans[1]
    rewrite(bag, keep=lambda topic, stamp: topic != "/image_raw" or stamp != second.stamp)
    verdict = judge(results_of(read_recording(bag), recorded.model))
    assert (verdict.plans, verdict.skipped, verdict.identical) == (STEPS - 1, 1, True)
    assert "the bag holds no usable frame of that stamp" in verdict.reasons[0]


def test_frames_in_disorder_are_found_and_told_of(bag: Path, recorded: Recorded) -> None:
    rewrite(bag, backwards="/image_raw")
    recording = read_recording(bag)
    verdict = judge(results_of(recording, recorded.model), recording.problems)
    assert verdict.plans == STEPS
    assert verdict.identical
    assert "are stamped before the frame that came before them" in verdict.reasons[0]


def test_plans_of_a_version_that_told_less_are_not_guessed(bag: Path) -> None:
    rewrite(bag, without_fields=("search_settings", "start_latents"))
    recording = read_recording(bag)
    assert recording.plans == ()
    assert "did not tell their search_settings, start_latents" in recording.problems[0]


def test_a_type_that_nobody_knows_is_named(tmp_path: Path) -> None:
    path = tmp_path / "strange"
    with Writer(path, version=8, storage_plugin=StoragePlugin.SQLITE3) as writer:
        there = writer.add_connection(
            "/mystery", "alien_msgs/msg/Thought", msgdef="not a definition", rihs01="RIHS01_0"
        )
        writer.write(there, 1, b"\0\1\0\0")
    with Bag(path) as bag:
        (message,) = bag.messages(["/mystery"])
        with pytest.raises(BagError, match="type alien_msgs/msg/Thought, which the bag does not"):
            bag.read(message)


@pytest.mark.parametrize(
    ("topics", "sentence"),
    [
        (Topics(image="/camera"), "--image-topic /camera is not in"),
        (Topics(image="/joint_states"), "--image-topic /joint_states has the type"),
        (Topics(joints="/image_raw"), "--joints-topic /image_raw has no joint states"),
    ],
)
def test_topics_that_are_not_there_are_refused(
    recorded: Recorded, topics: Topics, sentence: str
) -> None:
    with pytest.raises(BagError, match=sentence):
        read_recording(recorded.mcap, topics)


# --- Bags of others ------------------------------------------------------------------------------


def test_a_bag_without_plans_is_planned_from_at_regular_times(
    bag: Path, recorded: Recorded, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = ("/image_raw", "/joint_states")
    rewrite(bag, keep=lambda topic, _: topic in kept, renamed={"/image_raw": "/their/camera"})
    PillowImage.fromarray(picture(HOME)).save(tmp_path / "goal.png")
    figures, output = tmp_path / "verdict.json", tmp_path / "out"
    code = main(
        [
            *("replay", str(bag), "--checkpoint", str(recorded.model), "--every", "0.3"),
            *("--goal", str(tmp_path / "goal.png"), "--json", str(figures)),
            *("--output", str(output)),
        ]
    )
    verdict = json.loads(figures.read_text())
    assert code == 0
    assert verdict["plans"] >= 3
    assert verdict["identical"] is None
    assert "the bag holds none to compare with" in capsys.readouterr().out
    lines = [json.loads(line) for line in (output / "plans.jsonl").read_text().splitlines()]
    assert len(lines) == verdict["plans"]
    stamps = [line["stamp_ns"] for line in lines]
    assert min(np.diff(stamps)) >= 0.3e9
    page = (output / "report.html").read_text()
    assert "Replay of bag" in page
    assert "<td>end</td><td>\u2013</td>" in page, "nobody measured an energy at the end"


def test_the_command_writes_verdict_report_and_plans(
    recorded: Recorded, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = tmp_path / "new" / "verdict.json"
    code = main(
        [
            *("replay", str(recorded.mcap), "--checkpoint", str(recorded.model), "--seed", "5"),
            *("--json", str(figures), "--output", str(tmp_path / "out")),
        ]
    )
    assert code == 1
    assert "Plans differ from the recorded ones by up to" in capsys.readouterr().out
    verdict = json.loads(figures.read_text())
    assert verdict["identical"] is False
    page = (tmp_path / "out" / "report.html").read_text()
    assert "as predicted by the recorded plans" in page
    recording = read_recording(recorded.mcap)
    (outcome,) = recording.outcomes.values()
    assert f"<td>end</td><td>{outcome.final_energy:.3f}</td>" in page
    assert in_words(search_from_json(recording.plans[0].search_settings)) in page
    assert "<b>1</b><span>goal</span>" in page
    assert "action apart" in page
