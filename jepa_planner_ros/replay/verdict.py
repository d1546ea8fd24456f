"""How plans made anew compare with the recorded ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from jepa_planner_ros.geometry import POSITION
from jepa_planner_ros.replay.pipeline import Replayed, Skipped
from jepa_planner_ros.replay.recording import RecordedPlan
from jepa_planner_ros.types import Float64Array

DEFAULT_TOLERANCE = 1e-4
"""m, and rad and closedness: what no arm can follow; a Franka repeats its poses to 0.1 mm."""


def cut_short(replayed: Replayed) -> bool:
    """Whether the recorded plan was cut by its deadline, and so by the speed of its machine."""
    recorded = replayed.moment.recorded
    return (
        recorded is not None
        and recorded.deadline > 0.0
        and recorded.rollouts < replayed.plan.rollouts
    )


@dataclass(frozen=True)
class Difference:
    """How far a plan lies from the recorded one.

    Attributes:
        identical: bit for bit, in actions, expected states and energies.
        translation: largest difference of an action along an axis, m.
        action: largest difference of any entry of an action: m, rad or closedness.
        energy: largest difference of a predicted energy.
    """

    identical: bool
    translation: float
    action: float
    energy: float


def difference(replayed: Replayed, recorded: RecordedPlan) -> Difference:
    """Compare a plan with the recorded one, as far as both go."""
    plan = replayed.plan
    steps = min(len(plan.actions), len(recorded.actions))
    apart = np.abs(plan.actions[:steps] - recorded.actions[:steps])
    # The energy of the present frame is left out: a queue reports it with plans of earlier frames.
    ours, theirs = plan.energies[:steps], recorded.predicted_energies[:steps]
    return Difference(
        identical=len(plan.actions) == len(recorded.actions)
        and _same(plan.actions, recorded.actions)
        and _same(plan.states[1:], recorded.predicted_states)
        and _same(ours, theirs),
        translation=float(apart[:, POSITION].max()),
        action=float(apart.max()),
        energy=float(np.abs(ours - theirs).max()),
    )


def _same(one: Float64Array, other: Float64Array) -> bool:
    return one.tobytes() == np.asarray(other, dtype=np.float64).tobytes()


@dataclass(frozen=True)
class Verdict:
    """What a replay comes to.

    Attributes:
        plans: made anew.
        identical: whether each equals the recorded one bit for bit; None where there is nothing to
            compare with.
        max_action_diff_m: largest difference of a translation along an axis, m.
        energy_diff_max: largest difference of an energy.
        skipped: plans that could not be made.
        cut: recorded plans that their deadline cut short, which are not compared.
        reasons: why plans were skipped, and what is damaged or doubtful in the bag.
        reproduced: whether each plan lies within the tolerance of the recorded one.
    """

    plans: int
    identical: bool | None
    max_action_diff_m: float | None
    energy_diff_max: float | None
    skipped: int
    cut: int = 0
    reasons: list[str] = field(default_factory=list)
    reproduced: bool | None = None

    def as_dict(self) -> dict[str, Any]:
        """The figures in plain values that JSON can hold."""
        figures = asdict(self)
        del figures["reproduced"], figures["cut"]
        return figures

    @property
    def passed(self) -> bool:
        """Whether plans were made, and none differs from a recorded one."""
        return self.plans > 0 and self.reproduced is not False

    def sentence(self) -> str:
        """The verdict for people."""
        plans = f"{self.plans} plan{'s' if self.plans != 1 else ''}"
        rest = f"; {self.skipped} skipped" if self.skipped else ""
        if self.cut:
            rest += f"; {self.cut} not compared, cut short by a deadline when recorded"
        if not self.plans:
            return f"No plan could be made{rest}"
        if self.identical is None:
            return f"{plans} made; the bag holds none to compare with{rest}"
        if self.identical:
            return f"{plans} identical to the recorded ones, bit for bit{rest}"
        assert self.max_action_diff_m is not None
        apart = f"up to {1000.0 * self.max_action_diff_m:.3g} mm"
        if self.reproduced:
            return f"{plans} as recorded, but for {apart}{rest}"
        return f"Plans differ from the recorded ones by {apart}{rest}"


def _told_of_cut(plans: Sequence[Replayed]) -> list[str]:
    if not plans:
        return []
    steps = ", ".join(str(one.moment.step) for one in plans)
    return [
        f"The search was cut short by its deadline when the plans of step {steps} were recorded: "
        "they depend on the speed of that machine, and are not compared. Record with "
        "plan_deadline = 0 to compare all."
    ]


def judge(
    results: Sequence[Replayed | Skipped],
    problems: Sequence[str] = (),
    tolerance: float = DEFAULT_TOLERANCE,
) -> Verdict:
    """The verdict on a replay.

    Args:
        results: the plans made anew, and those that could not be.
        problems: of the bag.
        tolerance: of an action's entries, m, rad and closedness.
    """
    made = [one for one in results if isinstance(one, Replayed)]
    reasons = [one.reason for one in results if isinstance(one, Skipped)]
    cut = [one for one in made if cut_short(one)]
    differences = [
        difference(one, one.moment.recorded)
        for one in made
        if one.moment.recorded is not None and one not in cut
    ]
    known = bool(differences)
    return Verdict(
        plans=len(made),
        identical=all(one.identical for one in differences) if known else None,
        max_action_diff_m=max((one.translation for one in differences), default=None),
        energy_diff_max=max((one.energy for one in differences), default=None),
        skipped=len(reasons),
        cut=len(cut),
        reasons=[*problems, *_told_of_cut(cut), *reasons],
        reproduced=all(one.action <= tolerance for one in differences) if known else None,
    )
