"""Action sequences, and their translations as the points of a space to search.

No search rotates the end effector, as upstream's does not.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from jepa_planner_ros.geometry import ACTION_DIM, GRIPPER, POSITION
from jepa_planner_ros.types import Float64Array, PlanRequest


def warm_start(request: PlanRequest) -> Float64Array:
    """The sequence (horizon, 7) to start from: what is left of the previous one, then stillness."""
    start = np.zeros((request.search.horizon, ACTION_DIM))
    if request.previous is not None:
        start[:-1] = request.previous[1:]
    limit = request.search.max_translation
    start[:, POSITION] = start[:, POSITION].clip(-limit, limit)
    return start


def close_gripper(actions: Float64Array, first_step: int | None) -> Float64Array:
    """Sequences (..., horizon, 7) whose gripper closes from a step on; None leaves it as it is."""
    if first_step is None:
        return actions
    closing = actions.copy()
    closing[..., first_step:, GRIPPER] = 1.0
    return closing


@dataclass(frozen=True)
class Translations:
    """The translations of a sequence as one point (3 * horizon,), in metres.

    Attributes:
        horizon: actions of a sequence.
        limit: largest translation of one action along each axis.
        close_gripper_from: see `close_gripper`; the gripper is not searched.
    """

    horizon: int
    limit: float
    close_gripper_from: int | None

    @staticmethod
    def of(request: PlanRequest) -> Translations:
        """The space that a request asks to be searched."""
        settings = request.search
        return Translations(settings.horizon, settings.max_translation, request.close_gripper_from)

    @property
    def dimensions(self) -> int:
        """Of a point."""
        return 3 * self.horizon

    def clip(self, points: Float64Array) -> Float64Array:
        """The nearest points (..., dimensions) within the limit."""
        return points.clip(-self.limit, self.limit)

    def point(self, actions: Float64Array) -> Float64Array:
        """The point (dimensions,) within the limit that is nearest to a sequence (horizon, 7)."""
        return self.clip(actions[:, POSITION].ravel())

    def actions(self, points: Float64Array) -> Float64Array:
        """The sequences (batch, horizon, 7) of points (batch, dimensions)."""
        sequences = np.zeros((len(points), self.horizon, ACTION_DIM))
        sequences[..., POSITION] = points.reshape(-1, self.horizon, 3)
        return close_gripper(sequences, self.close_gripper_from)


def latin_hypercube(draws: Float64Array) -> Float64Array:
    """Points (n, dimensions) that fill the cube [-1, 1], from independent draws of that shape.

    Along each axis every one of n equal intervals holds one point (McKay et al., 1979).
    """
    ranks = draws.argsort(axis=0).argsort(axis=0)
    return (2.0 * ranks + 1.0) / len(draws) - 1.0
