"""The vocabulary of the project: what is asked of a planner and what it answers.

Every layer speaks in these frozen records, so that a plan means the same in-process, on a local
Ray cluster and across a network. Arrays are NumPy's: they travel anywhere and belong to no device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

Float32Array = NDArray[np.float32]
Float64Array = NDArray[np.float64]
Int64Array = NDArray[np.int64]
RgbImage = NDArray[np.uint8]
"""(height, width, 3)"""

DistanceName = Literal["l1", "l2"]
"""Between latents: mean absolute difference, or root mean square difference."""


@dataclass(frozen=True)
class Energy:
    """What a search minimises: a distance between latents, summed up over a sequence's steps."""

    distance: DistanceName = "l1"
    """Of the latents predicted after an action to the goal's: their mean absolute difference (l1)
    or root mean square difference (l2)."""
    steps: Literal["last", "mean"] | tuple[float, ...] = "mean"
    """Which distances count: `last`, the reference (V-JEPA 2, Eq. 5); `mean`; or a list of weights,
    one for each step."""

    def __post_init__(self) -> None:
        if self.distance not in ("l1", "l2"):
            raise ValueError(f"energy.distance {self.distance!r} is unknown: 'l1' or 'l2'.")
        if isinstance(self.steps, str):
            usable = self.steps in ("last", "mean")
        else:
            usable = min(self.steps, default=-1.0) >= 0.0 and sum(self.steps) > 0.0
        if not usable:
            raise ValueError(
                f"energy.steps {self.steps!r} cannot be used: 'last', 'mean', or a weight of at "
                "least 0 for each step, not all 0."
            )


MEAN_ENERGY = Energy()
"""The mean over the steps, which determines the first action."""
RMS_ENERGY = Energy("l2")
"""The same of root mean squares, which a blurred prediction misleads less."""
LAST_STEP_ENERGY = Energy(steps="last")
"""The reference's."""


@dataclass(frozen=True)
class Guard:
    """What keeps a search from returning a sequence that is worse than an obvious one.

    A guarded search also rolls out the sequence it starts from and standing still, and returns the
    best of all that it has seen. Where predictions of the energy are off, cross-entropy rounds
    around the best sequence so far take over.
    """

    disagreement: float = 0.5
    """Largest mean error of predicted energies, as a fraction of the spread (standard deviation) of
    the exact ones that the predictions come from."""
    samples: int = 16
    """Candidates of a cross-entropy round."""
    elites: int = 4
    """Candidates of lowest energy that the next round is fitted to."""
    rounds: int = 6
    """Cross-entropy rounds."""

    def __post_init__(self) -> None:
        if not (self.disagreement > 0.0 and 2 <= self.elites <= self.samples and self.rounds >= 1):
            given = ", ".join(f"{name} {value}" for name, value in vars(self).items())
            raise ValueError(
                f"guard ({given}) cannot be used. Expected disagreement > 0, samples >= elites >= "
                "2 and rounds >= 1."
            )


DEFAULT_GUARD = Guard()


@dataclass(frozen=True, kw_only=True)
class SearchSettings:
    """What all searches have in common; each search adds its own, beside its code."""

    horizon: int = 1
    """Actions per candidate sequence."""
    energy: Energy = RMS_ENERGY
    """What is minimised."""
    max_translation: float = 0.075
    """Largest translation of one action along each axis, metres."""
    anchored: bool = True
    """Near the goal, take out of the comparison the error that the world model makes for standing
    still; see `jepa_planner_ros.search.anchor`."""
    guard: Guard | None = DEFAULT_GUARD
    """What keeps the plan from being worse than an obvious one; null does without."""

    def __post_init__(self) -> None:
        self.require("1 or more", horizon=self.horizon >= 1)
        self.require(
            "more than 0 and less than 1", max_translation=0.0 < self.max_translation < 1.0
        )
        steps = self.energy.steps
        if not isinstance(steps, str) and len(steps) != self.horizon:
            raise ValueError(
                f"energy.steps {steps} must have a weight for each of the search.horizon = "
                f"{self.horizon} steps."
            )

    def require(self, allowed: str, **checks: bool) -> None:
        """Raise a `ValueError` that names every setting whose check fails, and what is allowed."""
        wrong = [name for name, holds in checks.items() if not holds]
        if wrong:
            given = ", ".join(f"search.{name} = {getattr(self, name)!r}" for name in wrong)
            raise ValueError(
                f"{given} must be {allowed}. docs/reference.md, 'Search profiles', tells what each "
                "entry means."
            )


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
        search: how to look for the action sequence; its type names the search.
        seed: seed of the episode.
        step: index of this plan in the episode; with `seed` it fixes the noise of the search.
        previous: the sequence (horizon, 7) chosen one step ago, to start from; None starts cold.
        close_gripper_from: step of the sequence from which the gripper closes; None leaves it free.
        deadline: time for the plan, s. No round is begun that would end later; what has been found
            by then is returned. Where it cuts a search short, the plan depends on the machine's
            speed. None lets every search finish.
    """

    scene: Scene
    search: SearchSettings
    seed: int = 0
    step: int = 0
    previous: Float64Array | None = None
    close_gripper_from: int | None = None
    deadline: float | None = None

    def __post_init__(self) -> None:
        if self.seed < 0 or self.step < 0:
            raise ValueError(f"seed {self.seed} and step {self.step} must not be negative.")
        if self.deadline is not None and not self.deadline > 0.0:
            raise ValueError(f"deadline {self.deadline} must be greater than 0 s.")
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
        goal: latents (tokens, dim) to compare with in place of the scene's goal.
    """

    candidates: Float64Array
    distance: DistanceName = "l1"
    components: Int64Array | None = None
    gradient_weights: Float64Array | None = None
    goal: Float32Array | None = None

    def part(self, share: slice) -> RolloutRequest:
        """The same question about some of the candidates."""
        return replace(self, candidates=self.candidates[share])

    def preceded_by(self, candidates: Float64Array) -> RolloutRequest:
        """The same question about more candidates (more, horizon, 7), which come first."""
        return replace(self, candidates=np.concatenate((candidates, self.candidates)))


@dataclass(frozen=True, eq=False)
class RolloutReply:
    """The answer to a `RolloutRequest`, one entry per candidate; None what was not asked for.

    Attributes:
        energies: distance to the goal after each action (batch, horizon).
        components: of the latents after each action (batch, horizon, components).
        gradients: of the weighted sum of the energies (batch, horizon, 7).
    """

    energies: Float64Array
    components: Float32Array | None = None
    gradients: Float64Array | None = None

    def part(self, share: slice) -> RolloutReply:
        """The answer as regards some of the candidates."""

        def cut(array: NDArray[Any] | None) -> NDArray[Any] | None:
            return None if array is None else array[share]

        return RolloutReply(
            self.energies[share],
            cut(self.components),
            cut(self.gradients),
        )

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
        )


@dataclass(frozen=True)
class SearchRound:
    """What one round of a search saw."""

    best_energy: float
    """Of the round's best candidate."""
    elite_energy: float
    """Mean of the candidates that the next round builds on."""
    elites: int = 0
    """How many those are; 0 where all count, each in its own way."""


@dataclass(frozen=True, eq=False)
class Imagined:
    """Where the candidates of a search's last round lead, the best first.

    Attributes:
        ends: positions (count, 3) after their last action, base frame, m.
        energies: of each (count,), in the measure that the search minimises.
    """

    ends: Float64Array
    energies: Float64Array


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
        energies: the predicted distance (L1, as thresholds are given) to the goal after each action
            (horizon,), by an exact rollout; to the anchored goal, where the search is anchored.
        predicted_latent: the latent (tokens, dim) that the same rollout predicts after the first
            action: what the next plan may start from while that action is under way.
        start_energy: the same distance of the scene itself.
        rollouts: how many candidate sequences the world model rolled out.
        rounds: the course of the search.
        fallback: why cross-entropy rounds took over from the search; None if they did not.
        timing: where the time went.
        model_fingerprint: the weights that planned.
        imagined: candidates of the last round, for people to see; None where nobody kept them.
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
    fallback: str | None = None
    imagined: Imagined | None = None


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


class Encoder(Protocol):
    """Anything that turns frames into latents: a world model here, or a planner elsewhere."""

    @property
    def fingerprint(self) -> str:
        """Hash of the weights that encode."""

    def encode(self, image: NDArray[np.uint8]) -> Float32Array:
        """Latents (tokens, dim) of an RGB frame, uint8 (height, width, 3).

        Raises:
            PlannerUnavailableError: it cannot be encoded just now, but perhaps later.
            PlannerError: it cannot be encoded.
            ValueError: `image` is not such a frame.
        """


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
