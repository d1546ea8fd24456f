"""World models made of a formula, whose minima are known."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from jepa_planner_ros.planning import planning
from jepa_planner_ros.types import (
    ModelDescription,
    Plan,
    PlanRequest,
    RolloutReply,
    RolloutRequest,
    Scene,
    SearchSettings,
)

TOKENS, DIM = 8, 16
MODEL = ModelDescription("formula", TOKENS, DIM, (8, 8), 32, device="cpu", precision="fp32")
Latents = Callable[[Tensor], Tensor]
"""From displacements (..., 3) in metres since the start to latents (..., tokens * dim)."""

_MIX = torch.from_numpy(np.random.default_rng(0).standard_normal((3, TOKENS * DIM)))
_BEND = torch.from_numpy(np.random.default_rng(1).standard_normal((3, TOKENS * DIM)))


def bent(displacement: Tensor) -> Tensor:
    """Nearly affine, as a trained world model is in small actions."""
    return torch.tanh(8.0 * displacement @ _MIX) + 4.0 * displacement.square() @ _BEND


def two_minima(displacement: Tensor) -> Tensor:
    """The same latents at +x and -x, but for some components that tell the sides apart."""
    folded = torch.cat((displacement[..., :1].abs(), displacement[..., 1:]), dim=-1)
    latents = 8.0 * folded @ _MIX
    side = torch.tanh(40.0 * displacement[..., :1]).expand(*latents.shape[:-1], 12)
    return torch.cat((latents[..., :-12], side), dim=-1)


def scene_of(latents: Latents, goal: np.ndarray) -> Scene:
    """At rest, with the goal displaced by `goal` (3,)."""
    present, aim = (
        latents(torch.from_numpy(at)).reshape(TOKENS, DIM).float().numpy()
        for at in (np.zeros(3), goal)
    )
    return Scene(present, np.zeros(7), aim)


def evaluate(latents: Latents, scene: Scene, request: RolloutRequest) -> RolloutReply:
    """What a world model of this formula answers."""
    actions = torch.from_numpy(request.candidates).requires_grad_()
    predicted = latents(actions[..., :3].cumsum(dim=1))
    goal = scene.goal_latent if request.goal is None else request.goal
    difference = predicted - torch.from_numpy(goal).ravel()
    if request.distance == "l1":
        energies = difference.abs().mean(-1)
    else:
        energies = difference.square().mean(-1).sqrt()
    gradients = None
    if request.gradient_weights is not None:
        total = (energies * torch.from_numpy(request.gradient_weights)).sum()
        gradients = torch.autograd.grad(total, actions)[0].numpy()
    values = predicted.detach().float().numpy()
    return RolloutReply(
        energies.detach().numpy(),
        None if request.components is None else values[..., request.components],
        gradients,
    )


def plan_on(
    latents: Latents, scene: Scene, search: SearchSettings, seed: int = 0, **options: object
) -> tuple[Plan, list[RolloutRequest]]:
    """A plan on a formula, and what was asked for it in the search's rounds and at the end."""
    request = PlanRequest(scene, search, seed, **options)  # type: ignore[arg-type]
    course = planning(request, MODEL)
    asked = [next(course)]
    while True:
        try:
            asked.append(course.send(evaluate(latents, scene, asked[-1])))
        except StopIteration as finished:
            return finished.value, asked[search.anchored :]
