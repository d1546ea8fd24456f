"""The two deployments of the planner: replicas of the world model, and the search that asks them.

``Planner`` drives the searches. It shares the candidates of each round out among the replicas of
``WorldModel``, which do nothing but roll candidates out.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from ray import serve
from ray.exceptions import RayActorError, RayTaskError
from ray.serve import Application
from ray.serve.handle import DeploymentHandle

from jepa_planner_ros.planning import planning
from jepa_planner_ros.serving.failures import all_dead, planner_error
from jepa_planner_ros.serving.messages import (
    ModelChangedError,
    ServedPlan,
    ServingReport,
    require_model,
)
from jepa_planner_ros.serving.metrics import PlannerMetrics
from jepa_planner_ros.serving.replica import Order, WorldModelReplica
from jepa_planner_ros.serving.settings import ServingSettings
from jepa_planner_ros.serving.stored import LatentStore
from jepa_planner_ros.serving.tier import ATTEMPTS, RoundReport, Tier, require_same
from jepa_planner_ros.serving.turns import Turns
from jepa_planner_ros.types import (
    Float32Array,
    ModelDescription,
    Plan,
    PlannerError,
    PlannerUnavailableError,
    PlanRequest,
)
from jepa_planner_ros.world_model.compilation import COMPILE_SWITCHES

T = TypeVar("T")

# More than one, or a replica that has just replied still looks full to the router for some
# milliseconds and the next parcel goes to a busy one instead.
_MAX_ONGOING_PARCELS = 8
HEALTH_CHECK_PERIOD_S = 2.0
# Serve gives a replica up after three checks in a row without an answer.
_HEALTH_CHECK_TIMEOUT_S = 10.0
# Frames come without the name of a robot, and are encoded as they come.
_ANYBODY = ""
# With loops of their own for our code and for the router, each call would change threads thrice.
ONE_LOOP = {
    "RAY_SERVE_RUN_USER_CODE_IN_SEPARATE_THREAD": "0",
    "RAY_SERVE_RUN_ROUTER_IN_SEPARATE_LOOP": "0",
}
PLANNER_OPTIONS = {"num_cpus": 0, "runtime_env": {"env_vars": ONE_LOOP}}
"""What the process that searches asks of its node."""


class ClusterPlanner:
    """The search, evaluated by replicas of the world model.

    As many plans are made at once as there are replicas, so that none is idle while robots wait;
    the rounds of those plans go to the replicas together.
    """

    def __init__(self, world_models: DeploymentHandle, replicas: int) -> None:
        self._world_models = world_models
        self._replicas = replicas
        self._turns = Turns(at_once=replicas)
        self._turns_to_encode = Turns(at_once=replicas)
        self._store = LatentStore(replicas)
        self._metrics = PlannerMetrics()
        self._asking = 0
        self._tier: Tier | None = None

    async def describe(self) -> ModelDescription:
        """The model that the replicas hold.

        Raises:
            PlannerUnavailableError: replicas died faster than they could be replaced.
        """
        return (await self._known_tier()).model

    async def plan(
        self,
        request: PlanRequest,
        timeout_s: float,
        robot: str,
        encoded_with: str,
    ) -> ServedPlan:
        """Search for the action sequence.

        Args:
            request: what to plan.
            timeout_s: the plan is given up after this time, s.
            robot: whose turn it is.
            encoded_with: fingerprint of the model that encoded the latents.

        Raises:
            WrongModelError: the replicas hold another model than encoded the latents.
            PlannerUnavailableError: time is up, too many plans wait, or replicas died faster than
                they could be replaced.
            PlannerError: the request does not fit the model, or a replica failed.
        """
        begun = time.perf_counter()
        self._asking += 1
        self._metrics.asking(self._asking)
        try:
            served = await _within(
                timeout_s, self._plan(request, begun + timeout_s, robot, encoded_with)
            )
        except PlannerError as error:
            self._metrics.refused(robot, error)
            raise
        finally:
            self._asking -= 1
            self._metrics.asking(self._asking)
        self._metrics.served(robot, served.report, time.perf_counter() - begun)
        return served

    async def encode(self, image: NDArray[np.uint8], timeout_s: float) -> Float32Array:
        """Latents (tokens, dim) of an RGB frame, uint8 (height, width, 3).

        Raises:
            PlannerUnavailableError: time is up, or too many frames wait.
            PlannerError: this is no such frame, or a replica failed.
        """
        return await _within(timeout_s, self._encode(image))

    async def _encode(self, image: NDArray[np.uint8]) -> Float32Array:
        call = self._world_models.encode
        async with self._turns_to_encode.turn(_ANYBODY):
            tier = await self._known_tier()
            encoded = await _of_any(lambda: call.remote(image), "encoding the same frame")
        with self._forgotten_on_change(tier):
            require_same(tier.model, encoded.model)
        latent: Float32Array = encoded.latent
        return latent

    async def _known_tier(self) -> Tier:
        """All replicas together, with what one of them says that they hold."""
        if self._tier is None:
            call = self._world_models.describe
            model = await _of_any(call.remote, "telling their model")
            if self._tier is None:  # Nobody else has asked meanwhile.
                self._tier = Tier(self._world_models, replace(model, replicas=self._replicas))
        return self._tier

    @contextmanager
    def _forgotten_on_change(self, tier: Tier) -> Iterator[None]:
        """Ask the replicas anew what they hold, next time, if they have changed."""
        try:
            yield
        except ModelChangedError:
            if self._tier is tier:
                self._tier = None
            raise

    async def _plan(
        self, request: PlanRequest, until: float, robot: str, encoded_with: str
    ) -> ServedPlan:
        async with self._turns.turn(robot) as waited:
            tier = await self._known_tier()
            require_model(tier.model.fingerprint, encoded_with)
            with self._forgotten_on_change(tier):
                plan, rounds = await self._search(request, until, tier)
        return ServedPlan(plan, _report(rounds, waited))

    async def _search(
        self, request: PlanRequest, until: float, tier: Tier
    ) -> tuple[Plan, list[RoundReport]]:
        search = planning(request, tier.model)
        question = next(search)
        rounds: list[RoundReport] = []
        while True:
            scene = self._store.scene(request.scene, question.goal)
            time_left = until - time.perf_counter()
            order = Order(scene, replace(question, goal=None), time_left)
            rounds.append(await tier.evaluate(order))
            try:
                question = search.send(rounds[-1].reply)
            except StopIteration as finished:
                return finished.value, rounds


def _report(rounds: Sequence[RoundReport], waited: float) -> ServingReport:
    return ServingReport(
        shards=Counter(name for one in rounds for name in one.replicas),
        collisions=sum(one.collisions for one in rounds),
        retries=sum(one.retries for one in rounds),
        overheads=tuple(one.overhead for one in rounds),
        waited=waited + sum(one.waited for one in rounds),
    )


async def _of_any(call: Callable[[], Awaitable[Any]], work: str) -> Any:
    """What a replica answers, whichever of them lives.

    Raises:
        PlannerUnavailableError: replicas died faster than they could be replaced.
    """
    for _ in range(ATTEMPTS):
        try:
            return await call()
        except RayActorError:
            continue
    raise all_dead(ATTEMPTS, work)


async def _within(timeout_s: float, work: Awaitable[T]) -> T:
    try:
        return await asyncio.wait_for(work, timeout_s)
    except asyncio.TimeoutError:
        raise PlannerUnavailableError(
            f"no answer within serving.plan_timeout {timeout_s:g} s: the search is too large for "
            "this machine, or its replicas are being restarted."
        ) from None
    except RayTaskError as error:
        raise planner_error(error) from None
    except ValueError as error:
        raise PlannerError(str(error)) from None


def world_models(settings: ServingSettings) -> Application:
    """The replicas of the world model, for settings whose device and replicas are decided."""
    assert settings.replicas is not None, "call ServingSettings.decided() first"
    deployment = serve.deployment(
        name="WorldModel",
        num_replicas=settings.replicas,
        max_ongoing_requests=_MAX_ONGOING_PARCELS,
        health_check_period_s=HEALTH_CHECK_PERIOD_S,
        health_check_timeout_s=_HEALTH_CHECK_TIMEOUT_S,
        max_constructor_retry_count=1,
        request_router_config={
            "request_router_class": "ray.serve.experimental.round_robin_router:RoundRobinRouter"
        },
        ray_actor_options={
            # Scheduled however few cores there are; replicas on the CPU use one each.
            "num_cpus": 0,
            "num_gpus": 1 if settings.device == "cuda" else 0,
            # Inherited from a shell, it would turn torch.compile into nothing without a word.
            "runtime_env": {"env_vars": dict.fromkeys(COMPILE_SWITCHES, "0") | ONE_LOOP},
        },
    )(WorldModelReplica)
    return deployment.bind(settings)


def planner_application(settings: ServingSettings) -> Application:
    """The planner for handles within the cluster."""
    planner = serve.deployment(
        name="Planner",
        health_check_period_s=HEALTH_CHECK_PERIOD_S,
        ray_actor_options=PLANNER_OPTIONS,
    )(ClusterPlanner)
    return planner.bind(world_models(settings), settings.replicas)
