"""What strangers may ask of a planner that others use, too."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from jepa_planner_ros.serving.wire import WireError
from jepa_planner_ros.types import SearchSettings

_MOST_WORK = 1_000_000
"""Actions that a search may draw; it bounds what the search keeps in memory.

The reference draws 16,000: 800 samples of 2 actions in 10 rounds.
"""


def require_affordable(search: SearchSettings) -> None:
    """Refuse a search of absurd size.

    The bound is on the largest of its whole numbers, whatever each search calls its samples, times
    rounds times horizon.

    Raises:
        WireError: it is too large.
    """
    for part in (search, *(getattr(search, field.name) for field in fields(search))):
        if not is_dataclass(part):
            continue
        work = max(_counts(part), default=0) * getattr(part, "rounds", 1) * search.horizon
        if work > _MOST_WORK:
            raise WireError(
                f"the search is too large for a shared planner: {type(part).__name__} asks for "
                f"{work} actions, and {_MOST_WORK} are the most."
            )


def _counts(part: Any) -> Iterator[int]:
    for field in fields(part):
        value = getattr(part, field.name)
        if isinstance(value, int):
            yield value
        elif isinstance(value, tuple):
            yield sum(number for number in value if isinstance(number, int))
