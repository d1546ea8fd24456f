"""Bags that are broken, each in its own way: what the command says, and what it can still use."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from bags import rewrite
from node_under_test import write_tiny_model
from PIL import Image as PillowImage
from rosbags.rosbag2 import StoragePlugin, Writer

from jepa_planner_ros.cli.main import main
from jepa_planner_ros.replay.recording import JOINTS_TYPE, PLAN_TYPE, RAW_IMAGE_TYPE

BAG = Path(__file__).parent / "data" / "replay" / "bag"
FILE = "bag.mcap"
PLANS = 3


@pytest.fixture(scope="module")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("model") / "tiny.safetensors")


def no_metadata(bag: Path) -> None:
    (bag / "metadata.yaml").unlink()


def truncated(bag: Path) -> None:
    content = (bag / FILE).read_bytes()
    (bag / FILE).write_bytes(content[: len(content) // 2])


def zero_bytes(bag: Path) -> None:
    shutil.rmtree(bag)
    bag.mkdir()
    (bag / "bag.db3").write_bytes(b"")


def no_bag(bag: Path) -> None:
    shutil.rmtree(bag)


def no_messages(bag: Path) -> None:
    shutil.rmtree(bag)
    with Writer(bag, version=8, storage_plugin=StoragePlugin.MCAP):
        pass


def wrong_storage(bag: Path) -> None:
    told = (bag / "metadata.yaml").read_text()
    assert "storage_identifier: mcap" in told
    (bag / "metadata.yaml").write_text(told.replace("identifier: mcap", "identifier: sqlite3"))


def missing_topic(bag: Path) -> None:
    rewrite(bag, keep=lambda topic, _: topic != "/image_raw")


def unknown_type(bag: Path) -> None:
    shutil.rmtree(bag)
    with Writer(bag, version=8, storage_plugin=StoragePlugin.SQLITE3) as writer:
        for name, kind in (("plan", PLAN_TYPE), ("image_raw", RAW_IMAGE_TYPE)):
            there = writer.add_connection(
                f"/{name}", kind, msgdef="not a definition", rihs01="RIHS01_0"
            )
            writer.write(there, 1, bytes([0, 1, 0, 0, *bytes(60)]))


def frames_in_disorder(bag: Path) -> None:
    rewrite(bag, backwards="/image_raw")


def spoiled_plan(bag: Path) -> None:
    """The first plan ends in the middle of its content."""
    _change_first(bag, PLAN_TYPE, lambda data: data[: len(data) // 2])


def unknown_encoding(bag: Path) -> None:
    """All frames are depth pictures, which show no colours."""
    rewrite(bag, changed={RAW_IMAGE_TYPE: lambda data: data.replace(b"rgb8", b"16UC")})


def joints_without_names(bag: Path) -> None:
    rewrite(
        bag,
        keep=lambda topic, _: topic in ("/image_raw", "/joint_states"),
        changed={JOINTS_TYPE: lambda data: data.replace(b"panda_joint", b"other_joint")},
    )


def _change_first(bag: Path, kind: str, change: Callable[[bytes], bytes]) -> None:
    seen = []

    def once(data: bytes) -> bytes:
        seen.append(data)
        return change(data) if len(seen) == 1 else data

    rewrite(bag, changed={kind: once})


@dataclass(frozen=True)
class Broken:
    """A way to break the bag, what is said, and how many plans can be made all the same."""

    by: Callable[[Path], None]
    told: str
    plans: int | None = None
    options: tuple[str, ...] = ()


CASES = (
    Broken(no_bag, "There is no bag at"),
    Broken(no_metadata, "metadata.yaml is missing; 'ros2 bag reindex' writes it", PLANS),
    Broken(wrong_storage, "cannot be opened by its metadata.yaml", PLANS),
    Broken(truncated, f"{FILE} is damaged", 1),
    Broken(zero_bytes, "bag.db3 is empty: the recorder or a copy broke off"),
    Broken(no_messages, "has no camera: images are missing. It has: no topic at all"),
    Broken(missing_topic, "has no camera: images are missing. It has: /"),
    Broken(unknown_type, f"has the type {PLAN_TYPE}, which the bag does not define"),
    Broken(frames_in_disorder, "are stamped before the frame that came before them", PLANS),
    Broken(spoiled_plan, f"A message on /jepa_planner/plan is no {PLAN_TYPE}", PLANS - 1),
    Broken(unknown_encoding, "is useless: the image is a depth image", 0),
    Broken(joints_without_names, "Some joint states are useless", None, ("--goal", "goal.png")),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.by.__name__)
def test_each_kind_of_broken_bag_is_told_of_in_its_own_words(
    case: Broken,
    tiny_model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    bag = Path(shutil.copytree(BAG, tmp_path / "bag"))
    case.by(bag)
    monkeypatch.chdir(tmp_path)
    PillowImage.fromarray(np.zeros((64, 64, 3), np.uint8)).save("goal.png")
    # The model is not the recorded one: its plans are counted, not compared.
    how = ("--checkpoint", str(tiny_model), "--tolerance", "10", "--json", "verdict.json")
    code = main(["replay", str(bag), *how, *case.options])
    told = capsys.readouterr()
    said = told.out + told.err
    print(said)
    assert case.told in said
    if case.plans is None:
        assert code == 1
    else:
        verdict = json.loads(Path("verdict.json").read_text())
        assert verdict["plans"] == case.plans
        assert code == (0 if case.plans else 1)
