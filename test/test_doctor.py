from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from random_weights import random_checkpoint
from test_checkpoints import BAD_FILES, SIZES, our_file

from jepa_planner_ros.cli import machine
from jepa_planner_ros.cli.doctor import examine_checkpoint
from jepa_planner_ros.cli.findings import Finding
from jepa_planner_ros.cli.main import main
from jepa_planner_ros.world_model import read_checkpoint


def words(text: str) -> str:
    """Without the line breaks that the width of the terminal makes."""
    return " ".join(text.split())


@pytest.fixture
def only_the_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the slow parts, which other tests look at."""
    monkeypatch.setattr(machine, "check_ros", lambda needed: [])
    monkeypatch.setattr(machine, "check_simulation", lambda needed: [])


def test_the_doctor_runs_without_ros_ray_and_mujoco() -> None:
    """They are taken away in a process of its own; what is missing is named with its mend."""
    script = (
        "import sys\n"
        "class Without:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in {'rclpy', 'jepa_planner_msgs', 'ray'}:\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Without())\n"
        "import importlib.util, importlib.metadata\n"
        "find, version = importlib.util.find_spec, importlib.metadata.version\n"
        "importlib.util.find_spec = lambda name: None if name == 'mujoco' else find(name)\n"
        "def without_ray(name):\n"
        "    if name == 'ray': raise importlib.metadata.PackageNotFoundError(name)\n"
        "    return version(name)\n"
        "importlib.metadata.version = without_ray\n"
        "from jepa_planner_ros.cli.main import main\n"
        "codes = main(['doctor']), main(['doctor', '--need', 'ros', 'ray', 'simulation'])\n"
        "print('codes', codes, 'loaded', {'ray', 'rclpy', 'mujoco'} & set(sys.modules))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120
    )
    said = words(ran.stdout)
    assert said.endswith("codes (0, 1) loaded set()"), ran.stderr
    for complaint in (
        "rclpy rclpy is not found fix: source /opt/ros",
        "messages jepa_planner_msgs is not found fix: source install/setup.bash",
        "Ray not installed fix: pip install",
        "MuJoCo not installed fix: pip install",
    ):
        assert f"note {complaint}" in said
        assert f"FAIL {complaint}" in said
    assert "Ready to plan. Notes: rclpy, messages, Ray, MuJoCo." in said
    assert "To be mended first: rclpy, messages, Ray, MuJoCo." in said


@pytest.mark.usefixtures("only_the_checkpoint")
def test_the_doctor_tells_what_the_shipped_model_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    said = words(capsys.readouterr().out)
    for expected in (
        "float16",
        "encoder 128 wide, 3 deep, 4 heads",
        "128 x 128 pixels make 64 tokens",
        "made by jepa-planner train",
        "closed_loop_mean_cm",
        f"fingerprint {read_checkpoint('shipped').fingerprint()}",
        "need in fp32",
        "need in fp16",
        "fits the CPU",
        "GPU",
        "cores",
    ):
        assert expected in said


def test_each_kind_of_bad_file_has_an_explanation_of_its_own(tmp_path: Path) -> None:
    said = []
    for index, make in enumerate(BAD_FILES):
        place = tmp_path / str(index)
        place.mkdir()
        (finding,) = examine_checkpoint(str(make(place)))
        assert finding.fatal
        said.append(finding.found.replace(str(place), ""))
    damaged = random_checkpoint(SIZES)
    damaged.predictor["norm.weight"][0] = torch.nan
    path = our_file(tmp_path / "nan.safetensors", predictor=damaged.predictor)
    (finding,) = examine_checkpoint(str(path))
    assert finding.fatal
    said.append(finding.found)
    assert len(set(said)) == len(BAD_FILES) + 1


@pytest.mark.usefixtures("only_the_checkpoint")
def test_a_bad_file_makes_the_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--checkpoint", str(tmp_path / "none.pt")]) == 1
    assert "To be mended first: file" in capsys.readouterr().out


def test_a_disabled_compiler_is_noticed() -> None:
    """PyTorch itself says nothing: the doctor's word is compared with what really happens."""
    switch = {"TORCHDYNAMO_DISABLE": "1"}
    script = (
        "import torch\n"
        "def backend(graph, inputs):\n"
        "    print('compiled'); return graph.forward\n"
        "torch.compile(lambda x: x + 1, backend=backend)(torch.zeros(1))"
    )
    command = [sys.executable, "-c", script]
    ran = subprocess.run(
        command, env=os.environ | switch, capture_output=True, text=True, timeout=120, check=True
    )
    assert "compiled" not in ran.stdout
    assert machine.check_compile(switch).fix == "unset TORCHDYNAMO_DISABLE"
    assert machine.check_compile({"TORCH_COMPILE_DISABLE": "1"}).fix
    assert not machine.check_compile({"TORCHDYNAMO_DISABLE": "0"}).fix


def test_a_missing_compiler_is_noticed() -> None:
    assert "C++" in machine.check_compile({"CXX": "no-such-compiler"}).found


@pytest.mark.parametrize(
    ("capability", "fast"),
    [
        ((6, 1), ["fp32"]),
        ((7, 5), ["fp16", "int8"]),
        ((8, 6), ["fp16", "int8", "bf16", "tf32"]),
        ((9, 0), ["fp16", "int8", "bf16", "tf32", "fp8"]),
    ],
)
def test_precisions_of_gpus(capability: tuple[int, int], fast: list[str]) -> None:
    assert machine.fast_precisions(capability) == fast


@pytest.mark.parametrize(("version", "fits"), [((3, 9, 1), False), ((3, 13, 0), True)])
def test_python_versions(version: tuple[int, ...], fits: bool) -> None:
    assert machine.check_python(version).fatal != fits


def test_a_long_finding_is_wrapped_under_itself() -> None:
    lines = str(Finding("subject", "word " * 40, "mend it")).splitlines()
    assert all(len(line) <= 100 for line in lines)
    assert lines[0].startswith("  note subject        word")
    assert lines[-1].strip() == "fix: mend it"
