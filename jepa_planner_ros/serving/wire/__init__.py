"""The planner's words on a network: checked tensors, and records of dataclasses."""

from __future__ import annotations

MAX_TIME_LIMIT_S = 600.0
"""The longest that a request may ask for."""

LONGEST_NAME = 128
"""Of a robot, a request or a model, in characters."""


class WireError(ValueError):
    """A message cannot be read; the text says which part of it and what was expected."""
