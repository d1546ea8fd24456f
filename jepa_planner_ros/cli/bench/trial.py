"""What benchmarks of rollouts share: a network, a scene, and how candidates' energies come out."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from jepa_planner_ros.search import REFERENCE_SEARCH, CrossEntropySettings, search_for
from jepa_planner_ros.types import Float64Array, PlanRequest, RolloutReply, Scene
from jepa_planner_ros.world_model import (
    PRESETS,
    Context,
    EncoderConfig,
    Precision,
    Predictor,
    PredictorConfig,
    RolloutEngine,
    WorldModelConfig,
    energy,
    read_checkpoint,
)
from jepa_planner_ros.world_model.compilation import Compiler
from jepa_planner_ros.world_model.reference import reference_rollout

MID = WorldModelConfig(
    EncoderConfig(image_size=(128, 128), dim=384, depth=12, heads=6, mlp_hidden=1536),
    PredictorConfig(dim=384, depth=12, heads=6, mlp_hidden=1536),
)
"""Between the shipped model and Meta's: large enough to be bound by arithmetic on a CPU."""

SIZES: Mapping[str, WorldModelConfig] = MappingProxyType(
    {name: PRESETS[name] for name in ("shipped", "vjepa2-ac-vitg")} | {"mid": MID}
)
"""Networks to measure, by the name of their preset."""

_STATE = np.array([0.4, 0.0, 0.3, 0.0, 0.0, 0.0, 0.2])
_UNREACHED = 0.5
"""How far the goal differs from all that actions can lead to; latents have deviation 1."""


@dataclass(frozen=True, eq=False)
class Trial:
    """A network and a scene on a device.

    Attributes:
        config: sizes.
        weights: state dict of the predictor.
        latent: the present frame's latents (tokens, dim), double precision.
        state: the end effector's state (7,).
        goal: latents to come near, (tokens, dim), double precision.
        device: where to measure.
        micro_batch: candidates at once.
    """

    config: WorldModelConfig
    weights: Mapping[str, Tensor]
    latent: Tensor
    state: Tensor
    goal: Tensor
    device: torch.device
    micro_batch: int

    @property
    def context(self) -> Context:
        """The scene as rollouts start from it."""
        return Context.present(self.latent, self.state)


class FastPath:
    """The engine that plans, in one precision.

    Args:
        trial: network and scene.
        precision: how exactly to compute.
        compiled: whether to compile.
        micro_batch: candidates at once; None for the trial's.
    """

    def __init__(
        self,
        trial: Trial,
        precision: Precision,
        compiled: bool = False,
        micro_batch: int | None = None,
    ) -> None:
        self._trial = trial
        self._compiler = Compiler() if compiled else None
        self._goal = trial.goal.to(precision.residual)
        self._engine = RolloutEngine(
            trial.config,
            trial.weights,
            micro_batch or trial.micro_batch,
            trial.device,
            precision,
            self._compiler,
        )

    @property
    def compiled(self) -> bool:
        """Whether compiled code has run."""
        return self._compiler is not None and self._compiler.runs > 0

    @property
    def scene(self) -> Scene:
        """What a search is told."""
        latent, goal = (
            latents.float().cpu().numpy() for latents in (self._trial.latent, self._trial.goal)
        )
        return Scene(latent, self._trial.state.double().cpu().numpy(), goal)

    @torch.inference_mode()
    def energies(self, candidates: Float64Array) -> Float64Array:
        """Energies (batch, horizon) of candidates (batch, horizon, 7)."""
        context = replace(self._trial.context, latents=self._trial.latent[None].to(self._goal))
        self._engine.observe(context, candidates.shape[1])
        energies = [
            energy(outcome.latents, self._goal) for outcome in self._engine.rollouts(candidates)
        ]
        return torch.cat(energies).double().cpu().numpy()


class ReferencePath:
    """Upstream's way, in fp32 without any shortcut.

    All candidates are computed at once, as upstream does, but on a GPU in micro-batches, which
    keep it as busy and fit its memory.
    """

    def __init__(self, trial: Trial) -> None:
        self._trial = trial
        with torch.device("meta"):
            self._predictor = Predictor(trial.config)
        weights = {name: w.to(trial.device, torch.float32) for name, w in trial.weights.items()}
        self._predictor.load_state_dict(weights, assign=True)

    @torch.inference_mode()
    def energies(self, candidates: Float64Array) -> Float64Array:
        """Energies (batch, horizon) of candidates (batch, horizon, 7)."""
        context = replace(self._trial.context, latents=self._trial.latent[None].float())
        goal = self._trial.goal.float()
        actions = torch.from_numpy(candidates).to(self._trial.device)
        on_cpu = self._trial.device.type == "cpu"
        energies = [
            energy(reference_rollout(self._predictor, context, batch).latents, goal)
            for batch in actions.split(len(actions) if on_cpu else self._trial.micro_batch)
        ]
        return torch.cat(energies).double().cpu().numpy()


def make_trial(
    preset: str, checkpoint: str | None, device: torch.device, micro_batch: int, seed: int
) -> Trial:
    """A network with the weights of a file, or of the shipped model, or random ones.

    The scene is random. Its goal is what a random action leads to, and then moved away, so that a
    search has something to find but cannot come to zero.

    Raises:
        CheckpointError: the file holds no world model.
    """
    torch.manual_seed(seed)
    if checkpoint or preset == "shipped":
        read = read_checkpoint(checkpoint or preset)
        config, weights = read.config, read.predictor
    else:
        config = SIZES[preset]
        weights = Predictor(config).state_dict()
    shape = config.encoder.tokens, config.encoder.dim
    latent, noise = (
        functional.layer_norm(torch.randn(shape, dtype=torch.float64), shape[-1:]).to(device)
        for _ in range(2)
    )
    state = torch.tensor(_STATE, device=device)
    trial = Trial(config, weights, latent, state, latent, device, micro_batch)
    action = torch.zeros(1, 2, 7, dtype=torch.float64, device=device)
    action[..., :3] = 0.03
    with torch.inference_mode():
        predictor = ReferencePath(trial)._predictor
        context = replace(trial.context, latents=latent[None].float())
        reached = reference_rollout(predictor, context, action).latents[0, -1].double()
    goal = functional.layer_norm(reached + _UNREACHED * noise, shape[-1:])
    return replace(trial, goal=goal)


def search_settings(samples: int, horizon: int, rounds: int) -> CrossEntropySettings:
    """The reference's search with other numbers of candidates, actions and rounds."""
    return replace(
        REFERENCE_SEARCH,
        samples=samples,
        elites=max(2, samples // 10),
        horizon=horizon,
        rounds=rounds,
    )


def candidates_of_rounds(
    path: FastPath, settings: CrossEntropySettings, seed: int
) -> Iterator[Float64Array]:
    """What a search proposes in each round, (samples, horizon, 7)."""
    search = search_for(PlanRequest(path.scene, settings, seed))
    while not search.finished:
        candidates = search.propose().candidates
        yield candidates
        search.tell(RolloutReply(path.energies(candidates)))


def elite_overlap(energies: Float64Array, truth: Float64Array, elites: int) -> float:
    """Share of the elites by `truth` that are elites by `energies`, (batch,) each."""
    chosen, best = (set(np.argsort(e, kind="stable")[:elites]) for e in (energies, truth))
    return len(chosen & best) / elites


@contextmanager
def progress(total: int) -> Iterator[Progress]:
    """A line on the terminal that tells how far a measurement is; none where nobody looks."""
    shown = Progress(total)
    try:
        yield shown
    finally:
        shown.clear()


class Progress:
    """Counts steps on one line. Of its own, since a GPU machine may have nothing but PyTorch."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._done = 0

    def step(self, doing: str) -> None:
        """Announce the next step."""
        if sys.stderr.isatty():
            bar = "#" * (24 * self._done // self._total)
            print(f"\r\033[K[{bar:<24}] {doing}", end="", file=sys.stderr, flush=True)
        self._done += 1

    def clear(self) -> None:
        """Remove the line."""
        if sys.stderr.isatty():
            print("\r\033[K", end="", file=sys.stderr, flush=True)
