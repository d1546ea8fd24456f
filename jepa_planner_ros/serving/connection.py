"""One connection to a remote planner: a channel, and the session on it."""

from __future__ import annotations

import threading
import time
from queue import Empty, SimpleQueue

import grpc

from jepa_planner_ros.serving.remote_settings import RemoteSettings
from jepa_planner_ros.serving.token import authorization, read_token
from jepa_planner_ros.serving.wire import jepa_planner_pb2 as pb
from jepa_planner_ros.serving.wire.jepa_planner_pb2_grpc import JepaPlannerStub
from jepa_planner_ros.types import PlannerError

MAX_MESSAGE_BYTES = 32 * 2**20
"""Of one message, in either direction."""

GRACE_S = 2.0
"""How much longer than its time limit the answer to a request is waited for."""

_OPTIONS = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    # Whoever waits for a planner knows how long; gRPC would double the pause up to two minutes.
    ("grpc.max_reconnect_backoff_ms", 2000),
    # A channel of its own each, so that a new connection is a new one.
    ("grpc.use_local_subchannel_pool", 1),
)

# What http_proxy names would be told the token of a planner on this computer.
_NO_PROXY = ("grpc.enable_http_proxy", 0)


class Connection:
    """Calls a planner. Every call raises `grpc.RpcError` or, when no answer comes, `TimeoutError`.

    Raises:
        PlannerError: the token or a certificate cannot be read.
    """

    def __init__(self, settings: RemoteSettings) -> None:
        token = settings.token_file and read_token(settings.token_file)
        self._metadata = (("authorization", authorization(token)),) if token else ()
        self._channel = _channel(settings)
        self._stub = JepaPlannerStub(self._channel)
        self._session: _Session | None = None

    def get_model(self, timeout_s: float) -> pb.GetModelReply:
        """The handshake."""
        return self._stub.GetModel(pb.GetModelRequest(), timeout=timeout_s, metadata=self._metadata)

    def encode(self, request: pb.EncodeRequest, timeout_s: float) -> pb.EncodeReply:
        """Latents of a frame."""
        return self._stub.Encode(request, timeout=timeout_s, metadata=self._metadata)

    def plan(self, request: pb.PlanRequest, deadline: float) -> pb.PlanReply:
        """One plan, on the session.

        Args:
            request: what to plan; its time limit becomes what is left.
            deadline: of the plan, on the monotonic clock.
        """
        session = self._session
        if session is not None and session.open:
            try:
                return session.ask(request, deadline)
            except grpc.RpcError:
                pass  # A proxy may have ended it while it was idle; to ask twice does no harm.
        self._session = _Session(self._stub, self._metadata)
        return self._session.ask(request, deadline)

    def close(self) -> None:
        """End the session; a call in progress in another thread fails."""
        self._channel.close()


class _Session:
    """A call of ``PlanSession``: requests go in, and a thread takes out the replies."""

    def __init__(self, stub: JepaPlannerStub, metadata: tuple[tuple[str, str], ...]) -> None:
        self._requests: SimpleQueue[pb.PlanRequest | None] = SimpleQueue()
        self._replies: SimpleQueue[pb.PlanReply | grpc.RpcError] = SimpleQueue()
        self._call = stub.PlanSession(iter(self._requests.get, None), metadata=metadata)
        self.open = True
        threading.Thread(target=self._read, name="plan session", daemon=True).start()

    def ask(self, request: pb.PlanRequest, deadline: float) -> pb.PlanReply:
        """The reply to a request, or to the whole session."""
        request.time_limit_s = _left(deadline)
        self._requests.put(request)
        while True:
            try:
                reply = self._replies.get(timeout=_left(deadline + GRACE_S))
            except Empty:
                raise TimeoutError from None
            if isinstance(reply, grpc.RpcError):
                raise reply
            # The reply to an earlier request comes first if an interrupt broke off the wait for it.
            if reply.request_id in (request.request_id, ""):
                return reply

    def _read(self) -> None:
        try:
            for reply in self._call:
                self._replies.put(reply)
            ended = grpc.RpcError("The planner has ended the session.")
        except grpc.RpcError as error:
            ended = error
        self.open = False
        self._replies.put(ended)
        self._requests.put(None)


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0.0:
        raise TimeoutError
    return left


def _channel(settings: RemoteSettings) -> grpc.Channel:
    options = (*_OPTIONS, _NO_PROXY) if settings.local else _OPTIONS
    if not settings.encrypted:
        return grpc.insecure_channel(settings.target, options)
    try:
        credentials = grpc.ssl_channel_credentials(
            *(
                None if path is None else path.read_bytes()
                for path in (settings.ca_file, settings.key_file, settings.certificate_file)
            )
        )
    except OSError as error:
        raise PlannerError(f"a certificate or its key cannot be read: {error}") from error
    return grpc.secure_channel(settings.target, credentials, options)
