"""What every search is: a series of questions about candidates, and what it makes of the answers.

To add a search, write a module with its settings, a dataclass derived from `SearchSettings`, and
its class, derived from `Search`; then give it a line in `jepa_planner_ros.search.registry`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from jepa_planner_ros.types import Float64Array, RolloutReply, RolloutRequest, SearchRound


class Search(ABC):
    """Propose candidates, be told their outcome, repeat. May be broken off after any round.

    Attributes:
        rounds: what was seen so far.
        fallback: why another search has taken over; None if none has.
    """

    rounds: tuple[SearchRound, ...] = ()
    fallback: str | None = None

    @property
    @abstractmethod
    def finished(self) -> bool:
        """Whether there is nothing more to ask."""

    @abstractmethod
    def propose(self) -> RolloutRequest:
        """The next round's question."""

    @abstractmethod
    def tell(self, reply: RolloutReply) -> None:
        """Take in the answer to the last question."""

    @property
    @abstractmethod
    def finalists(self) -> Float64Array:
        """The best sequences so far (few, horizon, 7).

        They may be predictions that nobody has checked. Their exact energies decide among them.
        """

    @property
    def disagreement(self) -> float:
        """How far predicted energies were off, as a fraction of the spread of the exact ones.

        Searches that predict no energies trust none, and have 0.
        """
        return 0.0
