"""The device of a replica does one piece of work at a time, whoever gives up meanwhile."""

from __future__ import annotations

import asyncio
import threading

import pytest

from jepa_planner_ros.serving.device import Device

PATIENCE = 10.0


def test_work_that_was_given_up_keeps_the_device_until_it_has_ended() -> None:
    begun, may_end = threading.Event(), threading.Event()
    course: list[str] = []

    def first() -> None:
        begun.set()
        assert may_end.wait(PATIENCE)
        course.append("first ended")

    async def run() -> None:
        device = Device()
        given_up = asyncio.create_task(device.run(first))
        await asyncio.to_thread(begun.wait, PATIENCE)
        following = asyncio.create_task(device.run(lambda: course.append("next")))
        for _ in range(3):
            given_up.cancel()
            await asyncio.sleep(0.02)
        assert device.busy
        assert not course
        may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await given_up
        await following
        assert not device.busy

    asyncio.run(run())
    assert course == ["first ended", "next"]


def test_work_that_fails_leaves_the_device_to_the_next() -> None:
    async def run() -> int:
        device = Device()
        with pytest.raises(ZeroDivisionError):
            await device.run(lambda: 1 // 0)
        return (await device.run(lambda: 7)).result

    assert asyncio.run(run()) == 7
