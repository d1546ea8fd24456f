"""World models on disk: our safetensors files and Meta's released ``.pt`` layout."""

from __future__ import annotations

import hashlib
import json
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from jepa_planner_ros.world_model.config import EncoderConfig, PredictorConfig, WorldModelConfig
from jepa_planner_ros.world_model.encoder import Encoder
from jepa_planner_ros.world_model.predictor import Predictor

SHIPPED = Path(__file__).parent / "weights" / "shipped.safetensors"
"""The model trained on the simulated Franka by ``jepa-planner train``."""

# Every released V-JEPA 2 network has heads of this width; weights alone do not tell.
_META_HEAD_DIM = 64

# What reading sizes and weights that are missing, or not what they should be, leads to.
_MALFORMED = (
    AttributeError,
    IndexError,
    KeyError,
    TypeError,
    ValueError,
    ZeroDivisionError,
)


class CheckpointError(ValueError):
    """A world model cannot be loaded; the message says what was expected."""


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """Weights in memory, with what is needed to build the networks that take them.

    Attributes:
        config: sizes of the networks.
        encoder: state dict of `Encoder`.
        predictor: state dict of `Predictor`.
        provenance: how the weights came to be and how they were validated; empty for Meta's.
    """

    config: WorldModelConfig
    encoder: Mapping[str, Tensor]
    predictor: Mapping[str, Tensor]
    provenance: Mapping[str, Any]

    def fingerprint(self) -> str:
        """Hash of sizes and weights, 16 hexadecimal digits; equal only for equal models."""
        digest = hashlib.sha256(json.dumps(self.config.to_dict(), sort_keys=True).encode())
        for prefix, weights in (("encoder", self.encoder), ("predictor", self.predictor)):
            for name in sorted(weights):
                tensor = weights[name].contiguous()
                digest.update(f"{prefix}.{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
                digest.update(tensor.view(torch.uint8).numpy().data)
        return digest.hexdigest()[:16]

    def build(self) -> tuple[Encoder, Predictor]:
        """Networks with these weights, in single precision.

        Raises:
            CheckpointError: a weight is missing, unknown or of another shape.
        """
        encoder, predictor = Encoder(self.config.encoder), Predictor(self.config)
        for name, network, weights in (
            ("encoder", encoder, self.encoder),
            ("predictor", predictor, self.predictor),
        ):
            try:
                network.load_state_dict(weights, strict=True)
            except RuntimeError as error:
                raise CheckpointError(f"the {name}'s weights do not fit: {error}") from error
        return encoder.eval(), predictor.eval()


def read_checkpoint(path: str | Path, image_size: tuple[int, int] | None = None) -> Checkpoint:
    """Read a world model from disk, never executing pickled code.

    Args:
        path: ``shipped``, one of our ``.safetensors`` files, or Meta's ``vjepa2-ac-vitg.pt``.
        image_size: (height, width) that Meta's weights are used at; they do not store it.
            Default 256 x 256.

    Raises:
        CheckpointError: the file is missing, cannot be read, or holds no world model.
    """
    path = SHIPPED if str(path) == "shipped" else Path(path)
    try:
        if not path.is_file():
            raise CheckpointError(
                f"world_model.checkpoint: there is no file {path}. Give 'shipped', a .safetensors "
                "file made by 'jepa-planner train', or Meta's vjepa2-ac-vitg.pt."
            )
        if path.suffix == ".safetensors":
            return _read_safetensors(path)
        return _read_meta(path, image_size or (256, 256))
    except OSError as error:
        raise CheckpointError(
            f"world_model.checkpoint: the file {path} cannot be read: {error.strerror or error}. "
            "Check its permissions, or give another file."
        ) from error


def write_checkpoint(checkpoint: Checkpoint, path: Path) -> None:
    """Write a safetensors file that `read_checkpoint` reads."""
    tensors = {f"encoder.{name}": tensor for name, tensor in checkpoint.encoder.items()}
    tensors |= {f"predictor.{name}": tensor for name, tensor in checkpoint.predictor.items()}
    metadata = {
        "config": json.dumps(checkpoint.config.to_dict()),
        "provenance": json.dumps(dict(checkpoint.provenance)),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path, metadata)


def _read_safetensors(path: Path) -> Checkpoint:
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        config = WorldModelConfig.from_dict(json.loads(metadata["config"]))
        provenance = json.loads(metadata.get("provenance", "{}"))
    except (SafetensorError, *_MALFORMED) as error:
        raise CheckpointError(
            f"{path} is not a world model written by 'jepa-planner train': {error}"
        ) from error
    return Checkpoint(config, _part(tensors, "encoder."), _part(tensors, "predictor."), provenance)


def _read_meta(path: Path, image_size: tuple[int, int]) -> Checkpoint:
    try:
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except (RuntimeError, pickle.UnpicklingError, EOFError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read as a PyTorch checkpoint: {error}") from error
    if not isinstance(content, dict) or not {"encoder", "predictor"} <= content.keys():
        found = sorted(map(str, content)) if isinstance(content, dict) else type(content).__name__
        raise CheckpointError(
            f"{path} should hold 'encoder' and 'predictor', as vjepa2-ac-vitg.pt does, "
            f"but holds {found}."
        )
    try:
        encoder = _part(content["encoder"], "module.backbone.")
        predictor = {
            name.removeprefix("predictor_"): tensor
            for name, tensor in _part(content["predictor"], "module.").items()
            # Made by upstream for camera extrinsics, which the released model does not use.
            if not name.startswith("extrinsics_encoder.")
        }
        encoder.pop("pos_embed", None)
        config = _infer_config(encoder, predictor, image_size)
    except KeyError as error:
        raise CheckpointError(
            f"{path} lacks the weight {error}: not a V-JEPA 2-AC world model."
        ) from error
    except _MALFORMED as error:
        raise CheckpointError(f"{path} is not a V-JEPA 2-AC world model: {error}") from error
    return Checkpoint(config, encoder, predictor, {})


def _part(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {
        name.removeprefix(prefix): tensor
        for name, tensor in tensors.items()
        if name.startswith(prefix)
    }


def _infer_config(
    encoder: Mapping[str, Tensor], predictor: Mapping[str, Tensor], image_size: tuple[int, int]
) -> WorldModelConfig:
    dim, _, tubelet, patch, _ = encoder["patch_embed.proj.weight"].shape
    width = predictor["embed.weight"].shape[0]
    return WorldModelConfig(
        EncoderConfig(
            image_size=image_size,
            patch_size=patch,
            tubelet_size=tubelet,
            dim=dim,
            depth=_depth(encoder),
            heads=dim // _META_HEAD_DIM,
            mlp_hidden=encoder["blocks.0.mlp.fc1.weight"].shape[0],
        ),
        PredictorConfig(
            dim=width,
            depth=_depth(predictor),
            heads=width // _META_HEAD_DIM,
            mlp_hidden=predictor["blocks.0.mlp.fc1.weight"].shape[0],
        ),
    )


def _depth(weights: Mapping[str, Tensor]) -> int:
    return 1 + max(int(name.split(".")[1]) for name in weights if name.startswith("blocks."))
