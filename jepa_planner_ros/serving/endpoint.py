"""The server's side of the wire: from a checked message to a plan, and every failure to a refusal.

Knows neither Ray nor where the plans are made, so that it can stand behind any gRPC server.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from jepa_planner_ros.serving.limits import require_affordable
from jepa_planner_ros.serving.messages import PlannerBusyError, ServedPlan, WrongModelError
from jepa_planner_ros.serving.token import knows
from jepa_planner_ros.serving.wire import LONGEST_NAME, MAX_TIME_LIMIT_S, WireError
from jepa_planner_ros.serving.wire import jepa_planner_pb2 as pb
from jepa_planner_ros.serving.wire.latents import (
    ReceivedLatents,
    UnknownLatentError,
    whole_latent,
)
from jepa_planner_ros.serving.wire.records import from_record, to_record
from jepa_planner_ros.serving.wire.tensors import unpack
from jepa_planner_ros.types import (
    Float32Array,
    ModelDescription,
    PlannerError,
    PlannerUnavailableError,
    PlanRequest,
)

IDLE_S = 300.0
"""Until a session without a request is ended; its robot opens another when it needs one."""

# Robots wait a second longer for the handshake, s.
_HANDSHAKE_S = 4.0

_LOOPBACK = re.compile(r"ipv4:127\.|ipv6:(\[|%5B)::1(\]|%5D):|unix:")

# Where a proxy says whom it speaks for.
_FORWARDED = "x-forwarded-for"

_log = logging.getLogger(__name__)


class PlanningService(Protocol):
    """What makes the plans."""

    async def describe(self) -> ModelDescription:
        """The model that plans."""

    async def plan(
        self, request: PlanRequest, timeout_s: float, robot: str, encoded_with: str
    ) -> ServedPlan:
        """Search for the action sequence, from latents of the model of this fingerprint.

        Raises `PlannerError`.
        """

    async def encode(self, image: NDArray[np.uint8], timeout_s: float) -> Float32Array:
        """Latents (tokens, dim) of a frame. Raises `PlannerError`."""


class CallContext(Protocol):
    """What a gRPC server knows of a call; both gRPC's own context and Serve's have it."""

    def peer(self) -> str:
        """The address that the call comes from."""

    def invocation_metadata(self) -> Sequence[tuple[str, Any]]:
        """What the caller says of itself."""


class _UnauthenticatedError(PlannerError):
    """The caller may not use the planner."""


class PlannerEndpoint:
    """Answers the calls of the service ``JepaPlanner``. No call ever raises.

    Args:
        service: makes the plans.
        token: what callers must know. Without one, only callers on this computer are served.
    """

    def __init__(self, service: PlanningService, token: str | None) -> None:
        self._service = service
        self._token = token
        self._latents = ReceivedLatents()

    async def get_model(self, context: CallContext) -> pb.GetModelReply:
        """The handshake."""
        try:
            self._admit(context)
            description = await self._described()
        except Exception as error:
            return pb.GetModelReply(refusal=_refusal(error))
        return pb.GetModelReply(model=to_record(description, _no_latents))

    async def encode(self, request: pb.EncodeRequest, context: CallContext) -> pb.EncodeReply:
        """Latents of a frame; a request to plan from them need only name them."""
        arrived = time.perf_counter()
        try:
            self._admit(context)
            image = unpack(request.image, pb.UINT8)
            begun = time.perf_counter()
            latent = await self._service.encode(image, _time_limit(request.time_limit_s))
            work = time.perf_counter() - begun
            reply = pb.EncodeReply(latent=whole_latent(latent, pb.FLOAT32))
            self._latents.read(reply.latent)
        except Exception as error:
            return pb.EncodeReply(refusal=_refusal(error))
        reply.timing.CopyFrom(
            pb.Timing(
                total=time.perf_counter() - arrived, decode=begun - arrived, queue=0.0, work=work
            )
        )
        return reply

    async def plan_session(
        self, requests: AsyncIterator[pb.PlanRequest], context: CallContext
    ) -> AsyncIterator[pb.PlanReply]:
        """Plans, one after the other; a refused one does not end the session, idleness does."""
        try:
            self._admit(context)
        except PlannerError as error:
            yield pb.PlanReply(refusal=_refusal(error))
            return
        incoming = aiter(requests)
        while True:
            try:
                request = await asyncio.wait_for(anext(incoming), IDLE_S)
            except (StopAsyncIteration, asyncio.TimeoutError):
                return
            yield await self._plan(request)

    async def _plan(self, message: pb.PlanRequest) -> pb.PlanReply:
        arrived = time.perf_counter()
        try:
            _require_names(message)
            request = from_record(PlanRequest, message.request, self._latents.read)
            require_affordable(request.search)
            dtype = _reply_dtype(message.latent_dtype)
            decoded = time.perf_counter()
            served = await self._service.plan(
                request,
                _time_limit(message.time_limit_s),
                message.robot,
                message.model_fingerprint,
            )
            plan = to_record(served, lambda latent: whole_latent(latent, dtype))
        except Exception as error:
            refusal = _refusal(error)
            _log.warning("plan %.130r refused: %s", message.request_id, refusal.reason)
            return pb.PlanReply(request_id=message.request_id, refusal=refusal)
        timing = pb.Timing(
            total=time.perf_counter() - arrived,
            decode=decoded - arrived,
            queue=served.report.waited,
            work=served.plan.timing.total,
        )
        _log.info(
            "plan %r made in %.3f s, of which it waited %.3f s",
            message.request_id,
            timing.total,
            timing.queue,
        )
        return pb.PlanReply(request_id=message.request_id, plan=plan, timing=timing)

    async def _described(self) -> ModelDescription:
        try:
            return await asyncio.wait_for(self._service.describe(), _HANDSHAKE_S)
        except asyncio.TimeoutError:
            raise PlannerUnavailableError(
                f"no replica has told its model within {_HANDSHAKE_S:g} s; they may be starting."
            ) from None

    def _admit(self, context: CallContext) -> None:
        said = dict(context.invocation_metadata())
        if self._token is None:
            if _FORWARDED in said or not _LOOPBACK.match(context.peer()):
                raise _UnauthenticatedError(
                    "this planner has no token and serves its own computer only: start it with a "
                    "token_file, and a proxy with TLS before it."
                )
            return
        given = said.get("authorization", "")
        if not knows(self._token, str(given)):
            raise _UnauthenticatedError(
                "the token is missing or wrong: give the client the planner's token."
            )


class JepaPlannerMethods:
    """The methods of the gRPC service, by the names it gives them, for a class with an endpoint.

    Serve hands the context only to arguments called ``grpc_context``.
    """

    endpoint: PlannerEndpoint

    async def GetModel(  # noqa: N802
        self, request: pb.GetModelRequest, grpc_context: CallContext
    ) -> pb.GetModelReply:
        """See `PlannerEndpoint.get_model`."""
        return await self.endpoint.get_model(grpc_context)

    async def Encode(  # noqa: N802
        self, request: pb.EncodeRequest, grpc_context: CallContext
    ) -> pb.EncodeReply:
        """See `PlannerEndpoint.encode`."""
        return await self.endpoint.encode(request, grpc_context)

    async def PlanSession(  # noqa: N802
        self, requests: AsyncIterator[pb.PlanRequest], grpc_context: CallContext
    ) -> AsyncIterator[pb.PlanReply]:
        """See `PlannerEndpoint.plan_session`."""
        async for reply in self.endpoint.plan_session(requests, grpc_context):
            yield reply


_REFUSALS = (
    (UnknownLatentError, pb.Refusal.UNKNOWN_LATENT),
    (WireError, pb.Refusal.INVALID),
    (_UnauthenticatedError, pb.Refusal.UNAUTHENTICATED),
    (WrongModelError, pb.Refusal.WRONG_MODEL),
    (PlannerBusyError, pb.Refusal.BUSY),
    (PlannerUnavailableError, pb.Refusal.UNAVAILABLE),
    (PlannerError, pb.Refusal.FAILED),
)


def _refusal(error: Exception) -> pb.Refusal:
    retry_after = error.retry_after if isinstance(error, PlannerUnavailableError) else 0.0
    for kind, code in _REFUSALS:
        if isinstance(error, kind):
            return pb.Refusal(code=code, reason=str(error), retry_after_s=retry_after)
    _log.error("A call failed", exc_info=error)
    return pb.Refusal(
        code=pb.Refusal.FAILED, reason=f"the planner failed: {type(error).__name__}: {error}"
    )


def _require_names(message: pb.PlanRequest) -> None:
    """They are kept and logged."""
    for name in ("request_id", "robot", "model_fingerprint"):
        text = getattr(message, name)
        if len(text) > LONGEST_NAME or not text.isprintable():
            raise WireError(f"{name} must be of at most {LONGEST_NAME} printable characters.")


def _time_limit(asked: float) -> float:
    if not 0.0 < asked <= MAX_TIME_LIMIT_S:
        raise WireError(f"time_limit_s {asked:g} must lie between 0 and {MAX_TIME_LIMIT_S:g} s.")
    return asked


def _reply_dtype(asked: pb.DType) -> pb.DType:
    if asked not in (pb.FLOAT32, pb.FLOAT16):
        raise WireError("latent_dtype must be FLOAT32 or FLOAT16.")
    return asked


def _no_latents(latent: Float32Array) -> pb.Latent:
    raise TypeError("a description holds no latents")
