"""What is expected of a step, and how what is seen corrects what is expected of the next."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from jepa_planner_ros.geometry import POSITION
from jepa_planner_ros.types import Float32Array, Float64Array, Plan

# Of what a prediction was wrong by, the part that carries over to the next, and the part by which
# the estimate of a lasting error is renewed. Chosen on the shipped model in simulation.
_OBSERVER_GAIN = 0.5
_BIAS_GAIN = 0.2


@dataclass(frozen=True, eq=False)
class Prediction:
    """What the world model expects to see, and where it expects the arm, after a step.

    Attributes:
        latent: (tokens, dim).
        state: (7,), base frame.
        subgoal: index of the sub-goal that the step was for.
        bias: (tokens, dim), by which the model's predictions have lately been wrong.
    """

    latent: Float32Array
    state: Float64Array
    subgoal: int
    bias: Float32Array

    @classmethod
    def of(cls, plan: Plan, subgoal: int) -> Prediction:
        """What a plan expects of its first action."""
        latent = plan.predicted_latent
        return cls(latent, plan.states[1], subgoal, np.zeros_like(latent))

    def surprise(self, latent: Float32Array) -> float:
        """Mean absolute difference to the latents (tokens, dim) that were seen."""
        return float(np.abs(latent - self.latent).mean())

    def corrected(
        self, before: Prediction, latent: Float32Array, state: Float64Array
    ) -> Prediction:
        """This prediction after a look at what became of the one before it.

        An observer with proportional and integral gains: of an error, part is the arrival's own and
        passes, part is the model's and lasts. Without the second, predictions made from predictions
        settle beside the truth, and the arm beside its goal.

        Args:
            before: what was expected.
            latent: (tokens, dim) seen instead.
            state: (7,) measured instead.
        """
        shifted = self.state.copy()
        shifted[POSITION] += _OBSERVER_GAIN * (state - before.state)[POSITION]
        wrong_by = latent - before.latent
        bias = before.bias + _BIAS_GAIN * wrong_by
        seen = self.latent + _OBSERVER_GAIN * wrong_by + bias
        return replace(self, latent=seen, state=shifted, bias=bias)
