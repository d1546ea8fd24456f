"""Rollouts as upstream computes them: slowly, and as the measure of the fast ones.

Upstream: ``notebooks/utils/mpc_utils.py`` (``cem``, ``compute_new_pose``) and
``notebooks/utils/world_model_wrapper.py``.
"""

from __future__ import annotations

import torch
from torch import Tensor

from jepa_planner_ros.geometry import integrate_state
from jepa_planner_ros.world_model.predictor import Predictor
from jepa_planner_ros.world_model.rollout import Context, Rollout


def reference_rollout(predictor: Predictor, context: Context, actions: Tensor) -> Rollout:
    """Imagine the outcome of action sequences, recomputing every frame at every step.

    Each candidate has its own copy of the context, attention to later frames is masked, and poses
    are integrated one by one.

    Args:
        predictor: in the precision to compute in.
        context: where the candidates start from.
        actions: (batch, horizon, 7), double precision.
    """
    batch, horizon, _ = actions.shape
    given = len(context.states)
    latents = context.latents.repeat(batch, 1, 1, 1)
    states = context.states.repeat(batch, 1, 1)
    done = torch.cat((context.actions.repeat(batch, 1, 1), actions), dim=1)
    for step in range(horizon):
        frames = given + step
        predicted = predictor(latents, done[:, :frames], states)
        latents = torch.cat((latents, predicted[:, -1:]), dim=1)
        # One after the other, as upstream's loop over SciPy's rotations does.
        pairs = zip(states[:, -1].cpu(), actions[:, step].cpu(), strict=True)
        poses = torch.stack([integrate_state(state, action) for state, action in pairs])
        states = torch.cat((states, poses.to(states.device)[:, None]), dim=1)
    return Rollout(latents[:, given:], states[:, given - 1 :])
