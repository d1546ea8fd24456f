"""The hot path: candidate action sequences in, predicted latents and energies out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from jepa_planner_ros.geometry import integrate_sequence
from jepa_planner_ros.world_model.config import WorldModelConfig
from jepa_planner_ros.world_model.precision import Precision
from jepa_planner_ros.world_model.predictor import CONDITIONING_TOKENS
from jepa_planner_ros.world_model.prepared import (
    Attendance,
    PreparedBlock,
    Workshop,
    halves_table,
)
from jepa_planner_ros.world_model.rope import RopeTable, frame_positions
from jepa_planner_ros.world_model.transformer import latent_norm


class Rollout(NamedTuple):
    """What the world model expects of each candidate.

    Attributes:
        latents: predicted latents after each action, (batch, horizon, tokens, dim).
        states: integrated states, (batch, horizon + 1, 7); the first is the present one.
    """

    latents: Tensor
    states: Tensor


def energy(latents: Tensor, goal: Tensor) -> Tensor:
    """Mean L1 distance (...) of latents (..., tokens, dim) to the goal's (tokens, dim).

    The planning energy of V-JEPA 2 (Sec. 3.2, Eq. 5).
    """
    return (latents - goal).abs().mean(dim=(-2, -1))


@dataclass(frozen=True, eq=False)
class Context:
    """What all candidates start from: the present frame, and frames before it if there are any.

    Attributes:
        latents: (frames, tokens, dim), the present frame's last.
        states: end-effector states (frames, 7), double precision.
        actions: what was done between the frames, (frames - 1, 7), double precision.
    """

    latents: Tensor
    states: Tensor
    actions: Tensor

    @classmethod
    def present(cls, latent: Tensor, state: Tensor) -> Context:
        """The present frame alone: latents (tokens, dim) and state (7,)."""
        return cls(latent[None], state[None], state.new_zeros(0, state.shape[-1]))


class RolloutEngine:
    """Rolls out micro-batches of candidates without computing anything twice.

    Its results are those of `jepa_planner_ros.world_model.predictor.Predictor`, fed with its own
    predictions; a test asserts that to 1e-12 in double precision. What it saves:

    - A frame attends to earlier ones but never to later ones, so the keys and values of earlier
      frames are remembered, and no mask is needed.
    - Past frames are the same for all candidates: they are computed once.
    - In the present frame only the action differs between candidates, so embeddings and the first
      layer's queries, keys and values of all other tokens are computed once.
    - Of the last layer, only what the patches become is computed.
    - States are integrated for all candidates at once, on the device, in double precision.

    The memory of one micro-batch is allocated once and used again for the next.

    Args:
        config: sizes.
        weights: state dict of a `Predictor`, from anywhere.
        micro_batch: candidates that are rolled out together, always as many.
        device: where to compute.
        precision: how exactly.
    """

    def __init__(
        self,
        config: WorldModelConfig,
        weights: Mapping[str, Tensor],
        micro_batch: int,
        device: torch.device,
        precision: Precision,
    ) -> None:
        sizes = config.predictor
        self._config = config
        self._micro_batch = micro_batch
        self._device = device
        self._precision = precision
        self._frame_tokens = CONDITIONING_TOKENS + config.encoder.tokens
        workshop = Workshop(device, precision)
        self._embed = workshop.linear(weights, "embed")
        self._embed_action = workshop.exact_linear(weights, "action_encoder")
        self._embed_state = workshop.exact_linear(weights, "state_encoder")
        self._blocks = tuple(
            PreparedBlock.of(weights, index, sizes.heads, workshop) for index in range(sizes.depth)
        )
        self._norm = workshop.norm(weights, "norm")
        self._proj = workshop.linear(weights, "proj")
        self._ropes: tuple[RopeTable, ...] = ()
        self._memory = torch.empty(0)

    @property
    def memory_bytes(self) -> int:
        """Size of the keys and values that are remembered."""
        return self._memory.nbytes

    def observe(self, context: Context, horizon: int) -> None:
        """Take in what the candidates of the next rollouts share.

        Args:
            context: where they start from.
            horizon: how many actions they will have, at most.
        """
        present = len(context.states) - 1
        self._reserve(present + horizon)
        actions = self._embed_action(context.actions.to(self._precision.residual))
        states = self._embed_state(context.states.to(self._precision.residual))
        patches = self._embed(context.latents).to(states.dtype)
        for frame in range(present):
            x = torch.cat((actions[frame, None], states[frame, None], patches[frame]))[None]
            self._predict(x, self._blocks[0].attendance(x, self._ropes[frame]), frame)
        seen = present * self._frame_tokens
        self._memory[:, :, 1:, :, :seen] = self._memory[:, :, :1, :, :seen]
        self._present = present
        self._state = context.states[present]
        self._shared = torch.cat((states[present, None], patches[present]))[None]
        self._shared_attendance = self._blocks[0].attendance(
            self._shared, self._ropes[present].rows(slice(1, None))
        )

    def roll(self, actions: Tensor) -> Rollout:
        """Imagine the outcome of action sequences, feeding each prediction to the next step.

        Args:
            actions: (micro_batch, horizon, 7), double precision, on the device; `observe` came
                before, for as many actions or more.
        """
        states = integrate_sequence(self._state.expand(len(actions), -1), actions)
        done = self._embed_action(actions.to(self._precision.residual))
        been = self._embed_state(states.to(self._precision.residual))
        latents: list[Tensor] = []
        for step in range(actions.shape[1]):
            frame, action = self._present + step, done[:, step, None]
            if step == 0:
                x = torch.cat((action, self._shared.expand(len(actions), -1, -1)), dim=1)
                first = self._attendance_beside_shared(action)
            else:
                x = torch.cat((action, been[:, step, None], self._embed(latents[-1])), dim=1)
                first = self._blocks[0].attendance(x, self._ropes[frame])
            latents.append(self._predict(x, first, frame))
        return Rollout(torch.stack(latents, dim=1), states)

    def _attendance_beside_shared(self, action: Tensor) -> Attendance:
        """The first layer's queries, keys and values in the present frame, for embedded actions."""
        own = self._blocks[0].attendance(action, self._ropes[self._present].rows(slice(1)))
        return Attendance(
            *(
                torch.cat((mine, shared.expand(len(action), -1, -1, -1)), dim=-2)
                for mine, shared in zip(own, self._shared_attendance, strict=True)
            )
        )

    def _predict(self, x: Tensor, attendance: Attendance, frame: int) -> Tensor:
        """The next frame's latents (batch, tokens, dim) from a frame's embedded tokens.

        Args:
            x: (batch, frame_tokens, width).
            attendance: what they bring to the first layer's attention.
            frame: index of the frame; keys and values of earlier ones are in memory.
        """
        for layer, block in enumerate(self._blocks):
            if layer > 0:
                attendance = block.attendance(x, self._ropes[frame])
            keys, values = self._remember(layer, attendance, frame)
            queries = attendance.queries
            if block is self._blocks[-1]:
                x, queries = x[:, CONDITIONING_TOKENS:], queries[:, :, CONDITIONING_TOKENS:]
            x = block.update(x, queries, keys, values)
        return latent_norm(self._proj(self._norm(x)).to(self._precision.residual))

    def _remember(self, layer: int, new: Attendance, frame: int) -> Tensor:
        """Keys and values (2, batch, heads, tokens, head_dim) of all frames up to this one."""
        start, end = frame * self._frame_tokens, (frame + 1) * self._frame_tokens
        memory = self._memory[layer, :, : len(new.keys)]
        memory[0, :, :, start:end] = new.keys
        memory[1, :, :, start:end] = new.values
        return memory[:, :, :, :end]

    def _reserve(self, frames: int) -> None:
        """Make memory and rotations for so many frames, unless there are enough."""
        if frames <= len(self._ropes):
            return
        sizes = self._config.predictor
        self._memory = torch.empty(
            (
                *(sizes.depth, 2, self._micro_batch, sizes.heads),
                *(frames * self._frame_tokens, sizes.dim // sizes.heads),
            ),
            dtype=self._precision.matmul,
            device=self._device,
        )
        self._ropes = tuple(self._rope(frame) for frame in range(frames))

    def _rope(self, frame: int) -> RopeTable:
        head_dim = self._config.predictor.dim // self._config.predictor.heads
        return halves_table(
            frame_positions(frame, self._config.encoder.grid, CONDITIONING_TOKENS, self._device),
            head_dim,
            self._precision.residual,
        )
