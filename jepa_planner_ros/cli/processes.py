"""Programs started for a command, none of which outlives it.

Each program is told to stop in three ways, the kind one first: SIGINT, SIGTERM, SIGKILL. What a
program itself has started (Ray starts a dozen processes) is found by descent, even when the program
between has died, because Linux hands such orphans to this process. And should this process be
killed without warning, the kernel kills the programs that it started.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from jepa_planner_ros.cli import CommandError

# From linux/prctl.h
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

# Seconds that are left to react to each signal. Together they stay well below five.
_PATIENCE = ((signal.SIGINT, 1.5), (signal.SIGTERM, 0.4))
_PATIENCE_AFTER_KILL = 0.8
_PATIENCE_WITH_ORPHANS = 0.8

_LINES_QUOTED = 15

_libc = ctypes.CDLL(None)


@dataclass(frozen=True)
class Program:
    """A running program: what people call it, its process, and the file of its output."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path


class ProcessFamily:
    """Starts programs and ends them all, with their descendants, when the ``with`` block ends."""

    def __init__(self) -> None:
        self._programs: list[Program] = []
        self._others = set(psutil.Process().children(recursive=True))
        _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1)

    def __enter__(self) -> ProcessFamily:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self, name: str, command: Sequence[str], log: Path) -> Program:
        """Start a program in a session of its own, so that Ctrl-C in the terminal is ours alone.

        To be called from the main thread: the kernel ends the program with the thread that
        started it.

        Args:
            name: what people call it.
            command: the program and its arguments.
            log: file for what it prints, written anew.
        """
        log.parent.mkdir(parents=True, exist_ok=True)
        parent = os.getpid()

        def die_with_parent() -> None:
            # A shell starts what runs in its background deaf to SIGINT, and so all that it starts.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:
                os._exit(1)

        with log.open("wb") as output:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=die_with_parent,
            )
        program = Program(name, process, log)
        self._programs.append(program)
        return program

    def check(self) -> None:
        """Make sure that all programs still run.

        Raises:
            CommandError: one has ended; the message quotes the last lines that it printed.
        """
        for program in self._programs:
            code = program.process.poll()
            if code is not None:
                raise CommandError(
                    f"the {program.name} ended unexpectedly with {_describe(code)}. "
                    f"The end of {program.log}:\n\n{_last_lines(program.log)}"
                )

    def stop(self) -> None:
        """End all programs and their descendants, in less than five seconds."""
        # A second, impatient Ctrl-C must not leave anything behind.
        with _ignoring(signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            for number, patience in _PATIENCE:
                for program in self._programs:
                    program.process.send_signal(number)
                if self._wait(patience):
                    break
            psutil.wait_procs(self._descendants(), _PATIENCE_WITH_ORPHANS)
            deadline = time.monotonic() + _PATIENCE_AFTER_KILL
            while (left := self._descendants()) and time.monotonic() < deadline:
                for process in left:
                    _kill(process)
                psutil.wait_procs(left, 0.1)
            self._programs.clear()

    def _wait(self, seconds: float) -> bool:
        """Whether all programs ended within that time."""
        deadline = time.monotonic() + seconds
        while any(program.process.poll() is None for program in self._programs):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True

    def _descendants(self) -> list[psutil.Process]:
        children = psutil.Process().children(recursive=True)
        return [child for child in children if child not in self._others]


@contextmanager
def _ignoring(*numbers: signal.Signals) -> Iterator[None]:
    former = {number: signal.signal(number, signal.SIG_IGN) for number in numbers}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def _kill(process: psutil.Process) -> None:
    with suppress(psutil.NoSuchProcess):
        process.kill()


def _describe(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"


def _last_lines(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()
    return "\n".join(f"  {line}" for line in lines[-_LINES_QUOTED:]) or "  (it printed nothing)"
