"""The surrogate search: fit a simple model to a few rollouts, minimise it for free, check, refine.

A trust-region method (Conn, Gould and Toint, 2000) whose model is fitted to designs that fill the
region, and whose objective keeps the structure of the problem: the model predicts latents, not
their distance to the goal, which has a kink where the goal is reached.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from jepa_planner_ros.search.actions import Translations, latin_hypercube
from jepa_planner_ros.search.base import Search
from jepa_planner_ros.search.energy import sequence_energy
from jepa_planner_ros.search.latent_model import (
    LatentModel,
    component_energies,
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

# The surrogate may have several minima; it is searched from this many of the best points.
_DESCENTS = 3


@dataclass(frozen=True, kw_only=True)
class SurrogateSettings(SearchSettings):
    """How many rollouts to fit to, and how closely around the best point."""

    designs: tuple[int, ...] = (15, 16)
    """Candidates of each stage."""
    region: float = 1.0
    """Half the edge of the first stage's trust region, as a fraction of `max_translation`."""
    shrink: float = 0.3
    """Factor on the trust region from stage to stage."""
    components: int = 2048
    """Components of the latents that are fitted."""
    ridge: float = 1e-3
    """Penalty on the coefficients of the fit."""

    def __post_init__(self) -> None:
        super().__post_init__()
        several = len(self.designs) >= 1 and min(self.designs) >= 2
        self.require("a list of numbers from 2 upwards", designs=several)
        self.require("more than 0 and at most 1", region=0.0 < self.region <= 1.0)
        self.require("more than 0 and less than 1", shrink=0.0 < self.shrink < 1.0)
        self.require("1 or more", components=self.components >= 1)
        self.require("more than 0", ridge=self.ridge > 0.0)


class SurrogateSearch(Search):
    """Stages of design, fit and minimisation in a shrinking region around the last minimum.

    Args:
        settings: see there.
        request: what is to be planned.
        start: sequence (horizon, 7), the centre of the first region.
        noise: standard normal draws per round.
    """

    def __init__(
        self, settings: SurrogateSettings, request: PlanRequest, start: Float64Array, noise: Noise
    ) -> None:
        self._settings = settings
        self._noise = noise
        self._space = Translations.of(request)
        goal = request.scene.goal_latent
        self._components = random_components(goal.size, settings.components)
        self._goal = goal.ravel()[self._components].astype(np.float64)
        self._minimum = self._space.point(start)
        self._radius = settings.region * settings.max_translation
        self._points = self._minimum[None]
        self._model: LatentModel | None = None
        self._spread = 0.0
        self._disagreement = 0.0

    @property
    def finished(self) -> bool:
        """Whether every stage has been told."""
        return len(self.rounds) == len(self._settings.designs)

    def propose(self) -> RolloutRequest:
        """A design around the minimum, of which the minimum itself is the first."""
        settings, stage = self._settings, len(self.rounds)
        draws = self._noise(stage, (settings.designs[stage] - 1, self._space.dimensions))
        offsets = np.vstack((0.0 * self._minimum, self._radius * latin_hypercube(draws)))
        self._points = self._space.clip(self._minimum + offsets)
        return RolloutRequest(
            self._space.actions(self._points),
            settings.energy.distance,
            components=self._components,
        )

    def tell(self, reply: RolloutReply) -> None:
        """Check the last fit, fit to the design, and find the minimum in its region."""
        settings, components = self._settings, reply.components
        assert components is not None
        exact = component_energies(components, self._goal, settings.energy)
        if self._model is not None:
            predicted = self._model.energies(self._points, self._goal, settings.energy)
            self._disagreement = float(np.abs(predicted - exact).mean() / self._spread)
        self._spread = float(exact.std()) + np.finfo(float).tiny
        self._model = LatentModel.fit(
            self._points, components, self._minimum, self._radius, settings.ridge
        )
        self._minimum = self._model.minimum(
            self._goal,
            settings.energy,
            self._points[exact.argsort(kind="stable")[:_DESCENTS]],
            self._space.clip(self._minimum - self._radius),
            self._space.clip(self._minimum + self._radius),
        )
        self._radius *= settings.shrink
        scores = sequence_energy(reply.energies, settings.energy)
        self.rounds += (SearchRound(float(scores.min()), float(scores.mean())),)

    @property
    def finalists(self) -> Float64Array:
        """The minimum of the last fit."""
        return self._space.actions(self._minimum[None])

    @property
    def disagreement(self) -> float:
        """Of the last checked fit."""
        return self._disagreement
