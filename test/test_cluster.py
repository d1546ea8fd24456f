"""A Ray cluster that was there before: planners come and go on it, and are replaced under way.

Takes about three minutes, so it runs only where JEPA_CLUSTER_TESTS is set.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import yaml
from planner_service import free_port
from test_remote import assert_equal_plans, patiently, request

from jepa_planner_ros.planning import InProcessPlanner
from jepa_planner_ros.serving import RemotePlanner, RemoteSettings
from jepa_planner_ros.share import share_directory
from jepa_planner_ros.world_model import load_world_model

pytestmark = pytest.mark.skipif(
    "JEPA_CLUSTER_TESTS" not in os.environ,
    reason="takes three minutes; set JEPA_CLUSTER_TESTS=1",
)

PATIENCE = 180.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a cluster of one machine, with ports and files of its own."""
    port = free_port()
    ports = {
        "--port": port,
        "--ray-client-server-port": free_port(),
        "--dashboard-port": free_port(),
    }
    head = subprocess.Popen(
        [
            *(_script("ray"), "start", "--head", "--block", "--node-ip-address", "127.0.0.1"),
            *(str(part) for pair in ports.items() for part in pair),
            *("--temp-dir", "/tmp/jepa_cluster_test"),
        ],
        stdout=subprocess.DEVNULL,
        start_new_session=True,
        env=os.environ
        | {
            "RAY_SERVE_GRPC_MAX_MESSAGE_SIZE": "33554432",
            "RAY_DASHBOARD_ADDRESS": f"http://127.0.0.1:{ports['--dashboard-port']}",
        },
    )
    os.environ["RAY_ADDRESS"] = f"127.0.0.1:{port}"
    os.environ["RAY_DASHBOARD_ADDRESS"] = f"http://127.0.0.1:{ports['--dashboard-port']}"
    _await_listener(port)
    _await_listener(ports["--dashboard-port"])
    yield f"127.0.0.1:{port}"
    del os.environ["RAY_ADDRESS"], os.environ["RAY_DASHBOARD_ADDRESS"]
    family = [head, *psutil.Process(head.pid).children(recursive=True)]
    head.send_signal(signal.SIGTERM)
    _, living = psutil.wait_procs(family, 20.0)
    for process in living:
        process.kill()


@pytest.fixture(scope="module")
def here(one_thread: None) -> InProcessPlanner:
    return InProcessPlanner(load_world_model())


def test_a_planner_leaves_a_cluster_however_its_command_ends(
    cluster: str, here: InProcessPlanner
) -> None:
    command = [sys.executable, "-m", "jepa_planner_ros.cli.main", "serve", "--address", cluster]
    port = free_port()
    ports = ["--port", str(port), "--health-port", str(free_port())]
    serving = subprocess.Popen([*command, *ports], stdout=subprocess.PIPE, text=True)
    planner = _connected(port)
    assert_equal_plans(here.plan(request()), planner.plan(request()))
    planner.close()
    serving.send_signal(signal.SIGTERM)
    told, _ = serving.communicate(timeout=60.0)
    assert serving.returncode == 0
    assert f"endpoint: grpc://127.0.0.1:{port}" in told
    assert not _served()

    serving = subprocess.Popen([*command, *ports], stdout=subprocess.DEVNULL)
    _connected(port).close()
    serving.kill()
    serving.wait()
    _wait_for(lambda: not _served(), "the planner's removal")

    # Serve's proxies keep the port that they were started with: nobody answers on another.
    ports = ["--port", str(free_port()), "--health-port", str(free_port())]
    failed = subprocess.run([*command, *ports], capture_output=True, text=True, timeout=PATIENCE)
    assert "cannot be reached" in failed.stderr
    assert not _served()
    _run("serve", "shutdown", "-y")


def test_a_deployed_planner_is_replaced_without_a_plan_dropped(
    cluster: str, here: InProcessPlanner, tmp_path: Path
) -> None:
    port = free_port()
    config = yaml.safe_load((share_directory() / "config" / "serve.yaml").read_text())
    config["grpc_options"]["port"] = port
    config["http_options"]["port"] = free_port()
    arguments = config["applications"][0]["args"]
    file = tmp_path / "serve.yaml"

    def deploy(**changes: object) -> None:
        arguments.update(changes)
        file.write_text(yaml.safe_dump(config))
        _run("serve", "deploy", str(file))

    deploy(replicas=2)
    planner = _connected(port)
    expected = here.plan(request())
    replicas: set[str] = set()
    enough, failures = threading.Event(), []

    def drive() -> None:
        while not enough.is_set():
            try:
                assert_equal_plans(expected, patiently(planner, request()))
            except Exception as error:
                failures.append(error)
                return
            assert planner.last_report is not None
            replicas.update(planner.last_report.shards)

    robot = threading.Thread(target=drive)
    robot.start()
    try:
        _wait_for(lambda: bool(replicas) or not robot.is_alive(), "a plan")
        before = set(replicas)
        # Any change of the arguments replaces every replica; this one takes effect nowhere.
        deploy(pace_s=0.0001)
        replicas.clear()
        _wait_for(lambda: bool(replicas - before) or not robot.is_alive(), "another replica")
        time.sleep(10.0)
    finally:
        enough.set()
        robot.join()
    assert not failures
    planner.close()
    _run("serve", "shutdown", "-y")


def _connected(port: int) -> RemotePlanner:
    settings = RemoteSettings(f"grpc://127.0.0.1:{port}", start_timeout_s=PATIENCE)
    return RemotePlanner(settings)


def _served() -> bool:
    return "jepa_planner" in _run("serve", "status")


def _script(name: str) -> str:
    return str(Path(sys.executable).with_name(name))


def _run(name: str, *arguments: str) -> str:
    ran = subprocess.run([_script(name), *arguments], capture_output=True, text=True, timeout=60.0)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def _await_listener(port: int) -> None:
    def listens() -> bool:
        return any(
            one.laddr.port == port and one.status == psutil.CONN_LISTEN
            for one in psutil.net_connections("tcp")
            if one.laddr
        )

    _wait_for(listens, f"a listener on port {port}")


def _wait_for(condition: object, what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline, f"waited {PATIENCE:g} s for {what}"
        time.sleep(0.1)
