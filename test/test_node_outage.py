"""The planner node while its planner elsewhere is away: the arm holds, says why, and goes on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest
from diagnostic_msgs.msg import DiagnosticStatus
from jepa_planner_msgs.action import ReachGoal
from jepa_planner_msgs.msg import SubGoal
from node_under_test import (
    HOME,
    Neighbourhood,
    image_message,
    neighbourhood,
    picture,
    wait_until,
    write_tiny_model,
)
from planner_service import InProcessService, Relay, serving

from jepa_planner_ros.serving.endpoint import PlannerEndpoint
from jepa_planner_ros.world_model import load_world_model

FAR = picture(HOME + np.array([0.1, 0.2, -0.1, 0, 0, 0, 0]))
BUDGET = 6
TIMEOUT = 0.5


@dataclass
class Connected:
    """The node, and the network between it and its planner."""

    node: Neighbourhood
    relay: Relay
    service: InProcessService


@pytest.fixture(scope="module", params=["onboard", "remote"])
def connected(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, one_thread: None
) -> Iterator[Connected]:
    model = write_tiny_model(tmp_path_factory.mktemp("model") / "tiny.safetensors")
    service = InProcessService(load_world_model(model))
    with serving(PlannerEndpoint(service, token=None)) as port:
        relay = Relay(port)
        parameters = (
            "planner:=remote",
            f"planner_address:=grpc://127.0.0.1:{relay.port}",
            f"serving.plan_timeout:={TIMEOUT}",
            f"encode:={request.param}",
            # Planner, node and robot share one interpreter here, and may wait for it.
            "max_age.camera:=10.0",
            "max_age.joints:=10.0",
        )
        with neighbourhood(model, *parameters) as node:
            yield Connected(node, relay, service)


def far(budget: int = BUDGET) -> SubGoal:
    return SubGoal(image=image_message(FAR), energy_threshold=1e-6, step_budget=budget)


def planner_status(node: Neighbourhood) -> DiagnosticStatus:
    node.client.diagnostics.clear()
    wait_until(lambda: bool(node.client.diagnostics), "diagnostics")
    return node.client.diagnostics[-1].status[-1]


def test_a_cut_network_holds_the_arm_until_it_is_mended(connected: Connected) -> None:
    node, relay = connected.node, connected.relay
    node.robot.targets.clear()
    goal = node.client.send(far())
    wait_until(lambda: len(node.robot.targets) >= 2, "two steps")

    relay.cut()
    wait_until(lambda: bool(goal.feedback[-1].holding), "feedback that the arm holds")
    assert "The planner is away" in goal.feedback[-1].holding
    assert goal.feedback[-1].step == len(node.robot.targets) - 1
    status = planner_status(node)
    assert status.level == DiagnosticStatus.ERROR
    assert "The planner is away" in status.message
    held = len(node.robot.targets)
    time.sleep(2 * TIMEOUT)
    assert len(node.robot.targets) == held

    relay.mend()
    _, result = goal.result()
    assert result.outcome == ReachGoal.Result.BUDGET_SPENT, result.reason
    assert result.steps == len(node.robot.targets) == BUDGET
    assert not goal.feedback[-1].holding
    status = planner_status(node)
    assert status.level == DiagnosticStatus.OK
    assert 0.0 < float(*(one.value for one in status.values if one.key == "network, s")) < 5.0


def test_a_goal_given_during_an_outage_ends_with_the_reason(connected: Connected) -> None:
    node, relay = connected.node, connected.relay
    node.robot.targets.clear()
    relay.cut()
    _, result = node.client.send(far(), time_limit=4.0).result()
    relay.mend()
    assert not node.robot.targets
    assert "he planner at grpc://127.0.0.1" in result.reason
    assert result.outcome == ReachGoal.Result.TIMED_OUT
    encoded_there = bool(connected.service.encoded)
    assert ("before the photographs were encoded" in result.reason) == encoded_there
    assert ("No plan for the last" in result.reason) != encoded_there


@pytest.mark.parametrize("connected", ["remote"], indirect=True)
def test_a_goal_given_during_an_outage_begins_when_it_is_over(connected: Connected) -> None:
    node, relay = connected.node, connected.relay
    node.robot.targets.clear()
    relay.cut()
    goal = node.client.send(far(budget=1))
    wait_until(lambda: bool(goal.feedback and goal.feedback[-1].holding), "feedback of the outage")
    assert "The planner is away" in goal.feedback[-1].holding
    relay.mend()
    _, result = goal.result()
    assert result.outcome == ReachGoal.Result.BUDGET_SPENT, result.reason
    assert result.steps == len(node.robot.targets) == 1
