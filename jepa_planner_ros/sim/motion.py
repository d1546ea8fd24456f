"""How the simulated controller moves its reference from one target to the next."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from jepa_planner_ros.types import Float64Array

# Peaks of the rest-to-rest quintic s(u) = 10 u^3 - 15 u^4 + 6 u^5 over unit time and distance.
_PEAK_SPEED = 15.0 / 8.0
_PEAK_ACCELERATION = 10.0 / np.sqrt(3.0)


@dataclass(frozen=True, eq=False)
class MinimumJerkMotion:
    """The quintic that comes to rest `distance` away after `duration` seconds.

    It starts with the velocity and acceleration that the reference has at that moment, so that a
    target may replace another half-way without a jump (Flash and Hogan, "The coordination of arm
    movements", 1985, eq. 4).
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
        c3 = 10.0 * self.distance - 6.0 * v - 1.5 * a
        c4 = -15.0 * self.distance + 8.0 * v + 1.5 * a
        c5 = 6.0 * self.distance - 3.0 * v - 0.5 * a
        return (
            v * u + 0.5 * a * u**2 + c3 * u**3 + c4 * u**4 + c5 * u**5,
            (v + a * u + 3.0 * c3 * u**2 + 4.0 * c4 * u**3 + 5.0 * c5 * u**4) / length,
            (a + 6.0 * c3 * u + 12.0 * c4 * u**2 + 20.0 * c5 * u**3) / length**2,
        )


def shortest_duration(distance: float, speed: float, acceleration: float) -> float:
    """Seconds that a rest-to-rest quintic over `distance` needs to respect both limits."""
    return max(
        _PEAK_SPEED * distance / speed, float(np.sqrt(_PEAK_ACCELERATION * distance / acceleration))
    )
