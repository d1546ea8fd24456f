"""How far along its way a motion is: from rest to rest, and to a stop as soon as limits allow.

A way has length 1 here; limits of speed, acceleration and jerk are those of the progress along it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Progress:
    """How far along a way, at what speed (1/s) and acceleration (1/s^2)."""

    done: float
    speed: float
    acceleration: float


class Pace(Protocol):
    """Progress over time."""

    @property
    def duration(self) -> float:
        """Until rest, s."""

    def at(self, time: float) -> Progress:
        """The progress `time` seconds after the start."""


@dataclass(frozen=True)
class SmoothPace:
    """From rest to rest over the whole way, with the least jerk for its duration in s.

    Flash and Hogan, "The coordination of arm movements", 1985, eq. 4.
    """

    duration: float

    def at(self, time: float) -> Progress:
        """The progress `time` seconds after the start."""
        if time >= self.duration:
            return Progress(1.0, 0.0, 0.0)
        if time <= 0.0:
            return Progress(0.0, 0.0, 0.0)
        u = time / self.duration
        return Progress(
            u**3 * (10.0 + u * (6.0 * u - 15.0)),
            30.0 * u**2 * (1.0 - u) ** 2 / self.duration,
            60.0 * u * (1.0 - u) * (1.0 - 2.0 * u) / self.duration**2,
        )


@dataclass(frozen=True)
class QuickStop:
    """To rest in the least time: three stretches of constant jerk, the middle one of none.

    Attributes:
        start: progress when braking begins.
        jerk: of the first stretch, negative; the last has the opposite, 1/s^3.
        ends: of each stretch, s.
    """

    start: Progress
    jerk: float
    ends: tuple[float, float, float]

    @classmethod
    def from_progress(cls, start: Progress, acceleration: float, jerk: float) -> QuickStop:
        """The stop that brakes with at most an acceleration (1/s^2) and a jerk (1/s^3).

        A motion that slows down as hard already that it would turn back, since the limits were
        lowered meanwhile, is stopped as hard as that takes.
        """
        speed, slowing = start.speed, max(0.0, -start.acceleration)
        if speed <= 0.0:
            return cls(start, -jerk, (0.0, 0.0, 0.0))
        jerk = max(jerk, slowing**2 / (2.0 * speed))
        acceleration = max(acceleration, slowing)
        # Without the middle stretch the acceleration would come down to this.
        lowest = math.sqrt(jerk * speed + 0.5 * start.acceleration**2)
        peak = min(lowest, acceleration)
        first = (start.acceleration + peak) / jerk
        steady = (lowest**2 - peak**2) / (jerk * peak)
        return cls(start, -jerk, (first, first + steady, first + steady + peak / jerk))

    @property
    def duration(self) -> float:
        """Until rest, s."""
        return self.ends[-1]

    def at(self, time: float) -> Progress:
        """The progress `time` seconds after the start; before it, that at the start."""
        time = max(0.0, time)
        now, begun = self.start, 0.0
        for end, jerk in zip(self.ends, (self.jerk, 0.0, -self.jerk), strict=True):
            now = _carried(now, jerk, min(time, end) - begun)
            if time < end:
                return now
            begun = end
        return Progress(now.done, 0.0, 0.0)


def _carried(now: Progress, jerk: float, time: float) -> Progress:
    """The progress after a time of constant jerk."""
    return Progress(
        now.done + time * (now.speed + time * (now.acceleration / 2.0 + time * jerk / 6.0)),
        now.speed + time * (now.acceleration + time * jerk / 2.0),
        now.acceleration + time * jerk,
    )
