"""Cross-entropy rounds with a surrogate's minimum among the candidates of each.

The surrogate is fitted to the latest round, whose narrowing distribution is its trust region. Where
it is right, its minimum draws the distribution there within a few rounds; where it is wrong, it
costs one candidate in each.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from jepa_planner_ros.geometry import POSITION
from jepa_planner_ros.search.cem import CrossEntropyMethod, CrossEntropySettings
from jepa_planner_ros.search.latent_model import LatentModel, random_components
from jepa_planner_ros.search.noise import Noise
from jepa_planner_ros.types import (
    DEFAULT_GUARD,
    RMS_ENERGY,
    Energy,
    Float64Array,
    Guard,
    PlanRequest,
    RolloutReply,
    RolloutRequest,
)


@dataclass(frozen=True, kw_only=True)
class AssistedSettings(CrossEntropySettings):
    """Fewer candidates than the reference, and what to fit to them. The gripper is not searched."""

    energy: Energy = RMS_ENERGY
    max_translation: float = 0.075
    anchored: bool = True
    guard: Guard | None = DEFAULT_GUARD
    samples: int = 24
    elites: int = 6
    rounds: int = 4
    kept: int = 2
    gripper_deviation: float = 0.0
    warm_start_deviation: float = 0.5
    components: int = 2048
    """Components of the latents that are fitted."""
    ridge: float = 1e-3
    """Penalty on the coefficients of the fit."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("less than search.samples", kept=self.kept < self.samples)
        self.require(
            "0, since the gripper is not searched", gripper_deviation=self.gripper_deviation == 0.0
        )
        self.require("1 or more", components=self.components >= 1)
        self.require("more than 0", ridge=self.ridge > 0.0)


class AssistedCrossEntropy(CrossEntropyMethod):
    """A cross-entropy method that is handed one good guess in every round but the first.

    Args:
        settings: see there.
        request: what is to be planned.
        start: sequence (horizon, 7), the first mean.
        noise: standard normal draws per round.
    """

    def __init__(
        self, settings: AssistedSettings, request: PlanRequest, start: Float64Array, noise: Noise
    ) -> None:
        super().__init__(settings, request, start, noise)
        self._own = settings
        goal = request.scene.goal_latent
        self._components = random_components(goal.size, settings.components)
        self._goal = goal.ravel()[self._components].astype(np.float64)
        self._guess = self._candidates

    def propose(self) -> RolloutRequest:
        """The next round's candidates, the last of which is the surrogate's minimum."""
        return replace(super().propose(), components=self._components)

    def tell(self, reply: RolloutReply) -> None:
        """Refit the distribution to the elites, and the surrogate to all candidates."""
        super().tell(reply)
        assert reply.components is not None
        points = self._candidates[..., POSITION].reshape(len(self._candidates), -1)
        low, high = points.min(axis=0), points.max(axis=0)
        centre, extent = (low + high) / 2, float((high - low).max()) / 2
        if extent == 0.0:
            return
        model = LatentModel.fit(points, reply.components, centre, extent, self._own.ridge)
        minimum = model.minimum(self._goal, self._own.energy, centre[None], low, high)
        self._guess = np.zeros((1, *self._candidates.shape[1:]))
        self._guess[..., POSITION] = minimum.reshape(-1, 3)

    def _given(self) -> Float64Array:
        return np.concatenate((super()._given(), self._guess))
