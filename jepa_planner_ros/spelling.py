"""What somebody has written, in words for an error, and what was meant by a misspelt name."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any


def as_given(value: Any) -> str:
    """A value out of a file or a command line."""
    if isinstance(value, str):
        return f"the text '{value}'"
    if isinstance(value, bool):
        return str(value).lower()
    return "nothing" if value is None else str(value)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A sentence to append to an error, with a space before it; empty where no name is near."""
    near = get_close_matches(name, list(known), 1)
    return f" Did you mean {near[0]}?" if near else ""


def is_nearly(name: str, known: Iterable[str]) -> bool:
    """Whether a name is one of those known, or differs from it by a letter or two."""
    return bool(get_close_matches(name, list(known), 1, cutoff=0.8))
