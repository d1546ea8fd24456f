"""The planner on a Ray cluster of its own, on this machine."""

from __future__ import annotations

import itertools
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import threading
from importlib.util import find_spec
from multiprocessing import Pipe
from pathlib import Path
from typing import Any, TypeVar

from jepa_planner_ros.serving.messages import (
    GRACE_S,
    HostReply,
    HostRequest,
    HostSettings,
    ServedPlan,
    ServingReport,
)
from jepa_planner_ros.serving.session import end_session
from jepa_planner_ros.serving.settings import ServingSettings
from jepa_planner_ros.types import ModelDescription, Plan, PlannerError, PlanRequest
from jepa_planner_ros.world_model import PRESETS, CheckpointError, read_checkpoint
from jepa_planner_ros.world_model.precision import AUTO

_Answer = TypeVar("_Answer")


class LocalRayPlanner:
    """A planner whose rollouts are shared out among processes or GPUs of this machine.

    It starts a private Ray, waits until every replica has run the model, and ends it again with
    `close`, or when this process ends in any way. Ray runs in a session of its own, so neither its
    failures nor a Ctrl-C in the terminal pass from one to the other. Plans equal those of
    `jepa_planner_ros.planning.InProcessPlanner` to the last bit. Threads may share a planner; their
    plans are made one after the other.

    Args:
        checkpoint: a preset's name, one of our safetensors files, or Meta's ``.pt``.
        replicas: copies of the world model; None gives one per GPU, or two on the CPU.
        device: ``auto``, ``cpu`` or ``cuda``.
        precision: number format of the rollouts; ``auto`` is fp16 on GPUs and fp32 on CPUs.
        micro_batch: candidates rolled out at once; None for as many as suit the device.
        plan_timeout_s: a plan that takes longer is given up.
        start_timeout_s: time limit of starting Ray and loading the model.
        dashboard: serve Ray's dashboard on http://127.0.0.1:8265.

    Raises:
        PlannerError: the cluster could not be started; the message says why.
        ValueError: an argument is out of its range.
    """

    def __init__(
        self,
        checkpoint: str | Path = "shipped",
        replicas: int | None = None,
        *,
        device: str = "auto",
        precision: str = AUTO,
        micro_batch: int | None = None,
        plan_timeout_s: float = 60.0,
        start_timeout_s: float = 120.0,
        dashboard: bool = False,
    ) -> None:
        # A relative path must mean the same to the replicas.
        path = str(checkpoint)
        if path not in PRESETS:
            path = str(Path(checkpoint).absolute())
        serving = ServingSettings(path, device, replicas, precision, micro_batch)
        try:
            # A useless file is better refused now than after half a minute, by a replica.
            read_checkpoint(path)
        except CheckpointError as error:
            raise PlannerError(str(error)) from error
        if find_spec("ray") is None:
            raise PlannerError(
                "Ray is not installed: run pip install 'ray[serve]', or plan in this process."
            )
        self.plan_timeout_s = plan_timeout_s
        self._numbers = itertools.count()
        self._one_plan = threading.Lock()
        self._closed = False
        self.last_report: ServingReport | None = None
        """How the replicas shared the latest plan."""
        # Not where TMPDIR may point: the path of a Unix socket ends after 107 bytes.
        self._directory = Path(tempfile.mkdtemp(prefix="jepa_ray_", dir="/tmp"))
        self._connection, for_host = Pipe()
        with for_host, self._log.open("wb") as log:
            self._host = subprocess.Popen(
                [sys.executable, "-m", f"{__package__}.host", str(for_host.fileno())],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=_environment(),
                pass_fds=[for_host.fileno()],
                start_new_session=True,
            )
        try:
            self._send(HostSettings(serving, self._directory, dashboard))
            self._description: ModelDescription = _unless_error(
                self._receive(
                    start_timeout_s,
                    f"Ray and the world model were not ready within {start_timeout_s:g} s; "
                    "serving.start_timeout sets the limit.",
                )
            )
        except BaseException:
            self.close()
            raise

    def describe(self) -> ModelDescription:
        """The model that plans, and how many replicas hold it.

        Raises:
            PlannerError: the planner was closed.
        """
        if self._closed:
            raise PlannerError("the planner was closed.")
        return self._description

    def plan(self, request: PlanRequest) -> Plan:
        """Search on the replicas.

        Raises:
            PlannerError: the request does not fit the model, no plan was made in time, or the
                cluster is gone.
        """
        with self._one_plan:
            served = self._exchange(request)
            self.last_report = served.report
        return served.plan

    def close(self) -> None:
        """End Ray and every process of it. A plan in progress in another thread fails."""
        if self._closed:
            return
        self._closed = True
        end_session(self._host.pid)
        self._host.wait()
        shutil.rmtree(self._directory, ignore_errors=True)

    @property
    def _log(self) -> Path:
        return self._directory / "host.log"

    def _exchange(self, request: PlanRequest) -> ServedPlan:
        number, limit_s = next(self._numbers), self.plan_timeout_s
        self._send(HostRequest(number, request, limit_s))
        patience_s = limit_s + 2 * GRACE_S
        while True:
            reply: HostReply = self._receive(
                patience_s, f"the process that hosts Ray has not answered for {patience_s:g} s."
            )
            # The reply to an earlier request comes first if an interrupt broke off the wait for it.
            if reply.number == number:
                return _unless_error(reply.answer)

    def _send(self, message: HostSettings | HostRequest) -> None:
        try:
            self._connection.send(message)
        except OSError:
            raise PlannerError(self._cause_of_death()) from None

    def _receive(self, timeout_s: float, complaint: str) -> Any:
        try:
            if not self._connection.poll(timeout_s):
                raise PlannerError(complaint)
            return self._connection.recv()
        except (EOFError, OSError):
            raise PlannerError(self._cause_of_death()) from None

    def _cause_of_death(self) -> str:
        if self._closed:
            return "the planner was closed."
        last_words = " ".join(self._log.read_text(errors="replace").splitlines()[-1:])
        return f"the process that hosts Ray has ended ({last_words}); start the planner again."


def _unless_error(answer: _Answer | PlannerError) -> _Answer:
    if isinstance(answer, PlannerError):
        raise answer
    return answer


def _environment() -> dict[str, str]:
    return os.environ | {
        # Only processes of this cluster know the token, so nobody else on the machine can join.
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "RAY_USAGE_STATS_ENABLED": "0",
        # The arm waits for the workers; Ray would give every other process precedence (nice 15).
        "RAY_worker_niceness": "0",
    }
