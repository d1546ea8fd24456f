"""``jepa-planner serve`` as a person starts it: robots are served, and faults survived."""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import psutil
import pytest
import yaml
from planner_service import free_port
from ray._common.utils import import_attr
from ray.serve.schema import ServeDeploySchema
from test_remote import assert_equal_plans, patiently, request, throw_malformed_messages

from jepa_planner_ros.cli import CommandError, serve
from jepa_planner_ros.planning import InProcessPlanner
from jepa_planner_ros.search import CrossEntropySettings
from jepa_planner_ros.serving import RemotePlanner, RemoteSettings, ServingSettings
from jepa_planner_ros.serving.application import build
from jepa_planner_ros.serving.service import SERVICE_ENVIRONMENT
from jepa_planner_ros.share import share_directory
from jepa_planner_ros.types import Plan, PlannerError, PlannerUnavailableError
from jepa_planner_ros.world_model import load_world_model

# Long enough for a fault in its middle, with two micro-batches a round for each of two replicas.
LONG_SEARCH = CrossEntropySettings(samples=128, elites=8, rounds=6, horizon=2)
START_S = 180.0
END_S = 20.0


class Service:
    """The command, and what it prints."""

    def __init__(self, *arguments: str) -> None:
        self.port = free_port()
        ports = ("--port", str(self.port), "--health-port", str(free_port()))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "jepa_planner_ros.cli.main", "serve", *ports, *arguments],
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env=os.environ | {"RAY_metrics_report_interval_ms": "500"},
        )
        self.lines: list[str] = []
        self._more = threading.Condition()
        threading.Thread(target=self._read, daemon=True).start()

    def await_line(self, start: str, after: int = 0) -> int:
        """The index of the first line from `after` on that starts so."""
        with self._more:
            found = self._more.wait_for(lambda: self._find(start, after), START_S)
        assert found, f"no line starts with {start!r}:\n{self.lines}"
        return found - 1

    def connect(self, **changes: Any) -> RemotePlanner:
        return RemotePlanner(RemoteSettings(f"grpc://127.0.0.1:{self.port}", **changes))

    def descendants(self, name: str = "") -> list[psutil.Process]:
        children = psutil.Process(self.process.pid).children(recursive=True)
        return [child for child in children if name in " ".join(child.cmdline())]

    def _find(self, start: str, after: int) -> int:
        """One more than the index, so that it is true."""
        for index, line in enumerate(self.lines[after:], after + 1):
            if line.startswith(start):
                return index
        return 0

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._more:
                self.lines.append(line.rstrip())
                self._more.notify_all()


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    service = Service()
    service.await_line("health:   running (WorldModel 2 running")
    yield service
    processes = service.descendants()
    service.process.send_signal(signal.SIGTERM)
    assert service.process.wait(END_S) == 0
    _, living = psutil.wait_procs(processes, END_S)
    assert not living


@pytest.fixture(scope="module")
def planner(service: Service) -> Iterator[RemotePlanner]:
    planner = service.connect()
    yield planner
    planner.close()


@pytest.fixture(scope="module")
def here(one_thread: None) -> InProcessPlanner:
    return InProcessPlanner(load_world_model())


def test_plans_from_afar_are_those_made_here(
    service: Service, planner: RemotePlanner, here: InProcessPlanner
) -> None:
    assert planner.describe().fingerprint == here.describe().fingerprint
    assert planner.describe().replicas == 2
    assert f"endpoint: grpc://127.0.0.1:{service.port}" in service.lines
    assert_equal_plans(here.plan(request()), planner.plan(request()))
    report = planner.last_report
    assert report is not None
    # A round of one micro-batch is never divided: two rounds, and the chosen sequence.
    assert sum(report.shards.values()) == 3
    assert report.collisions == 0


def test_a_frame_encoded_by_a_replica_is_the_frame_encoded_here(planner: RemotePlanner) -> None:
    height, width = planner.describe().image_size
    frame = np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)
    np.testing.assert_array_equal(planner.encode(frame), load_world_model().encode(frame))


def test_several_robots_get_their_own_plans(service: Service, here: InProcessPlanner) -> None:
    def steps(robot: int) -> list[Plan]:
        planner = service.connect(robot=f"robot {robot}")
        plans = [planner.plan(request(10 * robot + step)) for step in range(3)]
        planner.close()
        return plans

    with ThreadPoolExecutor(3) as robots:
        plans = list(robots.map(steps, range(3)))
    for robot, own in enumerate(plans):
        for step, plan in enumerate(own):
            assert_equal_plans(here.plan(request(10 * robot + step)), plan)


def test_a_message_too_large_is_refused_unread(service: Service, planner: RemotePlanner) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{service.port}") as channel:
        session = channel.stream_stream("/jepa_planner.v1.JepaPlanner/PlanSession")
        with pytest.raises(grpc.RpcError) as refusal:
            list(session(iter([bytes(40 * 2**20)]), timeout=20.0))
    assert refusal.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert planner.plan(request()).rollouts == 33


def test_malformed_messages_do_not_keep_the_next_good_one_waiting(
    service: Service, planner: RemotePlanner, here: InProcessPlanner
) -> None:
    codes = throw_malformed_messages(service.port, planner.describe().fingerprint, 200)
    assert not codes & {grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNAVAILABLE}
    assert_equal_plans(here.plan(request()), planner.plan(request()))


def test_prometheus_finds_what_robots_asked_for(service: Service) -> None:
    planner = service.connect(robot="counted")
    for _ in range(3):
        planner.plan(request())
    with pytest.raises(PlannerError):
        planner.plan(request(search=CrossEntropySettings(samples=10**6, rounds=10)))
    planner.close()
    (address,) = (line.split()[1] for line in service.lines if line.startswith("metrics:"))

    def counted() -> float:
        with urllib.request.urlopen(address, timeout=10.0) as page:
            lines = page.read().decode().splitlines()
        made = (
            line
            for line in lines
            if line.startswith("ray_jepa_planner_plans_total{")
            and 'robot="counted"' in line
            and 'outcome="made"' in line
        )
        return sum(float(line.rpartition(" ")[2]) for line in made)

    # The robot's names for its requests join its log to the planner's.
    (logs,) = (line.split()[1] for line in service.lines if line.startswith("logs:"))
    logged = "".join(path.read_text() for path in Path(logs).glob("replica_*Planner*.log"))
    assert re.search(r"plan 'counted-\w+-2' made in", logged)
    assert re.search(r"plan 'counted-\w+-3' refused: the search is too large", logged)

    deadline = time.monotonic() + 60.0
    while counted() < 3.0:
        assert time.monotonic() < deadline, "Prometheus never saw three plans"
        time.sleep(0.2)


def test_a_replica_that_stops_costs_plans_their_time_and_no_more(
    service: Service, here: InProcessPlanner
) -> None:
    planner = service.connect(plan_timeout_s=1.5)
    asked = request(search=LONG_SEARCH)
    (stopped, *_) = service.descendants("ServeReplica:jepa_planner:WorldModel")
    stopped.suspend()
    try:
        with pytest.raises(PlannerUnavailableError, match="no answer within"):
            planner.plan(asked)
    finally:
        stopped.resume()
    planner.close()
    planner = service.connect()
    assert_equal_plans(here.plan(asked), patiently(planner, asked))
    planner.close()


@pytest.mark.parametrize("name", ["WorldModel", "Planner"])
def test_a_process_killed_in_mid_plan_does_not_change_the_plan(
    service: Service, planner: RemotePlanner, here: InProcessPlanner, name: str
) -> None:
    asked = request(search=LONG_SEARCH)
    (victim, *_) = service.descendants(f"ServeReplica:jepa_planner:{name}")
    threading.Timer(0.3, victim.kill).start()
    plan = patiently(planner, asked)
    assert not victim.is_running() or victim.status() == psutil.STATUS_ZOMBIE
    assert_equal_plans(here.plan(asked), plan)


def test_a_ray_that_is_lost_is_started_again(
    service: Service, planner: RemotePlanner, here: InProcessPlanner
) -> None:
    so_far = len(service.lines)
    for process in service.descendants():
        process.kill()
    service.await_line("lost:", so_far)
    service.await_line("endpoint:", so_far)
    assert_equal_plans(here.plan(request()), patiently(planner, request()))


def test_the_configurations_are_what_serve_takes() -> None:
    config = share_directory() / "config"
    kube, _service = yaml.safe_load_all((config / "rayservice.yaml").read_text())
    for deployed in ((config / "serve.yaml").read_text(), kube["spec"]["serveConfigV2"]):
        schema = ServeDeploySchema(**yaml.safe_load(deployed))
        (application,) = schema.applications
        assert callable(import_attr(application.import_path))
        (servicer,) = schema.grpc_options.grpc_servicer_functions
        assert callable(import_attr(servicer))
        arguments = {k: v for k, v in application.args.items() if k != "token_file"}
        ServingSettings(**arguments)
    assert str(SERVICE_ENVIRONMENT["RAY_SERVE_GRPC_MAX_MESSAGE_SIZE"]) in str(kube)


def test_what_is_fully_given_is_served_before_the_gpus_have_joined() -> None:
    planner = build({"device": "cuda", "replicas": 8})
    (world_models, replicas, _) = planner._bound_deployment.init_args
    assert replicas == world_models._bound_deployment.num_replicas == 8
    assert world_models._bound_deployment.ray_actor_options["num_gpus"] == 1


@pytest.mark.parametrize("option", [["--metrics-port", "9090"], ["--dashboard"]])
def test_what_only_a_cluster_can_be_told_is_refused(option: list[str]) -> None:
    arguments = argparse.ArgumentParser()
    serve.add_arguments(arguments)
    with pytest.raises(CommandError, match=f"{option[0]} is for a Ray that this command starts"):
        serve.run(arguments.parse_args(["--address", "127.0.0.1:9", *option]))


def test_a_cluster_that_is_not_there_is_named() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "jepa_planner_ros.cli.main", "serve", "--address", "127.0.0.1:9"],
        capture_output=True,
        text=True,
        timeout=START_S,
    )
    assert result.returncode == 1
    assert "there is no Ray cluster at '127.0.0.1:9'" in result.stderr


def test_a_token_file_that_is_missing_is_named(tmp_path: Path) -> None:
    result = subprocess.run(
        [
            *(sys.executable, "-m", "jepa_planner_ros.cli.main", "serve"),
            *("--token-file", str(tmp_path / "none")),
            *("--port", str(free_port()), "--health-port", str(free_port())),
        ],
        capture_output=True,
        text=True,
        timeout=60.0,
    )
    assert result.returncode == 1
    assert f"the token cannot be read from {tmp_path / 'none'}: No such file" in result.stderr
    assert "Errno" not in result.stderr
