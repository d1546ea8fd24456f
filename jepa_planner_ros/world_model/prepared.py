"""Layers prepared once for inference: on a device, in a precision, in the layout it likes best.

What `jepa_planner_ros.world_model.transformer` is for training and as the reference, this is for
planning. The mathematics is the same; a test compares both in double precision.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn import functional

from jepa_planner_ros.world_model.precision import Precision
from jepa_planner_ros.world_model.rope import RopeTable, rope_table
from jepa_planner_ros.world_model.transformer import NORM_EPS

_INT8_MAX = 127.0


class Linear(Protocol):
    """An affine map of the last dimension, (..., inputs) -> (..., outputs)."""

    def __call__(self, x: Tensor) -> Tensor:
        """Apply it to `x` of any floating-point type."""


@dataclass(frozen=True, eq=False)
class DenseLinear:
    """The plain product with a weight (outputs, inputs)."""

    weight: Tensor
    bias: Tensor

    def __call__(self, x: Tensor) -> Tensor:
        """(..., inputs) -> (..., outputs)."""
        return functional.linear(x.to(self.weight.dtype), self.weight, self.bias)


@dataclass(frozen=True, eq=False)
class OneDnnLinear:
    """The same on a CPU, by oneDNN, in the weight's precision.

    PyTorch calls oneDNN for bf16 by itself, but for fp32 it calls MKL, which leaves half of the
    speed of AMD's processors unused.

    Attributes:
        weight: in oneDNN's own layout.
        bias: (outputs,).
        after: what oneDNN does to the sums before it stores them: ``none`` or ``gelu``.
    """

    weight: Tensor
    bias: Tensor
    after: str = "none"

    @classmethod
    def packed(cls, weight: Tensor, bias: Tensor, after: str = "none") -> OneDnnLinear:
        """With a weight (outputs, inputs) put into the order in which the kernels read it."""
        return cls(torch.ops.mkldnn._reorder_linear_weight(weight), bias, after)

    def __call__(self, x: Tensor) -> Tensor:
        """(..., inputs) -> (..., outputs)."""
        algorithm = "none" if self.after == "gelu" else ""  # The exact GELU, none of its likes.
        return torch.ops.mkldnn._linear_pointwise(
            x.to(self.bias.dtype), self.weight, self.bias, self.after, [], algorithm
        )


@dataclass(frozen=True, eq=False)
class UpcastLinear:
    """A weight kept in fp16 and multiplied in fp32, on a CPU, which does not multiply fp16.

    Its conversion takes a few percent of the product, whose rows are many.
    """

    weight: Tensor
    bias: Tensor
    after: str = "none"

    def __call__(self, x: Tensor) -> Tensor:
        """(..., inputs) -> (..., outputs), in fp32."""
        return OneDnnLinear(self.weight.float().to_mkldnn(), self.bias, self.after)(x)


@dataclass(frozen=True, eq=False)
class Int8Linear:
    """A product of 8-bit integers: weights scaled per output, inputs per token as they come.

    Attributes:
        weight: (inputs, outputs), rounded.
        scale: what one step of each output's weight is worth, (outputs,), fp32.
        bias: (outputs,).
    """

    weight: Tensor
    scale: Tensor
    bias: Tensor

    @classmethod
    def of(cls, weight: Tensor, bias: Tensor) -> Int8Linear:
        """Round a weight (outputs, inputs), given in fp32."""
        rounded, scale = _to_int8(weight)
        return cls(rounded.t(), scale[:, 0], bias)

    def __call__(self, x: Tensor) -> Tensor:
        """(..., inputs) -> (..., outputs)."""
        rounded, scale = _to_int8(x.flatten(0, -2))
        product = torch._int_mm(rounded, self.weight)
        y = (product * scale).mul_(self.scale).add_(self.bias)
        return y.to(self.bias.dtype).unflatten(0, x.shape[:-1])


def _to_int8(x: Tensor) -> tuple[Tensor, Tensor]:
    """Rows (rows, n) in 8 bits, and what one step of each row is worth, (rows, 1), in fp32."""
    scale = x.abs().amax(-1, keepdim=True).float().clamp_min(1e-12) / _INT8_MAX
    return (x / scale).round_().to(torch.int8), scale


@dataclass(frozen=True, eq=False)
class WithGelu:
    """A product, and the GELU of it."""

    linear: Linear

    def __call__(self, x: Tensor) -> Tensor:
        """(..., inputs) -> (..., outputs)."""
        return functional.gelu(self.linear(x))


@dataclass(frozen=True, eq=False)
class Norm:
    """LayerNorm over the last dimension."""

    weight: Tensor
    bias: Tensor

    def __call__(self, x: Tensor) -> Tensor:
        """(..., dim) -> (..., dim)."""
        return functional.layer_norm(x, x.shape[-1:], self.weight, self.bias, NORM_EPS)


@dataclass(frozen=True)
class Workshop:
    """Where weights are prepared for.

    Each weight is read, converted and moved by itself, so that no second copy of a model exists.
    """

    device: torch.device
    precision: Precision

    def linear(self, weights: Mapping[str, Tensor], name: str) -> Linear:
        """The affine map `name`, in the precision of matrix products."""
        return self._linear(weights[f"{name}.weight"], weights[f"{name}.bias"])

    def exact_linear(self, weights: Mapping[str, Tensor], name: str) -> Linear:
        """The same in the residual stream's precision, for inputs that must not be rounded."""
        dtype = self.precision.residual
        return DenseLinear(
            self._own(weights[f"{name}.weight"], dtype), self._own(weights[f"{name}.bias"], dtype)
        )

    def mlp(self, weights: Mapping[str, Tensor], name: str) -> tuple[Linear, Linear]:
        """Its two layers, the first with the GELU that follows it; perhaps of 8-bit integers."""
        if self.precision.int8_mlp:
            eight_bits = [
                Int8Linear.of(
                    self._own(weights[f"{name}.{layer}.weight"], torch.float32),
                    self._own(weights[f"{name}.{layer}.bias"], self.precision.matmul),
                )
                for layer in ("fc1", "fc2")
            ]
            return WithGelu(eight_bits[0]), eight_bits[1]
        hidden, output = (self.linear(weights, f"{name}.{layer}") for layer in ("fc1", "fc2"))
        if isinstance(hidden, (OneDnnLinear, UpcastLinear)):
            return replace(hidden, after="gelu"), output
        return WithGelu(hidden), output

    def norm(self, weights: Mapping[str, Tensor], name: str) -> Norm:
        """The LayerNorm `name`, in the residual stream's precision."""
        dtype = self.precision.residual
        return Norm(
            self._own(weights[f"{name}.weight"], dtype), self._own(weights[f"{name}.bias"], dtype)
        )

    def qkv(self, weights: Mapping[str, Tensor], name: str, heads: int) -> Linear:
        """Queries, keys and values, ready for `rotate_halves` and for products without a scale.

        Of each head's queries and keys, even components come first, then odd ones: rotations pair
        neighbours, which lie contiguous in memory then. A product of queries and keys is the same
        in any order of components. Queries are scaled by 1 / sqrt(head_dim) here, for good.
        """
        parts = []
        for part in ("weight", "bias"):
            stored = self._own(weights[f"{name}.{part}"], self.precision.residual)
            queries, keys, values = stored.unflatten(0, (3, heads, -1)).unbind(0)
            order = halves_order(queries.shape[1], self.device)
            queries = queries[:, order] * queries.shape[1] ** -0.5
            parts.append(torch.stack((queries, keys[:, order], values)).flatten(0, 2))
        return self._linear(*parts)

    def tubelets(self, weights: Mapping[str, Tensor], name: str) -> Linear:
        """The embedding of patches (..., 3 * patch_size**2) of a frame that fills its tubelet.

        The frame is the same at every instant of the tubelet, so the weights of these add up.
        """
        stored = self._own(weights[f"{name}.weight"], self.precision.residual)
        return self._linear(stored.sum(2).flatten(1), weights[f"{name}.bias"])

    def _linear(self, weight: Tensor, bias: Tensor) -> Linear:
        dtype = self.precision.matmul
        weight = self._own(weight, dtype)
        if self.device.type == "cpu" and dtype is torch.float16 and _on_onednn(torch.float32):
            return UpcastLinear(weight, self._own(bias, torch.float32))
        if self.device.type == "cpu" and _on_onednn(dtype):
            return OneDnnLinear.packed(weight, self._own(bias, dtype))
        return DenseLinear(weight, self._own(bias, dtype))

    def _own(self, weight: Tensor, dtype: torch.dtype) -> Tensor:
        """A copy, since what is stored may be a file in memory, which may change or go away."""
        return weight.to(self.device, dtype, copy=True)


def _on_onednn(dtype: torch.dtype) -> bool:
    """Whether this CPU's oneDNN has kernels for `dtype`."""
    if not torch.backends.mkldnn.is_available():
        return False
    if dtype is torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return dtype is torch.float32


class Attendance(NamedTuple):
    """What tokens bring to attention: (batch, heads, tokens, head_dim) each."""

    queries: Tensor
    keys: Tensor
    values: Tensor


@dataclass(frozen=True, eq=False)
class PreparedBlock:
    """A transformer block in two halves, between which keys and values can be remembered."""

    heads: int
    norm1: Norm
    qkv: Linear
    proj: Linear
    norm2: Norm
    mlp_hidden: Linear
    mlp_output: Linear

    @classmethod
    def of(
        cls, weights: Mapping[str, Tensor], index: int, heads: int, workshop: Workshop
    ) -> PreparedBlock:
        """Block `index` of a network's state dict."""
        name = f"blocks.{index}"
        return cls(
            heads,
            workshop.norm(weights, f"{name}.norm1"),
            workshop.qkv(weights, f"{name}.attn.qkv", heads),
            workshop.linear(weights, f"{name}.attn.proj"),
            workshop.norm(weights, f"{name}.norm2"),
            *workshop.mlp(weights, f"{name}.mlp"),
        )

    def attendance(self, x: Tensor, rope: RopeTable) -> Attendance:
        """Rotated queries and keys, and values, of tokens `x` (batch, tokens, dim)."""
        qkv = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        queries, keys = rotate_halves(qkv[:2], rope)
        return Attendance(queries, keys, qkv[2])

    def update(self, x: Tensor, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Tokens (batch, tokens, dim) after attending, with their `queries`, and the MLP."""
        x = x + self.proj(attend(queries, keys, values).transpose(1, 2).flatten(-2))
        return x + self.mlp_output(self.mlp_hidden(self.norm2(x)))


def attend(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Attention with scaled queries, in their precision.

    On CPUs, bf16 is twice as fast in two plain products.
    """
    keys, values = keys.to(queries.dtype), values.to(queries.dtype)
    if queries.device.type == "cpu" and queries.dtype is torch.bfloat16:
        return (queries @ keys.transpose(-1, -2)).softmax(-1) @ values
    return functional.scaled_dot_product_attention(queries, keys, values, scale=1.0)


def halves_order(head_dim: int, device: torch.device) -> Tensor:
    """Indices of a head's even components, then of its odd ones."""
    return torch.arange(head_dim, device=device).unflatten(0, (-1, 2)).t().flatten()


def halves_table(positions: Tensor, head_dim: int, dtype: torch.dtype) -> RopeTable:
    """`rope_table` with components in the order of `halves_order`."""
    order = halves_order(head_dim, positions.device)
    table = rope_table(positions, head_dim, dtype)
    return RopeTable(table.cos[:, order], table.sin[:, order])


def rotate_halves(x: Tensor, table: RopeTable) -> Tensor:
    """Rotate queries or keys (..., tokens, head_dim) by a `halves_table`, in its precision."""
    even, odd = x.chunk(2, dim=-1)
    (cos_even, cos_odd), (sin_even, sin_odd) = (part.chunk(2, dim=-1) for part in table)
    return torch.cat(
        (
            torch.addcmul(even * cos_even, odd, sin_even, value=-1).to(x.dtype),
            torch.addcmul(odd * cos_odd, even, sin_odd).to(x.dtype),
        ),
        dim=-1,
    )
