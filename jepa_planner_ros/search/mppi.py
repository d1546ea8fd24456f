"""Model predictive path integral control: a mean of samples, weighted by their energies.

Williams et al., "Information theoretic MPC for model-based reinforcement learning", ICRA 2017,
Alg. 2; here with several rounds of shrinking deviation for each plan.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from jepa_planner_ros.search.actions import Translations
from jepa_planner_ros.search.base import Search
from jepa_planner_ros.search.energy import sequence_energy
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
class MppiSettings(SearchSettings):
    """How widely to sample and how sharply to weight."""

    samples: int = 32
    """Candidate sequences per round."""
    rounds: int = 4
    """Rounds of sampling and averaging."""
    deviation: float = 0.04
    """Of the samples along each axis in the first round, metres."""
    shrink: float = 0.6
    """Factor on the deviation from round to round."""
    temperature: float = 0.3
    """Difference of energies that changes a weight by a factor e, as a fraction of the standard
    deviation of the round's energies."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("2 or more", samples=self.samples >= 2)
        self.require("1 or more", rounds=self.rounds >= 1)
        self.require("more than 0 and at most 1", shrink=0.0 < self.shrink <= 1.0)
        self.require(
            "more than 0", deviation=self.deviation > 0.0, temperature=self.temperature > 0.0
        )


class PathIntegral(Search):
    """A mean that moves to the softly best of the samples around it.

    Args:
        settings: see there.
        request: what is to be planned.
        start: sequence (horizon, 7), the first mean.
        noise: standard normal draws per round.
    """

    def __init__(
        self, settings: MppiSettings, request: PlanRequest, start: Float64Array, noise: Noise
    ) -> None:
        self._settings = settings
        self._noise = noise
        self._space = Translations.of(request)
        self._mean = self._space.point(start)
        self._points = self._mean[None]

    @property
    def finished(self) -> bool:
        """Whether every round has been told."""
        return len(self.rounds) == self._settings.rounds

    def propose(self) -> RolloutRequest:
        """Samples around the mean."""
        settings, index = self._settings, len(self.rounds)
        draws = self._noise(index, (settings.samples, self._space.dimensions))
        deviation = settings.deviation * settings.shrink**index
        self._points = self._space.clip(self._mean + deviation * draws)
        return RolloutRequest(self._space.actions(self._points), settings.energy.distance)

    def tell(self, reply: RolloutReply) -> None:
        """Move the mean to the weighted mean of the samples."""
        scores = sequence_energy(reply.energies, self._settings.energy)
        above_best = scores - scores.min()
        # Samples that are all alike are weighted alike.
        scale = self._settings.temperature * scores.std() or 1.0
        weights = np.exp(-above_best / scale)
        weights /= weights.sum()
        self._mean = (weights[:, None] * self._points).sum(axis=0)
        self.rounds += (SearchRound(float(scores.min()), float((weights * scores).sum())),)

    @property
    def finalists(self) -> Float64Array:
        """The mean."""
        return self._space.actions(self._mean[None])
