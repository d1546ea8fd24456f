"""Gauss-Newton with a Jacobian from finite differences of predicted latents.

Nocedal and Wright, "Numerical Optimization", 2nd ed., Sec. 10.3, within a trust region. The
residuals are the differences of latent components to the goal's.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from jepa_planner_ros.search.actions import Translations
from jepa_planner_ros.search.base import Search
from jepa_planner_ros.search.energy import sequence_energy
from jepa_planner_ros.search.latent_model import (
    LatentModel,
    random_components,
)
from jepa_planner_ros.search.noise import Noise
from jepa_planner_ros.types import (
    Float64Array,
    PlanRequest,
    RolloutReply,
    RolloutRequest,
    SearchRound,
    SearchSettings,
)


@dataclass(frozen=True, kw_only=True)
class GaussNewtonSettings(SearchSettings):
    """How to differentiate, and how often."""

    iterations: int = 2
    """Linearisations, each around the minimum of the one before."""
    nudge: float = 0.005
    """Finite difference along each axis, metres; results are sensitive to it."""
    components: int = 2048
    """Components of the latents that are compared."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("1 or more", iterations=self.iterations >= 1, components=self.components >= 1)
        self.require(
            "more than 0 and less than search.max_translation",
            nudge=0.0 < self.nudge < self.max_translation,
        )


class GaussNewton(Search):
    """Linearise, step to the minimum of the linear model, repeat.

    Args:
        settings: see there.
        request: what is to be planned.
        start: sequence (horizon, 7), where to linearise first.
        noise: unused; every search is given one.
    """

    def __init__(
        self, settings: GaussNewtonSettings, request: PlanRequest, start: Float64Array, noise: Noise
    ) -> None:
        self._settings = settings
        self._space = Translations.of(request)
        goal = request.scene.goal_latent
        self._components = random_components(goal.size, settings.components)
        self._goal = goal.ravel()[self._components].astype(np.float64)
        self._point = self._space.point(start)

    @property
    def finished(self) -> bool:
        """Whether every iteration has been told."""
        return len(self.rounds) == self._settings.iterations

    def propose(self) -> RolloutRequest:
        """The point, and one nudge along each axis."""
        points = np.vstack((self._point, self._point + np.diag(self._nudges())))
        return RolloutRequest(
            self._space.actions(points),
            self._settings.energy.distance,
            components=self._components,
        )

    def tell(self, reply: RolloutReply) -> None:
        """Step to the minimum of the linear model within the limits."""
        settings = self._settings
        assert reply.components is not None
        values = reply.components.astype(np.float64)
        # Per nudge of positive sign.
        slopes = np.sign(self._nudges())[:, None, None] * (values[1:] - values[0])
        model = LatentModel(self._point, settings.nudge, values[0], slopes, 0.0 * slopes)
        limits = np.full(self._space.dimensions, self._space.limit)
        self._point = model.minimum(self._goal, settings.energy, self._point[None], -limits, limits)
        scores = sequence_energy(reply.energies, settings.energy)
        self.rounds += (SearchRound(float(scores[0]), float(scores.mean())),)

    @property
    def finalists(self) -> Float64Array:
        """The point that the last step led to."""
        return self._space.actions(self._point[None])

    def _nudges(self) -> Float64Array:
        """Steps along each axis (dimensions,) that stay within the limit."""
        nudge = self._settings.nudge
        return np.where(self._point + nudge > self._space.limit, -nudge, nudge)
