"""Replicas are replaced under the planner: no plan is made of two models, and the next is whole.

The replicas are real world models, called without Ray.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from random_weights import random_checkpoint
from ray.exceptions import ActorDiedError

from jepa_planner_ros.planning import InProcessPlanner
from jepa_planner_ros.search import CrossEntropySettings
from jepa_planner_ros.serving.deployments import ClusterPlanner
from jepa_planner_ros.serving.messages import (
    ModelChangedError,
    PlannerBusyError,
    WrongModelError,
)
from jepa_planner_ros.serving.replica import Delivery, Encoded, Order
from jepa_planner_ros.serving.turns import MOST_WAITING
from jepa_planner_ros.types import (
    Float32Array,
    ModelDescription,
    PlannerUnavailableError,
    PlanRequest,
    Scene,
)
from jepa_planner_ros.world_model import SMALL, Checkpoint, WorldModel

SEARCH = CrossEntropySettings(horizon=1, samples=4, elites=2, rounds=2)
LIMIT_S = 60.0


def checkpoint(scale: float) -> Checkpoint:
    """Other weights for each scale."""
    fresh = random_checkpoint(SMALL)
    scaled = {name: scale * weights for name, weights in fresh.predictor.items()}
    return replace(fresh, predictor=scaled)


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """So small a model is slower on more, where others use the cores as well."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def old() -> WorldModel:
    return WorldModel(checkpoint(1.0), micro_batch=4)


@pytest.fixture(scope="module")
def in_other_batches() -> WorldModel:
    return WorldModel(checkpoint(1.0), micro_batch=2)


@pytest.fixture(scope="module")
def retrained() -> WorldModel:
    return WorldModel(checkpoint(1.01), micro_batch=4)


class DirectStore:
    """Latents by themselves in place of references, which need a Ray."""

    def scene(self, scene: Scene, goal: Float32Array | None) -> Scene:
        return scene if goal is None else replace(scene, goal_latent=goal)


@dataclass
class Replicas:
    """A deployment's handle: one replica after the other answers, the last one for ever."""

    models: list[WorldModel | ActorDiedError]

    def __post_init__(self) -> None:
        self.describe = SimpleNamespace(remote=self._describe)
        self.encode = SimpleNamespace(remote=self._encode)
        self.evaluate = SimpleNamespace(remote=self._evaluate)

    def _next(self) -> WorldModel:
        model = self.models.pop(0) if len(self.models) > 1 else self.models[0]
        if isinstance(model, ActorDiedError):
            raise model
        return model

    async def _describe(self) -> ModelDescription:
        return self._next().describe()

    async def _encode(self, image: NDArray[np.uint8]) -> Encoded:
        model = self._next()
        return Encoded(model.encode(image), model.describe())

    async def _evaluate(self, parcel: Sequence[Order]) -> Delivery:
        model = self._next()
        scenes: list[Any] = [order.scene for order in parcel]
        answers = tuple(
            model.evaluate(scene, order.question)
            for scene, order in zip(scenes, parcel, strict=True)
        )
        return Delivery(answers, "replica", model.describe(), work=0.0)


def planner_of(*models: WorldModel | ActorDiedError) -> ClusterPlanner:
    replicas: Any = Replicas(list(models))
    planner = ClusterPlanner(replicas, replicas=1)
    planner._store = DirectStore()  # type: ignore[assignment]
    return planner


def request() -> PlanRequest:
    draw = np.random.default_rng(0).standard_normal
    latents = [draw((64, 128)).astype(np.float32) for _ in range(2)]
    state = np.array([0.4, 0.0, 0.3, 3.1, 0.0, 0.1, 0.2])
    return PlanRequest(Scene(latents[0], state, latents[1]), SEARCH)


def test_a_replica_of_another_configuration_costs_one_plan(
    old: WorldModel, in_other_batches: WorldModel
) -> None:
    planner = planner_of(old, old, in_other_batches)

    async def run() -> Any:
        with pytest.raises(ModelChangedError, match=r"by 2 candidates, but .* by 4 candidates"):
            await planner.plan(request(), LIMIT_S, "", old.fingerprint)
        return await planner.plan(request(), LIMIT_S, "", old.fingerprint)

    served = asyncio.run(run())
    expected = InProcessPlanner(in_other_batches).plan(request())
    np.testing.assert_array_equal(served.plan.actions, expected.actions)
    np.testing.assert_array_equal(served.plan.energies, expected.energies)


def test_latents_of_the_old_weights_are_refused_by_the_new_ones(
    old: WorldModel, retrained: WorldModel
) -> None:
    planner = planner_of(old, retrained)

    async def run() -> None:
        with pytest.raises(ModelChangedError):
            await planner.plan(request(), LIMIT_S, "", old.fingerprint)
        with pytest.raises(WrongModelError, match=retrained.fingerprint):
            await planner.plan(request(), LIMIT_S, "", old.fingerprint)
        await planner.plan(request(), LIMIT_S, "", retrained.fingerprint)

    asyncio.run(run())


def test_a_frame_is_encoded_by_the_model_that_was_described(
    old: WorldModel, retrained: WorldModel
) -> None:
    planner = planner_of(old, retrained)
    frame = np.zeros((*SMALL.encoder.image_size, 3), np.uint8)

    async def run() -> Float32Array:
        with pytest.raises(ModelChangedError):
            await planner.encode(frame, LIMIT_S)
        assert (await planner.describe()).fingerprint == retrained.fingerprint
        return await planner.encode(frame, LIMIT_S)

    np.testing.assert_array_equal(asyncio.run(run()), retrained.encode(frame))


def test_who_sends_one_frame_too_many_is_told_to_come_back(old: WorldModel) -> None:
    planner = planner_of(old)
    frame = np.zeros((*SMALL.encoder.image_size, 3), np.uint8)
    may_go_on = asyncio.Event()

    async def slowly(image: NDArray[np.uint8]) -> Encoded:
        await may_go_on.wait()
        return Encoded(np.zeros((64, 128), np.float32), old.describe())

    planner._world_models.encode.remote = slowly  # type: ignore[method-assign]

    async def run() -> list[Float32Array]:
        sent = [
            asyncio.create_task(planner.encode(frame, LIMIT_S)) for _ in range(1 + MOST_WAITING)
        ]
        await asyncio.sleep(0)
        with pytest.raises(PlannerBusyError):
            await planner.encode(frame, LIMIT_S)
        may_go_on.set()
        return await asyncio.gather(*sent)

    assert len(asyncio.run(run())) == 1 + MOST_WAITING


def test_a_replica_that_dies_is_not_what_tells_the_model(old: WorldModel) -> None:
    died = ActorDiedError()
    description = asyncio.run(planner_of(died, died, old).describe())
    assert description.fingerprint == old.fingerprint
    with pytest.raises(PlannerUnavailableError, match="died 3 times while telling their model"):
        asyncio.run(planner_of(died).describe())
