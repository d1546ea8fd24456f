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
    caller that is cancelled keeps the device until its work has ended.
    """

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._moved = time.monotonic()

    @property
    def busy(self) -> bool:
        """Whether work is under way."""
        return self._lock.locked()

    @property
    def still_s(self) -> float:
        """Time since work was last begun or ended, s."""
        return time.monotonic() - self._moved

    async def run(self, work: Callable[[], T]) -> T:
        """Do work when all that was asked for earlier has ended, and return what it returns."""
        async with self._lock:
            self._moved = time.monotonic()
            working = asyncio.ensure_future(asyncio.to_thread(work))
            try:
                return await asyncio.shield(working)
            except asyncio.CancelledError:
                await _end_of(working)
                raise
            finally:
                self._moved = time.monotonic()


async def _end_of(working: asyncio.Future[T]) -> None:
    """Wait for it, however often the caller is cancelled meanwhile."""
    while not working.done():
        try:
            await asyncio.wait([working])
        except asyncio.CancelledError:
            continue
