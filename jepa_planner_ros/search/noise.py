"""Standard normal draws of a search, addressed rather than streamed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from jepa_planner_ros.types import Float64Array

Noise = Callable[[int, tuple[int, ...]], Float64Array]
"""Draws of a round by its index, of the given shape."""


def seeded_noise(seed: int, step: int) -> Noise:
    """Draws that depend on (seed, step, round) alone.

    They are made in one place on the CPU, so the same seed gives the same plan whatever device or
    number of replicas evaluates the candidates, and whichever rounds were drawn before.
    """

    def draw(round_index: int, shape: tuple[int, ...]) -> Float64Array:
        return np.random.default_rng((seed, step, round_index)).standard_normal(shape)

    return draw


def later(noise: Noise, rounds: int) -> Noise:
    """The draws from a later round on."""
    return lambda round_index, shape: noise(rounds + round_index, shape)
