"""The weights of a world model, whatever file they came from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from jepa_planner_ros.world_model.config import WorldModelConfig
from jepa_planner_ros.world_model.encoder import Encoder
from jepa_planner_ros.world_model.predictor import Predictor

SHIPPED = Path(__file__).parent / "weights" / "shipped.safetensors"
"""The model trained on the simulated Franka by ``jepa-planner train``."""

_NAMED_AT_MOST = 3

_Network = TypeVar("_Network", bound=nn.Module)


class CheckpointError(ValueError):
    """A world model cannot be loaded; the message says what was expected."""


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """Weights, with what is needed to build the networks that take them.

    Weights read from a file stay there until they are used: they are mapped into memory.

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

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        """All weights, in the order and by the names that safetensors files have them."""
        for part, weights in (("encoder", self.encoder), ("predictor", self.predictor)):
            for name in sorted(weights):
                yield f"{part}.{name}", weights[name]

    def fingerprint(self) -> str:
        """Hash of sizes and weights, 16 hexadecimal digits; equal only for equal models.

        It covers every stored bit, so it does not depend on the file's layout nor on the precision
        or device that the model is run in. Each weight is hashed by itself, on all cores.
        """
        digest = hashlib.sha256(json.dumps(self.config.to_dict(), sort_keys=True).encode())
        with ThreadPoolExecutor() as pool:
            for part in pool.map(_weight_digest, self.weights()):
                digest.update(part)
        return digest.hexdigest()[:16]

    def require_fit(self) -> None:
        """Check that networks of these sizes take these weights, without touching the values.

        Raises:
            CheckpointError: a weight is missing, unknown, of another shape or no float.
        """
        self._empty_networks()

    def require_finite(self, weights: Iterator[tuple[str, Tensor]] | None = None) -> None:
        """Check every value, which reads the whole file.

        Args:
            weights: what `weights` gives, wrapped to show progress.

        Raises:
            CheckpointError: a weight holds NaN or infinity.
        """
        for name, weight in weights or self.weights():
            bad = weight.numel() - int(torch.isfinite(weight).sum())
            if bad:
                raise CheckpointError(
                    f"{bad} of the {weight.numel()} values of {name} are NaN or infinite: the "
                    "weights were damaged, or their training diverged. Get the file again."
                )

    def build_predictor(self, device: str | torch.device = "cpu") -> Predictor:
        """The predictor alone, in fp32, for what the fast rollouts cannot do.

        Raises:
            CheckpointError: a weight is missing, unknown, of another shape or no float.
        """
        _, predictor = self._empty_networks()
        return _filled(predictor, self.predictor, device, torch.float32)

    def build(
        self, device: str | torch.device = "cpu", dtype: torch.dtype = torch.float32
    ) -> tuple[Encoder, Predictor]:
        """Networks with these weights on `device`, in `dtype`.

        Each weight is converted by itself, so that no second copy of the model ever exists. The
        networks own their weights: the file may change or go away afterwards.

        Raises:
            CheckpointError: a weight is missing, unknown, of another shape or no float.
        """
        encoder, predictor = self._empty_networks()
        return (
            _filled(encoder, self.encoder, device, dtype),
            _filled(predictor, self.predictor, device, dtype),
        )

    def _empty_networks(self) -> tuple[Encoder, Predictor]:
        """Networks without memory for their weights, which fit into them."""
        sizes = self.config
        with torch.device("meta"):
            encoder, predictor = Encoder(sizes.encoder), Predictor(sizes)
        for name, part, network, weights in (
            ("encoder", sizes.encoder, encoder, self.encoder),
            ("predictor", sizes.predictor, predictor, self.predictor),
        ):
            complaints = _complaints(network, weights)
            if complaints:
                raise CheckpointError(
                    f"the {name}'s weights do not fit {part.depth} blocks of width {part.dim}: "
                    f"{'; '.join(complaints)}."
                )
        return encoder, predictor


def _filled(
    network: _Network, weights: Mapping[str, Tensor], device: str | torch.device, dtype: torch.dtype
) -> _Network:
    """An empty network with copies of the weights, each converted by itself."""
    network.load_state_dict(
        {name: weight.to(device, dtype, copy=True) for name, weight in weights.items()},
        strict=True,
        assign=True,
    )
    return network.eval()


def _weight_digest(weight: tuple[str, Tensor]) -> bytes:
    name, values = weight
    digest = hashlib.sha256(f"{name} {values.dtype} {tuple(values.shape)}".encode())
    digest.update(values.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.digest()


def _complaints(network: nn.Module, weights: Mapping[str, Tensor]) -> list[str]:
    """What keeps `network` from taking `weights`."""
    expected = network.state_dict()
    missing = [name for name in expected if name not in weights]
    unknown = [name for name in weights if name not in expected]
    misshapen = [
        f"{name} is {tuple(weights[name].shape)}, not {tuple(weight.shape)}"
        for name, weight in expected.items()
        if name in weights and weights[name].shape != weight.shape
    ]
    no_floats = [f"{n} is {w.dtype}" for n, w in weights.items() if not w.is_floating_point()]
    return [
        f"{len(found)} {what} ({_some(found)})"
        for what, found in (
            (f"of {len(expected)} weights are missing", missing),
            ("are unknown", unknown),
            ("have another shape", misshapen),
            ("are no floating-point numbers", no_floats),
        )
        if found
    ]


def _some(names: list[str]) -> str:
    more = ", ..." if len(names) > _NAMED_AT_MOST else ""
    return ", ".join(names[:_NAMED_AT_MOST]) + more
