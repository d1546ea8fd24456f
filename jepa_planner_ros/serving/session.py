"""The operating system's sessions: whoever leads one can be ended with all descendants.

Ray spreads its workers over process groups of their own, but a process leaves its session only by
asking to. Linux only.

Run as a script, this ends the session that it is in and removes the directory it is given.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import time
from pathlib import Path


def session_members(session: int) -> list[int]:
    """Identifiers of the living processes of a session."""
    members = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            # "pid (name) state ppid pgrp session ...", where the name may hold anything.
            status = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(status[3]) == session and status[0] not in "ZX":
            members.append(int(entry.name))
    return members


def end_session(session: int, timeout_s: float = 3.0) -> None:
    """Kill every process of a session but the caller, and wait until they are gone."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        members = [member for member in session_members(session) if member != os.getpid()]
        if not members:
            return
        for member in members:
            with contextlib.suppress(ProcessLookupError):
                os.kill(member, signal.SIGKILL)
        time.sleep(0.02)


if __name__ == "__main__":
    end_session(os.getsid(0))
    shutil.rmtree(sys.argv[1], ignore_errors=True)
