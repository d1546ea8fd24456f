"""What somebody meant who misspelt a name."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A sentence to append to an error, with a space before it; empty where no name is near."""
    near = get_close_matches(name, list(known), 1)
    return f" Did you mean {near[0]}?" if near else ""


def is_nearly(name: str, known: Iterable[str]) -> bool:
    """Whether a name is one of those known, or differs from it by a letter or two."""
    return bool(get_close_matches(name, list(known), 1, cutoff=0.8))
