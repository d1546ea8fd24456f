"""Latents are the bulk of every message, and a goal's are the same in all of an episode.

Sent once, they are known by a digest of their content. The receiver computes the digest itself, so
nobody can slip other latents under it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable

import numpy as np

from jepa_planner_ros.serving.wire import WireError
from jepa_planner_ros.serving.wire import jepa_planner_pb2 as pb
from jepa_planner_ros.serving.wire.tensors import DTYPES, digest, pack, unpack
from jepa_planner_ros.types import Float32Array

_REMEMBERED_BYTES = 256 * 2**20
# Each costs some memory beside its bytes, of which it may have none.
_REMEMBERED = 10_000
_REMEMBERED_BY_SENDER = 16


class UnknownLatentError(WireError):
    """A digest whose latents were never received, or forgotten: they must be sent again."""


def whole_latent(latent: Float32Array, dtype: pb.DType) -> pb.Latent:
    """Latents in full: exactly as ``FLOAT32``, in half the bytes as ``FLOAT16``."""
    return pb.Latent(tensor=pack(latent.astype(DTYPES[dtype])))


class ReceivedLatents:
    """Reads latents, and remembers as many as fit into a fixed amount of memory."""

    def __init__(self, capacity: int = _REMEMBERED_BYTES, most: int = _REMEMBERED) -> None:
        self._capacity = capacity
        self._most = most
        self._size = 0
        self._latents: OrderedDict[bytes, Float32Array] = OrderedDict()

    def read(self, latent: pb.Latent) -> Float32Array:
        """The latents that a message holds or names.

        Raises:
            UnknownLatentError: it names latents that are not known.
            WireError: it holds no latents.
        """
        match latent.WhichOneof("content"):
            case "digest":
                return self._recall(latent.digest)
            case "tensor":
                received = unpack(latent.tensor, pb.FLOAT32, pb.FLOAT16).astype(np.float32)
                self._remember(digest(latent.tensor), received)
                return received
            case _:
                raise WireError("neither latents nor a digest were sent.")

    def _recall(self, key: bytes) -> Float32Array:
        if key not in self._latents:
            raise UnknownLatentError("the latents of this digest are not known; send them again.")
        self._latents.move_to_end(key)
        return self._latents[key]

    def _remember(self, key: bytes, latent: Float32Array) -> None:
        if key in self._latents:
            self._latents.move_to_end(key)
            return
        self._latents[key] = latent
        self._size += latent.nbytes
        while self._size > self._capacity or len(self._latents) > self._most:
            _, forgotten = self._latents.popitem(last=False)
            self._size -= forgotten.nbytes


class SentLatents:
    """Writes latents, in full only where the receiver does not know them. Threads may share it."""

    def __init__(self, dtype: pb.DType) -> None:
        self._dtype = dtype
        self._changing = threading.Lock()
        self._known: OrderedDict[bytes, None] = OrderedDict()
        self._pending: list[bytes] = []

    def write(self, latent: Float32Array) -> pb.Latent:
        """Latents, or the digest of those that the receiver has confirmed or made itself."""
        exact = digest(whole_latent(latent, pb.FLOAT32).tensor)
        whole = whole_latent(latent, self._dtype)
        key = digest(whole.tensor)
        with self._changing:
            for known in (exact, key):
                if known in self._known:
                    self._known.move_to_end(known)
                    return pb.Latent(digest=known)
            self._pending.append(key)
        return whole

    def know(self, latent: Float32Array) -> None:
        """The receiver has made these latents itself, and keeps them as they are."""
        self._note([digest(whole_latent(latent, pb.FLOAT32).tensor)])

    def confirm(self) -> None:
        """The receiver has answered what was written since the last time."""
        self._note(self._pending)
        self._pending = []

    def forget(self) -> None:
        """The receiver may know nothing, for instance because it was started again."""
        with self._changing:
            self._known.clear()
        self._pending = []

    def _note(self, keys: Iterable[bytes]) -> None:
        with self._changing:
            for key in keys:
                self._known[key] = None
                self._known.move_to_end(key)
            while len(self._known) > _REMEMBERED_BY_SENDER:
                self._known.popitem(last=False)
