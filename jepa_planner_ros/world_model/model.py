"""A world model ready to plan with: NumPy in, NumPy out, weights resident on one device."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from jepa_planner_ros.types import (
    Float32Array,
    Float64Array,
    ModelDescription,
    RolloutReply,
    RolloutRequest,
    Scene,
)
from jepa_planner_ros.world_model.checkpoint import Checkpoint, CheckpointError
from jepa_planner_ros.world_model.preprocess import preprocess
from jepa_planner_ros.world_model.rollout import DISTANCES, Rollout, rollout
from jepa_planner_ros.world_model.storage import read_checkpoint

DEFAULT_MICRO_BATCH = 32


class WorldModel:
    """Encoder and predictor of one checkpoint on one device.

    Candidates are always rolled out in micro-batches of one fixed size, the last one padded,
    because in floating point a candidate's energy depends on the size of the batch it is in. That
    makes a plan independent of how a round is split over replicas.

    Raises:
        CheckpointError: the weights do not fit, or there is no such device.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        device: str | torch.device = "cpu",
        dtype: torch.dtype = torch.float32,
        micro_batch: int = DEFAULT_MICRO_BATCH,
    ) -> None:
        self.config = checkpoint.config
        self.fingerprint = checkpoint.fingerprint()
        self.dtype = dtype
        self.micro_batch = micro_batch
        try:
            self.device = torch.device(device)
            self.encoder, self.predictor = checkpoint.build(self.device, dtype)
        except (AssertionError, RuntimeError) as error:
            # PyTorch asserts that it was built for a device, and goes on for lines about others.
            cause = str(error).partition("\n")[0].rstrip(".")
            raise CheckpointError(
                f"world_model.device = '{device}' cannot take the world model: {cause}. Give "
                "'cpu', or 'cuda' where PyTorch finds a GPU with enough memory."
            ) from error

    def describe(self) -> ModelDescription:
        """What a client must know to use this model."""
        weights = (*self.encoder.parameters(), *self.predictor.parameters())
        return ModelDescription(
            fingerprint=self.fingerprint,
            tokens=self.config.encoder.tokens,
            dim=self.config.encoder.dim,
            image_size=self.config.encoder.image_size,
            micro_batch=self.micro_batch,
            device=str(self.device),
            parameters=sum(weight.numel() for weight in weights),
        )

    @torch.inference_mode()
    def encode(self, image: NDArray[np.uint8]) -> Float32Array:
        """Latents (tokens, dim) of an RGB frame, uint8 (height, width, 3).

        Raises:
            ValueError: `image` is not such a frame.
        """
        frame = preprocess(image, self.config.encoder.image_size)
        latents = self.encoder(frame[None].to(self.device, self.dtype))
        return latents[0].float().cpu().numpy()

    @torch.inference_mode()
    def rollout(self, latent: Float32Array, state: Float64Array, actions: Float64Array) -> Rollout:
        """Predicted latents and states of action sequences (batch, horizon, 7), as one batch."""
        return rollout(
            self.predictor,
            torch.tensor(latent, device=self.device, dtype=self.dtype),
            torch.tensor(state, device=self.device, dtype=torch.float64),
            torch.tensor(actions, device=self.device, dtype=torch.float64),
        )

    def evaluate(self, scene: Scene, request: RolloutRequest) -> RolloutReply:
        """Roll out the candidates of a request from a scene."""
        shares = range(0, len(request.candidates), self.micro_batch)
        return RolloutReply.joined(
            [
                self._evaluate_micro_batch(
                    scene, request.part(slice(start, start + self.micro_batch))
                )
                for start in shares
            ]
        )

    def energies(self, scene: Scene, candidates: Float64Array) -> Float64Array:
        """Energy after each action (batch, horizon) of candidates (batch, horizon, 7)."""
        return self.evaluate(scene, RolloutRequest(candidates)).energies

    def _evaluate_micro_batch(self, scene: Scene, request: RolloutRequest) -> RolloutReply:
        count = len(request.candidates)
        padding = np.repeat(request.candidates[-1:], self.micro_batch - count, axis=0)
        actions = torch.tensor(
            np.concatenate((request.candidates, padding)), device=self.device, dtype=torch.float64
        )
        actions.requires_grad = request.gradient_weights is not None
        with torch.inference_mode(not actions.requires_grad):
            latents = rollout(
                self.predictor,
                torch.tensor(scene.latent, device=self.device, dtype=self.dtype),
                torch.tensor(scene.state, device=self.device, dtype=torch.float64),
                actions,
            ).latents.float()
            goal = torch.tensor(scene.goal_latent, device=self.device)
            energies = DISTANCES[request.distance](latents, goal)
        gradients = components = first_latents = None
        if request.gradient_weights is not None:
            weights = torch.tensor(request.gradient_weights, device=self.device)
            (slope,) = torch.autograd.grad((energies * weights).sum(), actions)
            gradients = slope[:count].cpu().numpy()
        latents = latents[:count].detach()
        if request.components is not None:
            chosen = torch.tensor(request.components, device=self.device)
            components = latents.flatten(-2)[..., chosen].cpu().numpy()
        if request.first_latent:
            first_latents = latents[:, 0].cpu().numpy()
        return RolloutReply(
            energies[:count].detach().double().cpu().numpy(), components, gradients, first_latents
        )


def load_world_model(
    checkpoint: str | Path = "shipped",
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
    micro_batch: int = DEFAULT_MICRO_BATCH,
) -> WorldModel:
    """The world model of a checkpoint: ``shipped``, our safetensors, or Meta's ``.pt``.

    Raises:
        CheckpointError: the file is missing or holds no world model, or there is no such device.
    """
    return WorldModel(read_checkpoint(checkpoint), device, dtype, micro_batch)
