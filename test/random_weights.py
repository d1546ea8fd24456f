"""World models that have learnt nothing."""

from __future__ import annotations

import torch

from jepa_planner_ros.world_model import Checkpoint, Encoder, Predictor, WorldModelConfig


def random_checkpoint(sizes: WorldModelConfig, dtype: torch.dtype = torch.float32) -> Checkpoint:
    """The same fresh weights at every call."""
    torch.manual_seed(0)
    parts = Encoder(sizes.encoder), Predictor(sizes)
    encoder, predictor = ({n: w.to(dtype) for n, w in p.state_dict().items()} for p in parts)
    return Checkpoint(sizes, encoder, predictor, {})
