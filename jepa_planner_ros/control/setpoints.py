"""The last gate before the controller: setpoints on the way to a target, and what stops them.

A target becomes a smooth motion within the limits of speed, acceleration and jerk; the setpoints
are its samples at a steady rate. They brake when the control loop falls silent, and go back to
where the arm is when it does not follow, so that nothing pushes on an arm in reflex or one that its
user has stopped. They go back as far as an arm may have stayed behind, and no farther: what is
measured may be wrong.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from jepa_planner_ros.control.safety import (
    POSE_AGE,
    distance,
    drift,
    enters_box,
    has_moved,
    inside_workspace,
    lag,
)
from jepa_planner_ros.control.settings import MotionSettings, SafetyLimits
from jepa_planner_ros.control.standstill import Repetition
from jepa_planner_ros.geometry import POSITION, ROTATION
from jepa_planner_ros.robot.motion import CartesianMotion, Reference
from jepa_planner_ros.types import Float64Array

# How long the last setpoint of a motion is repeated, s.
_LINGERING = 0.5
# Of what the arm is off its setpoint, the part that a twist makes up for in a second.
_TRACKING_GAIN = 4.0
_BLOCKED = (
    "The straight way from the last setpoint leads through a box of limits.forbidden_boxes: the "
    "arm is late, as on a busy computer, or was moved. Send the goal again."
)

Measured = tuple[float, Float64Array]
"""How long ago the arm was measured, s, and where (7,)."""


@dataclass(frozen=True, eq=False)
class Setpoints:
    """The motion that is being sent to the controller, at one moment of its life.

    Attributes:
        motion: under way, or the last one; None before the first.
        fault: why the motion was stopped; None while all is well.
        rested: where the arm (7,) was measured when the last setpoint was sent; None: it was not.
        repeated: since when the arm is measured where it is; None before the first measurement.
    """

    motion: CartesianMotion | None = None
    fault: str | None = None
    rested: Float64Array | None = None
    repeated: Repetition | None = None

    def moving(self, time: float) -> bool:
        """Whether a motion is under way."""
        return self.motion is not None and time < self.motion.ends

    def sending(self, time: float) -> bool:
        """Whether setpoints are to be sent: the last for a while, too.

        There are controllers that stop when they hear nothing.
        """
        return self.moving(time - _LINGERING)

    def at(self, time: float) -> Float64Array | None:
        """The setpoint (7,) at a moment; None before the first motion."""
        return None if self.motion is None else self.motion.at(time)

    def towards(
        self,
        target: Float64Array,
        measured: Float64Array,
        time: float,
        motion: MotionSettings,
        limits: SafetyLimits,
    ) -> Setpoints:
        """Leave for a target (7,).

        The motion goes on from the last setpoint. After a silence it begins where the arm is
        measured, if that was moved away meanwhile; while setpoints are sent they go back there.
        An arm that merely sags has not moved since, and keeps its setpoint. Where a box is in
        between there is no way, and that is the fault.
        """
        present = self.motion
        if present is None or self._was_moved(measured, time, motion, limits):
            present = CartesianMotion.at_rest(measured, time)
        elif self.moving(time):
            # The target was checked from where this way should have ended, not from its midst.
            present = present.braked(time, limits.motion)
            if enters_box(present.at(present.ends), target, limits):
                return replace(self, motion=present, fault=_BLOCKED)
        elif drift(present.at(time), measured, limits):
            if enters_box(present.at(time), measured, limits):
                return replace(self, fault=_BLOCKED)
            present = present.then(measured, time, 0.0, limits.motion)
        leaving = present.then(target, time, motion.duration, limits.motion)
        return replace(self, motion=leaving, rested=None)

    def _was_moved(
        self, measured: Float64Array, time: float, motion: MotionSettings, limits: SafetyLimits
    ) -> bool:
        """Whether something else has moved the arm since setpoints were sent last."""
        if self.motion is None or self.sending(time):
            return False
        if self.rested is not None and has_moved(self.rested, measured, motion):
            return True
        return drift(self.motion.at(time), measured, limits) is not None

    def twist(self, time: float, measured: Measured | None, limits: SafetyLimits) -> Float64Array:
        """Linear and angular velocity (6,) that keeps the arm at the setpoint, m/s and rad/s.

        Where the arm was some time ago, or is told to be whatever it does, is no reason to send it
        faster: then it is the velocity of the setpoint.
        """
        if self.motion is None:
            return np.zeros(6)
        setpoint, velocity = self.motion.at(time), self.motion.velocity(time)
        if measured is None or measured[0] > POSE_AGE:
            return velocity
        if self.repeated is not None and self.repeated.doubtful is not None:
            return velocity
        return tracking_twist(setpoint, velocity, measured[1], limits)

    def braked(self, time: float, limits: SafetyLimits) -> Setpoints:
        """Come to rest as soon as the limits allow, also on the way back to the arm."""
        if self.motion is None or not self.moving(time):
            return self
        return replace(self, motion=self.motion.braked(time, limits.motion))

    def watched(
        self,
        time: float,
        silence: float,
        measured: Measured | None,
        motion: MotionSettings,
        limits: SafetyLimits,
    ) -> Setpoints:
        """The same after a look at what may have gone wrong.

        Args:
            time: now, on the motion's clock.
            silence: how long the control loop has not been heard of, s.
            measured: is held against the setpoint of its moment; None where it is not known.
            motion: holds the limit on silence.
            limits: of the motion, and of how far the arm may stay behind.
        """
        if self.motion is None or not self.sending(time):
            return self
        if not self.moving(time):
            return self if measured is None else replace(self, rested=measured[1])
        if self.fault is not None:
            return self
        if silence > motion.watchdog:
            fault = (
                f"The control loop was not heard of for {silence:.1f} s and the arm was stopped; "
                f"the limit is motion.watchdog = {motion.watchdog:g} s."
            )
            return replace(self.braked(time, limits), fault=fault)
        if measured is None:
            return self
        age, arm = measured
        taken = time - age
        if taken < self.motion.started:
            # From before this motion, about which it tells nothing.
            return self
        setpoint = self.motion.at(taken)
        repeated = (self.repeated or Repetition(arm, setpoint)).then(arm, setpoint, taken)
        seen = replace(self, repeated=repeated)
        lagging = lag(setpoint, arm, limits)
        if lagging is None:
            frozen = repeated.fault(taken)
            return seen if frozen is None else replace(seen.braked(time, limits), fault=frozen)
        stopped = self.motion.braked(time, limits.motion)
        back, _ = inside_workspace(arm, limits)
        stayed_behind = _within_way(self.motion.at(self.motion.started), setpoint, back, limits)
        if stayed_behind and not enters_box(stopped.at(stopped.ends), back, limits):
            stopped = stopped.then(back, time, 0.0, limits.motion)
        return replace(seen, motion=stopped, fault=lagging)


def tracking_twist(
    setpoint: Float64Array, velocity: Float64Array, measured: Float64Array, limits: SafetyLimits
) -> Float64Array:
    """The velocity (6,) to send for an arm that is to be at a setpoint (7,) with a velocity (6,).

    What the arm measured at a state (7,) is off is made up for; the speeds stay within the limits.
    """
    twist = velocity.copy()
    error = Reference.from_state(measured).distance_to(setpoint)
    for part, fastest in (
        (POSITION, limits.translation_speed),
        (ROTATION, limits.rotation_speed),
    ):
        asked = velocity[part] + _TRACKING_GAIN * error[part]
        twist[part] = asked * (fastest / max(fastest, float(np.linalg.norm(asked))))
    return twist


def accelerated(
    twist: Float64Array, asked: Float64Array, period: float, limits: SafetyLimits
) -> Float64Array:
    """The twist (6,) that comes nearest to the one asked for, a period in s after another."""
    change = asked - twist
    for part, most in (
        (POSITION, limits.translation_acceleration),
        (ROTATION, limits.rotation_acceleration),
    ):
        change[part] *= period * most / max(period * most, float(np.linalg.norm(change[part])))
    return twist + change


def _within_way(
    start: Float64Array, setpoint: Float64Array, state: Float64Array, limits: SafetyLimits
) -> bool:
    """Whether a state (7,) is about as far from a setpoint as its motion has led, or nearer.

    An arm farther away than that has not stayed behind: it is measured wrongly, or was taken there.
    """
    gone, away = distance(start, setpoint), distance(state, setpoint)
    return away[0] <= gone[0] + limits.lag_distance and away[1] <= gone[1] + limits.lag_angle
