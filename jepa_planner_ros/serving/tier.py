"""All replicas together: rounds in which each has one parcel of work.

A round holds the questions of all plans that wait when it begins. So a robot whose search asks for
few candidates at a time leaves the other replicas to the other robots, and no two parcels of a
round ever meet on one replica.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextvars import Context
from dataclasses import dataclass, replace

from ray.exceptions import RayActorError, RayTaskError
from ray.serve.handle import DeploymentHandle

from jepa_planner_ros.serving.failures import all_dead, planner_error
from jepa_planner_ros.serving.messages import ModelChangedError
from jepa_planner_ros.serving.replica import Delivery, Order
from jepa_planner_ros.serving.shards import Shard, parcels
from jepa_planner_ros.types import ModelDescription, PlannerError, RolloutReply

# A parcel is sent again this often when the replica it was on dies.
ATTEMPTS = 3


@dataclass(frozen=True, eq=False)
class RoundReport:
    """How a round went, for one of the plans in it.

    Attributes:
        reply: the answer to its question.
        replicas: who evaluated its shards.
        collisions: parcels of the round that had to queue behind another of it.
        retries: parcels of the round that were sent again because a replica died.
        overhead: what the round took beyond its slowest replica's work, s.
        waited: time until the round began, s.
    """

    reply: RolloutReply
    replicas: tuple[str, ...]
    collisions: int
    retries: int
    overhead: float
    waited: float


@dataclass(frozen=True, eq=False)
class _Asked:
    """A question that waits for its answer."""

    order: Order
    since: float
    answer: asyncio.Future[RoundReport]


@dataclass(frozen=True)
class _Sent:
    """What came of a parcel, and how often it had to be sent again."""

    delivery: Delivery | PlannerError
    retries: int


class Tier:
    """The replicas of a world model.

    Args:
        world_models: the deployment.
        model: what its replicas hold.
    """

    def __init__(self, world_models: DeploymentHandle, model: ModelDescription) -> None:
        self._world_models = world_models
        self.model = model
        self._waiting: list[_Asked] = []
        self._asked: list[_Asked] = []
        self._round: asyncio.Task[None] | None = None

    async def evaluate(self, order: Order) -> RoundReport:
        """Have a question answered in the next round.

        Raises:
            ModelChangedError: a replica holds another model.
            PlannerUnavailableError: replicas died faster than they could be replaced.
            PlannerError: a replica could not answer it.
        """
        future: asyncio.Future[RoundReport] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Asked(order, time.perf_counter(), future))
        if self._round is None:
            self._begin()
        try:
            return await future
        except asyncio.CancelledError:
            if self._round is not None and all(one.answer.done() for one in self._asked):
                # Nobody waits for it any more; a replica that has stopped may never answer.
                self._round.cancel()
            raise

    def _begin(self) -> None:
        self._asked, self._waiting = self._waiting, []
        # In a context of its own: Ray takes what is asked in a call's context for the call's own,
        # and answers nothing that is asked when the call has ended.
        loop = asyncio.get_running_loop()
        self._round = Context().run(loop.create_task, self._play(self._asked))
        # By then those who were answered together have asked their next questions.
        self._round.add_done_callback(self._end)

    def _end(self, ended: asyncio.Task[None]) -> None:
        if not ended.cancelled() and (error := ended.exception()) is not None:
            for one in self._asked:
                if not one.answer.done():
                    one.answer.set_exception(_in_a_sentence(error))
        self._round = None
        self._waiting = [one for one in self._waiting if not one.answer.done()]
        if self._waiting:
            self._begin()

    async def _play(self, asked: Sequence[_Asked]) -> None:
        model = self.model
        numbers = [len(one.order.question.candidates) for one in asked]
        shares = parcels(numbers, model.micro_batch, model.replicas)
        begun = time.perf_counter()
        sent = await asyncio.gather(*(self._send(_packed(share, asked)) for share in shares))
        took = time.perf_counter() - begun
        delivered = [one.delivery for one in sent if isinstance(one.delivery, Delivery)]
        collisions = len(delivered) - len({delivery.replica for delivery in delivered})
        retries = sum(one.retries for one in sent)
        overhead = took - max((delivery.work for delivery in delivered), default=0.0)
        for number, one in enumerate(asked):
            if one.answer.done():
                continue  # It was given up meanwhile.
            try:
                reply, replicas = _collected(number, shares, sent)
            except Exception as error:  # An answer may be too large, or not fit together.
                one.answer.set_exception(_in_a_sentence(error))
            else:
                waited = begun - one.since
                one.answer.set_result(
                    RoundReport(reply, replicas, collisions, retries, overhead, waited)
                )

    async def _send(self, parcel: Sequence[Order]) -> _Sent:
        for attempt in range(ATTEMPTS):
            try:
                delivery: Delivery = await self._world_models.evaluate.remote(parcel)
            except RayActorError:
                # The router forgets a dead replica at once, so this does not meet it again.
                continue
            except RayTaskError as error:
                return _Sent(planner_error(error), attempt)
            except Exception as error:  # Ray's and Serve's have no common base.
                return _Sent(PlannerError(f"Ray failed: {type(error).__name__}: {error}"), attempt)
            try:
                require_same(self.model, delivery.model)
            except ModelChangedError as error:
                return _Sent(error, attempt)
            return _Sent(delivery, attempt)
        return _Sent(all_dead(ATTEMPTS, "evaluating the same candidates"), ATTEMPTS)


def _packed(share: Sequence[Shard], asked: Sequence[_Asked]) -> list[Order]:
    """The orders that a parcel consists of."""
    return [_shard_of(asked[shard.question], shard.candidates) for shard in share]


def _shard_of(one: _Asked, candidates: slice) -> Order:
    return Order(
        one.order.scene,
        one.order.question.part(candidates),
        one.order.time_left - (time.perf_counter() - one.since),
    )


def _collected(
    question: int, shares: Sequence[Sequence[Shard]], sent: Sequence[_Sent]
) -> tuple[RolloutReply, tuple[str, ...]]:
    """The answer to a question, from the parcels that held shards of it, and who gave it.

    Raises:
        PlannerError: a shard of it was not evaluated.
    """
    replies, replicas = [], []
    for share, outcome in zip(shares, sent, strict=True):
        for place, shard in enumerate(share):
            if shard.question != question:
                continue
            if isinstance(outcome.delivery, PlannerError):
                raise outcome.delivery
            answer = outcome.delivery.answers[place]
            if isinstance(answer, PlannerError):
                raise answer
            replies.append(answer)
            replicas.append(outcome.delivery.replica)
    return RolloutReply.joined(replies), tuple(replicas)


def _in_a_sentence(error: BaseException) -> PlannerError:
    if isinstance(error, PlannerError):
        return error
    return PlannerError(f"the answers of the replicas are lost: {type(error).__name__}: {error}")


def require_same(described: ModelDescription, answering: ModelDescription) -> None:
    """Raise `ModelChangedError` unless both give the same energies.

    Whether compiled code has run is left out: where compiling has failed for one replica only, its
    plans are better than none.
    """
    if replace(answering, compiled=described.compiled, replicas=described.replicas) != described:
        raise ModelChangedError(
            f"a replica answers with {_in_words(answering)}, but the planner was told of "
            f"{_in_words(described)}: replicas are being replaced, or the checkpoint has changed "
            "on disk since some of them were started."
        )


def _in_words(model: ModelDescription) -> str:
    return (
        f"model {model.fingerprint} in {model.precision} on {model.device} by "
        f"{model.micro_batch} candidates"
    )
