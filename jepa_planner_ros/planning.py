"""From a request to a plan: the search asks, a world model answers, wherever it runs."""

from __future__ import annotations

import time
from collections.abc import Generator

import numpy as np
import torch

from jepa_planner_ros.geometry import integrate_sequence
from jepa_planner_ros.search import CrossEntropyMethod, seeded_noise
from jepa_planner_ros.types import (
    ModelDescription,
    Plan,
    PlannerError,
    PlanRequest,
    PlanTiming,
    RolloutReply,
    RolloutRequest,
    Scene,
)
from jepa_planner_ros.world_model import WorldModel

Planning = Generator[RolloutRequest, RolloutReply, Plan]
"""Yields questions about candidates, is sent the answers, returns the plan."""


def planning(request: PlanRequest, model: ModelDescription) -> Planning:
    """The course of one plan, free of any input and output.

    Whoever drives it has the world model answer what it yields: by a call in this process, or by
    awaiting the replicas of a cluster. The chosen sequence is itself rolled out at the end, so that
    the energies and the latent in the plan are exact.

    Args:
        request: what to plan.
        model: the world model that answers.

    Raises:
        PlannerError: the scene was encoded by another model, or an answer is not finite or not
            what was asked for.
    """
    settings, scene = request.search, request.scene
    _require_latents_of(model, scene)
    search = CrossEntropyMethod(
        settings,
        seeded_noise(request.seed, request.step, settings.horizon, settings.samples),
        request.previous,
        request.close_gripper_from,
    )
    started = time.perf_counter()
    rollouts, waited = 0, 0.0

    def ask(question: RolloutRequest) -> Generator[RolloutRequest, RolloutReply, RolloutReply]:
        nonlocal rollouts, waited
        asked = time.perf_counter()
        reply = yield question
        waited += time.perf_counter() - asked
        rollouts += len(question.candidates)
        _require_answer(question, reply, model)
        return reply

    while not search.finished:
        reply = yield from ask(RolloutRequest(search.propose()))
        search.tell(reply.energies)
    actions = search.best
    exact = yield from ask(RolloutRequest(actions[None], first_latent=True))
    assert exact.first_latents is not None
    states = integrate_sequence(torch.from_numpy(scene.state), torch.from_numpy(actions))
    return Plan(
        actions=actions,
        states=states.numpy(),
        energies=exact.energies[0],
        predicted_latent=exact.first_latents[0],
        start_energy=float(np.abs(scene.latent - scene.goal_latent).mean()),
        rollouts=rollouts,
        rounds=search.rounds,
        timing=PlanTiming(total=time.perf_counter() - started, rollouts=waited),
        model_fingerprint=model.fingerprint,
    )


def _require_latents_of(model: ModelDescription, scene: Scene) -> None:
    expected = (model.tokens, model.dim)
    if scene.latent.shape != expected:
        raise PlannerError(
            f"the scene's latents are {scene.latent.shape}, but the world model that plans has "
            f"{expected}: encode with the same checkpoint that the planner serves."
        )


def _require_answer(question: RolloutRequest, reply: RolloutReply, model: ModelDescription) -> None:
    batch, horizon, _ = question.candidates.shape
    expected = {
        "energies": (batch, horizon),
        "components": question.components is not None
        and (batch, horizon, len(question.components)),
        "gradients": question.gradient_weights is not None and question.candidates.shape,
        "first_latents": question.first_latent and (batch, model.tokens, model.dim),
    }
    for name, shape in expected.items():
        values = getattr(reply, name)
        if shape and (values is None or values.shape != shape or not np.isfinite(values).all()):
            raise PlannerError(
                f"the world model answered {name} that are not finite or not of the shape {shape} "
                f"for {batch} candidates; its weights may be damaged."
            )


class InProcessPlanner:
    """A planner in this process: for tests, for tiny machines, and as what the others equal."""

    def __init__(self, world_model: WorldModel) -> None:
        self._world_model = world_model

    def describe(self) -> ModelDescription:
        """The model that plans."""
        return self._world_model.describe()

    def plan(self, request: PlanRequest) -> Plan:
        """Search with this process's own world model."""
        course = planning(request, self.describe())
        question = next(course)
        while True:
            reply = self._world_model.evaluate(request.scene, question)
            try:
                question = course.send(reply)
            except StopIteration as finished:
                return finished.value

    def close(self) -> None:
        """Nothing to release."""
