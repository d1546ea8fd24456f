"""The device that a replica's model is on: one piece of work at a time, and each to its end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Done(Generic[T]):
    """What came of a piece of work, and how long the device was taken for it, s."""

    result: T
    seconds: float


class Device:
    """Does work in a thread, one piece after the other.

    A thread cannot be stopped, and two of them on one model overwrite each other's results. So a
    caller that is cancelled keeps the device until its work has ended; work of several parts may
    look whether it is still `wanted`, and tell of each part that the device has `moved`.
    """

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._thread = ThreadPoolExecutor(1, "device")
        self._moved = time.monotonic()
        self._wanted = True

    @property
    def busy(self) -> bool:
        """Whether work is under way."""
        return self._lock.locked()

    @property
    def still_s(self) -> float:
        """Time since work or a part of it was last begun or ended, s."""
        return time.monotonic() - self._moved

    @property
    def wanted(self) -> bool:
        """Whether somebody waits for the work under way."""
        return self._wanted

    def moved(self) -> None:
        """A part of the work has ended."""
        self._moved = time.monotonic()

    async def run(self, work: Callable[[], T]) -> Done[T]:
        """Do work when all that was asked for earlier has ended."""
        async with self._lock:
            self._wanted = True
            self.moved()
            begun = time.perf_counter()
            working = asyncio.get_running_loop().run_in_executor(self._thread, work)
            try:
                result = await asyncio.shield(working)
                return Done(result, time.perf_counter() - begun)
            except asyncio.CancelledError:
                self._wanted = False
                await _end_of(working)
                raise
            finally:
                self.moved()


async def _end_of(working: asyncio.Future[T]) -> None:
    """Wait for it, however often the caller is cancelled meanwhile."""
    while not working.done():
        try:
            await asyncio.wait([working])
        except asyncio.CancelledError:
            continue
