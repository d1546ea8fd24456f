"""What the endpoint says when what is behind it does not answer, or is asked too much."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from planner_service import InProcessService
from random_weights import random_checkpoint

from jepa_planner_ros.serving.endpoint import PlannerEndpoint
from jepa_planner_ros.serving.wire import jepa_planner_pb2 as pb
from jepa_planner_ros.types import ModelDescription
from jepa_planner_ros.world_model import SMALL, WorldModel


class Here:
    """A call from this computer."""

    def peer(self) -> str:
        return "ipv4:127.0.0.1:50000"

    def invocation_metadata(self) -> list[tuple[str, str]]:
        return []


class SilentService(InProcessService):
    """Its replicas never come up."""

    async def describe(self) -> ModelDescription:
        await asyncio.Event().wait()
        raise AssertionError


@pytest.fixture(scope="module")
def world_model() -> WorldModel:
    return WorldModel(random_checkpoint(SMALL), micro_batch=4)


def test_a_handshake_without_replicas_is_answered_in_time(
    world_model: WorldModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jepa_planner_ros.serving.endpoint._HANDSHAKE_S", 0.05)
    endpoint = PlannerEndpoint(SilentService(world_model), token=None)
    reply = asyncio.run(asyncio.wait_for(endpoint.get_model(Here()), 10.0))
    assert reply.refusal.code == pb.Refusal.UNAVAILABLE
    assert "no replica has told its model" in reply.refusal.reason


@pytest.mark.parametrize("name", ["request_id", "robot", "model_fingerprint"])
@pytest.mark.parametrize("text", ["x" * 129, "two\nlines"])
def test_names_that_do_not_belong_into_a_log_are_refused(
    world_model: WorldModel, name: str, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    endpoint = PlannerEndpoint(InProcessService(world_model), token=None)

    async def ask() -> list[pb.PlanReply]:
        async def requests() -> AsyncIterator[pb.PlanRequest]:
            yield pb.PlanRequest(**{name: text})

        return [reply async for reply in endpoint.plan_session(requests(), Here())]

    (reply,) = asyncio.run(ask())
    assert reply.refusal.code == pb.Refusal.INVALID
    assert f"{name} must be of at most 128 printable characters" in reply.refusal.reason
    assert all("\n" not in record.getMessage() for record in caplog.records)
    assert all(len(record.getMessage()) < 250 for record in caplog.records)
