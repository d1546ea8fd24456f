"""Ctrl-C that counts once, so that a program which is ending already can come to its end.

``ros2 launch`` passes Ctrl-C on to programs that the terminal has told before.
"""

from __future__ import annotations

import signal
from types import FrameType

_NUMBERS = (signal.SIGINT, signal.SIGTERM)


def heed_first_interrupt() -> None:
    """Make the first SIGINT or SIGTERM a KeyboardInterrupt, and ignore all that follow."""
    for number in _NUMBERS:
        signal.signal(number, _interrupt)


def ignore_interrupts() -> None:
    """Ignore SIGINT and SIGTERM from now on: the program is about to end by itself."""
    for number in _NUMBERS:
        signal.signal(number, signal.SIG_IGN)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    ignore_interrupts()
    raise KeyboardInterrupt
