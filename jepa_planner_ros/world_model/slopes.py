"""How energies change with the actions: gradients through the predictor."""

from __future__ import annotations

import torch
from torch import Tensor

from jepa_planner_ros.geometry import integrate_sequence
from jepa_planner_ros.world_model.predictor import Predictor
from jepa_planner_ros.world_model.rollout import Context, Distance


def energy_slopes(
    predictor: Predictor,
    context: Context,
    goal: Tensor,
    actions: Tensor,
    weights: Tensor,
    distance: Distance,
) -> Tensor:
    """Slopes (batch, horizon, 7) of the weighted sum of the energies after each action.

    Every frame is recomputed at every step, as in training: the fast rollouts overwrite what a
    backward pass needs. It remembers all activations of all candidates.

    Args:
        predictor: in the precision to compute in.
        context: where the candidates start from.
        goal: latents (tokens, dim).
        actions: candidates (batch, horizon, 7), double precision.
        weights: of the energies in the sum, (horizon,).
        distance: from predicted latents to the goal's.
    """
    batch, horizon, _ = actions.shape
    given = len(context.states)
    actions = actions.detach().requires_grad_()
    with torch.enable_grad():
        imagined = integrate_sequence(context.states[-1].expand(batch, -1), actions)
        states = torch.cat((context.states[:-1].expand(batch, -1, -1), imagined), dim=1)
        done = torch.cat((context.actions.expand(batch, -1, -1), actions), dim=1)
        latents = context.latents.expand(batch, -1, -1, -1)
        for frames in range(given, given + horizon):
            predicted = predictor(latents, done[:, :frames], states[:, :frames])
            latents = torch.cat((latents, predicted[:, -1:]), dim=1)
        total = (distance(latents[:, given:], goal) * weights).sum()
        (slopes,) = torch.autograd.grad(total, actions)
    return slopes
