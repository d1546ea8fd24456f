from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

# Ignores the polite signals and leaves behind an orphan, in a session of its own, that does too.
STUBBORN = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
sleeper = (sys.executable, "-S", "-c", "import time; time.sleep(60)  # {mark}")
if os.fork() == 0:
    os.setsid()
    os.execv(sys.executable, sleeper)
time.sleep(60)  # {mark}
"""

PARENT = """
import signal, sys, time
from pathlib import Path
from jepa_planner_ros.cli.processes import ProcessFamily

with ProcessFamily() as family:
    for program in {programs!r}:
        family.start("program", [sys.executable, "-S", "-c", program], Path({log!r}))
    print("started", flush=True)
    while True:
        family.check()
        time.sleep(0.02)
"""


@pytest.fixture
def mark() -> Iterator[str]:
    """Stands in the command line of every process of the test; those that are left are ended."""
    mark = f"family-of-test-{os.getpid()}-{time.monotonic_ns()}"
    yield mark
    for process in marked(mark):
        process.kill()


def marked(mark: str) -> list[psutil.Process]:
    return [
        process
        for process in psutil.process_iter(["cmdline", "status"])
        if process.info["status"] != psutil.STATUS_ZOMBIE
        and any(mark in argument for argument in process.info["cmdline"] or ())
    ]


def start_parent(mark: str, log: Path, *programs: str) -> subprocess.Popen[str]:
    script = PARENT.format(programs=programs, log=str(log)) + f"# {mark}"
    parent = subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    assert parent.stdout.readline() == "started\n"
    return parent


def wait_until_all_run(mark: str, count: int) -> None:
    deadline = time.monotonic() + 10.0
    while len(marked(mark)) < count:
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_stubborn_programs_and_their_orphans_do_not_outlive_the_parent(
    tmp_path: Path, mark: str, number: signal.Signals
) -> None:
    parent = start_parent(mark, tmp_path / "log", STUBBORN.format(mark=mark))
    wait_until_all_run(mark, 3)
    # The sleeper is a grandchild: the kernel ends a child of a killed parent, not its descendants.
    survivors = 1 if number == signal.SIGKILL else 0

    signalled = time.monotonic()
    parent.send_signal(number)
    parent.wait(timeout=10.0)
    while len(marked(mark)) > survivors and time.monotonic() - signalled < 5.0:
        time.sleep(0.02)

    assert len(marked(mark)) == survivors
    assert time.monotonic() - signalled < 5.0


def test_a_second_interrupt_does_not_stop_the_clean_up(tmp_path: Path, mark: str) -> None:
    parent = start_parent(mark, tmp_path / "log", STUBBORN.format(mark=mark))
    wait_until_all_run(mark, 3)

    for _ in range(3):
        parent.send_signal(signal.SIGINT)
        time.sleep(0.2)
    parent.wait(timeout=5.0)

    assert marked(mark) == []


def test_a_dead_program_is_reported_with_its_last_words(tmp_path: Path, mark: str) -> None:
    program = f"import sys; print('no camera in sight'); sys.exit(3)  # {mark}"
    log = tmp_path / "logs" / "program.log"
    parent = start_parent(mark, log, program)

    _, errors = parent.communicate(timeout=10.0)

    assert "the program ended unexpectedly with exit code 3" in errors
    assert "no camera in sight" in errors
    assert str(log) in errors
