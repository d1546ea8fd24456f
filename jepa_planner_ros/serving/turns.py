"""So many plans at a time, and robots in turn."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from jepa_planner_ros.serving.messages import PlannerBusyError

MOST_WAITING = 64
"""Plans that may wait; more are better told so than kept until their time is up."""


class Turns:
    """Lets plans through, so many at a time.

    Robots that wait are served in turn, one plan of each, and whoever joins them is last; so a
    robot with many requests keeps no other one waiting for more than one of them. Where too many
    plans wait, the robot that has most of them loses its last one.

    Args:
        at_once: plans that may be under way.
        most_waiting: plans that may wait.
    """

    def __init__(self, at_once: int = 1, most_waiting: int = MOST_WAITING) -> None:
        self._at_once = at_once
        self._most_waiting = most_waiting
        self._taken = 0
        self._usual_s = 0.0
        # In the order of their turns; robots with nobody waiting are not in it.
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    @asynccontextmanager
    async def turn(self, robot: str) -> AsyncIterator[float]:
        """Wait for the robot's turn, which ends with the block; yields the time waited, s.

        Raises:
            PlannerBusyError: too many wait, and no robot has more of them than this one.
        """
        asked = time.perf_counter()
        await self._wait(robot)
        begun = time.perf_counter()
        try:
            yield begun - asked
        finally:
            took = time.perf_counter() - begun
            self._usual_s = 0.8 * self._usual_s + 0.2 * took if self._usual_s else took
            self._pass_on()

    async def _wait(self, robot: str) -> None:
        if self._taken < self._at_once:
            self._taken += 1
            return
        called: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(robot, deque()).append(called)
        self._refuse_one_too_many(robot)
        try:
            await called
        except asyncio.CancelledError:
            if not called.cancelled() and called.exception() is None:
                self._pass_on()  # The turn came at the moment that the robot gave up.
            raise

    def _refuse_one_too_many(self, newcomer: str) -> None:
        waiting = {
            robot: [called for called in own if not called.cancelled()]
            for robot, own in self._waiting.items()
        }
        if sum(map(len, waiting.values())) <= self._most_waiting:
            return
        greediest = max(waiting, key=lambda robot: (len(waiting[robot]), robot == newcomer))
        refused = waiting[greediest][-1]
        self._waiting[greediest].remove(refused)
        if not self._waiting[greediest]:
            del self._waiting[greediest]
        pause = self._most_waiting * self._usual_s / self._at_once
        refused.set_exception(
            PlannerBusyError(
                f"the planner is busy: {self._most_waiting} plans wait already, for about "
                f"{pause:.1f} s.",
                retry_after=pause,
            )
        )

    def _pass_on(self) -> None:
        while self._waiting:
            robot = next(iter(self._waiting))
            own = self._waiting.pop(robot)
            called = own.popleft()
            if own:
                self._waiting[robot] = own
            if not called.cancelled():
                called.set_result(None)
                return
        self._taken -= 1
