"""Arrays as raw bytes with a header, which is checked before a byte is believed."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jepa_planner_ros.serving.wire import WireError
from jepa_planner_ros.serving.wire import jepa_planner_pb2 as pb

MAX_BYTES = 16 * 2**20
"""Of one tensor. The largest in use are a camera frame and a few latents of Meta's model."""

_MAX_AXES = 4
_DIGEST_BYTES = 16

DTYPES: Mapping[pb.DType, np.dtype[Any]] = {
    pb.FLOAT16: np.dtype("<f2"),
    pb.FLOAT32: np.dtype("<f4"),
    pb.FLOAT64: np.dtype("<f8"),
    pb.INT64: np.dtype("<i8"),
    pb.UINT8: np.dtype("u1"),
}
"""What the wire's names mean."""

_NAMES = {dtype: name for name, dtype in DTYPES.items()}


def pack(array: NDArray[Any]) -> pb.Tensor:
    """An array as a tensor of the same dtype."""
    little = array.astype(array.dtype.newbyteorder("<"), order="C", copy=False)
    return pb.Tensor(dtype=_NAMES[little.dtype], shape=array.shape, data=little.tobytes())


def unpack(tensor: pb.Tensor, *dtypes: pb.DType) -> NDArray[Any]:
    """A tensor as a new array.

    Args:
        tensor: as received.
        dtypes: which of them to accept.

    Raises:
        WireError: dtype, shape and number of bytes do not agree, or a value is not finite.
    """
    if tensor.dtype not in dtypes:
        accepted = " or ".join(pb.DType.Name(dtype) for dtype in dtypes)
        given = pb.DType.Name(tensor.dtype) if tensor.dtype in DTYPES else tensor.dtype
        raise WireError(f"a tensor has dtype {given}, not {accepted}.")
    if len(tensor.shape) > _MAX_AXES:
        raise WireError(f"a tensor has {len(tensor.shape)} axes; {_MAX_AXES} is the most.")
    dtype = DTYPES[tensor.dtype]
    expected = math.prod(tensor.shape) * dtype.itemsize
    if expected != len(tensor.data):
        raise WireError(
            f"a tensor of shape {tuple(tensor.shape)} and {dtype.itemsize} bytes a value has "
            f"{len(tensor.data)} bytes instead of {expected}."
        )
    if expected > MAX_BYTES:
        raise WireError(f"a tensor has {expected} bytes; {MAX_BYTES} is the most.")
    array = np.frombuffer(tensor.data, dtype).reshape(tensor.shape)
    if not np.isfinite(array).all():
        raise WireError("a tensor holds a value that is not finite (NaN or infinity).")
    return array.astype(dtype.newbyteorder("="))


def digest(tensor: pb.Tensor) -> bytes:
    """What a tensor is known by: equal digests are equal dtypes, shapes and values."""
    header = f"{tensor.dtype}{tuple(tensor.shape)}".encode()
    return hashlib.blake2b(header + tensor.data, digest_size=_DIGEST_BYTES).digest()
