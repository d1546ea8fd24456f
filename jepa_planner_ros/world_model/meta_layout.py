"""Meta's checkpoint layout: ``vjepa2-ac-vitg.pt`` and files like it."""

from __future__ import annotations

import pickle
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from jepa_planner_ros.world_model.checkpoint import Checkpoint, CheckpointError
from jepa_planner_ros.world_model.config import (
    VIT_G,
    VIT_H,
    VIT_L,
    VJEPA2_AC_VITG,
    EncoderConfig,
    PredictorConfig,
    WorldModelConfig,
)

_KNOWN_ENCODERS = {encoder.dim: encoder for encoder in (VIT_L, VIT_H, VIT_G)}

# Weights do not tell into how many heads they split. All released networks but ViT-H's encoder,
# which is among the known ones, have heads of this width.
_HEAD_DIM = 64


def read_meta(path: Path, image_size: tuple[int, int]) -> Checkpoint:
    """Read ``encoder`` and ``predictor``, whose weights have upstream's names.

    Upstream: ``src/hub/backbones.py`` for the layout, ``src/models/ac_predictor.py`` for the names.
    Optimiser states and the like beside them stay on disk.

    Args:
        path: a zip archive, as ``torch.save`` writes it.
        image_size: (height, width) in pixels.

    Raises:
        CheckpointError: the file is damaged, would run code, or holds something else.
    """
    content = _load(path)
    if not isinstance(content, dict) or not content.keys() & {"encoder", "predictor"}:
        found = sorted(map(str, content)) if isinstance(content, dict) else type(content).__name__
        raise CheckpointError(
            f"{path} should hold 'encoder' and 'predictor', as vjepa2-ac-vitg.pt does, "
            f"but holds {found}."
        )
    if "predictor" not in content or "encoder" not in content:
        present = "encoder" if "encoder" in content else "predictor"
        raise CheckpointError(
            f"{path} holds only the {present} of a V-JEPA 2 model: {sorted(map(str, content))}. "
            "Planning needs encoder and action-conditioned predictor, as in vjepa2-ac-vitg.pt."
        )
    encoder = _weights(path, "encoder", content["encoder"])
    predictor = {
        name.removeprefix("predictor_"): weight
        for name, weight in _weights(path, "predictor", content["predictor"]).items()
        # Made by upstream for camera extrinsics, which the released model does not use.
        if not name.startswith("extrinsics_encoder.")
    }
    if "action_encoder.weight" not in predictor and any("mask_token" in n for n in predictor):
        raise CheckpointError(
            f"the predictor in {path} fills in masked patches and takes no actions: this is a "
            "model from V-JEPA 2's pretraining. Expected is V-JEPA 2-AC, vjepa2-ac-vitg.pt."
        )
    try:
        config = _infer_config(encoder, predictor, image_size)
    except KeyError as error:
        raise CheckpointError(
            f"{path} lacks the weight {error}: not a V-JEPA 2-AC world model."
        ) from error
    except ValueError as error:
        raise CheckpointError(f"{path} holds no V-JEPA 2-AC world model: {error}") from error
    _require_whole(path, config)
    return Checkpoint(config, encoder, predictor, {})


def _load(path: Path) -> Any:
    if not zipfile.is_zipfile(path):
        raise CheckpointError(
            f"{path} is truncated: it starts like a PyTorch checkpoint, but after "
            f"{path.stat().st_size} bytes it ends without the index of its content. Get it again."
        )
    try:
        return torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except pickle.UnpicklingError as error:
        named = re.search(r"GLOBAL (\S+)", str(error))
        wanted = f"wants to call {named[1]}" if named else "holds more than plain weights"
        raise CheckpointError(
            f"{path} was not loaded because it {wanted}: such a file may run any code. Expected "
            "are tensors in plain dictionaries. If you trust it, save its state dicts anew."
        ) from error
    except (RuntimeError, EOFError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise CheckpointError(
            f"{path} is a zip archive but cannot be read as a PyTorch checkpoint: {reason}"
        ) from error


def _weights(path: Path, part: str, weights: object) -> dict[str, Tensor]:
    """A network's weights without what wrapped it in training, and without positions.

    Positions are computed here, as upstream's rotary embedding does: its stored ones are unused.
    """
    if not isinstance(weights, Mapping) or not all(
        isinstance(weight, Tensor) for weight in weights.values()
    ):
        raise CheckpointError(
            f"'{part}' in {path} should be a state dict of tensors, "
            f"but is a {type(weights).__name__} with something else."
        )
    names = {name: name.removeprefix("module.").removeprefix("backbone.") for name in weights}
    return {names[name]: weights[name] for name in weights if names[name] != "pos_embed"}


def _infer_config(
    encoder: Mapping[str, Tensor], predictor: Mapping[str, Tensor], image_size: tuple[int, int]
) -> WorldModelConfig:
    dim, _, tubelet, patch, _ = encoder["patch_embed.proj.weight"].shape
    width = predictor["embed.weight"].shape[0]
    known = _KNOWN_ENCODERS.get(dim)
    return WorldModelConfig(
        EncoderConfig(
            image_size=image_size,
            patch_size=patch,
            tubelet_size=tubelet,
            dim=dim,
            depth=_depth(encoder),
            heads=known.heads if known else _heads("encoder", dim),
            mlp_hidden=encoder["blocks.0.mlp.fc1.weight"].shape[0],
        ),
        PredictorConfig(
            dim=width,
            depth=_depth(predictor),
            heads=_heads("predictor", width),
            mlp_hidden=predictor["blocks.0.mlp.fc1.weight"].shape[0],
        ),
    )


def _heads(part: str, dim: int) -> int:
    if dim % _HEAD_DIM:
        raise ValueError(f"its {part} is {dim} wide, which heads of {_HEAD_DIM} do not divide.")
    return dim // _HEAD_DIM


def _depth(weights: Mapping[str, Tensor]) -> int:
    blocks = {name.split(".")[1] for name in weights if name.startswith("blocks.")}
    return 1 + max((int(block) for block in blocks if block.isdecimal()), default=0)


def _require_whole(path: Path, config: WorldModelConfig) -> None:
    """Refuse released networks without their last blocks, which would fit smaller sizes."""
    encoder = _KNOWN_ENCODERS.get(config.encoder.dim)
    predictor = VJEPA2_AC_VITG.predictor if config.encoder.dim == VIT_G.dim else None
    for name, found, known in (
        ("encoder", config.encoder, encoder),
        ("predictor", config.predictor, predictor),
    ):
        if known and (found.dim, found.depth) != (known.dim, known.depth):
            raise CheckpointError(
                f"the {name} in {path} has {found.depth} blocks of width {found.dim}, but "
                f"V-JEPA 2's beside a {config.encoder.dim} wide encoder has {known.depth} of "
                f"{known.dim}. Expected is the whole model, as in vjepa2-ac-vitg.pt."
            )
