"""Smooth motions of the end effector from one target to the next, within limits of speed.

A commanded motion leads straight from rest to rest; one that is called off stops on its way first.
So limits, which are easily kept along a line, hold at every moment, and the end effector goes only
where the way was checked.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.spatial.transform import Rotation

from jepa_planner_ros.geometry import GRIPPER, POSITION, ROTATION
from jepa_planner_ros.robot.pace import Pace, QuickStop, SmoothPace
from jepa_planner_ros.types import Float64Array

# Peaks of the rest-to-rest quintic s(u) = 10 u^3 - 15 u^4 + 6 u^5 over unit time and distance.
_PEAK_SPEED = 15.0 / 8.0
_PEAK_ACCELERATION = 10.0 / np.sqrt(3.0)
_PEAK_JERK = 60.0

_SHORTEST = 0.02  # s


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


def between(start: Float64Array, end: Float64Array, share: float) -> Float64Array:
    """The state (7,) a `share` of the way from one to another.

    Positions and closedness are blended linearly, rotations along the shortest arc on SO(3).
    """
    reference = Reference.from_state(start)
    return reference.moved(share * reference.distance_to(end)).as_state()


@dataclass(frozen=True, eq=False)
class CartesianMotion:
    """A straight motion of the end effector from a moment on some clock, and what follows it.

    Attributes:
        origin: where it starts.
        way: where it leads: metres, rotation vector in the base frame, and closedness (7,).
        pace: how it goes along.
        started: s.
        following: what takes its place when it has ended; None: it stays where it ends.
    """

    origin: Reference
    way: Float64Array
    pace: Pace
    started: float
    following: CartesianMotion | None = None

    @classmethod
    def at_rest(cls, state: Float64Array, time: float) -> CartesianMotion:
        """The motion of an end effector that stays at a state (7,)."""
        return cls(Reference.from_state(state), np.zeros(7), SmoothPace(0.0), time)

    @property
    def ends(self) -> float:
        """When the end effector comes to rest, s."""
        last = self._last
        return last.started + last.pace.duration

    def at(self, time: float) -> Float64Array:
        """The state (7,) at a moment."""
        return self._reached(time).as_state()

    def velocity(self, time: float) -> Float64Array:
        """Linear and angular velocity (6,) in the base frame at a moment, m/s and rad/s."""
        present = self._present(time)
        return present.way[:GRIPPER] * present.pace.at(time - present.started).speed

    def towards(
        self, target: Float64Array, time: float, duration: float, limits: MotionLimits
    ) -> CartesianMotion:
        """The motion that takes the place of this one at `time` and ends at a state (7,).

        It takes `duration` seconds, or as much longer as the limits ask. Where this one is still
        under way, it stops first.
        """
        stopped = self.braked(time, limits) if time < self.ends else self
        return stopped.then(target, time, duration, limits)

    def then(
        self, target: Float64Array, time: float, duration: float, limits: MotionLimits
    ) -> CartesianMotion:
        """This motion and, after its end, one to a state (7,).

        Both together take `duration` seconds from `time` on, or as much longer as the limits ask.
        """
        start = max(time, self.ends)
        origin = self._reached(start)
        way = origin.distance_to(target)
        least = max(_SHORTEST, travel_time(*lengths(way), limits))
        pace = SmoothPace(max(least, duration - (start - time)))
        leaving = CartesianMotion(origin, way, pace, start)
        return leaving if start == time else self._followed_by(leaving)

    def braked(self, time: float, limits: MotionLimits) -> CartesianMotion:
        """The motion that stops this one on its way, as soon after `time` as the limits allow."""
        present = self._present(time)
        progress = present.pace.at(time - present.started)
        bounds = [
            (acceleration / length, jerk / length)
            for length, acceleration, jerk in zip(
                lengths(present.way),
                (limits.translation_acceleration, limits.rotation_acceleration),
                (limits.translation_jerk, limits.rotation_jerk),
                strict=True,
            )
            if length > 0.0
        ]
        if progress.speed == 0.0 or not bounds:
            return CartesianMotion.at_rest(self.at(time), time)
        acceleration, jerk = (min(bound) for bound in zip(*bounds, strict=True))
        pace = QuickStop.from_progress(progress, acceleration, jerk)
        return CartesianMotion(present.origin, present.way, pace, time)

    def delayed(self, seconds: float) -> CartesianMotion:
        """The same motion so much later, with all that follows it."""
        following = None if self.following is None else self.following.delayed(seconds)
        return replace(self, started=self.started + seconds, following=following)

    def _followed_by(self, following: CartesianMotion) -> CartesianMotion:
        if self.following is not None:
            following = self.following._followed_by(following)
        return replace(self, following=following)

    @property
    def _last(self) -> CartesianMotion:
        return self if self.following is None else self.following._last

    def _present(self, time: float) -> CartesianMotion:
        """The part of this motion that is under way at a moment."""
        if self.following is None or time < self.following.started:
            return self
        return self.following._present(time)

    def _reached(self, time: float) -> Reference:
        present = self._present(time)
        return present.origin.moved(present.way * present.pace.at(time - present.started).done)


def lengths(way: Float64Array) -> tuple[float, float]:
    """Metres and radians of a way (7,), such as `Reference.distance_to` tells."""
    return float(np.linalg.norm(way[POSITION])), float(np.linalg.norm(way[ROTATION]))
