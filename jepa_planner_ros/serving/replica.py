"""A replica: one resident copy of the world model, which does nothing but answer questions."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from ray import serve
from ray.exceptions import RayError

from jepa_planner_ros.search import REFERENCE_SEARCH
from jepa_planner_ros.serving.device import Device
from jepa_planner_ros.serving.settings import ServingSettings
from jepa_planner_ros.serving.stored import LatentCache, StoredScene
from jepa_planner_ros.types import (
    Float32Array,
    ModelDescription,
    PlannerError,
    PlannerUnavailableError,
    RolloutReply,
    RolloutRequest,
    Scene,
)
from jepa_planner_ros.world_model import load_world_model

# Looking after its health may cost a replica so little of its time.
_SHARE_OF_CHECKS = 0.02
# A model that has been at one micro-batch or frame for longer than this, s, will not come back.
_STUCK_S = 120.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Order:
    """Candidates to be rolled out from a scene.

    Attributes:
        scene: where they start.
        question: about them.
        time_left: the answer is of no use to anybody so many seconds later.
    """

    scene: StoredScene
    question: RolloutRequest
    time_left: float = math.inf


@dataclass(frozen=True, eq=False)
class Delivery:
    """A replica's answer to a parcel of orders.

    Attributes:
        answers: to each of them, in their order.
        replica: who answers.
        model: what it answers with.
        work: time that the replica's device was taken, s.
    """

    answers: tuple[RolloutReply | PlannerError, ...]
    replica: str
    model: ModelDescription
    work: float


@dataclass(frozen=True, eq=False)
class Encoded:
    """A frame's latents (tokens, dim), and the model that encoded it."""

    latent: Float32Array
    model: ModelDescription


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
        self._pace_s = settings.pace_s
        self._name = serve.get_replica_context().replica_id.unique_id
        assert settings.replicas is not None, "decided before replicas are made"
        # As many plans are under way as there are replicas.
        self._latents = LatentCache(settings.replicas)
        # Served plans must not wait for what the first rollout allocates or compiles.
        self._world_model.rehearse(REFERENCE_SEARCH.horizon)
        begun = time.monotonic()
        self._world_model.rehearse(1)
        self._model = self._world_model.describe()
        self._pause_between_checks = (time.monotonic() - begun) / _SHARE_OF_CHECKS
        self._device = Device()

    def describe(self) -> ModelDescription:
        """The model that this replica holds."""
        return self._model

    async def encode(self, image: NDArray[np.uint8]) -> Encoded:
        """Latents of an RGB frame, uint8 (height, width, 3)."""
        encoded = await self._device.run(lambda: self._world_model.encode(image))
        return Encoded(encoded.result, self._model)

    async def evaluate(self, parcel: Sequence[Order]) -> Delivery:
        """Roll out a parcel of a round's candidates, which may be several robots'.

        What is wrong with one order is the answer to it, and does not touch the others.
        """
        arrived = time.monotonic()
        scenes = [await self._scene(order) for order in parcel]
        done = await self._device.run(lambda: self._answers(parcel, scenes, arrived))
        return Delivery(done.result, self._name, self._model, done.seconds)

    async def check_health(self) -> None:
        """Called by Serve, which replaces a replica whose model cannot run."""
        if self._device.busy:
            # A check that waits for a long parcel would look like death.
            if self._device.still_s > _STUCK_S:
                raise RuntimeError(f"The model has not come back for {_STUCK_S:g} s.")
        elif self._device.still_s > self._pause_between_checks:
            await self._device.run(lambda: self._world_model.rehearse(1))

    async def _scene(self, order: Order) -> Scene | PlannerError:
        try:
            return await self._latents.scene(order.scene)
        except RayError as error:
            return PlannerUnavailableError(f"latents were lost on their way to a replica: {error}")

    def _answers(
        self, parcel: Sequence[Order], scenes: Sequence[Scene | PlannerError], arrived: float
    ) -> tuple[RolloutReply | PlannerError, ...]:
        return tuple(
            self._answer(scene, order.question, arrived + order.time_left)
            for scene, order in zip(scenes, parcel, strict=True)
        )

    def _answer(
        self, scene: Scene | PlannerError, question: RolloutRequest, until: float
    ) -> RolloutReply | PlannerError:
        if isinstance(scene, PlannerError):
            return scene
        try:
            parts = self._micro_batches(question, until)
            return RolloutReply.joined([self._rolled_out(scene, part) for part in parts])
        except PlannerError as error:
            return error
        except ValueError as error:
            return PlannerError(str(error))
        except Exception as error:  # PyTorch's and CUDA's have no common base.
            _log.exception("A shard was not evaluated")
            return PlannerError(f"{type(error).__name__} in a replica: {error}")

    def _micro_batches(self, question: RolloutRequest, until: float) -> Iterator[RolloutRequest]:
        """The question in parts, as the model takes it anyhow, for as long as they are wanted.

        Raises:
            PlannerUnavailableError: nobody waits for the rest.
        """
        size = self._world_model.micro_batch
        for start in range(0, len(question.candidates), size):
            if time.monotonic() > until or not self._device.wanted:
                raise PlannerUnavailableError("time was up before all candidates were rolled out.")
            yield question.part(slice(start, start + size))

    def _rolled_out(self, scene: Scene, part: RolloutRequest) -> RolloutReply:
        begun = time.perf_counter()
        reply = self._world_model.evaluate(scene, part)
        time.sleep(max(0.0, begun + self._pace_s - time.perf_counter()))
        self._device.moved()
        return reply
