"""Targets that wait to be commanded, numbered by timestep, and how newer plans are merged in.

Targets are absolute poses: two plans that disagree about how to come to a place can be blended
there, which two changes of pose cannot.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from jepa_planner_ros.robot.motion import between
from jepa_planner_ros.types import Float64Array

MergeRule = Callable[[Float64Array, Float64Array], Float64Array]
"""Takes the waiting and the newer target (7,) of one timestep, and returns the one to wait."""


_rules: dict[str, MergeRule] = {
    "replace": lambda old, new: new,
    "weighted": lambda old, new: between(old, new, 0.7),
    "average": lambda old, new: between(old, new, 0.5),
    "conservative": lambda old, new: between(old, new, 0.3),
}

MERGE_RULES: Mapping[str, MergeRule] = MappingProxyType(_rules)
"""By name; `register_merge_rule` adds to them."""


def register_merge_rule(name: str, rule: MergeRule) -> None:
    """Make a rule known by a name of its own.

    Raises:
        ValueError: the name is taken.
    """
    if name in _rules:
        raise ValueError(f"There is a merge rule '{name}' already; choose another name.")
    _rules[name] = rule


@dataclass(frozen=True, eq=False)
class ActionQueue:
    """Targets in the order of their timesteps.

    Attributes:
        taken: timestep of the target that was taken last.
        targets: states (7,) of the timesteps that follow it.
    """

    taken: int = -1
    targets: tuple[Float64Array, ...] = ()

    def __len__(self) -> int:
        return len(self.targets)

    def take(self) -> tuple[Float64Array, ActionQueue]:
        """The next target, and the queue without it."""
        return self.targets[0], ActionQueue(self.taken + 1, self.targets[1:])

    def merged(self, first: int, chunk: Sequence[Float64Array], rule: MergeRule) -> ActionQueue:
        """The queue with a chunk of targets whose timesteps begin at `first`.

        Of the chunk, what has been taken in the meantime is dropped: by the count of targets that
        were in fact commanded and reached, not by how long planning should have taken. Targets
        beyond the chunk's end, which an older plan left, are dropped as well.
        """
        newer = chunk[self.taken + 1 - first :]
        blended_part = map(rule, self.targets, newer)
        return ActionQueue(self.taken, (*blended_part, *newer[len(self.targets) :]))

    def emptied(self) -> ActionQueue:
        """The queue without what waits."""
        return ActionQueue(self.taken)
