"""Rounds of several plans at once: together on the replicas, and none of them the others' concern.

The replicas are real world models, called without Ray, so that one can be slow or silent at will.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from random_weights import random_checkpoint
from ray.exceptions import ActorDiedError

from jepa_planner_ros.serving.replica import Delivery, Order
from jepa_planner_ros.serving.tier import ATTEMPTS, RoundReport, Tier
from jepa_planner_ros.types import (
    PlannerError,
    PlannerUnavailableError,
    RolloutReply,
    RolloutRequest,
    Scene,
)
from jepa_planner_ros.world_model import SMALL, WorldModel

MICRO_BATCH = 4


@pytest.fixture(scope="module")
def world_model() -> WorldModel:
    return WorldModel(random_checkpoint(SMALL), micro_batch=MICRO_BATCH)


@dataclass
class Remote:
    """A method of a deployment's handle."""

    remote: Callable[[Sequence[Order]], Awaitable[Delivery]]


class Replicas:
    """Two replicas that are asked in turn; what `trouble` holds happens to the next parcel."""

    def __init__(self, world_model: WorldModel) -> None:
        self._world_model = world_model
        self.parcels: list[list[int]] = []
        self.time_left: list[float] = []
        self.trouble: list[Exception | asyncio.Event] = []
        self.evaluate = Remote(self._evaluate)

    async def _evaluate(self, parcel: Sequence[Order]) -> Delivery:
        name = f"replica-{len(self.parcels) % 2}"
        self.parcels.append([len(order.question.candidates) for order in parcel])
        self.time_left += [order.time_left for order in parcel]
        if self.trouble:
            trouble = self.trouble.pop(0)
            if isinstance(trouble, Exception):
                raise trouble
            await trouble.wait()
        await asyncio.sleep(0.001)
        answers = tuple(self._answer(order) for order in parcel)
        return Delivery(answers, name, self._world_model.describe(), work=0.0)

    def _answer(self, order: Order) -> RolloutReply | PlannerError:
        try:
            return self._world_model.evaluate(order.scene, order.question)  # type: ignore[arg-type]
        except Exception as error:
            return PlannerError(str(error))


def tier(replicas: Replicas) -> Tier:
    model = replace(replicas._world_model.describe(), replicas=2)
    return Tier(replicas, model)  # type: ignore[arg-type]


def order(robot: int, candidates: int) -> Order:
    """Candidates of a robot, whose scene is no other's. References to latents need a Ray."""
    draw = np.random.default_rng(robot).standard_normal
    latents = [draw((64, 128)).astype(np.float32) for _ in range(2)]
    scene: Any = Scene(latents[0], np.array([0.4, 0.0, 0.3, 3.1, 0.0, 0.1, 0.2]), latents[1])
    return Order(scene, RolloutRequest(0.02 * draw((candidates, 1, 7))))


def test_plans_that_ask_together_are_answered_together(world_model: WorldModel) -> None:
    replicas = Replicas(world_model)
    orders = [order(0, 3), order(1, 9), order(2, 4)]

    async def run() -> list[RoundReport]:
        shared = tier(replicas)

        async def plan(one: Order) -> RoundReport:
            await shared.evaluate(one)
            return await shared.evaluate(one)

        return await asyncio.gather(*(plan(one) for one in orders))

    reports = asyncio.run(run())
    for one, report in zip(orders, reports, strict=True):
        alone = replicas._answer(one)
        np.testing.assert_array_equal(report.reply.energies, alone.energies)
        assert report.collisions == 0
    # Whoever comes first begins; from then on all who wait take part in the next round.
    assert replicas.parcels == [[3], [8], [1, 4, 3], [8], [1, 4]]
    assert [len(report.replicas) for report in reports] == [1, 2, 1]


def test_what_is_wrong_with_one_plan_does_not_touch_the_others(world_model: WorldModel) -> None:
    replicas = Replicas(world_model)
    bad = order(1, 2)
    foreign = np.zeros((3, 3), np.float32)
    bad = replace(bad, scene=replace(bad.scene, latent=foreign, goal_latent=foreign))

    async def run() -> list[RoundReport | BaseException]:
        shared = tier(replicas)
        orders = (order(0, 1), order(2, 2), bad, order(3, 2))
        return await asyncio.gather(
            *(shared.evaluate(one) for one in orders), return_exceptions=True
        )

    first, second, failed, third = asyncio.run(run())
    assert isinstance(failed, PlannerError)
    assert all(isinstance(one, RoundReport) for one in (first, second, third))


def test_answers_that_do_not_fit_together_are_one_plan_s_concern(world_model: WorldModel) -> None:
    class Inconsistent(Replicas):
        """Never returns the same number of components."""

        widths = itertools.count(1)

        def _answer(self, order: Order) -> RolloutReply | PlannerError:
            reply = super()._answer(order)
            if isinstance(reply, RolloutReply) and order.question.components is not None:
                shape = *reply.energies.shape, next(self.widths)
                return replace(reply, components=np.zeros(shape, np.float32))
            return reply

    replicas = Inconsistent(world_model)
    odd = order(1, 8)
    odd = replace(odd, question=replace(odd.question, components=np.arange(3)))

    async def run() -> list[RoundReport | BaseException]:
        shared = tier(replicas)
        return await asyncio.gather(
            *(shared.evaluate(one) for one in (order(0, 1), odd, order(2, 1))),
            return_exceptions=True,
        )

    first, failed, third = asyncio.run(run())
    assert isinstance(failed, PlannerError)
    assert "ValueError" in str(failed)
    assert isinstance(first, RoundReport)
    assert isinstance(third, RoundReport)


def test_an_order_loses_the_time_that_it_waits_for_its_round(world_model: WorldModel) -> None:
    replicas = Replicas(world_model)
    may_go_on = asyncio.Event()
    replicas.trouble = [may_go_on]

    async def run() -> None:
        shared = tier(replicas)
        first = asyncio.create_task(shared.evaluate(order(0, 1)))
        await asyncio.sleep(0)
        second = asyncio.create_task(shared.evaluate(replace(order(1, 1), time_left=60.0)))
        await asyncio.sleep(0.2)
        may_go_on.set()
        await asyncio.gather(first, second)

    asyncio.run(run())
    assert 50.0 < replicas.time_left[1] <= 59.8


def test_a_parcel_of_a_dead_replica_goes_to_another(world_model: WorldModel) -> None:
    replicas = Replicas(world_model)
    replicas.trouble = [ActorDiedError()]
    report = asyncio.run(tier(replicas).evaluate(order(0, 8)))
    assert report.retries == 1
    np.testing.assert_array_equal(report.reply.energies, replicas._answer(order(0, 8)).energies)

    replicas.trouble = [ActorDiedError()] * ATTEMPTS
    with pytest.raises(PlannerUnavailableError, match="died 3 times"):
        asyncio.run(tier(replicas).evaluate(order(0, 1)))


def test_a_silent_replica_keeps_nobody_waiting_but_those_it_works_for(
    world_model: WorldModel,
) -> None:
    async def run() -> RoundReport:
        replicas = Replicas(world_model)
        replicas.trouble = [asyncio.Event()]  # never set
        shared = tier(replicas)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(shared.evaluate(order(0, 1)), 0.1)
        return await asyncio.wait_for(shared.evaluate(order(1, 1)), 10.0)

    assert asyncio.run(run()).waited < 5.0


def test_a_failure_of_ray_is_an_answer(world_model: WorldModel) -> None:
    replicas = Replicas(world_model)
    replicas.trouble = [OSError("no more sockets")]
    with pytest.raises(PlannerError, match="Ray failed: OSError: no more sockets"):
        asyncio.run(tier(replicas).evaluate(order(0, 1)))
