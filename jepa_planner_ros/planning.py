"""From a request to a plan: the search asks, a world model answers, wherever it runs."""

from __future__ import annotations

import math
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import torch

from jepa_planner_ros.geometry import ACTION_DIM, POSITION, integrate_sequence
from jepa_planner_ros.search import search_for, sequence_energy
from jepa_planner_ros.search.anchor import anchored_goal
from jepa_planner_ros.types import (
    Float32Array,
    Float64Array,
    Imagined,
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

_IMAGINED = 100
"""Most candidates that a plan tells of: enough to see, and a few kilobytes."""


def planning(request: PlanRequest, model: ModelDescription) -> Planning:
    """The course of one plan, free of any input and output.

    Whoever drives it has the world model answer what it yields: by a call in this process, or by
    awaiting the replicas of a cluster. What the search has come to is itself rolled out at the end,
    so that the energies and the latent in the plan are exact. A deadline ends the search early, but
    never before its first round.

    Args:
        request: what to plan.
        model: the world model that answers.

    Raises:
        PlannerError: the scene was encoded by another model, or an answer is not finite or not
            what was asked for.
    """
    scene = request.scene
    _require_latents_of(model, scene)
    clock = _Clock(request.deadline)
    rollouts = 0
    anchored: Float32Array | None = None
    everything = np.arange(model.tokens * model.dim)

    def ask(question: RolloutRequest) -> Generator[RolloutRequest, RolloutReply, RolloutReply]:
        nonlocal rollouts
        with clock.waiting():
            reply = yield replace(question, goal=anchored)
        rollouts += len(question.candidates)
        _require_answer(question, reply, model)
        return reply

    if request.search.anchored:
        still = np.zeros((1, request.search.horizon, ACTION_DIM))
        reply = yield from ask(RolloutRequest(still, components=everything))
        assert reply.components is not None
        anchored = anchored_goal(scene, reply.components[0, 0].reshape(scene.latent.shape))
    goal = scene.goal_latent if anchored is None else anchored
    search = search_for(replace(request, scene=replace(scene, goal_latent=goal)))
    while not search.finished and (not search.rounds or clock.allows_another_round()):
        proposed = search.propose()
        told = yield from ask(proposed)
        search.tell(told)
    finalists = search.finalists
    exact = yield from ask(RolloutRequest(finalists, request.search.energy.distance, everything))
    assert exact.components is not None
    chosen = int(sequence_energy(exact.energies, request.search.energy).argmin())
    latents = exact.components[chosen].reshape(-1, model.tokens, model.dim)
    states = integrate_sequence(torch.from_numpy(scene.state), torch.from_numpy(finalists[chosen]))
    return Plan(
        actions=finalists[chosen],
        states=states.numpy(),
        energies=np.abs(latents - goal).mean(axis=(1, 2)).astype(np.float64),
        predicted_latent=latents[0],
        start_energy=float(np.abs(scene.latent - scene.goal_latent).mean()),
        rollouts=rollouts,
        rounds=search.rounds,
        timing=PlanTiming(total=clock.elapsed(), rollouts=clock.waited),
        model_fingerprint=model.fingerprint,
        fallback=search.fallback,
        imagined=_imagined(request, proposed.candidates, told.energies),
    )


def _imagined(request: PlanRequest, candidates: Float64Array, energies: Float64Array) -> Imagined:
    """Where candidates (batch, horizon, 7) lead, those of the lowest energies (batch, horizon)."""
    scores = sequence_energy(energies, request.search.energy)
    best = scores.argsort(kind="stable")[:_IMAGINED]
    # Translations add up, whatever the rotations.
    ways = candidates[best, :, POSITION].sum(axis=1)
    return Imagined(request.scene.state[POSITION] + ways, scores[best])


class _Clock:
    """Where the time of a plan goes, and whether there is time for another round."""

    def __init__(self, deadline: float | None) -> None:
        self._deadline = math.inf if deadline is None else deadline
        self._started = time.perf_counter()
        self._longest = 0.0
        self.waited = 0.0

    def elapsed(self) -> float:
        """Since the plan was begun, s."""
        return time.perf_counter() - self._started

    @contextmanager
    def waiting(self) -> Generator[None, None, None]:
        """While the world model answers."""
        asked = time.perf_counter()
        yield
        waited = time.perf_counter() - asked
        self._longest = max(self._longest, waited)
        self.waited += waited

    def allows_another_round(self) -> bool:
        """Whether a round like the longest so far and the last rollout fit before the deadline."""
        return self.elapsed() + 2.0 * self._longest <= self._deadline


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
