"""The motion that the simulated controller draws, from how the arm moves just then to rest."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from jepa_planner_ros.types import Float64Array


@dataclass(frozen=True, eq=False)
class MinimumJerkMotion:
    """The quintic that comes to rest `distance` away after `duration` seconds.

    It starts with the velocity and acceleration that the reference has at that moment, so that a
    target may replace another half-way without a jump.
    """

    distance: Float64Array
    """(n,)"""
    duration: float
    """s"""
    velocity: Float64Array
    """(n,) at the start."""
    acceleration: Float64Array
    """(n,) at the start."""

    def at(self, time: float) -> tuple[Float64Array, Float64Array, Float64Array]:
        """Distance moved, velocity and acceleration, each (n,), `time` seconds after the start."""
        length = self.duration
        if time >= length:
            still = np.zeros_like(self.distance)
            return self.distance, still, still
        u = time / length
        v, a = self.velocity * length, self.acceleration * length**2
        c3, c4, c5 = self._coefficients
        return (
            v * u + 0.5 * a * u**2 + c3 * u**3 + c4 * u**4 + c5 * u**5,
            (v + a * u + 3.0 * c3 * u**2 + 4.0 * c4 * u**3 + 5.0 * c5 * u**4) / length,
            (a + 6.0 * c3 * u + 12.0 * c4 * u**2 + 20.0 * c5 * u**3) / length**2,
        )

    @property
    def _coefficients(self) -> tuple[Float64Array, Float64Array, Float64Array]:
        v, a = self.velocity * self.duration, self.acceleration * self.duration**2
        return (
            10.0 * self.distance - 6.0 * v - 1.5 * a,
            -15.0 * self.distance + 8.0 * v + 1.5 * a,
            6.0 * self.distance - 3.0 * v - 0.5 * a,
        )
