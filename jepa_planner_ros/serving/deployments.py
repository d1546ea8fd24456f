"""The two deployments of the planner: replicas of the world model, and the search that asks them.

``Planner`` drives the search of one plan at a time. It shares the candidates of each round out
among the replicas of ``WorldModel``, which do nothing but roll candidates out.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import ray
import torch
from numpy.typing import NDArray
from ray import serve
from ray.exceptions import RayActorError, RayTaskError
from ray.serve import Application
from ray.serve.handle import DeploymentHandle

from jepa_planner_ros.planning import planning
from jepa_planner_ros.search import REFERENCE_SEARCH
from jepa_planner_ros.serving.messages import ServedPlan, ServingReport
from jepa_planner_ros.serving.settings import ServingSettings
from jepa_planner_ros.serving.shards import shards
from jepa_planner_ros.serving.turns import Turns
from jepa_planner_ros.types import (
    Float32Array,
    ModelDescription,
    PlannerError,
    PlannerUnavailableError,
    PlanRequest,
    RolloutReply,
    RolloutRequest,
    Scene,
)
from jepa_planner_ros.world_model import load_world_model
from jepa_planner_ros.world_model.compilation import COMPILE_SWITCHES

T = TypeVar("T")

# A shard is sent again this often when the replica it was on dies.
_ATTEMPTS = 3
# More than one, or a replica that has just replied still looks full to the router for some
# milliseconds and the next shard goes to a busy one instead.
_MAX_ONGOING_SHARDS = 8
HEALTH_CHECK_PERIOD_S = 2.0


@dataclass(frozen=True, eq=False)
class ShardReply:
    """A replica's answer.

    Attributes:
        reply: what was asked about the candidates of the shard.
        replica: who answers.
        fingerprint: the weights it answers with.
        work: time that the model took, s.
    """

    reply: RolloutReply
    replica: str
    fingerprint: str
    work: float


class WorldModelReplica:
    """One resident copy of the world model.

    Raises:
        CheckpointError: the checkpoint is missing or holds no world model.
        PlannerError: the world model predicts values that are not finite.
    """

    def __init__(self, settings: ServingSettings) -> None:
        if settings.device == "cpu":
            # Replicas share the machine's cores among themselves, one each.
            torch.set_num_threads(1)
        self._world_model = load_world_model(
            settings.checkpoint,
            settings.device,
            settings.precision,
            settings.micro_batch,
        )
        self._name = serve.get_replica_context().replica_id.unique_id
        self._device_lock = asyncio.Lock()
        self._scenes: dict[ray.ObjectRef[Scene], Scene] = {}
        # Served plans must not wait for what the first rollout allocates or compiles.
        self._world_model.rehearse(REFERENCE_SEARCH.horizon)

    def describe(self) -> ModelDescription:
        """The model that this replica holds."""
        return self._world_model.describe()

    async def encode(self, image: NDArray[np.uint8]) -> Float32Array:
        """Latents (tokens, dim) of an RGB frame, uint8 (height, width, 3)."""
        async with self._device_lock:
            return await asyncio.to_thread(self._world_model.encode, image)

    async def evaluate(
        self, scene: list[ray.ObjectRef[Scene]], shard: RolloutRequest
    ) -> ShardReply:
        """Roll out a shard of a round's candidates.

        Args:
            scene: the plan's scene by reference, in a list so that Ray hands over the reference
                itself. It is fetched once per plan.
            shard: whole micro-batches, the last one of a round excepted.
        """
        (reference,) = scene
        async with self._device_lock:
            if reference not in self._scenes:
                self._scenes = {reference: await reference}
            begun = time.perf_counter()
            reply = await asyncio.to_thread(
                self._world_model.evaluate, self._scenes[reference], shard
            )
            work = time.perf_counter() - begun
        return ShardReply(reply, self._name, self._world_model.fingerprint, work)

    async def check_health(self) -> None:
        """Called by Serve, which replaces a replica whose model cannot run."""
        if self._device_lock.locked():
            return  # It is running, and a check that waits for a long shard would look like death.
        async with self._device_lock:
            await asyncio.to_thread(self._world_model.rehearse, 1)


class ClusterPlanner:
    """The search, evaluated by replicas of the world model."""

    def __init__(self, world_models: DeploymentHandle, replicas: int) -> None:
        self._world_models = world_models
        self._replicas = replicas
        self._description: ModelDescription | None = None
        # Shards of two plans at once would take turns on the round-robin router, and those of one
        # round would no longer meet different replicas.
        self._turns = Turns()

    async def describe(self) -> ModelDescription:
        """The model that the replicas hold."""
        if self._description is None:
            description: ModelDescription = await self._world_models.describe.remote()
            self._description = replace(description, replicas=self._replicas)
        return self._description

    async def plan(self, request: PlanRequest, timeout_s: float, robot: str = "") -> ServedPlan:
        """Search for the action sequence.

        Raises:
            PlannerUnavailableError: time is up, too many plans wait, or replicas died faster than
                they could be replaced.
            PlannerError: the request does not fit the model, or a replica failed.
        """
        return await _within(timeout_s, self._plan(request, robot))

    async def encode(self, image: NDArray[np.uint8], timeout_s: float) -> Float32Array:
        """Latents (tokens, dim) of an RGB frame, uint8 (height, width, 3).

        Raises:
            PlannerUnavailableError: time is up.
            PlannerError: this is no such frame, or a replica failed.
        """
        return await _within(timeout_s, self._encode(image))

    async def _encode(self, image: NDArray[np.uint8]) -> Float32Array:
        for _ in range(_ATTEMPTS):
            try:
                latent: Float32Array = await self._world_models.encode.remote(image)
            except RayActorError:
                continue
            return latent
        raise _all_dead("encoding the same frame")

    async def _plan(self, request: PlanRequest, robot: str) -> ServedPlan:
        description = await self.describe()
        course = Course(self._world_models, description, [ray.put(request.scene)])
        async with self._turns.turn(robot) as waited:
            search = planning(request, description)
            question = next(search)
            while True:
                reply = await course.evaluate(question)
                try:
                    question = search.send(reply)
                except StopIteration as finished:
                    report = replace(course.report(), waited=waited)
                    return ServedPlan(finished.value, report)


class Course:
    """The rollouts of one plan, shared out among the replicas, and the tally of who did what."""

    def __init__(
        self,
        world_models: DeploymentHandle,
        description: ModelDescription,
        scene: list[ray.ObjectRef[Scene]],
    ) -> None:
        self._world_models = world_models
        self._description = description
        self._scene = scene
        self._shards: Counter[str] = Counter()
        self._collisions = 0
        self._retries = 0
        self._overheads: list[float] = []

    async def evaluate(self, question: RolloutRequest) -> RolloutReply:
        """The replicas' answer to a question about one round's candidates."""
        model = self._description
        shares = shards(len(question.candidates), model.micro_batch, model.replicas)
        begun = time.perf_counter()
        replies = await asyncio.gather(*(self._ask(question.part(share)) for share in shares))
        took = time.perf_counter() - begun
        self._overheads.append(took - max(reply.work for reply in replies))
        names = [reply.replica for reply in replies]
        self._shards.update(names)
        self._collisions += len(names) - len(set(names))
        return RolloutReply.joined([reply.reply for reply in replies])

    def report(self) -> ServingReport:
        """The tally so far."""
        return ServingReport(
            dict(self._shards), self._collisions, self._retries, tuple(self._overheads)
        )

    async def _ask(self, shard: RolloutRequest) -> ShardReply:
        for _ in range(_ATTEMPTS):
            try:
                reply: ShardReply = await self._world_models.evaluate.remote(self._scene, shard)
            except RayActorError:
                # The router forgets a dead replica at once, so this does not meet it again.
                self._retries += 1
                continue
            if reply.fingerprint != self._description.fingerprint:
                raise PlannerError(
                    f"replica {reply.replica} was restarted with other weights "
                    f"({reply.fingerprint}) than the planner's ({self._description.fingerprint}): "
                    "the checkpoint has changed on disk; start the planner again."
                )
            return reply
        raise _all_dead("evaluating the same candidates")


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


def _all_dead(work: str) -> PlannerUnavailableError:
    return PlannerUnavailableError(
        f"world model replicas died {_ATTEMPTS} times while {work}; the machine may be out of "
        "memory."
    )


def planner_error(error: RayTaskError) -> PlannerError:
    """What went wrong in a replica, without Ray's traceback."""
    cause = error.cause
    if isinstance(cause, PlannerError):
        return cause
    if isinstance(cause, ValueError):
        return PlannerError(str(cause))
    return PlannerError(f"{type(cause).__name__} in a replica: {cause}")


def world_models(settings: ServingSettings) -> Application:
    """The replicas of the world model, for settings whose device and replicas are decided."""
    assert settings.replicas is not None, "call ServingSettings.decided() first"
    deployment = serve.deployment(
        name="WorldModel",
        num_replicas=settings.replicas,
        max_ongoing_requests=_MAX_ONGOING_SHARDS,
        health_check_period_s=HEALTH_CHECK_PERIOD_S,
        max_constructor_retry_count=1,
        request_router_config={
            "request_router_class": "ray.serve.experimental.round_robin_router:RoundRobinRouter"
        },
        ray_actor_options={
            # Scheduled however few cores there are; replicas on the CPU use one each.
            "num_cpus": 0,
            "num_gpus": 1 if settings.device == "cuda" else 0,
            # Inherited from a shell, it would turn torch.compile into nothing without a word.
            "runtime_env": {"env_vars": dict.fromkeys(COMPILE_SWITCHES, "0")},
        },
    )(WorldModelReplica)
    return deployment.bind(settings)


def planner_application(settings: ServingSettings) -> Application:
    """The planner for handles within the cluster."""
    planner = serve.deployment(
        name="Planner",
        health_check_period_s=HEALTH_CHECK_PERIOD_S,
        ray_actor_options={"num_cpus": 0},
    )(ClusterPlanner)
    return planner.bind(world_models(settings), settings.replicas)
