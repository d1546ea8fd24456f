"""Standard normal draws of a search, addressed rather than streamed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from jepa_planner_ros.types import Float64Array

Noise = Callable[[int], Float64Array]
"""Draws of a round by its index: (horizon, samples, 4) over x, y, z and gripper."""


def seeded_noise(seed: int, step: int, horizon: int, samples: int) -> Noise:
    """Draws that depend on (seed, step, round) alone.

    They are made in one place on the CPU, so the same seed gives the same plan whatever device or
    number of replicas evaluates the candidates, and whichever rounds were drawn before.
    """

    def draw(round_index: int) -> Float64Array:
        generator = np.random.default_rng((seed, step, round_index))
        return generator.standard_normal((horizon, samples, 4))

    return draw
