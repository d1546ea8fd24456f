"""What strangers may ask of a planner that others use, too."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from jepa_planner_ros.serving.wire import WireError
from jepa_planner_ros.types import Guard, SearchSettings

_LONGEST_HORIZON = 16
"""Actions; the reference has 2. Memory on the replicas' devices grows with it, and stays."""
_MOST_CANDIDATES = 10_000
"""Of a round; the reference has 800."""
_MOST_ROUNDS = 100
"""The reference has 10."""
_MOST_ACTIONS = 1_000_000
"""Of all candidates of a search; the reference has 16,000."""
_MOST_VALUES = 2**24
"""Components of latents that a round returns: 64 MiB, and a few times that to fit to them."""

_ROUNDS = ("rounds", "iterations")
_NEITHER = ("horizon", "components", *_ROUNDS)


def require_affordable(search: SearchSettings) -> None:
    """Refuse a search of absurd size.

    Whatever whole number is not a horizon, a number of rounds or of components counts candidates,
    whatever a search calls them; several of them count those of each round.

    Raises:
        WireError: it is too large.
    """
    horizon = search.horizon
    _require("search.horizon", horizon, _LONGEST_HORIZON)
    _require_rounds("search", search, horizon)
    if search.guard is not None:
        _require_rounds("search.guard", search.guard, horizon)
    components = getattr(search, "components", 0)
    # As many as differences along each axis take, if the search does not say how many.
    candidates = max([3 * horizon + 1, *map(max, _candidates(search).values())])
    _require(
        "search.components times horizon and candidates of a round",
        components * horizon * candidates,
        _MOST_VALUES,
    )


def _require_rounds(where: str, part: SearchSettings | Guard, horizon: int) -> None:
    rounds = 1
    for name in _ROUNDS:
        if hasattr(part, name):
            rounds = getattr(part, name)
            _require(f"{where}.{name}", rounds, _MOST_ROUNDS)
    for name, each in _candidates(part).items():
        _require(f"rounds of {where}.{name}", len(each), _MOST_ROUNDS)
        _require(f"{where}.{name}", max(each), _MOST_CANDIDATES)
        _require(
            f"{where}.{name} times rounds and horizon", sum(each) * rounds * horizon, _MOST_ACTIONS
        )


def _candidates(part: SearchSettings | Guard) -> dict[str, tuple[int, ...]]:
    """Settings that count candidates, by name: one number for every round, or one for each."""
    names = [field.name for field in fields(part) if field.name not in _NEITHER]
    numbers = {name: _whole_numbers(getattr(part, name)) for name in names}
    return {name: counts for name, counts in numbers.items() if counts}


def _whole_numbers(value: Any) -> tuple[int, ...]:
    several = value if isinstance(value, tuple) else (value,)
    return several if all(type(number) is int for number in several) else ()


def _require(what: str, asked: int, most: int) -> None:
    if asked > most:
        raise WireError(
            f"the search is too large for a shared planner: {what} is {asked}, and {most} is the "
            "most."
        )
