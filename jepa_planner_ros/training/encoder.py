"""Stage 1: the encoder learns to see where the arm is.

A JEPA trained from scratch on this little data collapses, so the shipped encoder is *supervised*:
from every token, a linear layer must tell the end effector's pose and a coarse copy of the token's
own patch. That makes distances between latents follow distances between poses. Meta's encoder is
trained without labels, on a million hours of video.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from jepa_planner_ros.training.dataset import Stills
from jepa_planner_ros.training.optimise import optimise
from jepa_planner_ros.training.settings import TrainingSettings
from jepa_planner_ros.world_model import Encoder, EncoderConfig, preprocess

# x, y, z, yaw and gripper; the gripper points down throughout, so roll and pitch tell nothing.
_POSE = [0, 1, 2, 5, 6]
_PATCH_SIDE = 4
_PATCH_WEIGHT = 0.5


class SupervisedEncoder(nn.Module):
    """The encoder with the linear read-out that trains it."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.encoder = Encoder(config)
        self.read_out = nn.Linear(config.dim, len(_POSE) + 3 * _PATCH_SIDE**2)

    def loss(self, frames: Tensor, poses: Tensor) -> Tensor:
        """Mean squared error of poses (batch, 5), normalised, and of coarse patches."""
        read = self.read_out(self.encoder(frames))
        pose, patches = read.split((len(_POSE), read.shape[-1] - len(_POSE)), dim=-1)
        pose_error = functional.mse_loss(pose, poses[:, None].expand_as(pose))
        patch_error = functional.mse_loss(patches, coarse_patches(frames, self.encoder.config))
        return pose_error + _PATCH_WEIGHT * patch_error


def coarse_patches(frames: Tensor, config: EncoderConfig) -> Tensor:
    """Each patch of frames (batch, 3, height, width), averaged down: (batch, tokens, 48)."""
    small = functional.avg_pool2d(frames, config.patch_size // _PATCH_SIDE)
    return functional.unfold(small, _PATCH_SIDE, stride=_PATCH_SIDE).transpose(1, 2)


def train_encoder(
    stills: Stills, config: EncoderConfig, settings: TrainingSettings, progress: Path
) -> Encoder:
    """Train the encoder on `stills`.

    Single frames in ever new worlds, not the predictor's episodes: with a few hundred worlds the
    encoder learns them by heart.
    """
    torch.manual_seed(settings.seed)
    network = SupervisedEncoder(config)
    poses = stills.states[:, _POSE]
    targets = torch.from_numpy((poses - poses.mean(0)) / poses.std(0).clip(1e-6)).float()

    def loss(update: int) -> Tensor:
        draw = np.random.default_rng((settings.seed, 1, update))
        chosen = draw.integers(len(stills.images), size=settings.encoder_batch)
        frames = torch.stack(
            [preprocess(image, config.image_size) for image in stills.images[chosen]]
        )
        return network.loss(frames, targets[chosen])

    optimise(
        network, loss, settings.encoder_updates, settings.encoder_rate, progress, "train encoder"
    )
    return network.encoder
