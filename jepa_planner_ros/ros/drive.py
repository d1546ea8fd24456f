"""What moves the arm: from the control loop's targets to what a commander sends."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from threading import Lock
from typing import Protocol, TypeAlias

import numpy as np
from rclpy.callback_groups import CallbackGroup
from rclpy.clock import Clock
from rclpy.clock_type import ClockType
from rclpy.node import Node

from jepa_planner_ros.control import ControlSettings, GripperMotion, RobotError
from jepa_planner_ros.control.setpoints import Measured, Setpoints
from jepa_planner_ros.ros.arm import Arm
from jepa_planner_ros.ros.commander import Commander
from jepa_planner_ros.ros.gripper import Gripper
from jepa_planner_ros.types import Float64Array

_STILL = np.zeros(6)

Refusal: TypeAlias = Callable[[], str | None]
"""Tells why the arm must not be moved now, or None where it may be."""


class Drive(Protocol):
    """Carries out targets. The methods may be called from any thread."""

    def prepare(self, settings: ControlSettings) -> None:
        """An episode begins, with these settings."""

    def fault(self) -> str | None:
        """Why the motion was stopped, if it was; asking shows that the control loop runs."""

    def command(
        self, target: Float64Array, gripper: GripperMotion | None, start: Float64Array
    ) -> None:
        """Go to a state (7,) from the measured one (7,) for which it was checked.

        Raises:
            RobotError: the arm must not be moved, or nobody listens.
        """

    def hold(self, target: Float64Array) -> None:
        """Stop, at or near a state (7,). Raises `RobotError`."""

    def settle(self) -> None:
        """Stop what is under way, unless a fault is being seen to."""

    def stop(self) -> None:
        """Stop whatever is under way, without waiting for the control loop."""

    @property
    def moving(self) -> bool:
        """Whether setpoints are on their way."""

    def end(self) -> None:
        """Nothing will be sent any more."""


class DirectDrive:
    """Sends each target as it is, to a controller that finds its own way there."""

    def __init__(self, commander: Commander, gripper: Gripper, refusal: Refusal) -> None:
        self._commander = commander
        self._gripper = gripper
        self._refusal = refusal

    def prepare(self, settings: ControlSettings) -> None:
        """Nothing depends on the settings."""

    def fault(self) -> str | None:
        """Nothing is known about the controller's motion."""
        return None

    def command(
        self, target: Float64Array, gripper: GripperMotion | None, start: Float64Array
    ) -> None:
        """Go to a state (7,) from a measured one (7,). Raises `RobotError`."""
        self._commander.require_controller()
        _require_permission(self._refusal)
        self._commander.follow(target, _STILL)
        if gripper is not None:
            self._gripper.grip(gripper)

    def hold(self, target: Float64Array) -> None:
        """Go back to a state (7,) at which the arm was measured. Raises `RobotError`."""
        self._commander.require_controller()
        self._commander.follow(target, _STILL)

    def settle(self) -> None:
        """Nothing is under way here."""

    def stop(self) -> None:
        """Nothing is under way here; the control loop holds the arm at its next tick."""

    @property
    def moving(self) -> bool:
        """A target is sent once."""
        return False

    def end(self) -> None:
        """Nothing is under way here."""


class SmoothDrive:
    """Sends setpoints on a smooth way to each target, at a steady rate.

    Setpoint follows setpoint by one period of the motion's own clock, however late the timer is:
    on a busy computer the motion takes longer, and no setpoint is farther from those before than
    the limits allow. Only a controller that has been given a whole motion keeps the time itself.

    Args:
        node: has the timer.
        commander: sends.
        gripper: opens and closes.
        arm: is measured.
        refusal: is asked before arm or gripper are set in motion. Whoever makes it refuse and calls
            `stop` then can be sure that nothing moves them afterwards.
        rate: setpoints per second.
        group: of the timer, in which nothing else may run long.
    """

    def __init__(
        self,
        node: Node,
        commander: Commander,
        gripper: Gripper,
        arm: Arm,
        refusal: Refusal,
        rate: float,
        group: CallbackGroup,
    ) -> None:
        self._node = node
        self._commander = commander
        self._gripper = gripper
        self._arm = arm
        self._refusal = refusal
        self._settings = ControlSettings()
        self._lock = Lock()
        self._setpoints = Setpoints()
        self._under_way = False
        self._period = 1.0 / rate
        self._sent = 0.0
        """Time of the setpoint sent last, on the motion's clock, s."""
        self._heard = time.monotonic()
        # The node's own clock may be simulated and stop or jump; a watchdog must not.
        steady = Clock(clock_type=ClockType.STEADY_TIME)
        self._timer = node.create_timer(
            self._period, self._send, callback_group=group, clock=steady
        )

    def prepare(self, settings: ControlSettings) -> None:
        """An episode begins, with these settings; an earlier fault does not count any more."""
        with self._lock:
            self._settings = settings
            self._setpoints = Setpoints(self._setpoints.motion, rested=self._setpoints.rested)
            self._heard = time.monotonic()

    def fault(self) -> str | None:
        """Why the motion was stopped, if it was; asking shows that the control loop runs."""
        with self._lock:
            self._heard = time.monotonic()
            return self._setpoints.fault

    def command(
        self, target: Float64Array, gripper: GripperMotion | None, start: Float64Array
    ) -> None:
        """Go to a state (7,) from the measured one (7,) for which it was checked.

        Raises:
            RobotError: a fault has stopped the arm, it cannot be moved so, or nobody listens.
        """
        self._commander.require_controller()
        settings = self._settings
        with self._lock:
            _require_permission(self._refusal)
            if self._setpoints.fault is not None:
                # What was stopped for a reason stays stopped until another episode begins.
                raise RobotError(self._setpoints.fault)
            now, setpoints = self._now, self._setpoints
            if self._commander.keeps_time and not setpoints.moving(now):
                # Its trajectories begin where the arm is, and end when this motion does.
                setpoints = replace(setpoints, motion=None)
            setpoints = setpoints.towards(target, start, now, settings.motion, settings.safety)
            self._begin(setpoints, now)
            if setpoints.fault is not None:
                raise RobotError(setpoints.fault)
            # The loop that asked for it was not silent while the way was computed.
            self._heard = time.monotonic()
            if gripper is not None:
                # The permission may have been taken back while the way was computed.
                _require_permission(self._refusal)
                self._gripper.grip(gripper)

    def hold(self, target: Float64Array) -> None:
        """Brake, unless a fault is being seen to; where the arm stops depends on its speed."""
        self.settle()

    def settle(self) -> None:
        """Brake, but let setpoints that go back to an arm that did not follow do so."""
        with self._lock:
            if self._setpoints.fault is None:
                self._brake()

    def stop(self) -> None:
        """Brake as hard as the limits allow."""
        with self._lock:
            self._brake()

    @property
    def moving(self) -> bool:
        """Whether setpoints are on their way."""
        with self._lock:
            return self._setpoints.moving(self._now)

    def end(self) -> None:
        """Nothing will be sent any more."""
        with self._lock:
            if self._under_way:
                self._under_way = False
                self._commander.rest()

    @property
    def _now(self) -> float:
        """Now on the motion's clock, s."""
        return time.monotonic() if self._commander.keeps_time else self._sent

    def _measured(self, steady: float) -> Measured | None:
        """Age of the newest measurement, s, and the state (7,); None where the loop gives up."""
        measured = self._arm.newest()
        if measured is None or steady - measured.time > self._settings.freshness.joints:
            return None
        return steady - measured.time, measured.state

    def _brake(self) -> None:
        now = self._now
        braked = self._setpoints.braked(now, self._settings.safety)
        if braked is not self._setpoints:
            self._divert(braked, now)

    def _begin(self, setpoints: Setpoints, now: float) -> None:
        """Send a motion that was made for `now`; it begins as much later as sending it takes."""
        assert setpoints.motion is not None
        self._commander.begin(setpoints.motion, self._settings.safety)
        motion = setpoints.motion.delayed(self._now - now)
        self._setpoints, self._under_way = replace(setpoints, motion=motion), True

    def _divert(self, setpoints: Setpoints, now: float) -> None:
        """Begin another motion than the loop asked for; there is nobody to raise an error to."""
        try:
            self._begin(setpoints, now)
        except RobotError as error:
            self._node.get_logger().error(f"The arm is halted where it is: {error}")
            self._commander.halt()

    def _send(self) -> None:
        with self._lock:
            self._sent += self._period
            if not self._under_way:
                return
            steady, now, settings = time.monotonic(), self._now, self._settings
            measured = self._measured(steady)
            watched = self._setpoints.watched(
                now, steady - self._heard, measured, settings.motion, settings.safety
            )
            diverted = watched.motion is not self._setpoints.motion
            self._setpoints = watched
            if diverted:
                self._divert(watched, now)
            now, setpoints = self._now, self._setpoints
            setpoint = setpoints.at(now)
            assert setpoint is not None, "a motion is under way"
            self._commander.follow(setpoint, setpoints.twist(now, measured, settings.safety))
            self._under_way = setpoints.sending(now)
            if not self._under_way:
                self._commander.rest()


def _require_permission(refusal: Refusal) -> None:
    if reason := refusal():
        raise RobotError(reason)
