"""World models on disk: which file is meant, what it is, and our own safetensors layout."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from jepa_planner_ros.world_model.checkpoint import SHIPPED, Checkpoint, CheckpointError
from jepa_planner_ros.world_model.config import PRESETS, WorldModelConfig
from jepa_planner_ros.world_model.meta_layout import read_meta

_EXPECTED = (
    "Give 'shipped', a .safetensors file made by 'jepa-planner train' or 'jepa-planner convert', "
    "or Meta's vjepa2-ac-vitg.pt."
)
_DOWNLOAD = "https://dl.fbaipublicfiles.com/vjepa2/vjepa2-ac-vitg.pt"
_PARTS = ("encoder.", "predictor.")
_ZIP, _PICKLE = b"PK\x03\x04", b"\x80"
# A safetensors file starts with the length of its header, 8 bytes, and the header, which is JSON.
_HEADER = 8


def locate_checkpoint(checkpoint: str | Path) -> Path:
    """The file that the parameter ``world_model.checkpoint`` names.

    Args:
        checkpoint: a path, or the name of a preset.

    Raises:
        CheckpointError: there is no such file, or it is empty.
    """
    if str(checkpoint) == "shipped":
        return SHIPPED
    path = Path(checkpoint).expanduser()
    problem = f"world_model.checkpoint: there is no file {path}. {_EXPECTED}"
    if path.is_dir():
        inside = sorted(file.name for file in path.iterdir() if _looks_like_weights(file))
        problem = f"world_model.checkpoint: {path} is a directory. " + (
            f"Give the path of a file in it: {', '.join(inside)}." if inside else _EXPECTED
        )
    elif path.is_file():
        if path.stat().st_size:
            return path
        problem = f"{path} is empty: its download or copy failed. Get it again."
    elif str(checkpoint) == "vjepa2-ac-vitg":
        problem = (
            "world_model.checkpoint: the weights of vjepa2-ac-vitg are not shipped. Download "
            f"{_DOWNLOAD} (11.7 GB) and give the path of the file instead of the preset's name."
        )
    elif str(checkpoint) in PRESETS:
        problem = (
            f"world_model.checkpoint: the preset {checkpoint} has sizes but no weights: nobody has "
            f"released an action-conditioned predictor for them. {_EXPECTED}"
        )
    raise CheckpointError(problem)


def read_checkpoint(
    checkpoint: str | Path, image_size: tuple[int, int] | None = None
) -> Checkpoint:
    """Read a world model from disk, never executing pickled code.

    Only the names and shapes of the weights are read and checked here. The values are mapped into
    memory, and read when they are used.

    Args:
        checkpoint: a preset's name, or a file of ours or Meta's; its content tells, not its name.
        image_size: (height, width) that Meta's weights are used at; they do not store it.
            Default 256 x 256.

    Raises:
        CheckpointError: the file is missing, damaged or holds no world model.
    """
    try:
        path = locate_checkpoint(checkpoint)
        with path.open("rb") as file:
            start = file.read(64)
    except OSError as error:
        raise CheckpointError(
            f"world_model.checkpoint: the file {checkpoint} cannot be read: "
            f"{error.strerror or error}. Check its permissions, or give another file."
        ) from error
    if start.startswith(_ZIP):
        read = read_meta(path, image_size or (256, 256))
    elif start.startswith(_PICKLE):
        raise CheckpointError(
            f"{path} is a bare pickle, as PyTorch wrote them before version 1.6; reading it may "
            "run code. Expected is a file that torch.save of a later version wrote. If you trust "
            "it, load it yourself and save it again."
        )
    elif start[_HEADER : _HEADER + 1] == b"{":
        read = _read_safetensors(path)
    elif start.isascii():
        raise CheckpointError(
            f"{path} cannot be read: it is text that starts with {start[:40].decode()!r}, not a "
            "world model. A failed download leaves such files. Get it again."
        )
    else:
        raise CheckpointError(f"{path} cannot be read: it is of no known kind. {_EXPECTED}")
    try:
        read.require_fit()
    except CheckpointError as error:
        raise CheckpointError(f"{path}: {error}") from error
    return read


def write_checkpoint(checkpoint: Checkpoint, path: Path) -> None:
    """Write a safetensors file that `read_checkpoint` reads.

    A file that is already there is replaced at once and as a whole; who has it open keeps the old.
    """
    metadata = {
        "config": json.dumps(checkpoint.config.to_dict()),
        "provenance": json.dumps(dict(checkpoint.provenance)),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"{path.name}.part")
    unfinished.touch()
    mode = unfinished.stat().st_mode
    try:
        save_file(
            {name: tensor.contiguous() for name, tensor in checkpoint.weights()},
            unfinished,
            metadata,
        )
        # The library makes files that only their owner can read, whatever the umask says.
        unfinished.chmod(mode)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def _looks_like_weights(path: Path) -> bool:
    return path.suffix in {".pt", ".pth", ".safetensors"}


def _read_safetensors(path: Path) -> Checkpoint:
    _require_complete(path)
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise CheckpointError(f"{path} is a damaged safetensors file: {error}.") from error
    if "config" not in metadata:
        raise CheckpointError(
            f"{path} is a safetensors file of another program: its metadata has no 'config', and "
            f"it holds {', '.join(sorted(tensors)[:3])}, ... {_EXPECTED}"
        )
    try:
        config = WorldModelConfig.from_dict(json.loads(metadata["config"]))
        provenance = json.loads(metadata.get("provenance", "{}"))
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"{path} does not describe a world model of this version in its 'config': {error!r}."
        ) from error
    stray = sorted(name for name in tensors if not name.startswith(_PARTS))
    if stray:
        raise CheckpointError(
            f"{path} should hold only weights of 'encoder' and 'predictor', but also holds "
            f"{', '.join(stray[:3])}."
        )
    encoder, predictor = (_part(tensors, part) for part in _PARTS)
    return Checkpoint(config, encoder, predictor, provenance)


def _require_complete(path: Path) -> None:
    """Compare the file's length with what its header says, to name both when they differ."""
    found = path.stat().st_size
    with path.open("rb") as file:
        expected = _HEADER + int.from_bytes(file.read(_HEADER), "little")
        if expected <= found:
            try:
                header = json.loads(file.read(expected - _HEADER))
                header.pop("__metadata__", None)
                ends = [tensor["data_offsets"][1] for tensor in header.values()]
            except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
                raise CheckpointError(
                    f"{path} is a damaged safetensors file: its header cannot be read ({error!r})."
                ) from error
            expected += max(ends, default=0)
    if found < expected:
        raise CheckpointError(
            f"{path} is truncated: expected {expected} bytes, found {found}. Get it again."
        )


def _part(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {
        name.removeprefix(prefix): tensor
        for name, tensor in tensors.items()
        if name.startswith(prefix)
    }
