"""Gradient descent through the predictor, by Adam (Kingma and Ba, 2015, Alg. 1).

It needs memory for what backpropagation remembers of a micro-batch, several times what a rollout
takes, and about three times a rollout's time. Without that memory the world model says so.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from jepa_planner_ros.geometry import POSITION
from jepa_planner_ros.search.actions import Translations
from jepa_planner_ros.search.base import Search
from jepa_planner_ros.search.energy import sequence_energy, step_weights
from jepa_planner_ros.search.noise import Noise
from jepa_planner_ros.types import (
    Float64Array,
    PlanRequest,
    RolloutReply,
    RolloutRequest,
    SearchRound,
    SearchSettings,
)

_MEMORY = (0.5, 0.9)
"""Decay rates of the running means of gradients and of their squares."""


@dataclass(frozen=True, kw_only=True)
class GradientSettings(SearchSettings):
    """Where to start and how far to go."""

    starts: int = 4
    """Points to descend from: where the last plan left off, and others scattered around it."""
    rounds: int = 8
    """Steps of each descent."""
    rate: float = 0.02
    """Length of the first step along each axis, metres; later ones are shorter."""
    deviation: float = 0.03
    """Of the scattered starts along each axis, metres."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("1 or more", starts=self.starts >= 1, rounds=self.rounds >= 1)
        self.require("more than 0", rate=self.rate > 0.0)
        self.require("0 or more", deviation=self.deviation >= 0.0)


class GradientDescent(Search):
    """Several descents side by side.

    Args:
        settings: see there.
        request: what is to be planned.
        start: sequence (horizon, 7), where the first descent starts.
        noise: standard normal draws per round.
    """

    def __init__(
        self, settings: GradientSettings, request: PlanRequest, start: Float64Array, noise: Noise
    ) -> None:
        self._settings = settings
        self._space = Translations.of(request)
        draws = noise(0, (settings.starts, self._space.dimensions))
        draws[0] = 0.0
        start_point = self._space.point(start)
        self._points = self._space.clip(start_point + settings.deviation * draws)
        self._mean = np.zeros_like(self._points)
        self._square = np.zeros_like(self._points)
        self._best = self._points[:1]

    @property
    def finished(self) -> bool:
        """Whether every step has been made."""
        return len(self.rounds) == self._settings.rounds

    def propose(self) -> RolloutRequest:
        """Where the descents have come to, and the slope there."""
        energy = self._settings.energy
        return RolloutRequest(
            self._space.actions(self._points),
            energy.distance,
            gradient_weights=step_weights(energy, self._space.horizon),
        )

    def tell(self, reply: RolloutReply) -> None:
        """Make a step downhill."""
        settings, step = self._settings, len(self.rounds) + 1
        assert reply.gradients is not None
        slope = reply.gradients[..., POSITION].reshape(self._points.shape)
        scores = sequence_energy(reply.energies, settings.energy)
        keep_mean, keep_square = _MEMORY
        self._mean = keep_mean * self._mean + (1 - keep_mean) * slope
        self._square = keep_square * self._square + (1 - keep_square) * np.square(slope)
        mean = self._mean / (1 - keep_mean**step)
        square = self._square / (1 - keep_square**step)
        rate = settings.rate * (1.0 - len(self.rounds) / settings.rounds)
        size = np.sqrt(square) + np.finfo(float).tiny
        self._points = self._space.clip(self._points - rate * mean / size)
        self._best = self._points[[scores.argmin()]]
        self.rounds += (SearchRound(float(scores.min()), float(scores.mean())),)

    @property
    def finalists(self) -> Float64Array:
        """Where the lowest of the descents has come to."""
        return self._space.actions(self._best)
