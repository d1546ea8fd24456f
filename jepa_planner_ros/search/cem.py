"""The cross-entropy method over translations and the gripper, as V-JEPA 2-AC is planned with.

Upstream: ``cem`` in ``notebooks/utils/mpc_utils.py``. Candidates never rotate the end effector.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from jepa_planner_ros.geometry import ACTION_DIM
from jepa_planner_ros.search.base import Search
from jepa_planner_ros.search.energy import sequence_energy
from jepa_planner_ros.search.noise import Noise
from jepa_planner_ros.types import (
    LAST_STEP_ENERGY,
    Energy,
    Float64Array,
    Guard,
    PlanRequest,
    RolloutReply,
    RolloutRequest,
    SearchRound,
    SearchSettings,
)

# Of the seven action dimensions, those searched: x, y, z and the gripper.
_LIVE = [0, 1, 2, 6]
_MAX_GRIPPER = 0.75
# Gripper actions smaller than this do nothing; upstream rounds them to zero.
_GRIPPER_DEAD_ZONE = 0.25


@dataclass(frozen=True, kw_only=True)
class CrossEntropySettings(SearchSettings):
    """The defaults are the reference: 800 candidates, 10 rounds, horizon 2, the last step's energy.

    Sizes: V-JEPA 2, Sec. 3.2 and 4.2; momenta: upstream ``notebooks/utils/world_model_wrapper.py``.
    """

    horizon: int = 2
    energy: Energy = LAST_STEP_ENERGY
    max_translation: float = 0.05
    """Largest translation of one action along each axis, metres; also the initial deviation."""
    anchored: bool = False
    guard: Guard | None = None
    samples: int = 800
    """Candidate sequences per round."""
    elites: int = 80
    """Candidates of lowest energy that the next round is fitted to."""
    rounds: int = 10
    """Rounds of sampling and refitting."""
    kept: int = 0
    """Best candidates of a round that the next one repeats, in place of as many new ones."""
    tied: bool = False
    """All actions of a candidate are the same, which leaves fewer dimensions to search."""
    gripper_deviation: float = 1.0
    """Initial deviation of the gripper action; 0 leaves the gripper as it is."""
    momentum_mean: float = 0.15
    """Weight of the old mean when refitting translations."""
    momentum_std: float = 0.15
    """Weight of the old deviation when refitting translations."""
    momentum_mean_gripper: float = 0.15
    """Weight of the old mean when refitting the gripper."""
    momentum_std_gripper: float = 0.15
    """Weight of the old deviation when refitting the gripper."""
    warm_start_deviation: float = 1.0
    """Factor on the initial deviation when the search starts from the previous plan."""

    def __post_init__(self) -> None:
        super().__post_init__()
        momenta = ("momentum_mean", "momentum_std", "momentum_mean_gripper", "momentum_std_gripper")
        self.require("2 or more", samples=self.samples >= 2)
        self.require("from 2 to search.samples", elites=2 <= self.elites <= self.samples)
        self.require("1 or more", rounds=self.rounds >= 1)
        self.require("from 0 to search.elites", kept=0 <= self.kept <= self.elites)
        self.require("0 or more", gripper_deviation=self.gripper_deviation >= 0.0)
        self.require(
            "more than 0 and at most 1", warm_start_deviation=0.0 < self.warm_start_deviation <= 1.0
        )
        self.require(
            "0 or more and less than 1",
            **{name: 0.0 <= getattr(self, name) < 1.0 for name in momenta},
        )


class CrossEntropyMethod(Search):
    """A normal distribution, refitted to the best of its own samples.

    Args:
        settings: sizes and momenta.
        request: what is to be planned.
        start: sequence (horizon, 7), the first mean.
        noise: standard normal draws per round.
    """

    def __init__(
        self,
        settings: CrossEntropySettings,
        request: PlanRequest,
        start: Float64Array,
        noise: Noise,
    ) -> None:
        self._settings = settings
        self._noise = noise
        self._closing = slice(
            settings.horizon if request.close_gripper_from is None else request.close_gripper_from,
            None,
        )
        self._mean = start[:, _LIVE]
        if settings.tied:
            self._mean[1:] = self._mean[0]
        deviation = [settings.max_translation] * 3 + [settings.gripper_deviation]
        self._std = np.tile(deviation, (settings.horizon, 1))
        if request.previous is not None:
            self._std *= settings.warm_start_deviation
        self._candidates = np.empty((0, settings.horizon, 4))
        self._kept = self._candidates

    @property
    def finished(self) -> bool:
        """Whether every round has been told."""
        return len(self.rounds) == self._settings.rounds

    def propose(self) -> RolloutRequest:
        """The next round's candidates."""
        settings = self._settings
        # Means and deviations of tied actions are the same, and so are their draws.
        draws = self._noise(
            len(self.rounds), (1 if settings.tied else settings.horizon, settings.samples, 4)
        )
        candidates = draws.swapaxes(0, 1) * self._std + self._mean
        bounds = np.array([settings.max_translation] * 3 + [_MAX_GRIPPER])
        candidates = candidates.clip(-bounds, bounds)
        given = self._given()
        candidates[settings.samples - len(given) :] = given
        candidates[:, self._closing, 3] = 1.0
        self._candidates = candidates
        return RolloutRequest(_full_actions(candidates), settings.energy.distance)

    def tell(self, reply: RolloutReply) -> None:
        """Refit to the elites.

        They are chosen by (energy, index), so that ties do not depend on how a device sorts.
        """
        settings = self._settings
        scores = sequence_energy(reply.energies, settings.energy)
        order = np.argsort(scores, kind="stable")[: settings.elites]
        elites = self._candidates[order]
        # The momentum weights the OLD distribution, as upstream's does.
        momentum_mean = np.array([settings.momentum_mean] * 3 + [settings.momentum_mean_gripper])
        momentum_std = np.array([settings.momentum_std] * 3 + [settings.momentum_std_gripper])
        self._mean = elites.mean(0) * (1 - momentum_mean) + self._mean * momentum_mean
        self._std = elites.std(0, ddof=1) * (1 - momentum_std) + self._std * momentum_std
        self._kept = elites[: settings.kept]
        self.rounds += (
            SearchRound(float(scores[order[0]]), float(scores[order].mean()), len(order)),
        )

    @property
    def finalists(self) -> Float64Array:
        """The mean of the distribution."""
        mean = self._mean.copy()
        mean[np.abs(mean[:, 3]) < _GRIPPER_DEAD_ZONE, 3] = 0.0
        return _full_actions(mean[None])

    def _given(self) -> Float64Array:
        """Candidates (few, horizon, 4) of the next round in place of samples."""
        return self._kept


def _full_actions(live: Float64Array) -> Float64Array:
    """Actions (..., 7) from their searched dimensions (..., 4); rotations are zero."""
    actions = np.zeros((*live.shape[:-1], ACTION_DIM))
    actions[..., _LIVE] = live
    return actions
