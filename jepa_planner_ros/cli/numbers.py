"""Converters for argparse that keep to limits."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable


def whole_number(low: int, high: float = math.inf) -> Callable[[str], int]:
    """For whole numbers from `low` to `high`."""

    def convert(text: str) -> int:
        number = int(text)
        _check(number, low, high)
        return number

    # argparse says "invalid whole number value" where the text is no number.
    convert.__name__ = "whole number"
    return convert


def real_number(low: float, high: float = math.inf) -> Callable[[str], float]:
    """For numbers from `low` to `high`."""

    def convert(text: str) -> float:
        number = float(text)
        _check(number, low, high)
        return number

    convert.__name__ = "number"
    return convert


def _check(number: float, low: float, high: float) -> None:
    if number < low and high == math.inf:
        raise argparse.ArgumentTypeError(f"{number} is less than {low}")
    if not low <= number <= high:
        raise argparse.ArgumentTypeError(f"{number} is not between {low} and {high}")
