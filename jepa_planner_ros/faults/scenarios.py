"""What is to go wrong in each of many episodes, and what became of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from jepa_planner_ros.control import CONTROL_MODES, Outcome
from jepa_planner_ros.faults.audit import Violation
from jepa_planner_ros.faults.catalogue import ENDS_BY_ITSELF, FAULTS, Fault, Interference

# The latest moment at which a fault strikes, s after the goal was accepted.
_LATEST_STRIKE = 1.5


@dataclass(frozen=True)
class Scenario:
    """What is to happen in one episode.

    Attributes:
        seed: of start and goal.
        fault: name of what goes wrong.
        mode: of control.
        strikes: when it does, s after the goal was accepted; None: before it is sent.
        budget: of steps.
    """

    seed: int
    fault: str
    mode: str
    strikes: float | None
    budget: int


@dataclass(frozen=True)
class Verdict:
    """What became of one episode.

    Attributes:
        scenario: what was to happen.
        outcome: how it ended; None: it did not, it hung.
        reason: what the node said.
        elapsed: from goal to result, s.
        expected: whether it may end like that.
        rested: whether the setpoints came to rest after it.
        violations: of limits, by what the controller was sent.
    """

    scenario: Scenario
    outcome: Outcome | None
    reason: str
    elapsed: float
    expected: bool
    rested: bool
    violations: tuple[Violation, ...]

    @property
    def sound(self) -> bool:
        """Whether nothing is wrong with it."""
        return self.expected and self.rested and not self.violations


@dataclass(frozen=True)
class Campaign:
    """All episodes, and what was left over.

    Attributes:
        verdicts: one for each episode.
        leaked: command lines of processes that outlived their node.
        highest: by limit, the highest part of it that was made use of.
        setpoints: how many were judged.
    """

    verdicts: tuple[Verdict, ...]
    leaked: tuple[str, ...]
    highest: Mapping[str, float]
    setpoints: int

    @property
    def sound(self) -> bool:
        """Whether nothing went wrong but what was meant to."""
        return not self.leaked and all(verdict.sound for verdict in self.verdicts)


def draw(count: int, seed: int, faults: Sequence[str] | None = None) -> list[Scenario]:
    """Scenarios of episodes; each fault comes equally often, in random order and at random moments.

    Args:
        count: of episodes.
        seed: of all that is random.
        faults: names of those to draw from; None: all.

    Raises:
        ValueError: there is no such fault.
    """
    known = [*FAULTS] if faults is None else [*faults]
    for name in known:
        if name not in FAULTS:
            raise ValueError(f"There is no fault '{name}'; there are: {', '.join(FAULTS)}.")
    random = np.random.default_rng(seed)
    rounds = -(-count // len(known))
    names = [str(name) for _ in range(rounds) for name in random.permutation(known)]
    return [_drawn(name, seed + index, random) for index, name in enumerate(names[:count])]


def _drawn(fault: str, seed: int, random: np.random.Generator) -> Scenario:
    strikes = float(random.uniform(0.0, _LATEST_STRIKE))
    from_the_start = random.random() < 0.4
    mode, budget = str(random.choice([*CONTROL_MODES])), int(random.integers(2, 6))
    if from_the_start and FAULTS[fault].interference is Interference.NONE:
        return Scenario(seed, fault, mode, None, budget)
    return Scenario(seed, fault, mode, strikes, budget)


def is_expected(fault: Fault, scenario: Scenario, outcome: Outcome | None) -> bool:
    """Whether an episode may end so; one that was over before the fault told ends by itself."""
    late = scenario.strikes is not None or fault.interference is not Interference.NONE
    return outcome in fault.outcomes or (late and outcome in ENDS_BY_ITSELF)
