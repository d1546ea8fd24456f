"""The planner's words on a network: checked tensors, and records of dataclasses."""

from __future__ import annotations


class WireError(ValueError):
    """A message cannot be read; the text says which part of it and what was expected."""
