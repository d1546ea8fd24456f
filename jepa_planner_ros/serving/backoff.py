"""How long to leave a planner alone that is away."""

from __future__ import annotations

import random

# s. The first and the longest pause.
_FIRST_S, _LONGEST_S = 0.2, 5.0


class Backoff:
    """Pauses that grow from failure to failure. One for each kind of request."""

    def __init__(self) -> None:
        self._failures = 0

    def pause(self) -> float:
        """The pause after one more failure, s; never quite the same for a fleet of robots."""
        pause = min(_FIRST_S * 2**self._failures, _LONGEST_S)
        self._failures += 1
        return pause * random.uniform(0.75, 1.25)

    def end(self) -> None:
        """A request was answered."""
        self._failures = 0
