"""A network that takes its time, on this computer."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def delayed(port: int, round_trip: float) -> Iterator[int]:
    """A port from which all that is sent to another arrives half a round trip later, and back.

    Bandwidth is not limited. This is no network: it shows what waiting costs, and neither losses
    nor congestion.

    Args:
        port: of a server on this computer.
        round_trip: time that the network takes in both directions together, s.
    """
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="delay", daemon=True)
    thread.start()

    async def serve() -> asyncio.Server:
        return await asyncio.start_server(
            lambda reader, writer: _connect(reader, writer, port, round_trip / 2.0), "127.0.0.1", 0
        )

    server = asyncio.run_coroutine_threadsafe(serve(), loop).result()
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        asyncio.run_coroutine_threadsafe(_end(server), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _end(server: asyncio.Server) -> None:
    server.close()
    connections = asyncio.all_tasks() - {asyncio.current_task()}
    for connection in connections:
        connection.cancel()
    await asyncio.gather(*connections, return_exceptions=True)


async def _connect(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int, delay: float
) -> None:
    there_reader, there_writer = await asyncio.open_connection("127.0.0.1", port)
    # Ended from outside, it must not end as cancelled: asyncio's servers report that as a failure.
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.gather(
            _pump(reader, there_writer, delay),
            _pump(there_reader, writer, delay),
        )


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay: float) -> None:
    loop = asyncio.get_running_loop()
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(2**16):
            loop.call_later(delay, _pass_on, writer, data)
    loop.call_later(delay, writer.close)


def _pass_on(writer: asyncio.StreamWriter, data: bytes) -> None:
    if not writer.is_closing():
        writer.write(data)
