"""From a request to a plan: the search asks, a world model answers, wherever it runs."""

from __future__ import annotations

import time
from collections.abc import Generator

import numpy as np
import torch

from jepa_planner_ros.geometry import integrate_sequence
from jepa_planner_ros.search import CrossEntropyMethod, seeded_noise
from jepa_planner_ros.types import (
    Float64Array,
    ModelDescription,
    Plan,
    PlannerError,
    PlanRequest,
    PlanTiming,
)
from jepa_planner_ros.world_model import WorldModel

Planning = Generator[Float64Array, Float64Array, Plan]
"""Yields candidates (batch, horizon, 7), is sent energies (batch, horizon), returns the plan."""


def planning(request: PlanRequest, model_fingerprint: str) -> Planning:
    """The course of one plan, free of any input and output.

    Whoever drives it evaluates the candidates it yields: by a call in this process, or by awaiting
    the replicas of a cluster. The chosen sequence is itself rolled out at the end, so that the
    energies in the plan are exact.

    Raises:
        PlannerError: the energies sent back are not finite, or not one per candidate and action.
    """
    settings, scene = request.search, request.scene
    search = CrossEntropyMethod(
        settings,
        seeded_noise(request.seed, request.step, settings.horizon, settings.samples),
        request.previous,
        request.close_gripper_from,
    )
    started = time.perf_counter()
    rollouts, waited = 0, 0.0

    def evaluate(candidates: Float64Array) -> Generator[Float64Array, Float64Array, Float64Array]:
        nonlocal rollouts, waited
        asked = time.perf_counter()
        energies = yield candidates
        waited += time.perf_counter() - asked
        rollouts += len(candidates)
        if energies.shape != candidates.shape[:2] or not np.isfinite(energies).all():
            raise PlannerError(
                "the world model answered energies that are not finite or of the wrong shape "
                f"{energies.shape} for {len(candidates)} candidates; its weights may be damaged."
            )
        return energies

    while not search.finished:
        candidates = search.propose()
        search.tell((yield from evaluate(candidates)))
    actions = search.best
    energies = yield from evaluate(actions[None])
    states = integrate_sequence(torch.from_numpy(scene.state), torch.from_numpy(actions))
    return Plan(
        actions=actions,
        states=states.numpy(),
        energies=energies[0],
        start_energy=float(np.abs(scene.latent - scene.goal_latent).mean()),
        rollouts=rollouts,
        rounds=search.rounds,
        timing=PlanTiming(total=time.perf_counter() - started, rollouts=waited),
        model_fingerprint=model_fingerprint,
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
        course = planning(request, self._world_model.fingerprint)
        candidates = next(course)
        while True:
            energies = self._world_model.energies(request.scene, candidates)
            try:
                candidates = course.send(energies)
            except StopIteration as finished:
                return finished.value

    def close(self) -> None:
        """Nothing to release."""
