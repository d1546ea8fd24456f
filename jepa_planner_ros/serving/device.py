"""The device that a replica's model is on: one piece of work at a time, and each to its end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class Device:
    """Does work in a thread, one piece after the other.

    A thread cannot be stopped, and two of them on one model overwrite each other's results. So a
    caller that is cancelled keeps the device until its work has ended; work of several parts may
    look whether it is still `wanted`, and tell of each part that the device has `moved`.
    """

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
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

    async def run(self, work: Callable[[], T]) -> T:
        """Do work when all that was asked for earlier has ended, and return what it returns."""
        async with self._lock:
            self._wanted = True
            self.moved()
            working = asyncio.ensure_future(asyncio.to_thread(work))
            try:
                return await asyncio.shield(working)
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
