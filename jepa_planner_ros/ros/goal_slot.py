"""One goal at a time: which one is accepted, and whether it is pursued or was given up."""

from __future__ import annotations

import time
from threading import Event, Lock

from jepa_planner_msgs.action import ReachGoal

from jepa_planner_ros.ros.goals import GoalError, ReachRequest

_TAKEN_UP_WITHIN = 5.0
"""An accepted goal is executed at once, s; this much later it is given up."""


class GoalSlot:
    """Room for one goal, from its acceptance to its end. Any thread may call the methods.

    A goal may never be executed, or much later: when the client leaves before it hears that its
    goal is accepted, rclpy says so to nobody. Then the next goal takes its place.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._accepted: tuple[ReachGoal.Goal, ReachRequest] | None = None
        self._accepted_at = 0.0
        self._executing = False
        self._free = Event()
        self._free.set()

    @property
    def busy(self) -> bool:
        """Whether a goal is pursued, or is about to be."""
        return not self._free.is_set() and not self._given_up

    def wait(self, timeout: float) -> bool:
        """Wait for the present goal's end. Returns whether that took less than `timeout` s."""
        return self._free.wait(timeout) or not self.busy

    def accept(self, goal: ReachGoal.Goal, request: ReachRequest) -> None:
        """Keep the place for a goal, as its client sent it and as it was read.

        Raises:
            GoalError: another has it.
        """
        with self._lock:
            self.require_free()
            self._accepted, self._accepted_at = (goal, request), time.monotonic()
            self._free.clear()

    def require_free(self) -> None:
        """Raise `GoalError` while a goal is pursued."""
        if self.busy:
            raise GoalError("Another goal is being pursued: await its result or cancel it first.")

    def take_up(self, goal: ReachGoal.Goal) -> ReachRequest | None:
        """What a goal asks for that is executed from now on; None where it has lost its place."""
        with self._lock:
            if self._accepted is None or self._accepted[0] is not goal:
                return None
            self._executing = True
            return self._accepted[1]

    def release(self) -> None:
        """The goal that was taken up has ended."""
        with self._lock:
            self._accepted, self._executing = None, False
            self._free.set()

    @property
    def _given_up(self) -> bool:
        return not self._executing and time.monotonic() - self._accepted_at > _TAKEN_UP_WITHIN
