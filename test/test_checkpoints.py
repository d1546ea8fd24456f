"""Which files are world models, what is wrong with those that are not, and how they are loaded."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from random_weights import random_checkpoint
from safetensors.torch import save_file

from jepa_planner_ros.cli.main import main
from jepa_planner_ros.world_model import (
    PRECISIONS,
    PRESETS,
    VJEPA2_AC_VITG,
    Checkpoint,
    CheckpointError,
    Context,
    Encoder,
    EncoderConfig,
    Precision,
    Predictor,
    PredictorConfig,
    RolloutEngine,
    WorldModel,
    WorldModelConfig,
    read_checkpoint,
    write_checkpoint,
)
from jepa_planner_ros.world_model.memory import memory_need, parameters

SIZES = WorldModelConfig(
    EncoderConfig((32, 32), dim=64, depth=2, heads=1, mlp_hidden=64),
    PredictorConfig(dim=64, depth=2, heads=1, mlp_hidden=64),
)
IMAGE = SIZES.encoder.image_size


def meta_layout(checkpoint: Checkpoint) -> dict[str, dict[str, torch.Tensor]]:
    """As upstream saves it: wrapped, its predictor's names prefixed, with what is not needed."""
    prefixed = ("embed", "blocks", "norm", "proj")
    predictor = {
        f"module.{'predictor_' if name.startswith(prefixed) else ''}{name}": weight
        for name, weight in checkpoint.predictor.items()
    }
    return {
        "encoder": {f"module.backbone.{n}": w for n, w in checkpoint.encoder.items()}
        | {"module.backbone.pos_embed": torch.zeros(1, 4, 64)},
        "predictor": predictor | {"module.extrinsics_encoder.weight": torch.zeros(64, 6)},
        "opt": {"state": {0: torch.zeros(3)}},
    }


def meta_file(path: Path, change: Callable[[dict], object] = lambda content: None) -> Path:
    content = meta_layout(random_checkpoint(SIZES))
    change(content)
    torch.save(content, path)
    return path


def our_file(path: Path, **changes: object) -> Path:
    write_checkpoint(replace(random_checkpoint(SIZES), **changes), path)
    return path


class RunsCode:
    def __reduce__(self):
        return os.system, ("touch /tmp/jepa_planner_ros_was_executed",)


def missing(path: Path) -> Path:
    return path / "absent.pt"


def directory(path: Path) -> Path:
    our_file(path / "inside.safetensors")
    return path


def empty(path: Path) -> Path:
    (path / "empty.pt").touch()
    return path / "empty.pt"


def truncated_pt(path: Path) -> Path:
    file = meta_file(path / "model.pt")
    os.truncate(file, file.stat().st_size // 2)
    return file


def truncated_safetensors(path: Path) -> Path:
    file = our_file(path / "model.safetensors")
    os.truncate(file, file.stat().st_size - 1000)
    return file


def safetensors_without_its_header(path: Path) -> Path:
    file = our_file(path / "model.safetensors")
    os.truncate(file, 100)
    return file


def text(path: Path) -> Path:
    (path / "model.pt").write_text("<html>404 Not Found</html>")
    return path / "model.pt"


def noise(path: Path) -> Path:
    (path / "model.pt").write_bytes(bytes(range(255, 100, -1)))
    return path / "model.pt"


def bare_pickle(path: Path) -> Path:
    (path / "model.pt").write_bytes(pickle.dumps({"encoder": RunsCode(), "predictor": {}}))
    return path / "model.pt"


def code_in_a_zip(path: Path) -> Path:
    torch.save({"encoder": RunsCode(), "predictor": {}}, path / "model.pt")
    return path / "model.pt"


def other_zip(path: Path) -> Path:
    with zipfile.ZipFile(path / "model.pt", "w") as archive:
        archive.writestr("readme.txt", "no weights")
    return path / "model.pt"


def encoder_only(path: Path) -> Path:
    return meta_file(path / "vitg.pt", lambda content: content.pop("predictor"))


def pretraining(path: Path) -> Path:
    def change(content: dict) -> None:
        predictor = content["predictor"]
        del predictor["module.action_encoder.weight"]
        predictor["module.backbone.predictor_mask_tokens.0"] = torch.zeros(1, 1, 64)

    return meta_file(path / "vitl.pt", change)


def other_dictionary(path: Path) -> Path:
    torch.save({"state_dict": {}, "step": 3}, path / "model.pt")
    return path / "model.pt"


def half_a_predictor(path: Path) -> Path:
    def change(content: dict) -> None:
        for name in [n for n in content["predictor"] if "blocks.0.attn" in n]:
            del content["predictor"][name]

    return meta_file(path / "model.pt", change)


def last_blocks_missing(path: Path) -> Path:
    with torch.device("meta"):
        encoder = Encoder(replace(VJEPA2_AC_VITG.encoder, dim=1408)).state_dict()
    small = random_checkpoint(SIZES)
    # Only shapes count: a weight without a stride takes no room.
    encoder = {name: torch.zeros(1).expand(weight.shape) for name, weight in encoder.items()}
    torch.save(meta_layout(replace(small, encoder=encoder)), path / "model.pt")
    return path / "model.pt"


def other_latents(path: Path) -> Path:
    def change(content: dict) -> None:
        content["predictor"]["module.predictor_embed.weight"] = torch.zeros(64, 96)

    return meta_file(path / "model.pt", change)


def integers(path: Path) -> Path:
    def change(content: dict) -> None:
        content["predictor"]["module.predictor_proj.bias"] = torch.zeros(64, dtype=torch.int8)

    return meta_file(path / "model.pt", change)


def foreign_safetensors(path: Path) -> Path:
    save_file({"lm_head.weight": torch.zeros(2, 2)}, path / "model.safetensors")
    return path / "model.safetensors"


def config_of_another_size(path: Path) -> Path:
    config = replace(SIZES, predictor=replace(SIZES.predictor, mlp_hidden=128))
    return our_file(path / "model.safetensors", config=config)


def config_of_nothing(path: Path) -> Path:
    save_file({"a": torch.zeros(1)}, path / "model.safetensors", {"config": "{}"})
    return path / "model.safetensors"


BAD_FILES = {
    missing: "there is no file .*absent.pt.*vjepa2-ac-vitg.pt",
    directory: "is a directory.*inside.safetensors",
    empty: "is empty",
    truncated_pt: "is truncated: .* ends without the index",
    truncated_safetensors: r"is truncated: expected \d+ bytes, found \d+",
    safetensors_without_its_header: r"is truncated: expected \d+ bytes, found 100",
    text: "is text that starts with '<html>404 Not Found",
    noise: "of no known kind",
    bare_pickle: "is a bare pickle",
    code_in_a_zip: "wants to call (posix|os).system: such a file may run any code",
    other_zip: "is a zip archive but cannot be read as a PyTorch checkpoint",
    encoder_only: "holds only the encoder",
    pretraining: "fills in masked patches and takes no actions",
    other_dictionary: r"should hold 'encoder' and 'predictor'.*holds \['state_dict', 'step'\]",
    half_a_predictor: r"predictor.*4 of 34 weights are missing \(blocks.0.attn.qkv.weight",
    last_blocks_missing: "predictor in .* has 2 blocks of width 64, but .* has 24 of 1024",
    other_latents: r"embed.weight is \(64, 96\), not \(64, 64\)",
    integers: "no floating-point numbers .proj.bias is torch.int8",
    foreign_safetensors: "of another program: its metadata has no 'config'.*lm_head.weight",
    config_of_another_size: r"mlp.fc1.weight is \(64, 64\), not \(128, 64\)",
    config_of_nothing: "does not describe a world model",
}


@pytest.mark.parametrize("make", BAD_FILES, ids=lambda make: make.__name__)
def test_a_bad_file_is_refused_with_what_is_wrong(make: Callable, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=f"(?s){BAD_FILES[make]}"):
        read_checkpoint(make(tmp_path), image_size=IMAGE)
    assert not Path("/tmp/jepa_planner_ros_was_executed").exists()


def test_values_that_are_not_finite_are_found() -> None:
    damaged = random_checkpoint(SIZES)
    damaged.encoder["norm.bias"][:2] = torch.inf
    with pytest.raises(CheckpointError, match=r"2 of the 64 values of encoder\.norm\.bias"):
        damaged.require_finite()


def test_a_preset_without_weights_says_what_to_download() -> None:
    with pytest.raises(CheckpointError, match=r"Download https://.*/vjepa2-ac-vitg\.pt .*path"):
        read_checkpoint("vjepa2-ac-vitg")
    with pytest.raises(CheckpointError, match="sizes but no weights"):
        read_checkpoint("vjepa2-ac-vith")
    assert read_checkpoint("shipped").config == PRESETS["shipped"]


def test_all_ways_of_loading_give_the_same_fingerprint(tmp_path: Path) -> None:
    """A converted file stands for Meta's, and a node in fp32 goes with a planner in fp16."""
    meta, ours = meta_file(tmp_path / "meta.pt"), tmp_path / "ours.safetensors"
    read = read_checkpoint(meta, image_size=IMAGE)
    write_checkpoint(read, ours)
    expected = random_checkpoint(SIZES).fingerprint()
    assert read.fingerprint() == read_checkpoint(ours).fingerprint() == expected
    models = [WorldModel(read_checkpoint(ours), precision=name) for name in ("fp32", "bf16")]
    assert [model.fingerprint for model in models] == [expected, expected]


def test_a_replaced_or_overwritten_file_does_not_touch_a_loaded_model(tmp_path: Path) -> None:
    path = our_file(tmp_path / "model.safetensors")
    encoder, _ = read_checkpoint(path).build()
    models = [WorldModel(read_checkpoint(path), precision=name) for name in PRECISIONS]
    mapped = read_checkpoint(path)
    write_checkpoint(random_checkpoint(SIZES, torch.float16), path)
    torch.testing.assert_close(dict(mapped.encoder), dict(random_checkpoint(SIZES).encoder))
    path.write_bytes(b"")
    assert encoder.norm.weight.sum() == 64
    for model in models:
        assert np.isfinite(model.encode(np.zeros((32, 32, 3), np.uint8))).all()
    assert not list(tmp_path.glob("*.part"))


def test_a_written_file_can_be_read_by_those_whom_the_umask_lets(tmp_path: Path) -> None:
    (tmp_path / "any").touch()
    path = our_file(tmp_path / "model.safetensors")
    assert path.stat().st_mode == (tmp_path / "any").stat().st_mode


@pytest.mark.parametrize("preset", PRESETS)
def test_networks_are_built_without_a_copy_in_another_precision(preset: str) -> None:
    """Real shapes of every preset; the weights share one number, and their own memory is checked"""
    config = PRESETS[preset]
    with torch.device("meta"):
        parts = Encoder(config.encoder).state_dict(), Predictor(config).state_dict()
    assert sum(weight.numel() for part in parts for weight in part.values()) == parameters(config)
    encoder, predictor = Checkpoint(config, *parts, {}).build("meta", torch.float16)
    assert {w.dtype for net in (encoder, predictor) for w in net.parameters()} == {torch.float16}


def test_loading_in_half_precision_peaks_at_half_the_size(tmp_path: Path) -> None:
    """Measured by the kernel, as private memory, in a process of its own."""
    wide = WorldModelConfig(
        EncoderConfig((32, 32), dim=1024, depth=1, heads=16, mlp_hidden=4096),
        PredictorConfig(dim=1024, depth=2, heads=16, mlp_hidden=4096),
    )
    with torch.device("meta"):
        parts = Encoder(wide.encoder).state_dict(), Predictor(wide).state_dict()
    zeros = ({name: torch.zeros(w.shape) for name, w in part.items()} for part in parts)
    write_checkpoint(Checkpoint(wide, *zeros, {}), tmp_path / "wide.safetensors")
    script = (
        "import resource, sys, threading, torch\n"
        "from jepa_planner_ros.world_model import WorldModel, read_checkpoint\n"
        "def private():\n"
        "    lines = open('/proc/self/status').read().splitlines()\n"
        "    return next(int(l.split()[1]) for l in lines if l.startswith('RssAnon'))\n"
        "checkpoint, before = read_checkpoint(sys.argv[1]), private()\n"
        "peak, done = before, threading.Event()\n"
        "def watch():\n"
        "    global peak\n"
        "    while not done.wait(0.001): peak = max(peak, private())\n"
        "watcher = threading.Thread(target=watch); watcher.start()\n"
        "model = WorldModel(checkpoint, precision='bf16')\n"
        "done.set(); watcher.join(); print(1024 * (max(peak, private()) - before))\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "wide.safetensors")]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    # Beside the loaded weights, a few copies of the one that is being prepared.
    assert int(ran.stdout) < 2 * parameters(wide) + 4 * 4 * (1024 * 4096)


@pytest.mark.parametrize("precision", PRECISIONS.values(), ids=PRECISIONS)
def test_the_memory_formula_counts_what_the_engine_remembers(precision: Precision) -> None:
    engine = RolloutEngine(
        SIZES, random_checkpoint(SIZES).predictor, 3, torch.device("cpu"), precision
    )
    latent = torch.zeros(SIZES.encoder.tokens, SIZES.encoder.dim)
    engine.observe(Context.present(latent, torch.zeros(7, dtype=torch.float64)), horizon=2)
    assert memory_need(SIZES, precision, 3, frames=2).key_values == engine.memory_bytes


def test_the_full_size_fits_a_24_gb_card_in_half_precision() -> None:
    """A plan of 800 candidates takes the memory of one micro-batch."""
    half, single, eight = (
        memory_need(VJEPA2_AC_VITG, PRECISIONS[name], 100, frames=2)
        for name in ("fp16", "fp32", "int8")
    )
    assert 2.5e9 < half.weights < 2.7e9
    assert half.total + 1e9 < 24e9
    assert eight.total + 1e9 < 24e9
    assert single.weights == 2 * half.weights
    assert 1.6e9 < eight.weights < 1.8e9
    twice = memory_need(VJEPA2_AC_VITG, PRECISIONS["fp16"], 200, frames=2)
    assert twice.key_values == 2 * half.key_values


@pytest.mark.parametrize("precision", ["fp16", "fp32"])
def test_convert(precision: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # 256 x 256 is what Meta's files are taken to be made for.
    source, output = meta_file(tmp_path / "meta.pt"), tmp_path / "new" / "ours.safetensors"
    command = ["convert", str(source), str(output), "--precision", precision]
    assert main(command) == 0
    converted, original = read_checkpoint(output), read_checkpoint(source)
    assert converted.fingerprint() in capsys.readouterr().out
    assert (converted.fingerprint() == original.fingerprint()) == (precision == "fp32")
    assert converted.config == original.config
    assert converted.provenance["source_fingerprint"] == original.fingerprint()
    tolerance = {"rtol": 1e-3, "atol": 1e-6} if precision == "fp16" else {"rtol": 0, "atol": 0}
    for (name, weight), (_, expected) in zip(converted.weights(), original.weights(), strict=True):
        torch.testing.assert_close(weight.float(), expected, msg=name, **tolerance)

    assert main(command) == 1
    assert "exists already" in capsys.readouterr().err


def test_convert_refuses_values_that_half_precision_cannot_hold(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def change(content: dict) -> None:
        content["predictor"]["module.predictor_proj.bias"][0] = 1e6

    source = meta_file(tmp_path / "meta.pt", change)
    assert main(["convert", str(source), str(tmp_path / "ours.safetensors")]) == 1
    assert "predictor.proj.bias" in capsys.readouterr().err
    assert not (tmp_path / "ours.safetensors").exists()
