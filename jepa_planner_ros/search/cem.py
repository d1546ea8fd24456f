"""The cross-entropy method over translations and the gripper, as V-JEPA 2-AC is planned with.

Upstream: ``cem`` in ``notebooks/utils/mpc_utils.py``. Candidates never rotate the end effector.
"""

from __future__ import annotations

import numpy as np

from jepa_planner_ros.search.energy import sequence_energy
from jepa_planner_ros.search.noise import Noise
from jepa_planner_ros.types import Float64Array, SearchRound, SearchSettings

# Of the seven action dimensions, those searched: x, y, z and the gripper.
_LIVE = [0, 1, 2, 6]
_MAX_GRIPPER = 0.75
# Gripper actions smaller than this do nothing; upstream rounds them to zero.
_GRIPPER_DEAD_ZONE = 0.25


class CrossEntropyMethod:
    """Ask for candidates, tell their energies, repeat; then read the best sequence.

    Args:
        settings: sizes and momenta.
        noise: standard normal draws per round.
        previous: sequence (horizon, 7) chosen one step ago. The search then starts from its
            remainder, with deviations scaled by `settings.warm_start_deviation`.
        close_gripper_from: step of the sequence from which the gripper is commanded to close.
    """

    def __init__(
        self,
        settings: SearchSettings,
        noise: Noise,
        previous: Float64Array | None = None,
        close_gripper_from: int | None = None,
    ) -> None:
        self._settings = settings
        self._noise = noise
        self._closing = slice(
            settings.horizon if close_gripper_from is None else close_gripper_from, None
        )
        deviation = [settings.max_translation] * 3 + [settings.gripper_deviation]
        self._mean = np.zeros((settings.horizon, 4))
        self._std = np.tile(deviation, (settings.horizon, 1))
        if previous is not None:
            self._mean[:-1] = previous[1:, _LIVE]
            self._std *= settings.warm_start_deviation
        self._candidates = np.empty((0, settings.horizon, 4))
        self.rounds: tuple[SearchRound, ...] = ()

    @property
    def finished(self) -> bool:
        """Whether every round has been told."""
        return len(self.rounds) == self._settings.rounds

    def propose(self) -> Float64Array:
        """The next round's candidates (samples, horizon, 7)."""
        settings = self._settings
        draws = self._noise(len(self.rounds)).swapaxes(0, 1)
        candidates = draws * self._std + self._mean
        bounds = np.array([settings.max_translation] * 3 + [_MAX_GRIPPER])
        candidates = candidates.clip(-bounds, bounds)
        candidates[:, self._closing, 3] = 1.0
        self._candidates = candidates
        return _full_actions(candidates)

    def tell(self, energies: Float64Array) -> None:
        """Refit to the elites, given each candidate's energies after each action.

        Elites are chosen by (energy, index), so that ties do not depend on how a device sorts.
        """
        settings = self._settings
        scores = sequence_energy(energies, settings.energy)
        order = np.argsort(scores, kind="stable")[: settings.elites]
        elites = self._candidates[order]
        # The momentum weights the OLD distribution, as upstream's does.
        momentum_mean = np.array([settings.momentum_mean] * 3 + [settings.momentum_mean_gripper])
        momentum_std = np.array([settings.momentum_std] * 3 + [settings.momentum_std_gripper])
        self._mean = elites.mean(0) * (1 - momentum_mean) + self._mean * momentum_mean
        self._std = elites.std(0, ddof=1) * (1 - momentum_std) + self._std * momentum_std
        self.rounds += (SearchRound(float(scores[order[0]]), float(scores[order].mean())),)

    @property
    def best(self) -> Float64Array:
        """The sequence (horizon, 7) that the search has come to: the mean of its distribution."""
        mean = self._mean.copy()
        mean[np.abs(mean[:, 3]) < _GRIPPER_DEAD_ZONE, 3] = 0.0
        return _full_actions(mean)


def _full_actions(live: Float64Array) -> Float64Array:
    """Actions (..., 7) from their searched dimensions (..., 4); rotations are zero."""
    actions = np.zeros((*live.shape[:-1], 7))
    actions[..., _LIVE] = live
    return actions
