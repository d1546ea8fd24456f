"""How much memory a world model needs, from its sizes alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from jepa_planner_ros.geometry import ACTION_DIM, STATE_DIM
from jepa_planner_ros.world_model.config import EncoderConfig, PredictorConfig, WorldModelConfig
from jepa_planner_ros.world_model.predictor import CONDITIONING_TOKENS

NUMBER_BYTES: Mapping[str, int] = MappingProxyType({"fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2})
"""Bytes of a stored number in each precision; tf32 only multiplies with fewer digits."""

_FP32 = 4


@dataclass(frozen=True)
class MemoryNeed:
    """Bytes that rolling out one micro-batch takes, on the device of the model.

    Attributes:
        weights: encoder and predictor.
        key_values: what the predictor remembers of the frames of every candidate.
        activations: the widest moment inside a block, and the predicted latents.
    """

    weights: int
    key_values: int
    activations: int

    @property
    def total(self) -> int:
        """Everything together, without what the GPU's driver and libraries take (about 1 GB)."""
        return self.weights + self.key_values + self.activations


def memory_need(
    config: WorldModelConfig, precision: str, micro_batch: int, horizon: int
) -> MemoryNeed:
    """What a model needs to roll out `micro_batch` candidates over `horizon` actions.

    The number of candidates of a plan does not matter: they come in micro-batches. A block holds
    the residual stream and its update in fp32, and then either queries, keys and values with
    queries and keys being rotated in fp32 (three arrays at once), or the MLP's hidden layer before
    and after its GELU. The encoder sees one frame at a time and needs less than that.

    Args:
        config: sizes.
        precision: a key of `NUMBER_BYTES`.
        micro_batch: candidates at once.
        horizon: actions of a candidate.
    """
    number = NUMBER_BYTES[precision]
    width, hidden = config.predictor.dim, config.predictor.mlp_hidden
    tokens = micro_batch * (CONDITIONING_TOKENS + config.encoder.tokens)
    attention = 3 * width * number + 3 * 2 * width * _FP32
    mlp = (width + 2 * hidden) * number
    latents = micro_batch * horizon * config.encoder.tokens * config.encoder.dim * _FP32
    return MemoryNeed(
        weights=parameters(config) * number,
        key_values=tokens * horizon * config.predictor.depth * 2 * width * number,
        activations=tokens * (2 * width * _FP32 + max(attention, mlp)) + latents,
    )


def parameters(config: WorldModelConfig) -> int:
    """Weights of encoder and predictor."""
    return encoder_parameters(config.encoder) + predictor_parameters(config)


def encoder_parameters(encoder: EncoderConfig) -> int:
    """Weights of the encoder: patches, blocks, last norm."""
    tubelet = 3 * encoder.tubelet_size * encoder.patch_size**2
    return (tubelet + 1) * encoder.dim + _blocks(encoder) + 2 * encoder.dim


def predictor_parameters(config: WorldModelConfig) -> int:
    """Weights of the predictor: latents, action and state in; blocks, last norm; latents out."""
    width, latent = config.predictor.dim, config.encoder.dim
    into = (latent + 1 + ACTION_DIM + 1 + STATE_DIM + 1) * width
    return into + _blocks(config.predictor) + 2 * width + (width + 1) * latent


def _blocks(part: EncoderConfig | PredictorConfig) -> int:
    norms = 2 * 2 * part.dim
    attention = (part.dim + 1) * 3 * part.dim + (part.dim + 1) * part.dim
    mlp = (part.dim + 1) * part.mlp_hidden + (part.mlp_hidden + 1) * part.dim
    return part.depth * (norms + attention + mlp)
