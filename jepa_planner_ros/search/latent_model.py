"""A simple model of what the world model predicts: latents as a quadratic function of the actions.

The latent that is predicted after a small action is nearly affine in it. A few rollouts are enough
to fit that function, and its minimum is found without asking the world model again.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from jepa_planner_ros.search.energy import latent_distance, sequence_energy, step_weights
from jepa_planner_ros.types import Energy, Float32Array, Float64Array, Int64Array

_ITERATIONS = 15
# Smallest residual, as a fraction of their mean, that reweighting tells from zero.
_LEAST_RESIDUAL = 1e-3
# Of the normal matrix's mean diagonal, added to it where actions have no effect.
_DAMPING = 1e-6


def random_components(latent_size: int, count: int) -> Int64Array:
    """Indices of `count` components of a latent, always the same ones; all where there are fewer.

    Some hundreds determine a function of a few actions nearly as well as all of them do.
    """
    return np.sort(np.random.default_rng(0).permutation(latent_size)[:count])


@dataclass(frozen=True, eq=False)
class LatentModel:
    """Components of latents as an affine plus diagonal quadratic function of a point.

    Attributes:
        centre: where the coordinates of the coefficients have their origin (dimensions,).
        scale: their unit.
        constant: components at the centre (horizon, components).
        linear: (dimensions, horizon, components).
        quadratic: (dimensions, horizon, components).
    """

    centre: Float64Array
    scale: float
    constant: Float64Array
    linear: Float64Array
    quadratic: Float64Array

    @staticmethod
    def fit(
        points: Float64Array,
        components: Float32Array,
        centre: Float64Array,
        scale: float,
        ridge: float,
    ) -> LatentModel:
        """Ridge regression of components (n, horizon, components) on points (n, dimensions).

        Args:
            points: what was rolled out.
            components: what came of it.
            centre: origin of the coordinates that the ridge keeps small.
            scale: their unit, about the extent of the points.
            ridge: penalty on the squared coefficients; the constant is free.
        """
        offsets = (points - centre) / scale
        features = np.column_stack((np.ones(len(points)), offsets, np.square(offsets)))
        penalty = np.diag([0.0] + [ridge] * (features.shape[1] - 1))
        values = components.reshape(len(points), -1).astype(np.float64)
        solved = np.linalg.solve(features.T @ features + penalty, features.T @ values)
        coefficients = solved.reshape(-1, *components.shape[1:])
        dimensions = len(centre)
        return LatentModel(
            centre,
            scale,
            coefficients[0],
            coefficients[1 : dimensions + 1],
            coefficients[dimensions + 1 :],
        )

    def components(self, points: Float64Array) -> Float64Array:
        """Predicted components (n, horizon, components) at points (n, dimensions)."""
        offsets = (points - self.centre) / self.scale
        return (
            self.constant
            + np.tensordot(offsets, self.linear, axes=1)
            + np.tensordot(np.square(offsets), self.quadratic, axes=1)
        )

    def jacobian(self, point: Float64Array) -> Float64Array:
        """Derivatives (dimensions, horizon, components) by the coordinates of a point."""
        offset = ((point - self.centre) / self.scale)[:, None, None]
        return (self.linear + 2.0 * offset * self.quadratic) / self.scale

    def energies(self, points: Float64Array, goal: Float64Array, energy: Energy) -> Float64Array:
        """Predicted energies (n,) at points (n, dimensions), with the goal's components."""
        return component_energies(self.components(points), goal, energy)

    def minimum(
        self,
        goal: Float64Array,
        energy: Energy,
        starts: Float64Array,
        low: Float64Array,
        high: Float64Array,
    ) -> Float64Array:
        """The lowest point (dimensions,) between `low` and `high` that is found from `starts`.

        By iteratively reweighted least squares, clipped to the box: the L1 distance is minimised
        as squares weighted by the inverse residuals (Lange, Hunter and Yang, "Optimization transfer
        using surrogate objective functions", 2000), the L2 distance with one weight for each step.
        """
        visited = list(starts)
        for point in starts:
            for _ in range(_ITERATIONS):
                point = (point - self._step(point, goal, energy)).clip(low, high)
                visited.append(point)
        points = np.stack(visited)
        return points[self.energies(points, goal, energy).argmin()]

    def _step(self, point: Float64Array, goal: Float64Array, energy: Energy) -> Float64Array:
        """Back from a point (dimensions,) to the minimum of the reweighted squares."""
        residual = self.components(point[None])[0] - goal
        slopes = self.jacobian(point).reshape(len(point), -1)
        weighted = slopes * _reweighting(residual, energy).ravel()
        normal = weighted @ slopes.T
        damping = _DAMPING * np.trace(normal) / len(point) + np.finfo(float).tiny
        return np.linalg.solve(normal + damping * np.eye(len(point)), weighted @ residual.ravel())


def component_energies(
    components: Float32Array | Float64Array, goal: Float64Array, energy: Energy
) -> Float64Array:
    """Energies (n,) of components (n, horizon, components), as the world model computes them."""
    return sequence_energy(latent_distance(components, goal, energy.distance), energy)


def _reweighting(residual: Float64Array, energy: Energy) -> Float64Array:
    """Weights of squared residuals (horizon, components) whose sum has the energy's gradient."""
    steps = step_weights(energy, len(residual))[:, None]
    if energy.distance == "l1":
        size = np.abs(residual)
    else:
        size = np.sqrt(np.square(residual).mean(axis=1, keepdims=True)) + 0.0 * residual
    return steps / np.maximum(size, _LEAST_RESIDUAL * size.mean() + np.finfo(float).tiny)
