"""What is expected of a step, and how what is seen corrects what is expected of the next."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from jepa_planner_ros.geometry import POSITION
from jepa_planner_ros.types import Float32Array, Float64Array, Plan

_OBSERVER_GAIN = 0.5


@dataclass(frozen=True, eq=False)
class Prediction:
    """What the world model expects to see, and where it expects the arm, after a step.

    Attributes:
        latent: (tokens, dim).
        state: (7,), base frame.
        subgoal: index of the sub-goal that the step was for.
    """

    latent: Float32Array
    state: Float64Array
    subgoal: int

    @classmethod
    def of(cls, plan: Plan, subgoal: int) -> Prediction:
        """What a plan expects of its first action."""
        return cls(plan.predicted_latent, plan.states[1], subgoal)

    def surprise(self, latent: Float32Array) -> float:
        """Mean absolute difference to the latents (tokens, dim) that were seen."""
        return float(np.abs(latent - self.latent).mean())

    def corrected(
        self, before: Prediction, latent: Float32Array, state: Float64Array
    ) -> Prediction:
        """This prediction shifted by half of what the one before it was wrong by.

        A fixed-gain observer: the whole error would carry one arrival's chance errors into the next
        prediction, none of it would let the model's own errors add up.

        Args:
            before: what was expected.
            latent: (tokens, dim) seen instead.
            state: (7,) measured instead.
        """
        shifted = self.state.copy()
        shifted[POSITION] += _OBSERVER_GAIN * (state - before.state)[POSITION]
        seen = self.latent + _OBSERVER_GAIN * (latent - before.latent)
        return replace(self, latent=seen, state=shifted)
