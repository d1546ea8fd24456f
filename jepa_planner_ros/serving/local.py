"""The planner on a Ray cluster of its own, on this machine."""

from __future__ import annotations

import itertools
import logging
import threading
import time
from concurrent.futures import Future
from importlib.util import find_spec
from pathlib import Path

from jepa_planner_ros.serving.host_process import HostLostError, HostProcess, private_cluster
from jepa_planner_ros.serving.messages import (
    GRACE_S,
    HostReply,
    HostRequest,
    HostSettings,
    ServedPlan,
    ServingReport,
)
from jepa_planner_ros.serving.settings import ServingSettings
from jepa_planner_ros.types import (
    ModelDescription,
    Plan,
    PlannerError,
    PlannerUnavailableError,
    PlanRequest,
)
from jepa_planner_ros.world_model import PRESETS
from jepa_planner_ros.world_model.precision import AUTO

_HOST = f"{__package__}.host"
# How long to wait before asking again whether Ray has been started, s.
_RETRY_AFTER_S = 1.0

_log = logging.getLogger(__name__)


class LocalRayPlanner:
    """A planner whose rollouts are shared out among processes or GPUs of this machine.

    It starts a private Ray, waits until every replica has run the model, and ends it again with
    `close`, or when this process ends in any way. Ray runs in a session of its own, so neither its
    failures nor a Ctrl-C in the terminal pass from one to the other. Should Ray be lost, the next
    plan fails with `PlannerUnavailableError`, and another Ray is started in the background. Plans
    equal those of `jepa_planner_ros.planning.InProcessPlanner` to the last bit. Threads may share a
    planner; their plans are made one after the other.

    Args:
        checkpoint: a preset's name, one of our safetensors files, or Meta's ``.pt``.
        replicas: copies of the world model; None gives one per GPU, or two on the CPU.
        device: ``auto``, ``cpu`` or ``cuda``.
        precision: number format of the rollouts; ``auto`` is fp16 on GPUs and fp32 on CPUs.
        micro_batch: candidates rolled out at once; None for as many as suit the device.
        plan_timeout_s: a plan that takes longer is given up.
        start_timeout_s: time limit of starting Ray and loading the model.
        dashboard: serve Ray's dashboard on http://127.0.0.1:8265.
        pace_s: see `ServingSettings`.

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
        pace_s: float = 0.0,
    ) -> None:
        # A relative path must mean the same to the replicas.
        path = str(checkpoint)
        if path not in PRESETS:
            path = str(Path(checkpoint).absolute())
        serving = ServingSettings(path, device, replicas, precision, micro_batch, pace_s)
        serving.require_checkpoint()
        if find_spec("ray") is None:
            raise PlannerError(
                "Ray is not installed: run pip install 'ray[serve]', or plan in this process."
            )
        self.plan_timeout_s = plan_timeout_s
        self._settings = HostSettings(serving, dashboard)
        self._start_timeout_s = start_timeout_s
        self._numbers = itertools.count()
        self._one_plan = threading.Lock()
        self._closed = False
        self.last_report: ServingReport | None = None
        """How the replicas shared the latest plan."""
        self._ray = _Ray(self._settings, start_timeout_s)
        try:
            self._description = self._ray.ready.result()
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
            PlannerUnavailableError: Ray is being started again, or no plan was made in time.
            PlannerError: the request does not fit the model, or the planner was closed.
        """
        with self._one_plan:
            try:
                self._require_ray()
                served = self._ray.plan(
                    HostRequest(next(self._numbers), request, self.plan_timeout_s)
                )
            except HostLostError as lost:
                self._start_again(lost)
                raise PlannerUnavailableError(
                    f"{lost}; Ray is started again in the background.", _RETRY_AFTER_S
                ) from lost
            self.last_report = served.report
        return served.plan

    def close(self) -> None:
        """End Ray and every process of it. A plan in progress in another thread fails."""
        self._closed = True
        self._ray.end()

    def _require_ray(self) -> None:
        """Raise unless Ray is there, with the same model as ever."""
        if self._closed:
            raise PlannerError("the planner was closed.")
        if not self._ray.ready.done():
            raise PlannerUnavailableError(
                f"Ray is being started again, for {self._ray.age:.0f} s now.", _RETRY_AFTER_S
            )
        try:
            description = self._ray.ready.result()
        except PlannerError as error:
            raise HostLostError(f"Ray could not be started again: {error}") from error
        if description != self._description:
            raise PlannerError(
                f"the checkpoint has changed on disk: model {description.fingerprint} would plan "
                f"in place of {self._description.fingerprint}; start the planner again."
            )

    def _start_again(self, lost: HostLostError) -> None:
        self._ray.end()
        if not self._closed:
            _log.warning("%s. Starting Ray again ...", lost)
            self._ray = _Ray(self._settings, self._start_timeout_s)
        # Whoever closes the planner meanwhile may still have seen the lost one.
        if self._closed:
            self._ray.end()
            raise PlannerError("the planner was closed.") from lost


class _Ray:
    """One Ray, from its start in the background to its end.

    Attributes:
        ready: what the replicas hold, once all are warm; or the `PlannerError` that prevents it.
    """

    def __init__(self, settings: HostSettings, timeout_s: float) -> None:
        self._host = HostProcess(_HOST, private_cluster())
        self._begun = time.monotonic()
        self.ready: Future[ModelDescription] = Future()
        threading.Thread(
            target=self._start, args=(settings, timeout_s), name="starting Ray", daemon=True
        ).start()

    @property
    def age(self) -> float:
        """Time since the start was begun, s."""
        return time.monotonic() - self._begun

    def plan(self, request: HostRequest) -> ServedPlan:
        """Have a plan made. Raises `PlannerError`, and `HostLostError` when this Ray is lost."""
        self._host.send(request)
        patience_s = request.timeout_s + 2 * GRACE_S
        while True:
            reply: HostReply = self._host.receive(
                patience_s, f"the process that hosts Ray has not answered for {patience_s:g} s"
            )
            # The reply to an earlier request comes first if an interrupt broke off the wait for it.
            if reply.number == request.number:
                if isinstance(reply.answer, PlannerError):
                    raise reply.answer
                return reply.answer

    def end(self) -> None:
        """End every process of it."""
        self._host.end()

    def _start(self, settings: HostSettings, timeout_s: float) -> None:
        try:
            self._host.send(settings)
            answer: ModelDescription | PlannerError = self._host.receive(
                timeout_s,
                f"Ray and the world model were not ready within {timeout_s:g} s; "
                "serving.start_timeout sets the limit",
            )
        except PlannerError as error:
            answer = error
        if isinstance(answer, PlannerError):
            self.ready.set_exception(answer)
        else:
            self.ready.set_result(answer)
