"""Latents in Ray's object store, known by a digest of their content.

They are the bulk of a plan, and a goal's are the same in all of an episode. So they go to each
replica once, by reference, and are not repeated with every round.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from dataclasses import dataclass

import ray

from jepa_planner_ros.types import Float32Array, Float64Array, Scene

_DIGEST_BYTES = 16
# Of a plan there are three: the frame's, the goal's, and the goal's with the model's error for
# standing still taken out.
_OF_A_PLAN = 4


@dataclass(frozen=True, eq=False)
class StoredLatent:
    """Latents by reference.

    Attributes:
        digest: equal digests are equal latents.
        reference: where they lie. Within a dataclass Ray hands on the reference itself.
    """

    digest: bytes
    reference: ray.ObjectRef[Float32Array]


@dataclass(frozen=True, eq=False)
class StoredScene:
    """A `jepa_planner_ros.types.Scene` with its latents by reference."""

    latent: StoredLatent
    state: Float64Array
    goal_latent: StoredLatent


class LatentStore:
    """Stores latents, the same ones only once.

    Args:
        plans: that are under way at once.
    """

    def __init__(self, plans: int) -> None:
        self._capacity = _OF_A_PLAN * (plans + 1)
        self._stored: OrderedDict[bytes, StoredLatent] = OrderedDict()

    def scene(self, scene: Scene, goal: Float32Array | None) -> StoredScene:
        """A scene by reference, with another goal in place of its own if there is one."""
        return StoredScene(
            self._put(scene.latent),
            scene.state,
            self._put(scene.goal_latent if goal is None else goal),
        )

    def _put(self, latent: Float32Array) -> StoredLatent:
        key = hashlib.blake2b(latent.tobytes(), digest_size=_DIGEST_BYTES).digest()
        if key not in self._stored:
            self._stored[key] = StoredLatent(key, ray.put(latent))
        self._stored.move_to_end(key)
        while len(self._stored) > self._capacity:
            self._stored.popitem(last=False)
        return self._stored[key]


class LatentCache:
    """Fetches latents, the same ones only once.

    Args:
        plans: that are under way at once.
    """

    def __init__(self, plans: int) -> None:
        self._capacity = _OF_A_PLAN * (plans + 1)
        self._fetched: OrderedDict[bytes, Float32Array] = OrderedDict()

    async def scene(self, stored: StoredScene) -> Scene:
        """The scene. Equal latents are the same array, so that a model can keep them on its device.

        Raises:
            ray.exceptions.RayError: they are lost, with the process that stored them.
        """
        return Scene(
            await self._fetch(stored.latent), stored.state, await self._fetch(stored.goal_latent)
        )

    async def _fetch(self, stored: StoredLatent) -> Float32Array:
        if stored.digest not in self._fetched:
            fetched = await stored.reference
            # Another parcel may have fetched the same meanwhile.
            self._fetched.setdefault(stored.digest, fetched)
        self._fetched.move_to_end(stored.digest)
        while len(self._fetched) > self._capacity:
            self._fetched.popitem(last=False)
        return self._fetched[stored.digest]
