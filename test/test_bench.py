"""The benchmarks run where nothing but PyTorch is, and their figures are what they claim to be."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from jepa_planner_ros.cli.bench.trial import elite_overlap
from jepa_planner_ros.cli.main import main
from jepa_planner_ros.photograph import save_photograph
from jepa_planner_ros.world_model import VJEPA2_AC_VITG
from jepa_planner_ros.world_model.cost import reference_operations, rollout_operations


def test_rollouts_are_timed_with_nothing_but_pytorch_installed(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    script = (
        "import sys\n"
        "class Only:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in {'rclpy', 'ray', 'scipy', 'tqdm', 'mujoco', 'PIL',\n"
        "                                  'matplotlib', 'rich', 'psutil', 'jinja2', 'yaml'}:\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Only())\n"
        "from jepa_planner_ros.cli.main import main\n"
        "sys.exit(main(sys.argv[1:]))"
    )
    bench = "bench rollout --preset shipped --device cpu --samples 8 --repeat 1 --json"
    ran = subprocess.run(
        [sys.executable, "-c", script, *bench.split(), str(figures)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stderr
    record = json.loads(figures.read_text())
    assert record["reference_s"] > 0.0
    paths = {path["precision"]: path for path in record["paths"]}
    assert paths.keys() == {"fp32", "fp16", "bf16", "int8"}, "tf32 is nothing of its own on a CPU"
    for path in paths.values():
        assert path["speedup"] == record["reference_s"] / path["seconds"]
        assert path["compiled"] is False
    errors = {name: path["max_abs_energy_error"] for name, path in paths.items()}
    assert errors["fp32"] < 1e-6 < errors["fp16"] < errors["bf16"] < 1e-2
    assert paths["fp32"]["elite_overlap"] == 1.0


def test_the_precision_study_is_printed_written_and_drawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figures, picture = tmp_path / "figures.json", tmp_path / "figures.png"
    command = "bench precision --preset shipped --device cpu --samples 8 --rounds 2 --precisions"
    outputs = ["--json", str(figures), "--plot", str(picture)]
    assert main([*command.split(), "fp32", "bf16", *outputs]) == 0
    assert "fp32" in capsys.readouterr().out
    record = json.loads(figures.read_text())
    first, second = record["energy_spread"]
    assert second < first, "a search draws its candidates together"
    fine, coarse = (record["precisions"][name][1] for name in ("fp32", "bf16"))
    assert fine["elite_overlap"] == 1.0
    assert fine["noise"] < 1e-3 * coarse["noise"]
    assert Image.open(picture).width > 600


def test_overlap_is_the_share_of_elites_kept() -> None:
    truth = np.array([0.0, 1.0, 2.0, 3.0])
    assert elite_overlap(truth, truth, 2) == 1.0
    assert elite_overlap(np.array([0.0, 5.0, 2.0, 3.0]), truth, 2) == 0.5
    assert elite_overlap(-truth, truth, 2) == 0.0


def test_operations_at_full_size() -> None:
    """A third of the operations is saved at horizon 2."""
    assert rollout_operations(VJEPA2_AC_VITG, 2) == pytest.approx(333e9, rel=0.01)
    assert reference_operations(VJEPA2_AC_VITG, 2) == pytest.approx(505e9, rel=0.01)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ("--samples 3", "at least 4 are needed"),
        ("--checkpoint /absent.pt", "there is no file /absent.pt"),
        ("--device nonsense", "--device nonsense cannot be used"),
    ],
)
def test_what_cannot_be_measured_is_refused(
    options: str, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "rollout", "--preset", "shipped", *options.split()]) == 1
    assert complaint in capsys.readouterr().err


def test_a_plan_from_two_pictures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, shade in (("now", 60), ("goal", 200)):
        Image.new("RGB", (160, 120), (shade, 90, 120)).save(tmp_path / f"{name}.png")
    plan = tmp_path / "plan.json"
    pictures = [str(tmp_path / "now.png"), str(tmp_path / "goal.png")]
    state = ["--state", "0.4", "0", "0.3", "0", "0", "0", "0.5"]
    assert main(["plan", *pictures, *state, "--precision", "bf16", "--json", str(plan)]) == 0
    said = capsys.readouterr().out
    assert "Planning in bf16 on cpu" in said
    record = json.loads(plan.read_text())
    (action,) = record["actions"]
    assert record["states"][1][:3] == pytest.approx(
        [start + moved for start, moved in zip((0.4, 0.0, 0.3), action[:3], strict=True)]
    )
    assert main(["plan", pictures[0], str(tmp_path / "absent.png"), *state]) == 1
    assert "absent.png cannot be read: No such file or directory." in capsys.readouterr().err


def test_the_state_of_a_plan_is_the_one_in_the_picture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture, state = tmp_path / "now.png", [0.5, 0.1, 0.3, 0.0, 0.0, 0.0, 0.0]
    command = ["plan", str(picture), str(picture), "--json", str(tmp_path / "plan.json")]
    Image.new("RGB", (160, 120)).save(picture)
    assert main(command) == 1
    assert "give it with --state" in capsys.readouterr().err
    save_photograph(np.zeros((120, 160, 3), np.uint8), np.array(state), picture)
    assert main(command) == 0
    assert json.loads((tmp_path / "plan.json").read_text())["states"][0] == state
