"""The hot path: candidate action sequences in, predicted latents and energies out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from jepa_planner_ros.geometry import integrate_sequence
from jepa_planner_ros.types import DistanceName
from jepa_planner_ros.world_model.predictor import Predictor
from jepa_planner_ros.world_model.transformer import KeyValues


class Rollout(NamedTuple):
    """What the world model expects of each candidate.

    Attributes:
        latents: predicted latents after each action, (batch, horizon, tokens, dim).
        states: integrated states, (batch, horizon + 1, 7); the first is the present one.
    """

    latents: Tensor
    states: Tensor


def rollout(predictor: Predictor, latent: Tensor, state: Tensor, actions: Tensor) -> Rollout:
    """Imagine the outcome of action sequences, feeding each prediction to the next step.

    Args:
        predictor: the action-conditioned predictor.
        latent: the present frame's latents (tokens, dim), shared by all candidates.
        state: the present end-effector state (7,), double precision.
        actions: (batch, horizon, 7), double precision.
    """
    batch, horizon, _ = actions.shape
    states = integrate_sequence(state.expand(batch, -1), actions)
    present = latent.expand(batch, -1, -1)
    memory: list[KeyValues] | None = None
    latents = []
    for step in range(horizon):
        present, memory = predictor.step(present, actions[:, step], states[:, step], memory, step)
        latents.append(present)
    return Rollout(torch.stack(latents, dim=1), states)


def energy(latents: Tensor, goal: Tensor) -> Tensor:
    """Mean L1 distance (...) of latents (..., tokens, dim) to the goal's (tokens, dim).

    The planning energy of V-JEPA 2 (Sec. 3.2, Eq. 5).
    """
    return (latents - goal).abs().mean(dim=(-2, -1))


def root_mean_square(latents: Tensor, goal: Tensor) -> Tensor:
    """Root mean square (...) of latents (..., tokens, dim) less the goal's (tokens, dim)."""
    return (latents - goal).square().mean(dim=(-2, -1)).sqrt()


DISTANCES: Mapping[DistanceName, Callable[[Tensor, Tensor], Tensor]] = {
    "l1": energy,
    "l2": root_mean_square,
}
