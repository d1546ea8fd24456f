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


def train_predictor(
    latents: Tensor,
    split: Split,
    config: WorldModelConfig,
    settings: TrainingSettings,
    progress: Path,
) -> Predictor:
    """Train on windows of two actions, the second predicted from the first one's prediction.

    Args:
        latents: the encoded frames (episodes, frames, tokens, dim) of `split`.
        split: training episodes.
        config: sizes.
        settings: the run.
        progress: file to resume from.
    """
    torch.manual_seed(settings.seed + 1)
    network = Predictor(config)
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
    """Error of a two-step rollout, which is what a plan relies on.

    V-JEPA 2-AC's loss (Sec. 3.1, Eq. 2-4) adds predictions from true later frames; a search never
    has those, and without them an update costs half.

    Args:
        network: the predictor.
        latents: (batch, 3, tokens, dim), true frames.
        actions: (batch, 2, 7).
        states: (batch, 2, 7).
    """
    first, memory = network.step(latents[:, 0], actions[:, 0], states[:, 0], None, frame=0)
    second, _ = network.step(first, actions[:, 1], states[:, 1], memory, frame=1)
    return energy(first, latents[:, 1]).mean() + energy(second, latents[:, 2]).mean()
