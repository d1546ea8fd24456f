"""One thread for work that takes long, so that whoever asked for it stays responsive."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import TypeVar

Result = TypeVar("Result")


class Worker:
    """Runs jobs one after the other in a thread of its own.

    The thread is a daemon, unlike those of `concurrent.futures.ThreadPoolExecutor`, for which the
    interpreter waits at its exit: a search under way cannot be interrupted, and must not keep the
    process alive.
    """

    def __init__(self, name: str) -> None:
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def submit(self, job: Callable[[], Result]) -> Future[Result]:
        """Run `job` after those submitted before."""
        future: Future[Result] = Future()

        def run() -> None:
            try:
                future.set_result(job())
            except Exception as error:
                future.set_exception(error)

        self._jobs.put(run)
        return future

    def stop(self, timeout: float) -> bool:
        """Finish the submitted jobs and end. Returns whether that took less than `timeout` s."""
        self._jobs.put(None)
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
