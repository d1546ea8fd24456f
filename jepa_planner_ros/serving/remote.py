"""A planner on another machine, over gRPC. Needs no Ray here."""

from __future__ import annotations

import itertools
import logging
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import grpc
import numpy as np
from numpy.typing import NDArray

from jepa_planner_ros.serving.backoff import Backoff
from jepa_planner_ros.serving.connection import GRACE_S, Connection
from jepa_planner_ros.serving.messages import ServedPlan, ServingReport
from jepa_planner_ros.serving.remote_settings import RemoteSettings
from jepa_planner_ros.serving.wire import WireError
from jepa_planner_ros.serving.wire import jepa_planner_pb2 as pb
from jepa_planner_ros.serving.wire.latents import ReceivedLatents, SentLatents
from jepa_planner_ros.serving.wire.records import from_record, to_record
from jepa_planner_ros.serving.wire.tensors import pack
from jepa_planner_ros.types import (
    Float32Array,
    ModelDescription,
    Plan,
    PlannerError,
    PlannerUnavailableError,
    PlanRequest,
)

_HANDSHAKE_S = 5.0

_TRANSIENT = (pb.Refusal.BUSY, pb.Refusal.UNAVAILABLE)
# What only a person can mend. All else may pass: the network, the proxy, Serve, the replicas.
_PERMANENT = (
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.UNIMPLEMENTED,
)

T = TypeVar("T")

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RemoteTiming:
    """Where the time of the latest plan went, s.

    Attributes:
        round_trip: on this machine's clock.
        server: on the server's clock, from the arrival of the request to the reply.
        decode: the part of `server` spent on checking the request.
        queue: the part of `server` spent on waiting for others.
        work: the part of `server` spent on the plan.
    """

    round_trip: float
    server: float
    decode: float
    queue: float
    work: float

    @property
    def network(self) -> float:
        """All that is not the server's: packing, travelling, unpacking, and proxies, s."""
        return max(0.0, self.round_trip - self.server)


class RemotePlanner:
    """A planner behind a network.

    It holds one session. When that breaks, or an answer does not come in time, the next plan
    opens another on a new connection; until the planner answers again, plans fail at once with
    `PlannerUnavailableError` and the time to wait before trying again. Threads may share a planner;
    their plans are made one after the other, and frames are encoded meanwhile.

    Raises:
        PlannerError: the planner did not answer in time, or refuses us.
    """

    def __init__(self, settings: RemoteSettings) -> None:
        self._settings = settings
        self._connection: Connection | None = None
        self._sent = SentLatents(pb.DType.Value(settings.latents.upper()))
        # A name for each request, unlike those of this robot's earlier lives.
        self._run, self._numbers = secrets.token_hex(3), itertools.count()
        self._one_plan, self._connecting = threading.Lock(), threading.Lock()
        self._closed = False
        # Frames may be encoded while no plan can be made, and then say nothing about plans.
        self._plans, self._frames = Backoff(), Backoff()
        self.last_report: ServingReport | None = None
        """How the replicas shared the latest plan."""
        self.last_timing: RemoteTiming | None = None
        """Where the time of the latest plan went."""
        self._description = self._await_planner()

    def describe(self) -> ModelDescription:
        """The model that plans.

        Raises:
            PlannerError: the planner was closed.
        """
        self._require_open()
        return self._description

    @property
    def fingerprint(self) -> str:
        """Hash of the weights that encode and plan."""
        return self._description.fingerprint

    def plan(self, request: PlanRequest) -> Plan:
        """Search on the other machine.

        Raises:
            PlannerUnavailableError: the planner is away or busy, or did not answer in time.
            PlannerError: it cannot make this plan.
        """
        with self._one_plan:
            deadline = time.monotonic() + self._settings.plan_timeout_s
            reply = self._answered(request, deadline)
            if reply.refusal.code == pb.Refusal.UNKNOWN_LATENT:
                # It was started again, or has served many others since.
                self._sent.forget()
                reply = self._answered(request, deadline)
            if reply.HasField("refusal"):
                raise _about(reply.request_id, _refused(reply.refusal, self._plans))
            served = self._read(ServedPlan, reply.plan)
            self._sent.confirm()
            self._plans.end()
            self.last_report = served.report
        return served.plan

    def encode(self, image: NDArray[np.uint8]) -> Float32Array:
        """Latents (tokens, dim) of an RGB frame, uint8 (height, width, 3), encoded there.

        Raises:
            PlannerUnavailableError: the planner is away, or did not answer in time.
            PlannerError: it cannot encode this frame.
        """
        limit = self._settings.plan_timeout_s
        message = pb.EncodeRequest(image=pack(image), time_limit_s=limit)
        reply = self._call(
            lambda connection: connection.encode(message, limit + GRACE_S), self._frames
        )
        if reply.HasField("refusal"):
            raise _refused(reply.refusal, self._frames)
        self._frames.end()
        latent = self._readable(lambda: ReceivedLatents().read(reply.latent))
        self._sent.know(latent)
        return latent

    def close(self) -> None:
        """End the session. A plan in progress in another thread fails."""
        with self._connecting:  # Or another thread might open one that nobody closes.
            self._closed = True
            if self._connection is not None:
                self._connection.close()

    def _await_planner(self) -> ModelDescription:
        deadline = time.monotonic() + self._settings.start_timeout_s
        while True:
            try:
                return self._handshake()
            except PlannerUnavailableError as error:
                if time.monotonic() + error.retry_after > deadline:
                    raise PlannerError(str(error)) from error
                _log.info("%s Trying again ...", error)
                time.sleep(error.retry_after)

    def _handshake(self) -> ModelDescription:
        reply = self._call(lambda connection: connection.get_model(_HANDSHAKE_S), self._plans)
        if reply.HasField("refusal"):
            raise _refused(reply.refusal, self._plans)
        self._plans.end()
        return self._read(ModelDescription, reply.model)

    def _answered(self, request: PlanRequest, deadline: float) -> pb.PlanReply:
        started = time.perf_counter()
        message = pb.PlanRequest(
            request_id=f"{self._settings.robot}-{self._run}-{next(self._numbers)}",
            robot=self._settings.robot,
            model_fingerprint=self._description.fingerprint,
            request=to_record(request, self._sent.write),
            latent_dtype=pb.DType.Value(self._settings.latents.upper()),
        )
        try:
            reply = self._call(lambda connection: connection.plan(message, deadline), self._plans)
        except PlannerUnavailableError as away:
            raise _about(message.request_id, away) from away
        self.last_timing = RemoteTiming(
            time.perf_counter() - started,
            reply.timing.total,
            reply.timing.decode,
            reply.timing.queue,
            reply.timing.work,
        )
        _log.debug("plan %s: %s", message.request_id, self.last_timing)
        return reply

    def _call(self, call: Callable[[Connection], T], backoff: Backoff) -> T:
        connection: Connection | None = None
        try:
            with self._connecting:
                self._require_open()
                if self._connection is None:
                    self._connection = Connection(self._settings)
                connection = self._connection
            return call(connection)
        except TimeoutError:
            reason = f"has not answered within {self._settings.plan_timeout_s:g} s"
        except grpc.RpcError as error:
            reason = f"cannot be reached: {_details(error)}"
            if isinstance(error, grpc.Call) and error.code() in _PERMANENT:
                raise PlannerError(f"the planner at {self._settings.address} {reason}") from error
        except ValueError:  # gRPC's way to say that another thread has closed the connection.
            reason = "has been left"
        self._drop(connection)
        self._require_open()
        raise PlannerUnavailableError(
            f"the planner at {self._settings.address} {reason}.", backoff.pause()
        )

    def _require_open(self) -> None:
        if self._closed:
            raise PlannerError("the planner was closed.")

    def _drop(self, broken: Connection | None) -> None:
        """Start afresh next time: a connection that was cut seems alive for minutes.

        Unless another thread has done so.
        """
        with self._connecting:
            if broken is not None and broken is self._connection:
                broken.close()
                self._connection = None

    def _read(self, kind: type[T], record: pb.Record) -> T:
        return self._readable(lambda: from_record(kind, record, ReceivedLatents().read))

    def _readable(self, read: Callable[[], T]) -> T:
        try:
            return read()
        except WireError as error:
            raise PlannerError(
                f"the answer of the planner at {self._settings.address} cannot be read: {error}"
            ) from error


def _refused(refusal: pb.Refusal, backoff: Backoff) -> PlannerError:
    if refusal.code in _TRANSIENT:
        pause = max(refusal.retry_after_s, backoff.pause())
        return PlannerUnavailableError(refusal.reason, pause)
    return PlannerError(refusal.reason)


def _about(request_id: str, error: PlannerError) -> PlannerError:
    """An error with the name by which the planner's log knows its request."""
    reason = f"{str(error).rstrip('.')} (request {request_id})."
    if isinstance(error, PlannerUnavailableError):
        return PlannerUnavailableError(reason, error.retry_after)
    return PlannerError(reason)


def _details(error: grpc.RpcError) -> str:
    if not isinstance(error, grpc.Call):
        return str(error)
    return f"{error.code().name}, {error.details()}".rstrip(".")
