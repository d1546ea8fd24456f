"""The vocabulary of the project: what is asked of a planner and what it answers.

Every layer speaks in these frozen records, so that a plan means the same in-process, on a local
Ray cluster and across a network. Arrays are NumPy's: they travel anywhere and belong to no device.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

Float32Array = NDArray[np.float32]
Float64Array = NDArray[np.float64]
Int64Array = NDArray[np.int64]

EnergyName = Literal["last_step", "mean_over_steps"]
DistanceName = Literal["l1", "l2"]
"""Between latents: mean absolute difference, or root mean square difference."""


@dataclass(frozen=True)
class SearchSettings:
    """How candidate action sequences are sampled, judged and refined.

    The defaults are the reference setting: 800 candidates, 80 elites, 10 rounds, horizon 2 and the
    energy of the last step (V-JEPA 2, Sec. 3.2 and 4.2; momenta from upstream
    ``notebooks/utils/world_model_wrapper.py``).
    """

    samples: int = 800
    """Candidate sequences per round."""
    elites: int = 80
    """Candidates of lowest energy that the next round is fitted to."""
    rounds: int = 10
    horizon: int = 2
    """Actions per candidate sequence."""
    energy: EnergyName = "last_step"
    """Distance to the goal after the last action, or its mean over the steps."""
    max_translation: float = 0.05
    """Largest translation of one action along each axis, metres; also the initial deviation."""
    gripper_deviation: float = 1.0
    """Initial deviation of the gripper action; 0 leaves the gripper as it is."""
    momentum_mean: float = 0.15
    """Weight of the old mean when refitting translations."""
    momentum_std: float = 0.15
    """Weight of the old deviation when refitting translations."""
    momentum_mean_gripper: float = 0.15
    momentum_std_gripper: float = 0.15
    warm_start_deviation: float = 1.0
    """Factor on the initial deviation when the search starts from the previous plan."""

    def __post_init__(self) -> None:
        checks = {
            "samples": self.samples >= 2,
            "elites": 2 <= self.elites <= self.samples,
            "rounds": self.rounds >= 1,
            "horizon": self.horizon >= 1,
            "energy": self.energy in ("last_step", "mean_over_steps"),
            "max_translation": 0.0 < self.max_translation < 1.0,
            "gripper_deviation": self.gripper_deviation >= 0.0,
            "warm_start_deviation": 0.0 < self.warm_start_deviation <= 1.0,
            **{
                name: 0.0 <= getattr(self, name) < 1.0
                for name in (
                    "momentum_mean",
                    "momentum_std",
                    "momentum_mean_gripper",
                    "momentum_std_gripper",
                )
            },
        }
        wrong = [name for name, holds in checks.items() if not holds]
        if wrong:
            given = ", ".join(f"search.{name} = {getattr(self, name)!r}" for name in wrong)
            raise ValueError(
                f"{given} cannot be used. Expected samples >= elites >= 2, rounds and horizon >= "
                "1, energy 'last_step' or 'mean_over_steps', max_translation in (0, 1) metres, "
                "gripper_deviation >= 0, warm_start_deviation in (0, 1], momenta in [0, 1)."
            )


REFERENCE_SEARCH = SearchSettings()
"""The released planner's search at the size the paper reports."""

FAST_SEARCH = SearchSettings(
    samples=64,
    elites=10,
    rounds=3,
    horizon=1,
    energy="mean_over_steps",
    max_translation=0.075,
    gripper_deviation=0.0,
    warm_start_deviation=0.5,
)
"""The default: with an energy that determines the first action, few candidates are enough.

In closed loop one action ahead ends nearest to the photograph; for more, set `horizon`.
"""

SEARCHES: Mapping[str, SearchSettings] = {"reference": REFERENCE_SEARCH, "fast": FAST_SEARCH}


@dataclass(frozen=True, eq=False)
class Scene:
    """What a plan starts from and aims at.

    Attributes:
        latent: the encoded camera frame, (tokens, dim), layer-normed.
        state: the end effector's state (7,), see `jepa_planner_ros.geometry`.
        goal_latent: the encoded goal photograph, (tokens, dim), layer-normed.
    """

    latent: Float32Array
    state: Float64Array
    goal_latent: Float32Array

    def __post_init__(self) -> None:
        if self.latent.ndim != 2 or self.latent.shape != self.goal_latent.shape:
            raise ValueError(
                f"latent {self.latent.shape} and goal_latent {self.goal_latent.shape} must both be "
                "(tokens, dim) of the same encoder."
            )
        if self.state.shape != (7,):
            raise ValueError(f"state must have 7 entries, not shape {self.state.shape}.")
        for name in ("latent", "state", "goal_latent"):
            if not np.isfinite(getattr(self, name)).all():
                raise ValueError(f"{name} holds a value that is not finite (NaN or infinity).")


@dataclass(frozen=True, eq=False)
class PlanRequest:
    """One question to a planner.

    Attributes:
        scene: where the arm is and where it should be.
        search: how to look for the action sequence.
        seed: seed of the episode.
        step: index of this plan in the episode; with `seed` it fixes the noise of the search.
        previous: the sequence (horizon, 7) chosen one step ago, to start from; None starts cold.
        close_gripper_from: step of the sequence from which the gripper closes; None leaves it free.
    """

    scene: Scene
    search: SearchSettings = FAST_SEARCH
    seed: int = 0
    step: int = 0
    previous: Float64Array | None = None
    close_gripper_from: int | None = None

    def __post_init__(self) -> None:
        if self.seed < 0 or self.step < 0:
            raise ValueError(f"seed {self.seed} and step {self.step} must not be negative.")
        if self.previous is not None:
            expected = (self.search.horizon, 7)
            if self.previous.shape != expected:
                raise ValueError(f"previous must be {expected}, not {self.previous.shape}.")
            if not np.isfinite(self.previous).all():
                raise ValueError("previous holds a value that is not finite (NaN or infinity).")


@dataclass(frozen=True, eq=False)
class RolloutRequest:
    """One question of a search to a world model: what do these action sequences lead to?

    Only energies come back unless more is asked for, since whole latents weigh megabytes.

    Attributes:
        candidates: action sequences (batch, horizon, 7).
        distance: how energies measure the distance to the goal.
        components: indices (components,) into a flattened latent, of tokens * dim values; these
            components of every predicted latent are returned.
        gradient_weights: weights (horizon,) of the energies after each action in the sum whose
            gradient by the actions is returned; None returns no gradients.
        first_latent: return the whole latents predicted after the first action.
    """

    candidates: Float64Array
    distance: DistanceName = "l1"
    components: Int64Array | None = None
    gradient_weights: Float64Array | None = None
    first_latent: bool = False

    def part(self, share: slice) -> RolloutRequest:
        """The same question about some of the candidates."""
        return replace(self, candidates=self.candidates[share])


@dataclass(frozen=True, eq=False)
class RolloutReply:
    """The answer to a `RolloutRequest`, one entry per candidate; None what was not asked for.

    Attributes:
        energies: distance to the goal after each action (batch, horizon).
        components: of the latents after each action (batch, horizon, components).
        gradients: of the weighted sum of the energies (batch, horizon, 7).
        first_latents: after the first action (batch, tokens, dim).
    """

    energies: Float64Array
    components: Float32Array | None = None
    gradients: Float64Array | None = None
    first_latents: Float32Array | None = None

    @staticmethod
    def joined(parts: Sequence[RolloutReply]) -> RolloutReply:
        """The answer to a question that was asked in parts."""

        def join(arrays: list[NDArray[Any] | None]) -> NDArray[Any] | None:
            given = [array for array in arrays if array is not None]
            return np.concatenate(given) if given else None

        return RolloutReply(
            np.concatenate([part.energies for part in parts]),
            join([part.components for part in parts]),
            join([part.gradients for part in parts]),
            join([part.first_latents for part in parts]),
        )


@dataclass(frozen=True)
class SearchRound:
    """What one round of a search saw: energies of its best candidate and of its elites' mean."""

    best_energy: float
    elite_energy: float


@dataclass(frozen=True)
class PlanTiming:
    """Durations in seconds, all measured on the planner's own clock."""

    total: float
    rollouts: float
    """The part of `total` spent waiting for the world model."""


@dataclass(frozen=True, eq=False)
class Plan:
    """The answer: an action sequence of which the arm executes the first action.

    Attributes:
        actions: (horizon, 7).
        states: the predicted states (horizon + 1, 7), the first being the scene's.
        energies: the predicted energy after each action (horizon,), by an exact rollout.
        predicted_latent: the latent (tokens, dim) that the same rollout predicts after the first
            action: what the next plan may start from while that action is under way.
        start_energy: the energy of the scene itself.
        rollouts: how many candidate sequences the world model rolled out.
        rounds: the course of the search.
        timing: where the time went.
        model_fingerprint: the weights that planned.
    """

    actions: Float64Array
    states: Float64Array
    energies: Float64Array
    predicted_latent: Float32Array
    start_energy: float
    rollouts: int
    rounds: tuple[SearchRound, ...]
    timing: PlanTiming
    model_fingerprint: str


@dataclass(frozen=True)
class ModelDescription:
    """The world model behind a planner, as told in the handshake.

    Attributes:
        fingerprint: hash of sizes and weights; equal fingerprints encode and plan alike.
        tokens: patch tokens per frame.
        dim: width of a latent token.
        image_size: (height, width) in pixels that the encoder sees.
        micro_batch: candidates rolled out at once; fixed, since results depend on it.
        device: where the rollouts run.
        precision: number format of the rollouts; plans of other precisions differ in their digits.
        compiled: whether compiled code has run; on a GPU without it, plans take longer.
        replicas: how many copies of the model share a round.
        parameters: number of weights.
    """

    fingerprint: str
    tokens: int
    dim: int
    image_size: tuple[int, int]
    micro_batch: int
    device: str
    precision: str
    compiled: bool = False
    replicas: int = 1
    parameters: int = field(default=0, compare=False)


class PlannerError(RuntimeError):
    """A plan could not be made; the message says why, for the operator of the robot."""


class PlannerUnavailableError(PlannerError):
    """No plan can be made for now; the same request may succeed `retry_after` seconds later."""

    def __init__(self, reason: str, retry_after: float = 1.0) -> None:
        super().__init__(reason)
        self.retry_after = retry_after


class Planner(Protocol):
    """Anything that plans: in this process, on a Ray cluster, across a network."""

    def describe(self) -> ModelDescription:
        """The model that plans. Raises `PlannerError` when the planner cannot be reached."""

    def plan(self, request: PlanRequest) -> Plan:
        """Search for the action sequence.

        Raises:
            PlannerUnavailableError: no plan can be made just now, but perhaps later.
            PlannerError: no plan can be made.
        """

    def close(self) -> None:
        """Release what the planner holds. It cannot plan afterwards."""
