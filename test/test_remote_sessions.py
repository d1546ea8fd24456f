"""Sessions with a planner elsewhere: their time, their replies, and their ends."""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
from collections.abc import AsyncIterator

import numpy as np
import pytest
from planner_service import InProcessService, serving
from random_weights import random_checkpoint
from test_remote import assert_equal_plans, connect, request

from jepa_planner_ros.planning import InProcessPlanner
from jepa_planner_ros.serving import endpoint as endpoints
from jepa_planner_ros.serving.endpoint import CallContext, PlannerEndpoint
from jepa_planner_ros.serving.wire import jepa_planner_pb2 as pb
from jepa_planner_ros.serving.wire.latents import UnknownLatentError
from jepa_planner_ros.types import PlannerError, PlannerUnavailableError
from jepa_planner_ros.world_model import SMALL, WorldModel


@pytest.fixture(scope="module")
def world_model(one_thread: None) -> WorldModel:
    return WorldModel(random_checkpoint(SMALL), micro_batch=8)


@pytest.fixture
def service(world_model: WorldModel) -> InProcessService:
    return InProcessService(world_model)


class Unsteady(PlannerEndpoint):
    """Remembers what it was asked; is late, or breaks the session off, where a test wants it."""

    def __init__(self, service: InProcessService) -> None:
        super().__init__(service, token=None)
        self.asked: list[pb.PlanRequest] = []
        self.late_s = 0.0
        self.breaks = 0
        self.ended = threading.Event()

    async def plan_session(
        self, requests: AsyncIterator[pb.PlanRequest], context: CallContext
    ) -> AsyncIterator[pb.PlanReply]:
        async def arriving() -> AsyncIterator[pb.PlanRequest]:
            async for one in requests:
                self.asked.append(one)
                await asyncio.sleep(self.late_s)
                if self.breaks:
                    self.breaks -= 1
                    return
                yield one

        async for reply in super().plan_session(arriving(), context):
            yield reply
        self.ended.set()


def test_all_attempts_at_a_plan_share_one_time_limit(service: InProcessService) -> None:
    endpoint = Unsteady(service)
    with serving(endpoint) as port:
        planner = connect(port, plan_timeout_s=5.0)
        planner.plan(request())
        endpoint.late_s, endpoint.breaks = 0.3, 1
        service.trouble = [UnknownLatentError("send it again")]
        planner.plan(request(1))
        planner.close()
    _usual, first, after_the_break, whole = (asked.time_limit_s for asked in endpoint.asked)
    assert first <= 5.0
    assert after_the_break < first - 0.29
    assert whole < after_the_break - 0.29


def test_after_an_interrupt_the_next_plan_is_its_own(
    world_model: WorldModel, service: InProcessService
) -> None:
    own = InProcessPlanner(world_model).plan(request(2))
    endpoint = Unsteady(service)
    with serving(endpoint) as port:
        planner = connect(port)
        planner.plan(request())
        endpoint.late_s = 0.4
        this = threading.get_ident()
        threading.Timer(0.1, signal.pthread_kill, (this, signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            planner.plan(request(1))
        assert_equal_plans(own, planner.plan(request(2)))
        planner.close()


def test_no_two_requests_have_the_same_name(service: InProcessService) -> None:
    endpoint = Unsteady(service)
    with serving(endpoint) as port:
        for _ in range(2):
            planner = connect(port)
            planner.plan(request())
            planner.plan(request())
            planner.close()
    names = [asked.request_id for asked in endpoint.asked]
    assert len(set(names)) == len(names) == 4
    assert all(name.startswith("tester-") for name in names)


def test_an_idle_session_is_ended_and_the_next_plan_opens_another(
    monkeypatch: pytest.MonkeyPatch, service: InProcessService
) -> None:
    monkeypatch.setattr(endpoints, "IDLE_S", 0.1)
    endpoint = Unsteady(service)
    with serving(endpoint) as port:
        planner = connect(port)
        before = planner.plan(request())
        assert endpoint.ended.wait(5.0)
        assert_equal_plans(before, planner.plan(request()))
        planner.close()


def test_frames_that_are_encoded_do_not_shorten_the_pauses_between_plans(
    service: InProcessService,
) -> None:
    frame = np.zeros((48, 64, 3), np.uint8)
    pauses = []
    with serving(PlannerEndpoint(service, token=None)) as port:
        planner = connect(port)
        for _ in range(4):
            service.trouble = [PlannerUnavailableError("away", 0.0)]
            with pytest.raises(PlannerUnavailableError) as away:
                planner.plan(request())
            pauses.append(away.value.retry_after)
            planner.encode(frame)
        planner.close()
    assert pauses == sorted(pauses)
    assert pauses[-1] > 4 * pauses[0]


def test_a_planner_closed_while_a_plan_begins_stays_closed(service: InProcessService) -> None:
    with serving(PlannerEndpoint(service, token=None)) as port:
        planner = connect(port)
        failures: list[Exception] = []

        def plan() -> None:
            try:
                planner.plan(request())
            except PlannerError as error:
                failures.append(error)

        planner._drop(planner._connection)
        asking, closing = threading.Thread(target=plan), threading.Thread(target=planner.close)
        with planner._connecting:
            asking.start()
            asking.join(0.3)
            closing.start()
            closing.join(0.1)
        asking.join()
        closing.join()
    assert "was closed" in str(*failures)


def test_a_planner_on_this_computer_is_not_sought_through_a_proxy(
    monkeypatch: pytest.MonkeyPatch, service: InProcessService
) -> None:
    for name in ("no_proxy", "no_grpc_proxy"):
        monkeypatch.delenv(name, raising=False)
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        proxy.settimeout(0.0)
        for name in ("http_proxy", "https_proxy", "grpc_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.getsockname()[1]}")
        with serving(PlannerEndpoint(service, token=None)) as port:
            planner = connect(port)
            assert planner.plan(request()).rollouts == 33
            planner.close()
        with pytest.raises(BlockingIOError):
            proxy.accept()
