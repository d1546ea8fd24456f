"""What strangers may ask of a planner that others use, too."""

from __future__ import annotations

import math
from dataclasses import fields, is_dataclass

from jepa_planner_ros.serving.wire import WireError
from jepa_planner_ros.types import SearchSettings

_MOST_WORK = 20_000_000
"""Product of a search's whole numbers; it bounds what the search keeps in memory.

The reference's 800 samples, 80 elites, 10 rounds and 2 steps make 1.3 million.
"""


def require_affordable(search: SearchSettings) -> None:
    """Refuse a search of absurd size.

    Raises:
        WireError: the numbers of samples, rounds and the like multiply to too much.
    """
    for part in (search, *(getattr(search, field.name) for field in fields(search))):
        if not is_dataclass(part):
            continue
        counts = [getattr(part, field.name) for field in fields(part)]
        work = math.prod(max(count, 1) for count in counts if type(count) is int)
        if work > _MOST_WORK:
            raise WireError(
                f"the search is too large for a shared planner: the whole numbers of its "
                f"{type(part).__name__} multiply to {work}, and {_MOST_WORK} is the most."
            )
