"""What a controller is sent, held against the limits by differences of the setpoints alone.

Nothing here knows how setpoints are made. A sequence of setpoints of one rate has as its speed,
acceleration and jerk their first, second and third differences, which no smooth motion within the
limits exceeds.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np
from scipy.spatial.transform import Rotation

from jepa_planner_ros.control.settings import SafetyLimits
from jepa_planner_ros.geometry import GRIPPER, POSITION, ROTATION
from jepa_planner_ros.types import Float64Array

_ROUNDING = 1.0 + 1e-6
_BOX_ROUNDING = 1e-6  # m
# Of the limit of speed: what a sequence may end at.
_RESTING = 0.02
# A setpoint repeated that often ends a sequence; the next begins there, or where the arm is.
_REPEATED = 20
_ORDERS = ("speed", "acceleration", "jerk")


@dataclass(frozen=True)
class Violation:
    """A limit that was exceeded, how far in parts of it, and when, s."""

    limit: str
    excess: float
    time: float


@dataclass
class SetpointAudit:
    """Judges setpoints as they come.

    Attributes:
        limits: to be kept.
        period: from setpoint to setpoint, s.
        start_distance: how far from the measured arm, or from the last setpoint, a sequence may
            begin, m.
        highest: by limit, the highest part of it that was made use of.
        violations: found so far.
        received: setpoints judged.
    """

    limits: SafetyLimits
    period: float
    start_distance: float = 0.02
    highest: dict[str, float] = field(default_factory=dict)
    violations: list[Violation] = field(default_factory=list)
    received: int = 0
    _heard: float = 0.0
    _under_way: bool = False
    _number: int = -1
    _moved: int = 0
    _last: Float64Array | None = None
    _steps: deque[Float64Array] = field(default_factory=lambda: deque(maxlen=3))

    def judge(
        self, setpoint: Float64Array, measured: Float64Array | None, number: int, time: float
    ) -> None:
        """Take in a setpoint (7,) when the arm was measured at a state (7,).

        Args:
            setpoint: what the controller is sent.
            measured: None where the arm has not been heard of yet.
            number: of the setpoint, as sent. Where some were lost on their way, the speed is the
                mean since the last one, and acceleration and jerk are judged from there on anew.
            time: when it came, s.
        """
        self.received += 1
        self._judge_position(setpoint[POSITION], time)
        last, self._last = self._last, setpoint
        steps_since, self._number, self._heard = number - self._number, number, time
        moves = last is None or bool((setpoint != last).any())
        if not self._under_way and not moves:
            return
        if not self._under_way or (moves and number - self._moved > _REPEATED):
            # A new sender counts from 1; where the first were lost, nobody knows the start.
            if steps_since == 1 or number == 1:
                self._judge_start(setpoint, last, measured, time)
            self._steps.clear()
            self._under_way, self._moved = True, number
            return
        assert last is not None, "it is under way"
        if moves:
            self._moved = number
        if steps_since > 1:
            self._steps.clear()
        self._steps.append(_step(last, setpoint) / steps_since)
        steps = np.array(self._steps)
        for part, kind in ((POSITION, "translation"), (ROTATION, "rotation")):
            for order, name in enumerate(_ORDERS[: len(steps)]):
                slope = np.diff(steps[-order - 1 :, part], order, axis=0)[-1]
                value = float(np.linalg.norm(slope)) / self.period ** (order + 1)
                limit = f"{kind}_{name}"
                self._count(limit, value / getattr(self.limits, limit), time)
        if steps_since > 1:
            self._steps.clear()

    @property
    def over(self) -> bool:
        """Whether no sequence is under way: the last one's end has been repeated often enough."""
        return not self._under_way or self._number - self._moved > _REPEATED

    @property
    def at_rest(self) -> bool:
        """Whether the last setpoint was that of an arm that stands, or nearly so."""
        if not self._steps:
            return True
        speed = float(np.linalg.norm(self._steps[-1][POSITION])) / self.period
        return speed <= _RESTING * self.limits.translation_speed

    def end(self) -> None:
        """A sequence has ended; it must not have been left in motion."""
        if not self.at_rest:
            self.violations.append(Violation("left in motion", 1.0, self._heard))
        self._steps.clear()
        self._under_way = False

    def _judge_position(self, position: Float64Array, time: float) -> None:
        below = np.array(self.limits.workspace_min) - position
        above = position - np.array(self.limits.workspace_max)
        if (outside := float(max(below.max(), above.max()))) > _BOX_ROUNDING:
            self.violations.append(Violation("workspace", outside, time))
        for low, high in self.limits.forbidden_boxes:
            if (position > low).all() and (position < high).all():
                self.violations.append(Violation("forbidden_boxes", 1.0, time))

    def _judge_start(
        self,
        setpoint: Float64Array,
        last: Float64Array | None,
        measured: Float64Array | None,
        time: float,
    ) -> None:
        away = [
            float(np.linalg.norm((setpoint - known)[POSITION]))
            for known in (last, measured)
            if known is not None
        ]
        if away:
            self._count("start", min(away) / self.start_distance, time)

    def _count(self, limit: str, part: float, time: float) -> None:
        self.highest[limit] = max(part, self.highest.get(limit, 0.0))
        if part > _ROUNDING:
            self.violations.append(Violation(limit, part, time))


def _step(start: Float64Array, end: Float64Array) -> Float64Array:
    """Metres and rotation vector (6,) from a state (7,) to the next."""
    turn = (
        Rotation.from_euler("xyz", end[ROTATION])
        * Rotation.from_euler("xyz", start[ROTATION]).inv()
    )
    step = np.empty(GRIPPER)
    step[POSITION], step[ROTATION] = end[POSITION] - start[POSITION], turn.as_rotvec()
    return step
