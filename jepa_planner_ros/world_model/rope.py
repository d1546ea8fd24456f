"""Rotary position embedding over (frame, row, column), as V-JEPA 2 was trained with it."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class RopeTable(NamedTuple):
    """Cosines and sines (tokens, head_dim) that rotate the queries and keys of one frame."""

    cos: Tensor
    sin: Tensor

    def rows(self, tokens: slice) -> RopeTable:
        """The rotations of some of the tokens."""
        return RopeTable(self.cos[tokens], self.sin[tokens])


def frame_positions(
    frame: int, grid: tuple[int, int], conditioning: int, device: torch.device | None = None
) -> Tensor:
    """Positions (conditioning + rows * columns, 3) of a frame's tokens: frame, row, column.

    Conditioning tokens (action and state) come first and carry the frame's index only. Rows and
    columns are measured in units in which a side of the grid is its height long, so that a grid
    that is not square spans the range seen in training (upstream ``ACRoPEAttention``).
    """
    rows, columns = grid
    row = torch.arange(rows, dtype=torch.float64, device=device)
    column = torch.arange(columns, dtype=torch.float64, device=device) * (rows / columns)
    positions = torch.zeros(conditioning + rows * columns, 3, dtype=torch.float64, device=device)
    positions[:, 0] = frame
    positions[conditioning:, 1] = row.repeat_interleave(columns)
    positions[conditioning:, 2] = column.repeat(rows)
    return positions


def rope_table(positions: Tensor, head_dim: int, dtype: torch.dtype) -> RopeTable:
    """The table of `positions` (tokens, 3) for heads of width `head_dim`.

    A head splits into three equal parts of even width, one per axis; what remains is not rotated.
    Within a part the frequencies are laid out ``[f, f]`` although the rotation pairs *neighbouring*
    components. The released weights were trained with that mismatch, so it is kept (upstream
    ``rotate_queries_or_keys`` says the same). Tables are computed in double precision; `dtype`
    should be at least fp32 even when the network runs in half precision.
    """
    width = 2 * ((head_dim // 3) // 2)
    exponent = torch.arange(width // 2, dtype=torch.float64, device=positions.device) / (width / 2)
    frequencies = 10000.0**-exponent
    angles = torch.zeros(len(positions), head_dim, dtype=torch.float64, device=positions.device)
    for axis in range(3):
        angle = positions[:, axis, None] * frequencies
        angles[:, axis * width : (axis + 1) * width] = torch.cat((angle, angle), dim=-1)
    return RopeTable(angles.cos().to(dtype), angles.sin().to(dtype))


def rotate(x: Tensor, table: RopeTable) -> Tensor:
    """Rotate queries or keys (..., tokens, head_dim) by their positions."""
    even, odd = x.unflatten(-1, (-1, 2)).unbind(-1)
    quarter_turn = torch.stack((-odd, even), dim=-1).flatten(-2)
    return (x * table.cos + quarter_turn * table.sin).to(x.dtype)
