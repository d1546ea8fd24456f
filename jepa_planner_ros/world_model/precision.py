"""Number formats that a world model can be run in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import MappingProxyType

import torch

AUTO = "auto"
"""The fastest precision of a device that leaves plans as good: fp16 on GPUs, fp32 on CPUs."""


@dataclass(frozen=True)
class Precision:
    """What is stored and computed in how many digits.

    Attributes:
        name: as parameters and command lines call it.
        matmul: weights, keys, values, and what goes into a matrix product; sums are kept in fp32.
            CPUs do not multiply fp16: there, it is what they keep, and they multiply fp32.
        residual: the stream that every block adds to, norms, and latents. In half precision it
            stays in fp32, or each addition would round away what the block before has found.
        tf32: whether fp32 products may drop 13 of their 23 digits, where a GPU is faster then.
        int8_mlp: whether the MLPs multiply 8-bit integers, scaled per token and per output.
    """

    name: str
    matmul: torch.dtype
    residual: torch.dtype = torch.float32
    tf32: bool = False
    int8_mlp: bool = False

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Set PyTorch's switch for fp32 products, which holds for the process, and reset it."""
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("high" if self.tf32 else "highest")
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(before)


FP64 = Precision("fp64", torch.float64, torch.float64)
"""Far too slow to plan with: what the others are measured against."""

PRECISIONS: Mapping[str, Precision] = MappingProxyType(
    {
        precision.name: precision
        for precision in (
            Precision("fp32", torch.float32),
            Precision("tf32", torch.float32, tf32=True),
            Precision("fp16", torch.float16),
            Precision("bf16", torch.bfloat16),
            Precision("int8", torch.float16, int8_mlp=True),
        )
    }
)
"""Precisions by name."""


def choose_precision(name: str, device: torch.device) -> Precision:
    """The precision that the parameter ``world_model.precision`` stands for on a device.

    Raises:
        ValueError: there is no such precision.
    """
    if name == AUTO:
        return PRECISIONS["fp16" if device.type == "cuda" else "fp32"]
    if name not in PRECISIONS:
        raise ValueError(
            f"world_model.precision {name!r} is unknown; it must be one of: "
            f"{', '.join((AUTO, *PRECISIONS))}."
        )
    chosen = PRECISIONS[name]
    if chosen.int8_mlp and device.type == "cpu":
        # CPUs do not multiply fp16; those with fast int8 mostly have bf16.
        return replace(chosen, matmul=torch.bfloat16)
    return chosen


def caution(precision: Precision, device: torch.device) -> str:
    """Why this precision is a bad choice on this device; empty where it is a good one."""
    if device.type == "cpu":
        if precision.tf32:
            return "tf32 is fp32 on a CPU: only GPUs have it."
        return ""
    if device.type == "cuda":
        major, minor = torch.cuda.get_device_capability(device)
        if precision.matmul is torch.bfloat16 and major < 8:
            return f"this GPU (compute capability {major}.{minor}) has no fast bf16: take fp16."
        if precision.tf32 and major < 8:
            return f"this GPU (compute capability {major}.{minor}) has no tf32: take fp16."
    return ""
