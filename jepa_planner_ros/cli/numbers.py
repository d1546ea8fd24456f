"""Converters for argparse that keep to limits."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

_Number = TypeVar("_Number", int, float)


def whole_number(low: int, high: float = math.inf) -> Callable[[str], int]:
    """For whole numbers from `low` to `high`."""
    return _converter(int, "a whole number", low, high)


def real_number(low: float, high: float = math.inf) -> Callable[[str], float]:
    """For numbers from `low` to `high`."""
    return _converter(float, "a number", low, high)


def _converter(
    kind: Callable[[str], _Number], name: str, low: float, high: float
) -> Callable[[str], _Number]:
    limits = f"of at least {low}" if high == math.inf else f"from {low} to {high}"

    def convert(text: str) -> _Number:
        with suppress(ValueError):
            number = kind(text)
            if low <= number <= high:
                return number
        raise argparse.ArgumentTypeError(f"must be {name} {limits}, not {text!r}.")

    return convert
