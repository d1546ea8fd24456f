"""The planner as a service, seen from the command that runs it. Imports no Ray."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from jepa_planner_ros.serving.connection import MAX_MESSAGE_BYTES
from jepa_planner_ros.serving.host_process import HostProcess, private_cluster
from jepa_planner_ros.serving.settings import ServingSettings
from jepa_planner_ros.serving.token import read_token
from jepa_planner_ros.types import ModelDescription, PlannerError

SERVICE_ENVIRONMENT = {
    # A message of two gigabytes, Serve's own limit, would cost as much memory before it is refused.
    "RAY_SERVE_GRPC_MAX_MESSAGE_SIZE": str(MAX_MESSAGE_BYTES),
}
"""What a Ray that serves robots should be started with."""

_HOST = f"{__package__}.service_host"
_END_S = 20.0


@dataclass(frozen=True)
class ServiceSettings:
    """What to serve where.

    Attributes:
        serving: the world model and its replicas.
        port: of the gRPC service.
        health_port: of Serve's own ``http://127.0.0.1:PORT/-/healthz``.
        metrics_port: of ``http://HOST:PORT/metrics`` for Prometheus, on every interface; 0 takes
            any that is free. An existing cluster has its own.
        token_file: holds what robots must know; None serves only this computer.
        address: an existing Ray cluster; None starts one that ends with the service.
        dashboard: serve Ray's dashboard on http://127.0.0.1:8265.
        start_timeout_s: time limit of starting Ray and loading the model.
    """

    serving: ServingSettings
    port: int = 9000
    health_port: int = 8000
    metrics_port: int = 0
    token_file: Path | None = None
    address: str | None = None
    dashboard: bool = False
    start_timeout_s: float = 300.0


@dataclass(frozen=True)
class RunningService:
    """A planner that has answered.

    Attributes:
        endpoint: the address for `jepa_planner_ros.serving.RemoteSettings`, seen from its host.
        model: what plans.
        metrics: where Prometheus finds the planner's figures and Ray's own.
        logs: of Serve; None where the cluster is another's.
    """

    endpoint: str
    model: ModelDescription
    metrics: str
    logs: Path | None


class PlannerService:
    """Serves robots until it is closed, or its owner dies in any way.

    Raises:
        PlannerError: the service could not be started; the message says why.
    """

    def __init__(self, settings: ServiceSettings) -> None:
        if settings.token_file is not None:
            read_token(settings.token_file)
        own = {}
        if settings.address is None:
            # On another's cluster the file is on its machines, not on this one.
            settings.serving.require_checkpoint()
            own = private_cluster()
        self._host = HostProcess(_HOST, SERVICE_ENVIRONMENT | own)
        try:
            self._host.send(settings)
            limit = settings.start_timeout_s
            answer = self._host.receive(limit, f"the planner was not ready within {limit:g} s")
            if isinstance(answer, PlannerError):
                raise answer
        except BaseException:
            self.close()
            raise
        self.running: RunningService = answer

    def health(self) -> Iterator[str]:
        """The planner's health whenever it changes, without end.

        Raises:
            PlannerError: Ray was lost.
        """
        while True:
            if self._host.has_message(1.0):
                answer = self._host.receive(1.0, "")
                if isinstance(answer, PlannerError):
                    raise answer
                yield answer

    def close(self) -> None:
        """Remove the planner from its cluster, and end the Ray that was started for it."""
        self._host.let_go(_END_S)
        self._host.end()
