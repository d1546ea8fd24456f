"""The model of a plan's time over replicas, and the delay that stands in for a distance."""

from __future__ import annotations

import socket
import threading
import time
from pathlib import Path

import pytest

from jepa_planner_ros.cli.bench.delay import delayed
from jepa_planner_ros.cli.bench.latency_model import LatencyModel, draw, fit

MODEL = LatencyModel(r=0.06, k=0.05, c=0.0015)


def test_the_fit_finds_what_made_the_figures(tmp_path: Path) -> None:
    measured = {replicas: MODEL.round_seconds(replicas) for replicas in (1, 2, 3, 4)}
    found = fit(measured)
    assert found.r == pytest.approx(MODEL.r, rel=1e-6)
    assert found.k == pytest.approx(MODEL.k, rel=1e-5)
    assert found.c == pytest.approx(MODEL.c, rel=1e-5)
    assert found.error(measured) < 1e-9
    # 16 replicas with 5 % of loss each do the work of 16 / 1.75.
    assert found.effective(16) == pytest.approx(16 / 1.75, rel=1e-5)
    assert found.round_seconds(16) == pytest.approx(0.06 * 1.75 / 16 + 0.0015 * 15, rel=1e-5)
    draw(found, measured, 64, tmp_path / "model.png")
    assert (tmp_path / "model.png").stat().st_size > 10_000


def test_figures_that_do_not_fit_are_told_by_the_error() -> None:
    measured = {1: 0.06, 2: 0.03, 3: 0.09, 4: 0.015}
    assert fit(measured).error(measured) > 0.2


def test_two_numbers_of_replicas_do_not_fix_the_model() -> None:
    with pytest.raises(ValueError, match="three numbers of replicas"):
        fit({1: 0.1, 2: 0.05})


def test_what_is_sent_arrives_whole_and_late() -> None:
    sent = bytes(range(256)) * 1000
    with socket.create_server(("127.0.0.1", 0)) as server:

        def echo() -> None:
            connection, _ = server.accept()
            with connection:
                while data := connection.recv(2**16):
                    connection.sendall(data)

        threading.Thread(target=echo, daemon=True).start()
        with (
            delayed(server.getsockname()[1], round_trip=0.2) as entrance,
            socket.create_connection(("127.0.0.1", entrance)) as robot,
        ):
            begun = time.monotonic()
            robot.sendall(sent)
            received = b""
            while len(received) < len(sent):
                received += robot.recv(2**16)
            assert time.monotonic() - begun >= 0.2
    assert received == sent
