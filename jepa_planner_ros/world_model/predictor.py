"""The action-conditioned predictor of V-JEPA 2-AC: the next frame's latents from what was done."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from jepa_planner_ros.geometry import ACTION_DIM, STATE_DIM
from jepa_planner_ros.world_model.config import WorldModelConfig
from jepa_planner_ros.world_model.rope import RopeTable, frame_positions, rope_table
from jepa_planner_ros.world_model.transformer import (
    NORM_EPS,
    Block,
    KeyValues,
    initialise,
    latent_norm,
)

CONDITIONING_TOKENS = 2
"""A frame's tokens are, in order: its action, its state, its patches."""


class Predictor(nn.Module):
    """Frame-causal transformer over [action, state, patches] of each frame.

    A frame attends to itself, fully, and to earlier frames; from its patches the next frame's
    latents are read (V-JEPA 2, Sec. 3.1; upstream ``src/models/ac_predictor.py``).
    """

    def __init__(self, config: WorldModelConfig) -> None:
        super().__init__()
        self.grid = config.encoder.grid
        self.head_dim = config.predictor.dim // config.predictor.heads
        dim = config.predictor.dim
        self.embed = nn.Linear(config.encoder.dim, dim)
        self.action_encoder = nn.Linear(ACTION_DIM, dim)
        self.state_encoder = nn.Linear(STATE_DIM, dim)
        self.blocks = nn.ModuleList(
            Block(dim, config.predictor.heads, config.predictor.mlp_hidden)
            for _ in range(config.predictor.depth)
        )
        self.norm = nn.LayerNorm(dim, eps=NORM_EPS)
        self.proj = nn.Linear(dim, config.encoder.dim)
        initialise(self, self.blocks)

    @property
    def frame_tokens(self) -> int:
        """Tokens of a frame, conditioning included."""
        return CONDITIONING_TOKENS + self.grid[0] * self.grid[1]

    def rope(self, frame: int, like: Tensor) -> RopeTable:
        """Rotations of the tokens of the frame with index `frame`."""
        dtype = torch.promote_types(like.dtype, torch.float32)
        positions = frame_positions(frame, self.grid, CONDITIONING_TOKENS, like.device)
        return rope_table(positions, self.head_dim, dtype)

    def tokens(self, latents: Tensor, actions: Tensor, states: Tensor) -> Tensor:
        """Embed frames: (..., tokens, dim), (..., 7), (..., 7) -> (..., frame_tokens, width)."""
        action = self.action_encoder(actions.to(latents.dtype))
        state = self.state_encoder(states.to(latents.dtype))
        return torch.cat((torch.stack((action, state), dim=-2), self.embed(latents)), dim=-2)

    def read(self, x: Tensor) -> Tensor:
        """The predicted latents (..., tokens, dim) in a frame's output tokens."""
        return latent_norm(self.proj(self.norm(x[..., CONDITIONING_TOKENS:, :])))

    def forward(self, latents: Tensor, actions: Tensor, states: Tensor) -> Tensor:
        """All next frames at once, under a frame-causal mask: for training, and as the reference.

        Args:
            latents: (batch, frames, tokens, dim).
            actions: (batch, frames, 7); the action done at each frame.
            states: (batch, frames, 7); the state at each frame.

        Returns:
            Latents (batch, frames, tokens, dim), each predicting the frame after it.
        """
        frames = latents.shape[1]
        x = self.tokens(latents, actions, states).flatten(1, 2)
        tables = [self.rope(frame, x) for frame in range(frames)]
        rope = RopeTable(*(torch.cat(parts) for parts in zip(*tables, strict=True)))
        frame = torch.arange(frames, device=x.device).repeat_interleave(self.frame_tokens)
        mask = frame[:, None] >= frame[None, :] if frames > 1 else None
        for block in self.blocks:
            x, _ = block(x, rope, mask=mask)
        return self.read(x.unflatten(1, (frames, self.frame_tokens)))

    def step(
        self,
        latent: Tensor,
        action: Tensor,
        state: Tensor,
        past: list[KeyValues] | None,
        frame: int,
    ) -> tuple[Tensor, list[KeyValues]]:
        """One next frame, with the keys and values of earlier frames remembered.

        A frame never attends to a later one, so what earlier frames computed stays valid and no
        mask is needed: the result equals the last frame of `forward`.

        Args:
            latent: (batch, tokens, dim) of the frame acted from.
            action: (batch, 7).
            state: (batch, 7).
            past: keys and values of each layer after the earlier frames; None at the first.
            frame: index of the frame acted from.

        Returns:
            The next frame's latents (batch, tokens, dim), and the memory for the step after.
        """
        x = self.tokens(latent, action, state)
        rope = self.rope(frame, x)
        memory: list[KeyValues] = []
        for layer, block in enumerate(self.blocks):
            x, seen = block(x, rope, past=past[layer] if past else None)
            memory.append(seen)
        return self.read(x), memory
