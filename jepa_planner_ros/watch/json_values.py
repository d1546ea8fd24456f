"""Numbers as JSON can hold them."""

from __future__ import annotations

import math


def known(value: float | None, digits: int = 4) -> float | None:
    """A number as JSON can hold it; None where it is unknown or not finite."""
    return None if value is None or not math.isfinite(value) else round(value, digits)
