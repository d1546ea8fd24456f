"""A process that Ray lives under, seen from the one that needs it.

Ray takes over the process that starts it: it replaces signal handlers, ends the process when its
control service is lost, and dies with the *thread* it was started from. So it gets a process of
its own, in a session of its own, out of reach of a terminal's Ctrl-C. The other side of it is
`jepa_planner_ros.serving.owner`. The whole session ends when its owner lets go, or dies in any way.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

from jepa_planner_ros.serving.session import end_session
from jepa_planner_ros.types import PlannerError

RAY_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # The arm waits for the workers; Ray would give every other process precedence (nice 15).
    "RAY_worker_niceness": "0",
    # How long Ray hopes for a control service that was lost; we start another.
    "RAY_gcs_rpc_server_reconnect_timeout_s": "10",
}


class HostLostError(PlannerError):
    """The process has ended, or does not answer any more."""


class HostProcess:
    """A running host: a module of this package that speaks with us over a connection.

    Args:
        module: the module to run.
        environment: what it finds in its environment besides ours.
    """

    def __init__(self, module: str, environment: Mapping[str, str]) -> None:
        # Not where TMPDIR may point: the path of a Unix socket ends after 107 bytes.
        self.directory = Path(tempfile.mkdtemp(prefix="jepa_ray_", dir="/tmp"))
        self._ended = False
        self._connection, for_host = Pipe()
        with for_host, self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, str(for_host.fileno()), str(self.directory)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env={**os.environ, **RAY_ENVIRONMENT, **environment},
                pass_fds=[for_host.fileno()],
                start_new_session=True,
            )

    def send(self, message: object) -> None:
        """Send a message. Raises `HostLostError`."""
        try:
            self._connection.send(message)
        except OSError:
            raise HostLostError(self._cause_of_death()) from None

    def receive(self, timeout_s: float, complaint: str) -> Any:
        """The next message. Raises `HostLostError`, with `complaint` when none comes in time."""
        try:
            if not self._connection.poll(timeout_s):
                raise HostLostError(complaint)
            return self._connection.recv()
        except (EOFError, OSError):
            raise HostLostError(self._cause_of_death()) from None

    def has_message(self, timeout_s: float) -> bool:
        """Whether there is a message, or the host has ended, within that time."""
        return self._connection.poll(timeout_s)

    def let_go(self, timeout_s: float) -> None:
        """Have the host tidy up and end itself, and wait for it at most so long."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout_s)

    def end(self) -> None:
        """End the host and every process of its session, at once."""
        if self._ended:
            return
        self._ended = True
        end_session(self._process.pid)
        self._process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)

    @property
    def _log(self) -> Path:
        return self.directory / "host.log"

    def _cause_of_death(self) -> str:
        try:
            last_words = " ".join(self._log.read_text(errors="replace").splitlines()[-1:])
        except OSError:
            last_words = "its log is gone"
        return f"the process that hosts Ray has ended ({last_words})"


def private_cluster() -> dict[str, str]:
    """Environment of a Ray that nobody else on the machine can join: only it knows its token."""
    return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
