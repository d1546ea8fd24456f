"""The hot path: candidate action sequences in, predicted latents and energies out."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from jepa_planner_ros.geometry import integrate_sequence
from jepa_planner_ros.types import DistanceName, Float64Array
from jepa_planner_ros.world_model.compilation import Compiler, RecordedCall
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

# Each keeps memory of its own on the GPU, for as many actions as it was recorded with.
_MOST_RECORDED = 4


class Rollout(NamedTuple):
    """What the world model expects of each candidate.

    Attributes:
        latents: predicted latents after each action, (batch, horizon, tokens, dim).
        states: integrated states, (batch, horizon + 1, 7); the first is the present one.
    """

    latents: Tensor
    states: Tensor


Distance = Callable[[Tensor, Tensor], Tensor]
"""From latents (..., tokens, dim) to the goal's (tokens, dim): one number (...) per frame."""


def energy(latents: Tensor, goal: Tensor) -> Tensor:
    """Mean L1 distance (...) of latents (..., tokens, dim) to the goal's (tokens, dim).

    The planning energy of V-JEPA 2 (Sec. 3.2, Eq. 5).
    """
    return (latents - goal).abs().mean(dim=(-2, -1))


def root_mean_square(latents: Tensor, goal: Tensor) -> Tensor:
    """Root mean square (...) of latents (..., tokens, dim) less the goal's (tokens, dim)."""
    return (latents - goal).square().mean(dim=(-2, -1)).sqrt()


DISTANCES: Mapping[DistanceName, Distance] = MappingProxyType(
    {"l1": energy, "l2": root_mean_square}
)
"""How far predicted latents are from the goal's, by name."""


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


class Start(NamedTuple):
    """What is the same for all candidates in the present frame: everything but their action.

    Attributes:
        state: (7,), double precision.
        tokens: the embedded state and patches, (1, tokens, width).
        queries: what these bring to the first layer's attention, (1, heads, tokens, head_dim).
        keys: likewise.
        values: likewise.
    """

    state: Tensor
    tokens: Tensor
    queries: Tensor
    keys: Tensor
    values: Tensor

    def beside(self, actions: Attendance) -> Attendance:
        """What all tokens bring, given what the action tokens do, (batch, heads, 1, head_dim)."""
        batch = len(actions.queries)
        return Attendance(
            *(
                torch.cat((own, shared.expand(batch, -1, -1, -1)), dim=-2)
                for own, shared in zip(actions, self[2:], strict=True)
            )
        )


def forward(
    block: PreparedBlock,
    x: Tensor,
    attendance: Attendance | None,
    rope: RopeTable,
    memory: Tensor,
    before: int,
    left_out: int,
) -> Tensor:
    """A frame's tokens (batch, tokens, width) after one block.

    Args:
        block: the block.
        x: the tokens before it.
        attendance: what they bring to attention, where it is known already.
        rope: their rotations.
        memory: keys and values (2, batch, heads, all tokens, head_dim); the frame's are added.
        before: how many tokens earlier frames have in memory.
        left_out: so many of the first tokens are attended to, but not computed themselves.
    """
    if attendance is None:
        attendance = block.attendance(x, rope)
    end = before + x.shape[1]
    keys, values = memory
    keys[:, :, before:end] = attendance.keys
    values[:, :, before:end] = attendance.values
    return block.update(
        x[:, left_out:], attendance.queries[:, :, left_out:], keys[:, :, :end], values[:, :, :end]
    )


def micro_batches(candidates: Float64Array, size: int) -> Iterator[Float64Array]:
    """Candidates (batch, horizon, 7) in groups of exactly `size`, the last candidate repeated."""
    for start in range(0, len(candidates), size):
        batch = candidates[start : start + size]
        padding = np.repeat(batch[-1:], size - len(batch), axis=0)
        yield np.concatenate((batch, padding))


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
        compiler: compiles the blocks, and on a GPU has whole rollouts recorded; None does neither.
    """

    def __init__(
        self,
        config: WorldModelConfig,
        weights: Mapping[str, Tensor],
        micro_batch: int,
        device: torch.device,
        precision: Precision,
        compiler: Compiler | None = None,
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
        self._forward = compiler(forward) if compiler else forward
        self._records = compiler is not None and device.type == "cuda"
        self._recorded: OrderedDict[tuple[int, int], RecordedCall] = OrderedDict()
        self._ropes: tuple[RopeTable, ...] = ()
        self._memory = torch.empty(0)
        self._present = 0
        self._start: Start | None = None

    def do_without_compiler(self) -> None:
        """Compute without compiled code from now on."""
        self._forward, self._records = forward, False

    @property
    def memory_bytes(self) -> int:
        """Size of the keys and values that are remembered."""
        return self._memory.nbytes

    @torch.inference_mode()
    def observe(self, context: Context, horizon: int) -> None:
        """Take in what the candidates of the next rollouts share.

        Args:
            context: where they start from.
            horizon: how many actions they will have, at most.
        """
        self._present = len(context.states) - 1
        self._reserve(self._present + horizon)
        with self._precision.applied():
            self._observe(context)

    def _observe(self, context: Context) -> None:
        present = self._present
        actions = self._embed_action(context.actions.to(self._precision.residual))
        states = self._embed_state(context.states.to(self._precision.residual))
        patches = self._embed(context.latents).to(states.dtype)
        for frame in range(present):
            x = torch.cat((actions[frame, None], states[frame, None], patches[frame]))[None]
            self._predict(x, None, frame)
        seen = present * self._frame_tokens
        self._memory[:, :, 1:, :, :seen] = self._memory[:, :, :1, :, :seen]
        tokens = torch.cat((states[present, None], patches[present]))[None]
        rope = self._ropes[present].rows(slice(1, None))
        attendance = self._blocks[0].attendance(tokens, rope)
        start = Start(context.states[present].clone(), tokens, *attendance)
        if self._start is None:
            self._start = start
        else:
            # Not replaced, since what was recorded reads it where it is.
            for kept, new in zip(self._start, start, strict=True):
                kept.copy_(new)

    def rollouts(self, candidates: Float64Array) -> Iterator[Rollout]:
        """Imagine the outcome of action sequences, feeding each prediction to the next step.

        Args:
            candidates: (batch, horizon, 7); `observe` came before, for as many actions or more.

        Yields:
            The outcomes of one micro-batch after the other; on a GPU, each is overwritten by the
            next.
        """
        remaining = len(candidates)
        for batch in micro_batches(candidates, self._micro_batch):
            outcome = self._roll(torch.tensor(batch, device=self._device))
            yield Rollout(*(part[:remaining] for part in outcome))
            remaining -= self._micro_batch

    @torch.inference_mode()
    def _roll(self, actions: Tensor) -> Rollout:
        with self._precision.applied():
            if not self._records:
                return self._roll_out(actions)
            key = self._present, actions.shape[1]
            if key not in self._recorded:
                if len(self._recorded) == _MOST_RECORDED:
                    self._recorded.popitem(last=False)
                self._recorded[key] = RecordedCall(self._roll_out, actions)
            self._recorded.move_to_end(key)
            outcome: Rollout = self._recorded[key](actions)
            return outcome

    def _roll_out(self, actions: Tensor) -> Rollout:
        start = self._start
        assert start is not None, "observe a context before rolling out from it"
        batch, horizon, _ = actions.shape
        states = integrate_sequence(start.state.expand(batch, -1), actions)
        done = self._embed_action(actions.to(self._precision.residual))
        been = self._embed_state(states.to(self._precision.residual))
        x = torch.cat((done[:, :1], start.tokens.expand(batch, -1, -1)), dim=1)
        own = self._blocks[0].attendance(done[:, :1], self._ropes[self._present].rows(slice(1)))
        latents = [self._predict(x, start.beside(own), self._present)]
        for step in range(1, horizon):
            patches = self._embed(latents[-1]).to(x.dtype)
            x = torch.cat((done[:, step, None], been[:, step, None], patches), dim=1)
            latents.append(self._predict(x, None, self._present + step))
        return Rollout(torch.stack(latents, dim=1), states)

    def _predict(self, x: Tensor, attendance: Attendance | None, frame: int) -> Tensor:
        """The next frame's latents (batch, tokens, dim) from a frame's embedded tokens.

        Args:
            x: (batch, frame_tokens, width).
            attendance: what they bring to the first layer's attention, where it is known.
            frame: index of the frame; keys and values of earlier ones are in memory.
        """
        for block, memory in zip(self._blocks, self._memory[:, :, : len(x)], strict=True):
            left_out = CONDITIONING_TOKENS if block is self._blocks[-1] else 0
            rope, before = self._ropes[frame], frame * self._frame_tokens
            x = self._forward(block, x, attendance, rope, memory, before, left_out)
            attendance = None
        return latent_norm(self._proj(self._norm(x)).to(self._precision.residual))

    def _reserve(self, frames: int) -> None:
        """Make memory and rotations for so many frames, unless there are enough."""
        if frames <= len(self._ropes):
            return
        self._recorded.clear()
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
