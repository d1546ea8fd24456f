"""How much memory a world model needs, from its sizes alone."""

from __future__ import annotations

from dataclasses import dataclass

from jepa_planner_ros.geometry import ACTION_DIM, STATE_DIM
from jepa_planner_ros.world_model.config import EncoderConfig, PredictorConfig, WorldModelConfig
from jepa_planner_ros.world_model.precision import Precision
from jepa_planner_ros.world_model.predictor import CONDITIONING_TOKENS

_FP32 = 4
_INT8 = 1


@dataclass(frozen=True)
class MemoryNeed:
    """Bytes that rolling out one micro-batch takes, on the device of the model.

    Attributes:
        weights: encoder and predictor; norms, a thousandth of them, count as if rounded.
        key_values: what is remembered of the frames of every candidate of a micro-batch.
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
    config: WorldModelConfig, precision: Precision, micro_batch: int, frames: int
) -> MemoryNeed:
    """What a model needs to roll out `micro_batch` candidates.

    The number of candidates of a plan does not matter: they come in micro-batches. A block holds
    the residual stream before and after, and then either queries, keys and values with two halves
    of queries and keys in fp32, where they are rotated, or the MLP's input and its hidden layer
    before and after the GELU; 8-bit products are scaled in fp32 in between. The encoder sees one
    frame at a time and needs less than that.

    Args:
        config: sizes.
        precision: what is stored in how many bytes.
        micro_batch: candidates at once.
        frames: the present frame, those before it, and one for each action but the last; with no
            past frames, the horizon.
    """
    number, residual = precision.matmul.itemsize, precision.residual.itemsize
    width, hidden = config.predictor.dim, config.predictor.mlp_hidden
    tokens = micro_batch * (CONDITIONING_TOKENS + config.encoder.tokens)
    attention = 5 * width * number + 2 * width * _FP32
    mlp = width * (residual + number) + 2 * hidden * (_FP32 if precision.int8_mlp else number)
    latents = micro_batch * frames * config.encoder.tokens * config.encoder.dim * residual
    eight_bits = _mlp_weights(config.encoder) + _mlp_weights(config.predictor)
    return MemoryNeed(
        weights=parameters(config) * number - precision.int8_mlp * eight_bits * (number - _INT8),
        key_values=tokens * frames * config.predictor.depth * 2 * width * number,
        activations=tokens * (2 * width * residual + max(attention, mlp)) + latents,
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


def _mlp_weights(part: EncoderConfig | PredictorConfig) -> int:
    return part.depth * 2 * part.dim * part.mlp_hidden


def _blocks(part: EncoderConfig | PredictorConfig) -> int:
    norms = 2 * 2 * part.dim
    attention = (part.dim + 1) * 3 * part.dim + (part.dim + 1) * part.dim
    mlp = (part.dim + 1) * part.mlp_hidden + (part.mlp_hidden + 1) * part.dim
    return part.depth * (norms + attention + mlp)
