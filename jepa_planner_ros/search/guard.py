"""The guard of a search: never worse than an obvious sequence, and a way back where it errs."""

from __future__ import annotations

import numpy as np

from jepa_planner_ros.search.base import Search
from jepa_planner_ros.search.cem import CrossEntropyMethod, CrossEntropySettings
from jepa_planner_ros.search.energy import sequence_energy
from jepa_planner_ros.search.noise import Noise, later
from jepa_planner_ros.types import (
    Float64Array,
    Guard,
    PlanRequest,
    RolloutReply,
    RolloutRequest,
)


class Guarded(Search):
    """A search whose finalists include the best sequence that anybody has rolled out.

    The first round also rolls out the sequence that the search starts from, and standing still.
    When the search's own predictions of energies turn out to be off, cross-entropy rounds around
    the best sequence so far take over.

    Args:
        guard: when to fall back, and to what.
        search: what is guarded.
        request: what is to be planned.
        obvious: sequences (few, horizon, 7) that the plan must not be worse than.
        noise: standard normal draws per round.
    """

    def __init__(
        self,
        guard: Guard,
        search: Search,
        request: PlanRequest,
        obvious: Float64Array,
        noise: Noise,
    ) -> None:
        self._guard = guard
        self._search = search
        self._request = request
        self._obvious = obvious
        self._noise = noise
        self._question = RolloutRequest(obvious)
        self._best = obvious[0]
        self._lowest = np.inf

    @property
    def finished(self) -> bool:
        """Whether the search, or the fallback, is."""
        return self._search.finished

    def propose(self) -> RolloutRequest:
        """What the search proposes; in the first round the obvious sequences, too."""
        self._question = self._search.propose()
        if not self.rounds:
            self._question = self._question.preceded_by(self._obvious)
        return self._question

    def tell(self, reply: RolloutReply) -> None:
        """Remember the best sequence, tell the search, and see whether it errs."""
        scores = sequence_energy(reply.energies, self._request.search.energy)
        if scores.min() < self._lowest:
            self._lowest = float(scores.min())
            self._best = self._question.candidates[scores.argmin()]
        self._search.tell(reply if self.rounds else reply.part(slice(len(self._obvious), None)))
        self.rounds += self._search.rounds[-1:]
        if self.fallback is None and self._search.disagreement > self._guard.disagreement:
            self.fallback = (
                f"predicted energies were off by {self._search.disagreement:.0%} of their spread "
                f"(search.guard.disagreement allows {self._guard.disagreement:.0%})"
            )
            self._search = self._cross_entropy_rounds()

    @property
    def finalists(self) -> Float64Array:
        """The finalists of the search, and the best sequence so far."""
        return np.concatenate((self._search.finalists, self._best[None]))

    def _cross_entropy_rounds(self) -> Search:
        settings = self._request.search
        return CrossEntropyMethod(
            CrossEntropySettings(
                horizon=settings.horizon,
                energy=settings.energy,
                max_translation=settings.max_translation,
                samples=self._guard.samples,
                elites=self._guard.elites,
                rounds=self._guard.rounds,
                gripper_deviation=0.0,
            ),
            self._request,
            self._best,
            later(self._noise, len(self.rounds)),
        )
