"""The pre-norm transformer block that encoder and predictor share."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from jepa_planner_ros.world_model.rope import RopeTable, rotate

NORM_EPS = 1e-6


class KeyValues(NamedTuple):
    """Keys and values (batch, heads, tokens, head_dim) of one layer."""

    keys: Tensor
    values: Tensor

    def after(self, past: KeyValues | None) -> KeyValues:
        """These keys and values behind those of earlier frames."""
        if past is None:
            return self
        return KeyValues(
            torch.cat((past.keys, self.keys), dim=-2), torch.cat((past.values, self.values), dim=-2)
        )


class Attention(nn.Module):
    """Multi-head self-attention with rotated queries and keys."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)

    def forward(
        self, x: Tensor, rope: RopeTable, past: KeyValues | None, mask: Tensor | None
    ) -> tuple[Tensor, KeyValues]:
        """Attend from `x` (batch, tokens, dim) to itself and to the `past` of earlier frames."""
        qkv = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        queries, keys = rotate(qkv[:2], rope)
        seen = KeyValues(keys, qkv[2]).after(past)
        attended = functional.scaled_dot_product_attention(
            queries, seen.keys, seen.values, attn_mask=mask
        )
        return self.proj(attended.transpose(1, 2).flatten(-2)), seen


class Mlp(nn.Module):
    """Two linear layers with a GELU between them."""

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(dim, hidden)
        self.fc2 = nn.Linear(hidden, dim)

    def forward(self, x: Tensor) -> Tensor:
        """(..., dim) -> (..., dim)."""
        return self.fc2(functional.gelu(self.fc1(x)))


class Block(nn.Module):
    """Attention and MLP, each behind a LayerNorm and around a residual connection."""

    def __init__(self, dim: int, heads: int, mlp_hidden: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim, eps=NORM_EPS)
        self.attn = Attention(dim, heads)
        self.norm2 = nn.LayerNorm(dim, eps=NORM_EPS)
        self.mlp = Mlp(dim, mlp_hidden)

    def forward(
        self,
        x: Tensor,
        rope: RopeTable,
        past: KeyValues | None = None,
        mask: Tensor | None = None,
    ) -> tuple[Tensor, KeyValues]:
        """Returns the new tokens (batch, tokens, dim) and the keys and values seen so far."""
        attended, seen = self.attn(self.norm1(x), rope, past, mask)
        x = x + attended
        return x + self.mlp(self.norm2(x)), seen


def latent_norm(x: Tensor) -> Tensor:
    """LayerNorm without weights over the last dimension, eps 1e-5: what latents are compared in.

    Applied to the encoder's output, and to the predictor's before it is fed back or compared
    (upstream ``normalize_reps`` in ``notebooks/utils/world_model_wrapper.py``).
    """
    return functional.layer_norm(x, x.shape[-1:])


def initialise(module: nn.Module, blocks: nn.ModuleList) -> None:
    """Fresh weights: each layer keeps the size of what it is given, at any width.

    Residual branches are scaled down with depth, as upstream does. Upstream's fixed deviation of
    0.02 comes to the same at its widths, but starves networks as narrow as the shipped one.
    """
    for part in module.modules():
        if isinstance(part, nn.Linear | nn.Conv3d):
            nn.init.trunc_normal_(part.weight, std=part.weight[0].numel() ** -0.5)
            assert part.bias is not None
            nn.init.zeros_(part.bias)
    with torch.no_grad():
        for depth, block in enumerate(blocks, start=1):
            assert isinstance(block, Block)
            block.attn.proj.weight.div_((2.0 * depth) ** 0.5)
            block.mlp.fc2.weight.div_((2.0 * depth) ** 0.5)
