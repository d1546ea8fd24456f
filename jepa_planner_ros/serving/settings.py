"""What is to be served, and by how many replicas."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch

from jepa_planner_ros.types import PlannerError
from jepa_planner_ros.world_model import CheckpointError, choose_precision, read_checkpoint
from jepa_planner_ros.world_model.precision import AUTO

# Where there is no GPU. Two replicas keep two cores busy, and one can die without ending a plan.
_CPU_REPLICAS = 2


@dataclass(frozen=True)
class ServingSettings:
    """A world model and the replicas that hold it.

    Attributes:
        checkpoint: ``shipped``, one of our safetensors files, or Meta's ``.pt``.
        device: ``cpu``, ``cuda`` (one GPU for each replica), or ``auto``: GPUs where there are any.
        replicas: copies of the model; None gives one per GPU, or two on the CPU.
        precision: number format of encoder and rollouts, or ``auto``.
        micro_batch: candidates rolled out at once; None for as many as suit the device. Results
            depend on it in their last bits.
        pace_s: a micro-batch takes at least so long, s. For measurements of serving itself: the
            replica waits as one does for a slower device.
    """

    checkpoint: str = "shipped"
    device: str = "auto"
    replicas: int | None = None
    precision: str = AUTO
    micro_batch: int | None = None
    pace_s: float = 0.0

    def __post_init__(self) -> None:
        if self.device not in ("auto", "cpu", "cuda"):
            raise ValueError(f"serving.device {self.device!r} is unknown: 'auto', 'cpu' or 'cuda'.")
        choose_precision(self.precision, torch.device("cpu"))  # Raises where there is none.
        if self.replicas is not None and self.replicas < 1:
            raise ValueError(f"serving.replicas must be at least 1, not {self.replicas}.")
        if self.micro_batch is not None and self.micro_batch < 1:
            raise ValueError(f"serving.micro_batch must be at least 1, not {self.micro_batch}.")
        if not 0.0 <= self.pace_s < math.inf:
            raise ValueError(f"serving.pace_s must be a number of seconds, not {self.pace_s}.")

    def require_checkpoint(self) -> None:
        """See that the file can be used: sooner than a replica would, after half a minute.

        Raises:
            PlannerError: it cannot, or is not on this machine.
        """
        try:
            read_checkpoint(self.checkpoint)
        except CheckpointError as error:
            raise PlannerError(str(error)) from error

    def for_this_machine(self) -> ServingSettings:
        """The same with device and number of replicas decided by this machine's GPUs.

        Raises:
            PlannerError: there are fewer GPUs than replicas.
        """
        return self.decided(torch.cuda.device_count())

    def decided(self, gpus: int) -> ServingSettings:
        """The same with device and number of replicas decided, where there are so many GPUs.

        Raises:
            PlannerError: there are fewer GPUs than replicas.
        """
        device = ("cuda" if gpus else "cpu") if self.device == "auto" else self.device
        replicas = self.replicas or (max(gpus, 1) if device == "cuda" else _CPU_REPLICAS)
        if device == "cuda" and replicas > gpus:
            raise PlannerError(
                f"serving.replicas {replicas} needs as many GPUs, but there are {gpus} here: "
                "lower it, or set serving.device to 'cpu'."
            )
        return replace(self, device=device, replicas=replicas)
