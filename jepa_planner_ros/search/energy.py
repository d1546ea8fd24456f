"""How distances along a sequence make one number to minimise.

Over two steps, the distance after the last one determines little more than the *sum* of the
actions: the first one, the only one executed, is left to chance. The mean over the steps also asks
the first action to approach the goal.
"""

from __future__ import annotations

import numpy as np

from jepa_planner_ros.types import DistanceName, Energy, Float32Array, Float64Array


def step_weights(energy: Energy, horizon: int) -> Float64Array:
    """Weights (horizon,) of the distances after each action; they sum to 1."""
    if energy.steps == "last":
        return np.eye(horizon)[-1]
    if energy.steps == "mean":
        return np.full(horizon, 1.0 / horizon)
    weights = np.array(energy.steps)
    return weights / weights.sum()


def sequence_energy(distances: Float64Array, energy: Energy) -> Float64Array:
    """One energy per candidate (batch,) from its distances after each action (batch, horizon)."""
    # Not a matrix product, whose last bit may depend on the size of the batch.
    return (distances * step_weights(energy, distances.shape[1])).sum(axis=1)


def latent_distance(
    components: Float32Array | Float64Array, goal: Float32Array | Float64Array, name: DistanceName
) -> Float64Array:
    """Distances (...) of latent components (..., components) to the goal's (components,)."""
    difference = components - goal
    if name == "l1":
        return np.abs(difference).mean(axis=-1)
    return np.sqrt(np.square(difference).mean(axis=-1))
