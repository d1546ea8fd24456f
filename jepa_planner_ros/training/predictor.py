"""Stage 2: with the encoder frozen, the predictor learns what actions do."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from jepa_planner_ros.geometry import ACTION_DIM
from jepa_planner_ros.training.dataset import Split
from jepa_planner_ros.training.optimise import optimise
from jepa_planner_ros.training.settings import TrainingSettings
from jepa_planner_ros.world_model import Predictor, WorldModelConfig, energy

_HORIZON = 2
# Actions are centimetres, so at the usual initial size their tokens would be lost beside the
# patches' for most of so short a training.
_CONDITIONING_STD = 1.0


def train_predictor(
    latents: Tensor,
    split: Split,
    config: WorldModelConfig,
    settings: TrainingSettings,
    progress: Path,
) -> Predictor:
    """Train on windows of two actions: one step with the true frames, and two by its own.

    The loss is V-JEPA 2-AC's (Sec. 3.1, Eq. 2-4): the L1 error of teacher-forced predictions plus
    that of a two-step rollout fed with its own first prediction.

    Args:
        latents: the encoded frames (episodes, frames, tokens, dim) of `split`.
        split: training episodes.
        config: sizes.
        settings: the run.
        progress: file to resume from.
    """
    torch.manual_seed(settings.seed + 1)
    network = Predictor(config)
    for encoder in (network.action_encoder, network.state_encoder):
        torch.nn.init.normal_(encoder.weight, std=_CONDITIONING_STD)
    states = torch.from_numpy(split.states)
    actions = torch.from_numpy(split.actions)
    episodes, frames = latents.shape[:2]

    def loss(update: int) -> Tensor:
        draw = np.random.default_rng((settings.seed, 2, update))
        episode = draw.integers(episodes, size=settings.predictor_batch)[:, None]
        frame = draw.integers(frames - _HORIZON, size=settings.predictor_batch)[:, None]
        window = frame + np.arange(_HORIZON)
        noise = np.zeros((settings.predictor_batch, _HORIZON, ACTION_DIM))
        noise[..., :3] = draw.normal(scale=settings.state_noise, size=(*noise.shape[:2], 3))
        shown = states[episode, window] + torch.from_numpy(noise)
        return rollout_loss(
            network,
            latents[episode, frame + np.arange(_HORIZON + 1)].float(),
            actions[episode, window].float(),
            shown.float(),
        )

    optimise(
        network,
        loss,
        settings.predictor_updates,
        settings.predictor_rate,
        progress,
        "train predictor",
    )
    return network


def rollout_loss(network: Predictor, latents: Tensor, actions: Tensor, states: Tensor) -> Tensor:
    """Teacher-forced error plus the error of the second step of a rollout.

    Args:
        network: the predictor.
        latents: (batch, 3, tokens, dim), true frames.
        actions: (batch, 2, 7).
        states: (batch, 2, 7).
    """
    forced = network(latents[:, :-1], actions, states)
    imagined = torch.stack((latents[:, 0], forced[:, 0]), dim=1)
    second = network(imagined, actions, states)[:, 1]
    return energy(forced, latents[:, 1:]).mean() + energy(second, latents[:, 2]).mean()
