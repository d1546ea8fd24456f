"""A replica answers each order by itself, and none longer than somebody waits for the answer.

It is the real one, on its own: only the name that Serve gives a replica is made up.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from random_weights import random_checkpoint
from ray import serve
from ray.exceptions import ObjectLostError

from jepa_planner_ros.serving.replica import Order, WorldModelReplica
from jepa_planner_ros.serving.settings import ServingSettings
from jepa_planner_ros.serving.stored import StoredLatent, StoredScene
from jepa_planner_ros.types import (
    Float32Array,
    PlannerUnavailableError,
    RolloutReply,
    RolloutRequest,
    Scene,
)
from jepa_planner_ros.world_model import SMALL, load_world_model, write_checkpoint

PACE_S = 0.05


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServingSettings]:
    path = tmp_path_factory.mktemp("weights") / "random.safetensors"
    write_checkpoint(random_checkpoint(SMALL), path)
    threads = torch.get_num_threads()
    yield ServingSettings(str(path), "cpu", replicas=1, micro_batch=2, pace_s=PACE_S)
    torch.set_num_threads(threads)


@pytest.fixture
def replica(settings: ServingSettings, monkeypatch: pytest.MonkeyPatch) -> WorldModelReplica:
    context = SimpleNamespace(replica_id=SimpleNamespace(unique_id="replica-1"))
    monkeypatch.setattr(serve, "get_replica_context", lambda: context)
    return WorldModelReplica(settings)


def scene_of(robot: int) -> Scene:
    draw = np.random.default_rng(robot).standard_normal
    latents = [draw((64, 128)).astype(np.float32) for _ in range(2)]
    return Scene(latents[0], np.array([0.4, 0.0, 0.3, 3.1, 0.0, 0.1, 0.2]), latents[1])


@dataclass
class Reference:
    """What Ray holds, or has lost."""

    content: Float32Array | Exception

    def __await__(self) -> Generator[None, None, Float32Array]:
        yield from ()
        if isinstance(self.content, Exception):
            raise self.content
        return self.content


def order(robot: int, candidates: int, time_left: float = 60.0, lost: bool = False) -> Order:
    scene = scene_of(robot)
    frame: Any = Reference(ObjectLostError("1f", None, "") if lost else scene.latent)
    goal: Any = Reference(scene.goal_latent)
    by_reference = StoredScene(
        StoredLatent(b"frame %d" % robot, frame),
        scene.state,
        StoredLatent(b"goal %d" % robot, goal),
    )
    actions = 0.02 * np.random.default_rng(robot).standard_normal((candidates, 2, 7))
    return Order(by_reference, RolloutRequest(actions), time_left)


def test_an_order_rolled_out_by_micro_batches_is_the_same_to_the_last_bit(
    replica: WorldModelReplica, settings: ServingSettings
) -> None:
    more = {"components": np.arange(5), "gradient_weights": np.array([0.5, 0.5])}
    orders = [
        replace(one, question=replace(one.question, **more)) for one in (order(1, 5), order(2, 2))
    ]
    delivery = asyncio.run(replica.evaluate(orders))
    whole = load_world_model(settings.checkpoint, "cpu", micro_batch=2)
    for number, (one, answer) in enumerate(zip(orders, delivery.answers, strict=True), 1):
        assert isinstance(answer, RolloutReply)
        expected = whole.evaluate(scene_of(number), one.question)
        np.testing.assert_array_equal(answer.energies, expected.energies)
        np.testing.assert_array_equal(answer.components, expected.components)  # type: ignore[arg-type]
        np.testing.assert_array_equal(answer.gradients, expected.gradients)  # type: ignore[arg-type]
    assert delivery.work >= 4 * PACE_S


def test_lost_latents_and_expired_orders_do_not_touch_the_others(
    replica: WorldModelReplica,
) -> None:
    parcel = [order(1, 2, lost=True), order(2, 100, time_left=2.5 * PACE_S), order(3, 2)]
    begun = time.monotonic()
    delivery = asyncio.run(replica.evaluate(parcel))
    assert time.monotonic() - begun < 25 * PACE_S
    lost, expired, fine = delivery.answers
    assert isinstance(lost, PlannerUnavailableError)
    assert "latents were lost" in str(lost)
    assert isinstance(expired, PlannerUnavailableError)
    assert "time was up" in str(expired)
    assert isinstance(fine, RolloutReply)


def test_a_call_that_is_given_up_ends_with_its_micro_batch(replica: WorldModelReplica) -> None:
    async def run() -> float:
        given_up = asyncio.create_task(replica.evaluate([order(1, 200)]))
        await asyncio.sleep(3 * PACE_S)
        given_up.cancel()
        begun = time.monotonic()
        delivery = await replica.evaluate([order(2, 2)])
        assert isinstance(delivery.answers[0], RolloutReply)
        with pytest.raises(asyncio.CancelledError):
            await given_up
        return time.monotonic() - begun

    assert asyncio.run(run()) < 25 * PACE_S


def test_a_long_parcel_that_gets_on_is_not_taken_for_death(
    replica: WorldModelReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jepa_planner_ros.serving.replica._STUCK_S", 8 * PACE_S)

    async def run() -> None:
        parcel = asyncio.create_task(replica.evaluate([order(1, 32)]))
        await asyncio.sleep(12 * PACE_S)
        assert not parcel.done()
        await replica.check_health()
        monkeypatch.setattr("jepa_planner_ros.serving.replica._STUCK_S", 0.0)
        with pytest.raises(RuntimeError, match="not come back"):
            await replica.check_health()
        await parcel

    asyncio.run(run())
