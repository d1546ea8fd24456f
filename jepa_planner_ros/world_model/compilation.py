"""``torch.compile`` and CUDA graphs: where they run, and proof that they did."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

_Function = TypeVar("_Function", bound=Callable[..., Any])

COMPILE_SWITCHES = ("TORCHDYNAMO_DISABLE", "TORCH_COMPILE_DISABLE")
"""Environment variables that, set to 1, turn ``torch.compile`` into nothing, without a word."""

# A function is compiled anew for each frame, and for the first, last and other layers.
_VARIANTS = 64
_WARM_UPS = 2


def obstacle(device: torch.device, environment: Mapping[str, str] | None = None) -> str:
    """Why ``torch.compile`` cannot compile for a device, as a sentence; empty where it can.

    Asked of the environment, since ``torch._dynamo.config.disable`` reads False all the same.
    """
    environment = os.environ if environment is None else environment
    for switch in COMPILE_SWITCHES:
        if environment.get(switch) == "1":
            return f"{switch}=1 in the environment disables torch.compile: unset {switch}."
    if device.type == "cuda":
        from torch.utils._triton import has_triton

        if not has_triton():
            return "torch.compile needs Triton and a GPU of compute capability 7.0 or later."
    elif shutil.which(environment.get("CXX", "c++").split()[0]) is None:
        return "torch.compile needs a C++ compiler, which is not found."
    return ""


class Compiler:
    """Compiles functions of static shapes, and counts how often what it compiled has run.

    Args:
        backend: PyTorch's name of what compiles.

    Attributes:
        runs: calls of compiled code so far. Recording a CUDA graph calls it, replaying does not.
    """

    def __init__(self, backend: str = "inductor") -> None:
        # Here, since it takes seconds, and few who import this module compile.
        import torch._dynamo

        self._compile: Any = torch._dynamo.lookup_backend(backend)
        self.runs = 0

    def __call__(self, function: _Function) -> _Function:
        """The function, to be compiled at its first call with arguments of new shapes."""
        compiled: Any = torch.compile(
            function, backend=self._backend, fullgraph=True, dynamic=False
        )

        def limited(*args: Any) -> Any:
            # Set at every call, since each thread has a limit of its own.
            with torch._dynamo.config.patch(recompile_limit=_VARIANTS):
                return compiled(*args)

        return cast(_Function, limited)

    def _backend(self, graph: torch.fx.GraphModule, inputs: list[Tensor]) -> Callable[..., Any]:
        with torch._inductor.config.patch(_repeatable()):
            compiled = self._compile(graph, inputs)

        def counted(*args: Any) -> Any:
            self.runs += 1
            return compiled(*args)

        return counted


def _repeatable() -> dict[str, Any]:
    """Settings of the compiler for the same bits in every process, where it knows such.

    Kernels must not be chosen by timing them, which may come out differently on another replica.
    """
    return {"deterministic": True} if hasattr(torch._inductor.config, "deterministic") else {}


class RecordedCall:
    """A function of one tensor, recorded as a CUDA graph: one launch in place of hundreds.

    What the function reads besides its argument must stay where it is, and its result is
    overwritten by the next call.

    Args:
        function: runs on the GPU without waiting for it.
        example: an argument, of the shape that all will have.
    """

    def __init__(self, function: Callable[[Tensor], Any], example: Tensor) -> None:
        self._argument = example.clone()
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            # Libraries allocate and kernels are compiled at the first calls, which cannot be
            # recorded.
            for _ in range(_WARM_UPS):
                function(self._argument)
        torch.cuda.current_stream().wait_stream(aside)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._result = function(self._argument)

    def __call__(self, argument: Tensor) -> Any:
        """The function's result for `argument`."""
        self._argument.copy_(argument)
        self._graph.replay()
        return self._result
