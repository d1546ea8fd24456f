"""Smooth motions of the end effector from one target to the next, within limits of speed.

All of them are minimum-jerk quintics (Flash and Hogan, "The coordination of arm movements", 1985,
eq. 4), which start with whatever velocity and acceleration the end effector has at that moment.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.spatial.transform import Rotation

from jepa_planner_ros.geometry import GRIPPER, POSITION, ROTATION
from jepa_planner_ros.types import Float64Array

# Peaks of the rest-to-rest quintic s(u) = 10 u^3 - 15 u^4 + 6 u^5 over unit time and distance.
_PEAK_SPEED = 15.0 / 8.0
_PEAK_ACCELERATION = 10.0 / np.sqrt(3.0)
_PEAK_JERK = 60.0

# Where along a motion that does not start at rest its speed, acceleration and jerk are looked at.
_SAMPLES = np.linspace(0.0, 1.0, 41)
_SHORTEST = 0.02  # s
_LENGTHENING = 1.1
_LENGTHENINGS = 60
_ROUNDING = 1.0 + 1e-6
_NEGLIGIBLE = 1e-6  # m or rad


@dataclass(frozen=True)
class MotionLimits:
    """What a motion of the end effector may ask of an arm."""

    translation_speed: float
    """m/s"""
    translation_acceleration: float
    """m/s^2"""
    translation_jerk: float
    """m/s^3"""
    rotation_speed: float
    """rad/s"""
    rotation_acceleration: float
    """rad/s^2"""
    rotation_jerk: float
    """rad/s^3"""


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

    def peaks(self, part: slice) -> tuple[float, float, float]:
        """Largest speed, acceleration and jerk of a part of the coordinates, as vector norms."""
        u = _SAMPLES[:, np.newaxis]
        length = self.duration
        v, a = self.velocity[part] * length, self.acceleration[part] * length**2
        c3, c4, c5 = (coefficient[part] for coefficient in self._coefficients)
        derivatives = (
            (v + a * u + 3.0 * c3 * u**2 + 4.0 * c4 * u**3 + 5.0 * c5 * u**4) / length,
            (a + 6.0 * c3 * u + 12.0 * c4 * u**2 + 20.0 * c5 * u**3) / length**2,
            (6.0 * c3 + 24.0 * c4 * u + 60.0 * c5 * u**2) / length**3,
        )
        speed, acceleration, jerk = (
            float(np.linalg.norm(derivative, axis=1).max()) for derivative in derivatives
        )
        return speed, acceleration, jerk

    def excess(self, limits: MotionLimits) -> float:
        """The peak that is highest in parts of its limit, of a motion (7,) in metres and radians.

        At 1 or below the motion respects the limits.
        """
        peaks = (*self.peaks(POSITION), *self.peaks(ROTATION))
        bounds = (
            limits.translation_speed,
            limits.translation_acceleration,
            limits.translation_jerk,
            limits.rotation_speed,
            limits.rotation_acceleration,
            limits.rotation_jerk,
        )
        return max(peak / bound for peak, bound in zip(peaks, bounds, strict=True))


def shortest_duration(
    distance: float, speed: float, acceleration: float, jerk: float = np.inf
) -> float:
    """Seconds that a rest-to-rest quintic over `distance` needs to respect the limits."""
    return float(
        max(
            _PEAK_SPEED * distance / speed,
            np.sqrt(_PEAK_ACCELERATION * distance / acceleration),
            np.cbrt(_PEAK_JERK * distance / jerk),
        )
    )


def travel_time(metres: float, radians: float, limits: MotionLimits) -> float:
    """Least seconds for a motion from rest to rest over a distance and an angle."""
    return max(
        shortest_duration(
            metres,
            limits.translation_speed,
            limits.translation_acceleration,
            limits.translation_jerk,
        ),
        shortest_duration(
            radians, limits.rotation_speed, limits.rotation_acceleration, limits.rotation_jerk
        ),
    )


@dataclass(frozen=True, eq=False)
class Reference:
    """The pose and closedness that a controller steers to."""

    position: Float64Array
    """(3,), m"""
    rotation: Rotation
    gripper: float

    @classmethod
    def from_state(cls, state: Float64Array) -> Reference:
        """The reference at a state (7,)."""
        rotation = Rotation.from_euler("xyz", state[ROTATION])
        return cls(np.array(state[POSITION]), rotation, float(state[GRIPPER]))

    def moved(self, distance: Float64Array) -> Reference:
        """Displaced by metres, a rotation vector in the base frame, and closedness: (7,)."""
        return Reference(
            self.position + distance[POSITION],
            Rotation.from_rotvec(distance[ROTATION]) * self.rotation,
            self.gripper + float(distance[GRIPPER]),
        )

    def distance_to(self, state: Float64Array) -> Float64Array:
        """What `moved` takes to come to a state (7,)."""
        turn = Rotation.from_euler("xyz", state[ROTATION]) * self.rotation.inv()
        return np.concatenate(
            (
                state[POSITION] - self.position,
                turn.as_rotvec(),
                [state[GRIPPER] - self.gripper],
            )
        )

    def as_state(self) -> Float64Array:
        """The state (7,)."""
        return np.concatenate((self.position, self.rotation.as_euler("xyz"), [self.gripper]))


@dataclass(frozen=True, eq=False)
class CartesianMotion:
    """A motion of the end effector from a moment on the steady clock.

    Attributes:
        origin: where it starts.
        curve: (7,) metres, rotation vector in the base frame, and closedness.
        started: s.
    """

    origin: Reference
    curve: MinimumJerkMotion
    started: float

    @classmethod
    def at_rest(cls, state: Float64Array, time: float) -> CartesianMotion:
        """The motion of an end effector that stays at a state (7,)."""
        still = np.zeros(7)
        return cls(Reference.from_state(state), MinimumJerkMotion(still, 0.0, still, still), time)

    @property
    def ends(self) -> float:
        """When it comes to rest, s."""
        return self.started + self.curve.duration

    def at(self, time: float) -> Float64Array:
        """The state (7,) at a moment."""
        distance, _, _ = self.curve.at(time - self.started)
        return self.origin.moved(distance).as_state()

    def towards(
        self, target: Float64Array, time: float, duration: float, limits: MotionLimits
    ) -> CartesianMotion:
        """The motion that leaves this one at `time` and comes to rest at a state (7,).

        It takes `duration` seconds, or as much longer as the limits ask.
        """
        origin, velocity, acceleration = self._leave(time)
        distance = origin.distance_to(target)
        metres, radians = (float(np.linalg.norm(distance[part])) for part in (POSITION, ROTATION))
        shortest = max(duration, _SHORTEST, travel_time(metres, radians, limits))

        def lasting(duration: float) -> MinimumJerkMotion:
            return MinimumJerkMotion(distance, duration, velocity, acceleration)

        return CartesianMotion(origin, _gentlest(lasting, shortest, limits), time)

    def braked(self, time: float, limits: MotionLimits) -> CartesianMotion:
        """The motion that leaves this one at `time` and stops as soon as the limits allow.

        Velocity and acceleration go to zero along a cubic, so that it neither turns back nor swings
        out. A motion that would stop before that way is covered is left as it is.
        """
        origin, velocity, acceleration = self._leave(time)
        left = origin.distance_to(self.at(self.ends))

        def lasting(duration: float) -> MinimumJerkMotion:
            # The integral of v(u) = v + aT u - (3v + 2aT) u^2 + (2v + aT) u^3 over the duration T.
            way = duration * velocity / 2.0 + duration**2 * acceleration / 12.0
            return MinimumJerkMotion(way, duration, velocity, acceleration)

        curve = _gentlest(lasting, _SHORTEST, limits)
        for part in (POSITION, ROTATION):
            if np.linalg.norm(curve.distance[part]) > np.linalg.norm(left[part]) + _NEGLIGIBLE:
                return self
        return CartesianMotion(origin, curve, time)

    def _leave(self, time: float) -> tuple[Reference, Float64Array, Float64Array]:
        distance, velocity, acceleration = self.curve.at(time - self.started)
        return self.origin.moved(distance), velocity, acceleration


def _gentlest(
    lasting: Callable[[float], MinimumJerkMotion], shortest: float, limits: MotionLimits
) -> MinimumJerkMotion:
    """The first motion, from the shortest on, that respects the limits.

    One that leaves another at its steepest may have none; then the one that exceeds them least.
    """
    best, least = lasting(shortest), np.inf
    for lengthening in range(_LENGTHENINGS):
        curve = lasting(shortest * _LENGTHENING**lengthening)
        excess = curve.excess(limits)
        if excess <= _ROUNDING:
            return curve
        if excess < least:
            best, least = curve, excess
    return best
