"""A world model ready to plan with: NumPy in, NumPy out, weights resident on one device."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from jepa_planner_ros.types import (
    Float32Array,
    Float64Array,
    ModelDescription,
    PlannerError,
    RolloutReply,
    RolloutRequest,
    Scene,
)
from jepa_planner_ros.world_model.checkpoint import Checkpoint, CheckpointError
from jepa_planner_ros.world_model.compilation import Compiler, obstacle
from jepa_planner_ros.world_model.encoder import FrameEncoder
from jepa_planner_ros.world_model.memory import parameters
from jepa_planner_ros.world_model.precision import AUTO, Precision, choose_precision
from jepa_planner_ros.world_model.predictor import Predictor
from jepa_planner_ros.world_model.preprocess import preprocess
from jepa_planner_ros.world_model.residence import ResidentLatents
from jepa_planner_ros.world_model.rollout import (
    DISTANCES,
    Context,
    Rollout,
    RolloutEngine,
    micro_batches,
)
from jepa_planner_ros.world_model.slopes import energy_slopes
from jepa_planner_ros.world_model.storage import read_checkpoint

_LOG = logging.getLogger(__name__)


def default_micro_batch(device: str | torch.device) -> int:
    """Candidates at once: enough to keep a GPU busy; on a CPU, what stays in its caches."""
    return 16 if torch.device(device).type == "cpu" else 100


class WorldModel:
    """Encoder and predictor of one checkpoint on one device.

    Candidates are always rolled out in micro-batches of one fixed size, the last one padded,
    because in floating point a candidate's energy depends on the size of the batch it is in. That
    makes a plan independent of how a round is split over replicas.

    One rollout at a time: rollouts of several threads must take turns. Encoding may go on beside.

    Args:
        checkpoint: sizes and weights.
        device: where PyTorch finds it, such as ``cpu`` or ``cuda``.
        precision: a `Precision`, the name of one, or ``auto``.
        micro_batch: candidates rolled out at once; None for `default_micro_batch`.
        compiled: whether to compile for GPUs, where `compilation.obstacle` sees none. Compiling
            for a CPU takes longer than it saves.

    Raises:
        CheckpointError: the weights do not fit, or there is no such device.
        ValueError: there is no such precision.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        device: str | torch.device = "cpu",
        precision: str | Precision = AUTO,
        micro_batch: int | None = None,
        compiled: bool = True,
    ) -> None:
        checkpoint.require_fit()
        self.config = checkpoint.config
        self.fingerprint = checkpoint.fingerprint()
        try:
            self.device = torch.device(device)
            self.micro_batch = micro_batch or default_micro_batch(self.device)
            if isinstance(precision, str):
                precision = choose_precision(precision, self.device)
            self.precision = precision
            self._encoder = FrameEncoder(
                self.config.encoder, checkpoint.encoder, self.device, precision
            )
            wanted = compiled and self.device.type == "cuda" and not obstacle(self.device)
            self._compiler = Compiler() if wanted else None
            self._engine = RolloutEngine(
                self.config,
                checkpoint.predictor,
                self.micro_batch,
                self.device,
                precision,
                self._compiler,
            )
        except (AssertionError, RuntimeError) as error:
            # PyTorch asserts that it was built for a device, and goes on for lines about others.
            cause = str(error).partition("\n")[0].rstrip(".")
            raise CheckpointError(
                f"world_model.device = '{device}' cannot take the world model: {cause}. Give "
                "'cpu', or 'cuda' where PyTorch finds a GPU with enough memory."
            ) from error
        self._latents = ResidentLatents(self.device)
        self._observed: tuple[Scene, int] | None = None
        self._checkpoint = checkpoint
        self._differentiable: Predictor | None = None

    def describe(self) -> ModelDescription:
        """What a client must know to use this model."""
        return ModelDescription(
            fingerprint=self.fingerprint,
            tokens=self.config.encoder.tokens,
            dim=self.config.encoder.dim,
            image_size=self.config.encoder.image_size,
            micro_batch=self.micro_batch,
            device=str(self.device),
            precision=self.precision.name,
            compiled=self._compiler is not None and self._compiler.runs > 0,
            parameters=parameters(self.config),
        )

    def rehearse(self, horizon: int) -> None:
        """Roll out once, for all that the first time allocates, compiles and records.

        If compiling fails, it is given up with a warning: a slow plan is better than none.

        Raises:
            PlannerError: the model predicts values that are not finite.
        """
        blank = np.zeros((self.config.encoder.tokens, self.config.encoder.dim), np.float32)
        scene, candidates = Scene(blank, np.zeros(7), blank), np.zeros((1, horizon, 7))
        try:
            energies = self.energies(scene, candidates)
        except Exception as error:  # The compiler's, Triton's and CUDA's have no common base.
            if self._compiler is None:
                raise
            _LOG.warning("Compiling the world model failed, so it runs uncompiled: %s", error)
            self._compiler = None
            self._engine.do_without_compiler()
            energies = self.energies(scene, candidates)
        if not np.isfinite(energies).all():
            raise PlannerError(
                "the world model predicts values that are not finite; its weights may be damaged."
            )

    @torch.inference_mode()
    def encode(self, image: NDArray[np.uint8]) -> Float32Array:
        """Latents (tokens, dim) of an RGB frame, uint8 (height, width, 3).

        Raises:
            ValueError: `image` is not such a frame.
        """
        with self.precision.applied():
            latents = self._encoder(preprocess(image, self.config.encoder.image_size))
        return latents.float().cpu().numpy()

    @torch.inference_mode()
    def rollout(self, latent: Float32Array, state: Float64Array, actions: Float64Array) -> Rollout:
        """Predicted latents and states of action sequences (batch, horizon, 7)."""
        scene = Scene(latent, state, latent)
        self._observe(scene, actions.shape[1])
        parts = [Rollout(*map(torch.clone, part)) for part in self._engine.rollouts(actions)]
        return Rollout(*(torch.cat(part) for part in zip(*parts, strict=True)))

    @torch.inference_mode()
    def evaluate(self, scene: Scene, request: RolloutRequest) -> RolloutReply:
        """Roll out the candidates of a request from a scene."""
        self._observe(scene, request.candidates.shape[1])
        goal = self._latents.tensor(scene.goal_latent if request.goal is None else request.goal)
        outcomes = self._engine.rollouts(request.candidates)
        reply = RolloutReply.joined(
            [self._answer(outcome.latents, goal, request) for outcome in outcomes]
        )
        if request.gradient_weights is None:
            return reply
        return replace(
            reply, gradients=self._slopes(scene, goal, request, request.gradient_weights)
        )

    def energies(self, scene: Scene, candidates: Float64Array) -> Float64Array:
        """Energy after each action (batch, horizon) of candidates (batch, horizon, 7)."""
        return self.evaluate(scene, RolloutRequest(candidates)).energies

    def _answer(self, latents: Tensor, goal: Tensor, request: RolloutRequest) -> RolloutReply:
        """What was asked about one micro-batch, from its latents (batch, horizon, tokens, dim)."""
        energies = DISTANCES[request.distance](latents, goal)
        components = None
        if request.components is not None:
            chosen = torch.from_numpy(request.components).to(self.device)
            components = latents.flatten(-2)[..., chosen].float().cpu().numpy()
        return RolloutReply(energies.double().cpu().numpy(), components)

    @torch.inference_mode(False)
    def _slopes(
        self, scene: Scene, goal: Tensor, request: RolloutRequest, weights: Float64Array
    ) -> Float64Array:
        """Slopes (batch, horizon, 7) of the weighted energies."""
        if self._differentiable is None:
            self._differentiable = self._checkpoint.build_predictor(self.device)
        context = self._context(scene, torch.float32)
        slopes = [
            energy_slopes(
                self._differentiable,
                context,
                goal,
                torch.tensor(batch, device=self.device),
                torch.tensor(weights, device=self.device),
                DISTANCES[request.distance],
            )
            for batch in micro_batches(request.candidates, self.micro_batch)
        ]
        return torch.cat(slopes)[: len(request.candidates)].cpu().numpy()

    def _observe(self, scene: Scene, horizon: int) -> None:
        """Take in a scene, once for all rounds of a plan."""
        if self._observed is not None:
            observed, reach = self._observed
            same = observed.latent is scene.latent and np.array_equal(observed.state, scene.state)
            if same and horizon <= reach:
                return
        self._engine.observe(self._context(scene, self.precision.residual), horizon)
        self._observed = scene, horizon

    def _context(self, scene: Scene, dtype: torch.dtype) -> Context:
        return Context.present(
            self._latents.tensor(scene.latent).to(dtype),
            torch.tensor(scene.state, device=self.device, dtype=torch.float64),
        )


def load_world_model(
    checkpoint: str | Path = "shipped",
    device: str = "cpu",
    precision: str = AUTO,
    micro_batch: int | None = None,
) -> WorldModel:
    """The world model of a checkpoint: ``shipped``, our safetensors, or Meta's ``.pt``.

    Raises:
        CheckpointError: the file is missing or holds no world model, or there is no such device.
        ValueError: there is no such precision.
    """
    return WorldModel(read_checkpoint(checkpoint), device, precision, micro_batch)
