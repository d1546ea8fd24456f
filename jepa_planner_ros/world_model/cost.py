"""How many floating-point operations rollouts take, from sizes alone."""

from __future__ import annotations

from jepa_planner_ros.world_model.config import WorldModelConfig
from jepa_planner_ros.world_model.predictor import CONDITIONING_TOKENS


def rollout_operations(config: WorldModelConfig, horizon: int) -> int:
    """Operations of one candidate from one frame, as `RolloutEngine` computes it.

    A multiplication and the addition to its sum count as two; what is not a matrix product, and
    what candidates share, does not count.
    """
    depth, patches = config.predictor.depth, config.encoder.tokens
    tokens = CONDITIONING_TOKENS + patches
    total = 0
    for frame in range(horizon):
        seen = (frame + 1) * tokens
        projected = (depth - 1) * tokens + (1 if frame == 0 else tokens)
        total += projected * _projection(config)
        updated = (depth - 1) * tokens + patches
        total += updated * _update(config, seen)
        total += (2 if frame else 1) * patches * _latent_map(config)
    return total


def reference_operations(config: WorldModelConfig, horizon: int) -> int:
    """The same with every frame computed again at every step, and masked attention computed."""
    tokens = CONDITIONING_TOKENS + config.encoder.tokens
    total = 0
    for frames in range(1, horizon + 1):
        seen = frames * tokens
        layer = _projection(config) + _update(config, seen)
        total += seen * config.predictor.depth * layer
        total += 2 * frames * config.encoder.tokens * _latent_map(config)
    return total


def _projection(config: WorldModelConfig) -> int:
    """Queries, keys and values of a token."""
    return 2 * 3 * config.predictor.dim**2


def _update(config: WorldModelConfig, seen: int) -> int:
    """Attention of a token to `seen` tokens, its projection, and the MLP."""
    dim = config.predictor.dim
    return 2 * (2 * seen * dim + dim**2 + 2 * dim * config.predictor.mlp_hidden)


def _latent_map(config: WorldModelConfig) -> int:
    """A patch's latents to the predictor's width, or back."""
    return 2 * config.encoder.dim * config.predictor.dim
