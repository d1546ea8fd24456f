"""The V-JEPA 2 encoder: a frame in, a grid of latents out."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

from jepa_planner_ros.world_model.config import EncoderConfig
from jepa_planner_ros.world_model.precision import Precision
from jepa_planner_ros.world_model.prepared import PreparedBlock, Workshop, halves_table
from jepa_planner_ros.world_model.rope import RopeTable, frame_positions, rope_table
from jepa_planner_ros.world_model.transformer import NORM_EPS, Block, initialise, latent_norm


class TubeletEmbedding(nn.Module):
    """Linear embedding of tubelets (upstream ``PatchEmbed3D``)."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        tubelet = (config.tubelet_size, config.patch_size, config.patch_size)
        self.proj = nn.Conv3d(3, config.dim, kernel_size=tubelet, stride=tubelet)

    def forward(self, clip: Tensor) -> Tensor:
        """(batch, 3, frames, height, width) -> (batch, tokens, dim)."""
        return self.proj(clip).flatten(2).transpose(1, 2)


class Encoder(nn.Module):
    """ViT with 3-D RoPE (V-JEPA 2, Sec. 2; upstream ``src/models/vision_transformer.py``)."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.patch_embed = TubeletEmbedding(config)
        self.blocks = nn.ModuleList(
            Block(config.dim, config.heads, config.mlp_hidden) for _ in range(config.depth)
        )
        self.norm = nn.LayerNorm(config.dim, eps=NORM_EPS)
        initialise(self, self.blocks)

    def rope(self, like: Tensor) -> RopeTable:
        """Rotations of the tokens of a single frame."""
        dtype = torch.promote_types(like.dtype, torch.float32)
        positions = frame_positions(0, self.config.grid, conditioning=0, device=like.device)
        return rope_table(positions, self.config.dim // self.config.heads, dtype)

    def forward(self, frames: Tensor) -> Tensor:
        """Latents (batch, tokens, dim) of preprocessed frames (batch, 3, height, width).

        A single frame fills a whole tubelet by repetition, as in upstream's planner.
        """
        clip = frames.unsqueeze(2).expand(-1, -1, self.config.tubelet_size, -1, -1)
        x = self.patch_embed(clip)
        rope = self.rope(x)
        for block in self.blocks:
            x, _ = block(x, rope)
        return latent_norm(self.norm(x))


class FrameEncoder:
    """An `Encoder` prepared to encode one frame at a time, on one device in one precision.

    Args:
        config: sizes.
        weights: state dict of an `Encoder`, from anywhere.
        device: where to compute.
        precision: how exactly.
    """

    def __init__(
        self,
        config: EncoderConfig,
        weights: Mapping[str, Tensor],
        device: torch.device,
        precision: Precision,
    ) -> None:
        self._patch = config.patch_size
        self._device = device
        self._precision = precision
        workshop = Workshop(device, precision)
        self._embed = workshop.tubelets(weights, "patch_embed.proj")
        self._blocks = tuple(
            PreparedBlock.of(weights, index, config.heads, workshop)
            for index in range(config.depth)
        )
        self._norm = workshop.norm(weights, "norm")
        self._rope = halves_table(
            frame_positions(0, config.grid, conditioning=0, device=device),
            config.dim // config.heads,
            precision.residual,
        )

    def __call__(self, frame: Tensor) -> Tensor:
        """Latents (tokens, dim) of a preprocessed frame (3, height, width)."""
        pixels = frame.to(self._device, self._precision.residual)[None]
        patches = functional.unfold(pixels, self._patch, stride=self._patch).transpose(1, 2)
        x = self._embed(patches).to(self._precision.residual)
        for block in self._blocks:
            x = block.update(x, *block.attendance(x, self._rope))
        return latent_norm(self._norm(x))[0]
