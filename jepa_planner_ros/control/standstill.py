"""Whether the arm does anything at all of what it is told."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from jepa_planner_ros.control.safety import distance
from jepa_planner_ros.geometry import GRIPPER
from jepa_planner_ros.types import Float64Array

CHECK_ARM = "Check that nothing holds it, and that its controller is active and in no error state."
"""What to do about an arm that does not move."""

CERTAIN_MOTION = 0.005
"""A step of this length, m, moves any controller."""

# While a setpoint goes so far, m or rad, every arm that follows it has begun to move.
_TELLING_WAY = 0.01
_TELLING_TURN = 0.05
# For how long after that the pose must be measured the same, s.
_GRACE = 0.05


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


@dataclass(frozen=True, eq=False)
class Repetition:
    """A pose that has been measured again and again, the same to the bit, while setpoints went on.

    Encoders of an arm are never that still: old values come with fresh stamps.

    Attributes:
        state: measured (7,).
        setpoint: the state (7,) that the arm was sent to when it was measured there first.
        doubtful: when the setpoint had gone so far that the arm must have begun to follow, s; None:
            it has not.
    """

    state: Float64Array
    setpoint: Float64Array
    doubtful: float | None = None

    def then(self, state: Float64Array, setpoint: Float64Array, time: float) -> Repetition:
        """With a later measurement (7,), taken at a time, s, when the setpoint (7,) was there."""
        if not np.array_equal(state[:GRIPPER], self.state[:GRIPPER]):
            return Repetition(state, setpoint)
        metres, radians = distance(self.setpoint, setpoint)
        if self.doubtful is None and (metres > _TELLING_WAY or radians > _TELLING_TURN):
            return replace(self, doubtful=time)
        return self

    def fault(self, time: float) -> str | None:
        """Why what is still measured at a time, s, must not be believed, or None."""
        # A simulated arm on a busy computer may be late, and does stand still until then.
        if self.doubtful is None or time - self.doubtful < _GRACE:
            return None
        return (
            "The arm does not follow, or is not seen to: its setpoint goes on, and the measured "
            "pose is the very same, to the bit. Check that what publishes it does not repeat old "
            "values with fresh stamps, and that the controller is active and in no error state."
        )
