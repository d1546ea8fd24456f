"""The last gate before the controller: setpoints on the way to a target, and what stops them.

A target becomes a smooth motion within the limits of speed, acceleration and jerk; the setpoints
are its samples at a steady rate. They brake when the control loop falls silent, and end where the
arm is when it does not follow, so that nothing pushes on an arm in reflex or one that its user has
stopped.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from jepa_planner_ros.control.safety import distance, lag
from jepa_planner_ros.control.settings import MotionSettings, SafetyLimits
from jepa_planner_ros.robot.motion import CartesianMotion
from jepa_planner_ros.types import Float64Array


@dataclass(frozen=True, eq=False)
class Setpoints:
    """The motion that is being sent to the controller, at one moment of its life.

    Attributes:
        motion: under way, or the last one; None before the first.
        heard: when the control loop was last heard of, s on the steady clock.
        fault: why the motion was stopped; None while all is well.
    """

    motion: CartesianMotion | None = None
    heard: float = 0.0
    fault: str | None = None

    def moving(self, time: float) -> bool:
        """Whether a motion is under way."""
        return self.motion is not None and time < self.motion.ends

    def at(self, time: float) -> Float64Array | None:
        """The setpoint (7,) at a moment; None before the first motion."""
        return None if self.motion is None else self.motion.at(time)

    def heard_at(self, time: float) -> Setpoints:
        """The same after a sign of life of the control loop."""
        return replace(self, heard=time)

    def towards(
        self,
        target: Float64Array,
        measured: Float64Array,
        time: float,
        motion: MotionSettings,
        limits: SafetyLimits,
    ) -> Setpoints:
        """Leave for a target (7,).

        The motion goes on from the last setpoint; from where the arm is measured where it has
        never been sent anywhere, or was moved away since.
        """
        present = self.motion
        if present is None or _moved_away(present.at(time), measured, limits):
            present = CartesianMotion.at_rest(measured, time)
        leaving = present.towards(target, time, motion.duration, limits.motion)
        return replace(self, motion=leaving, heard=time)

    def braked(self, time: float, limits: SafetyLimits) -> Setpoints:
        """Come to rest as soon as the limits allow."""
        if self.motion is None or not self.moving(time):
            return self
        return replace(self, motion=self.motion.braked(time, limits.motion))

    def watched(
        self,
        time: float,
        measured: Float64Array | None,
        motion: MotionSettings,
        limits: SafetyLimits,
    ) -> Setpoints:
        """The same after a look at what may have gone wrong by `time`."""
        if self.motion is None or self.fault is not None or not self.moving(time):
            return self
        if time - self.heard > motion.watchdog:
            fault = (
                f"The control loop was not heard of for {time - self.heard:.1f} s and the arm was "
                f"stopped; the limit is motion.watchdog = {motion.watchdog:g} s."
            )
            return replace(self.braked(time, limits), fault=fault)
        if measured is None:
            return self
        lagging = lag(self.motion.at(time), measured, limits)
        if lagging is None:
            return self
        return replace(self, motion=CartesianMotion.at_rest(measured, time), fault=lagging)


def _moved_away(setpoint: Float64Array, measured: Float64Array, limits: SafetyLimits) -> bool:
    metres, radians = distance(setpoint, measured)
    return metres > limits.drift_distance or radians > limits.drift_angle
