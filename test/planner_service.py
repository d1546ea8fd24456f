"""The planner's gRPC service without Ray, and a network before it that can fail."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, TypeVar

import grpc
import numpy as np
from numpy.typing import NDArray

from jepa_planner_ros.planning import InProcessPlanner
from jepa_planner_ros.serving.endpoint import JepaPlannerMethods, PlannerEndpoint
from jepa_planner_ros.serving.messages import ServedPlan, ServingReport, require_model
from jepa_planner_ros.serving.wire.jepa_planner_pb2_grpc import add_JepaPlannerServicer_to_server
from jepa_planner_ros.types import Float32Array, ModelDescription, PlanRequest
from jepa_planner_ros.world_model import WorldModel

T = TypeVar("T")


class InProcessService:
    """Plans in this process; whatever `trouble` holds is raised instead."""

    def __init__(self, world_model: WorldModel) -> None:
        self._world_model = world_model
        self._planner = InProcessPlanner(world_model)
        self.requests: list[tuple[PlanRequest, str]] = []
        self.trouble: list[Exception] = []
        self.encoded = 0

    async def describe(self) -> ModelDescription:
        return self._planner.describe()

    async def plan(
        self, request: PlanRequest, timeout_s: float, robot: str, encoded_with: str
    ) -> ServedPlan:
        require_model(self._world_model.fingerprint, encoded_with)
        self.requests.append((request, robot))
        if self.trouble:
            raise self.trouble.pop()
        plan = await asyncio.to_thread(self._planner.plan, request)
        return ServedPlan(plan, ServingReport({"here": 1}, 0, 0, waited=0.125))

    async def encode(self, image: NDArray[np.uint8], timeout_s: float) -> Float32Array:
        self.encoded += 1
        return self._world_model.encode(image)


class Loop:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.start(work).result(timeout=20.0)

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)


class Methods(JepaPlannerMethods):
    def __init__(self, endpoint: PlannerEndpoint) -> None:
        self.endpoint = endpoint


@contextmanager
def serving(endpoint: PlannerEndpoint, port: int = 0) -> Iterator[int]:
    """The endpoint behind a gRPC server; yields its port."""
    loop = Loop()

    async def start() -> tuple[grpc.aio.Server, int]:
        server = grpc.aio.server()
        add_JepaPlannerServicer_to_server(Methods(endpoint), server)
        bound = server.add_insecure_port(f"127.0.0.1:{port}")
        await server.start()
        return server, bound

    server, bound = loop.run(start())
    yield bound
    loop.run(server.stop(None))


class Relay:
    """Passes connections on to a port, until it is cut."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._loop = Loop()
        self._silent = False
        self._writers: set[asyncio.StreamWriter] = set()
        self._server = self._loop.run(asyncio.start_server(self._pass_on, "127.0.0.1", 0))
        self.port: int = self._server.sockets[0].getsockname()[1]

    def cut(self) -> None:
        """From now on nothing arrives and nobody is told, as with a cable pulled out."""
        self._silent = True

    def mend(self) -> None:
        """Pass on what comes from now on; what was lost stays lost."""

        async def reset() -> None:
            for writer in self._writers:
                writer.transport.abort()
            self._silent = False

        self._loop.run(reset())

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        onwards_reader, onwards_writer = await asyncio.open_connection("127.0.0.1", self._target)
        self._writers |= {writer, onwards_writer}
        await asyncio.gather(self._pump(reader, onwards_writer), self._pump(onwards_reader, writer))

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(2**16):
                if not self._silent:
                    writer.write(data)
                    await writer.drain()
            writer.close()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
