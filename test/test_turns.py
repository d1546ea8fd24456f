"""Robots that share a planner are served in turn, and told when it is busy."""

from __future__ import annotations

import asyncio

import pytest

from jepa_planner_ros.serving.messages import PlannerBusyError
from jepa_planner_ros.serving.turns import Turns


async def moments() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_a_robot_with_many_requests_keeps_no_other_waiting_for_them() -> None:
    served: list[str] = []

    async def plan(turns: Turns, robot: str) -> None:
        async with turns.turn(robot):
            served.append(robot)
            await moments()

    async def run() -> None:
        turns = Turns()
        await asyncio.gather(*(plan(turns, robot) for robot in "aaaaabbc"))

    asyncio.run(run())
    assert "".join(served) == "aabcabaa"


def test_no_more_plans_are_under_way_than_may_be() -> None:
    under_way: set[str] = set()
    most: list[int] = []

    async def plan(turns: Turns, robot: str) -> None:
        async with turns.turn(robot):
            under_way.add(robot)
            most.append(len(under_way))
            await moments()
            under_way.remove(robot)

    async def run() -> None:
        turns = Turns(at_once=3)
        for _ in range(2):
            await asyncio.gather(*(plan(turns, robot) for robot in "abcdefg"))

    asyncio.run(run())
    assert max(most) == 3
    assert not under_way


def test_a_robot_that_gives_up_costs_nobody_a_turn() -> None:
    async def run() -> list[str]:
        turns, served = Turns(), []

        async def plan(robot: str) -> None:
            async with turns.turn(robot):
                served.append(robot)
                await moments()

        tasks = [asyncio.create_task(plan(robot)) for robot in "abcd"]
        await asyncio.sleep(0)
        tasks[0].cancel()  # in its turn
        tasks[1].cancel()  # while it waits
        await asyncio.gather(*tasks, return_exceptions=True)
        await plan("e")
        return served

    assert asyncio.run(run()) == ["a", "c", "d", "e"]


def test_a_turn_that_fails_is_passed_on() -> None:
    async def run() -> None:
        turns = Turns()
        for _ in range(2):
            with pytest.raises(RuntimeError):
                async with turns.turn("a"):
                    raise RuntimeError

    asyncio.run(run())


def test_who_would_wait_too_long_is_told_when_to_come_back() -> None:
    async def run() -> PlannerBusyError:
        turns = Turns(most_waiting=2)

        async def plan() -> None:
            async with turns.turn("a"):
                await asyncio.sleep(0.02)

        await plan()
        waiting = [asyncio.create_task(plan()) for _ in range(3)]
        await asyncio.sleep(0)
        with pytest.raises(PlannerBusyError, match="2 plans wait already") as refusal:
            await plan()
        await asyncio.gather(*waiting)
        return refusal.value

    assert asyncio.run(run()).retry_after >= 0.04


def test_a_robot_that_fills_the_queue_makes_room_for_others() -> None:
    outcomes: list[str] = []

    async def plan(turns: Turns, robot: str) -> None:
        try:
            async with turns.turn(robot):
                outcomes.append(robot)
                await moments()
        except PlannerBusyError:
            outcomes.append(f"{robot} is refused")

    async def run() -> None:
        turns = Turns(most_waiting=4)
        await asyncio.gather(*(plan(turns, robot) for robot in ("a", *"aaaa", *"bcda")))

    asyncio.run(run())
    # In turn: a is under way, and each newcomer takes the place of a's last but one that has one.
    assert [one for one in outcomes if "refused" not in one] == ["a", "a", "b", "c", "d"]
    assert outcomes.count("a is refused") == len(outcomes) - 5 == 4


def test_where_no_robot_has_more_than_one_the_newcomer_is_refused() -> None:
    async def run() -> None:
        turns = Turns(most_waiting=2)

        async def plan(robot: str) -> None:
            async with turns.turn(robot):
                await moments()

        waiting = [asyncio.create_task(plan(robot)) for robot in "abc"]
        await asyncio.sleep(0)
        with pytest.raises(PlannerBusyError, match="2 plans wait already"):
            await plan("d")
        await asyncio.gather(*waiting)

    asyncio.run(run())


def test_a_refusal_that_comes_as_the_robot_gives_up_costs_no_turn() -> None:
    most = 0

    async def run() -> None:
        turns, under_way = Turns(most_waiting=2), 0

        async def plan(robot: str) -> None:
            nonlocal most, under_way
            async with turns.turn(robot):
                under_way += 1
                most = max(most, under_way)
                await moments()
                under_way -= 1

        tasks = [asyncio.create_task(plan(robot)) for robot in "aaa"]
        await asyncio.sleep(0)
        tasks.append(asyncio.create_task(plan("b")))
        await asyncio.sleep(0)
        tasks[2].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(run())
    assert most == 1
