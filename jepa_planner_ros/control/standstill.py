"""Whether the arm does anything at all of what it is told."""

from __future__ import annotations

from dataclasses import dataclass, replace

from jepa_planner_ros.control.safety import distance
from jepa_planner_ros.types import Float64Array

CERTAIN_MOTION = 0.005
"""A step of this length, m, moves any controller."""


@dataclass(frozen=True, eq=False)
class Standstill:
    """Where the arm stands, and how many steps it was told to take from there.

    Attributes:
        state: measured (7,).
        base: the state (7,) that the first of these steps was added to.
        steps: how many should have moved the arm.
    """

    state: Float64Array
    base: Float64Array
    steps: int = 0

    def told(self, target: Float64Array) -> Standstill:
        """With a step to a target (7,), which counts if it moves any arm from here.

        Also one that keeps a lasting offset from its targets: it moves as they do.
        """
        asked = min(distance(start, target)[0] for start in (self.state, self.base))
        return self if asked < CERTAIN_MOTION else replace(self, steps=self.steps + 1)
