"""What tells a working world model from one that merely has a low loss."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
import torch
from scipy.stats import pearsonr, spearmanr
from tqdm import tqdm

from jepa_planner_ros.geometry import POSITION
from jepa_planner_ros.planning import InProcessPlanner
from jepa_planner_ros.search import FAST_SEARCH
from jepa_planner_ros.sim.closed_loop import reach
from jepa_planner_ros.sim.franka import FrankaSim
from jepa_planner_ros.training.dataset import Split
from jepa_planner_ros.types import Float32Array, Float64Array, Scene
from jepa_planner_ros.world_model import WorldModel, energy

_CANDIDATES = 128
_SCENES = 40
_EPISODES = 20
_EPISODE_STEPS = 12
_EPISODE_SEEDS = 1000
_PROBE_FRAMES = 3000
_PROBE_RIDGE = 10.0
_REACHED = 0.05


@dataclass(frozen=True)
class Validation:
    """Figures on episodes that training has not seen; distances in centimetres."""

    one_step_error: float
    """L1 between predicted and true next latents."""
    one_step_copy: float
    """The same for predicting that nothing changes."""
    one_step_shuffled: float
    """The same for predictions from another moment's actions."""
    two_step_error: float
    two_step_copy: float
    probe_r2: float
    """Of a linear read-out of the end effector's position from the latents."""
    probe_cm: float
    energy_distance_correlation: float
    """Pearson, between energies and end-effector distances of pairs of frames."""
    energy_action_correlation: float
    """Spearman, between energies of candidate actions and their distance to the action done."""
    argmin_cm: float
    """Distance of the candidate of lowest energy from the action done."""
    closed_loop_mean_cm: float
    """Final distance of episodes of 12 steps from 15-25 cm away, fast search."""
    closed_loop_median_cm: float
    closed_loop_worst_cm: float
    closed_loop_reached: float
    """Fraction of the episodes that ended within 5 cm."""

    def to_dict(self) -> dict[str, float]:
        """Plain values, to be stored beside the weights."""
        return asdict(self)

    def table(self) -> str:
        """One line a figure, for a person."""
        lines = [
            ("one-step L1", f"{self.one_step_error:.4f}", _against(self)),
            ("two-step L1", f"{self.two_step_error:.4f}", f"copying {self.two_step_copy:.4f}"),
            ("linear probe of position", f"{self.probe_cm:.2f} cm", f"R2 {self.probe_r2:.3f}"),
            (
                "energy ~ distance",
                f"{self.energy_distance_correlation:.3f}",
                "Pearson, frame pairs",
            ),
            ("energy ~ |a - a*|", f"{self.energy_action_correlation:.3f}", "Spearman, candidates"),
            ("lowest energy's action", f"{self.argmin_cm:.2f} cm", "from the action done"),
            (
                "closed loop, final",
                f"{self.closed_loop_mean_cm:.2f} cm",
                f"median {self.closed_loop_median_cm:.2f}, worst {self.closed_loop_worst_cm:.2f}, "
                f"{self.closed_loop_reached:.0%} within 5 cm",
            ),
        ]
        return "\n".join(f"{name:<26}{value:>10}   {note}" for name, value, note in lines)


def _against(validation: Validation) -> str:
    return (
        f"copying {validation.one_step_copy:.4f}, "
        f"shuffled actions {validation.one_step_shuffled:.4f}"
    )


def validate(world_model: WorldModel, latents: torch.Tensor, split: Split) -> Validation:
    """Compute every figure.

    Args:
        world_model: the trained model.
        latents: encoded frames (episodes, frames, tokens, dim) of `split`.
        split: the held-out episodes.
    """
    draw = np.random.default_rng(0)
    encoded = latents.numpy()
    one, two, shuffled = _prediction_errors(world_model, encoded, split, draw)
    probe_r2, probe_cm = _linear_probe(encoded, split.states, draw)
    action_correlation, argmin_cm = _candidate_ranking(world_model, encoded, split, draw)
    finals = _closed_loop(world_model)
    return Validation(
        one_step_error=one,
        one_step_copy=float(np.abs(encoded[:, 1:] - encoded[:, :-1]).mean()),
        one_step_shuffled=shuffled,
        two_step_error=two,
        two_step_copy=float(np.abs(encoded[:, 2:] - encoded[:, :-2]).mean()),
        probe_r2=probe_r2,
        probe_cm=probe_cm,
        energy_distance_correlation=_distance_correlation(encoded, split.states, draw),
        energy_action_correlation=action_correlation,
        argmin_cm=argmin_cm,
        closed_loop_mean_cm=100 * float(finals.mean()),
        closed_loop_median_cm=100 * float(np.median(finals)),
        closed_loop_worst_cm=100 * float(finals.max()),
        closed_loop_reached=float((finals < _REACHED).mean()),
    )


def _prediction_errors(
    world_model: WorldModel, latents: Float32Array, split: Split, draw: np.random.Generator
) -> tuple[float, float, float]:
    """L1 after one step, after two, and after one with actions of other moments."""
    one, two, shuffled = [], [], []
    for episode in tqdm(range(len(latents)), desc="validate predictions", unit="episode"):
        actions = split.actions[episode]
        others = actions[draw.permutation(len(actions))]
        for frame in range(0, len(actions) - 1, 3):
            pairs = np.stack((actions[frame : frame + 2], others[frame : frame + 2]))
            outcome = world_model.rollout(
                latents[episode, frame], split.states[episode, frame], pairs
            )
            after = torch.from_numpy(latents[episode, frame + 1 : frame + 3])
            one.append(float(energy(outcome.latents[0, 0], after[0])))
            two.append(float(energy(outcome.latents[0, 1], after[1])))
            shuffled.append(float(energy(outcome.latents[1, 0], after[0])))
    return float(np.mean(one)), float(np.mean(two)), float(np.mean(shuffled))


def _linear_probe(
    latents: Float32Array, states: Float64Array, draw: np.random.Generator
) -> tuple[float, float]:
    """R2 and mean error in cm of a ridge regression of the position, fitted on half the episodes.

    Solved in its dual form: there are more latent components than frames.
    """
    half = len(latents) // 2
    features = latents.reshape(*latents.shape[:2], -1)
    fit = features[:half].reshape(-1, features.shape[-1])
    positions = states[..., POSITION]
    target = positions[:half].reshape(-1, 3)
    chosen = draw.permutation(len(fit))[:_PROBE_FRAMES]
    fit, target = fit[chosen], target[chosen]
    centre, offset = fit.mean(0), target.mean(0)
    gram = (fit - centre) @ (fit - centre).T
    dual = np.linalg.solve(gram + _PROBE_RIDGE * np.eye(len(gram)), target - offset)
    test = features[half:].reshape(-1, features.shape[-1])
    predicted = (test - centre) @ (fit - centre).T @ dual + offset
    true = positions[half:].reshape(-1, 3)
    residual = np.square(predicted - true).sum() / np.square(true - true.mean(0)).sum()
    error = np.linalg.norm(predicted - true, axis=1).mean()
    return float(1 - residual), 100 * float(error)


def _distance_correlation(
    latents: Float32Array, states: Float64Array, draw: np.random.Generator
) -> float:
    """Correlation of energy with distance over pairs of frames of one episode."""
    energies, distances = [], []
    for episode in range(len(latents)):
        for first, second in draw.integers(latents.shape[1], size=(20, 2)):
            energies.append(np.abs(latents[episode, first] - latents[episode, second]).mean())
            apart = states[episode, first, POSITION] - states[episode, second, POSITION]
            distances.append(np.linalg.norm(apart))
    return float(pearsonr(energies, distances).statistic)


def _candidate_ranking(
    world_model: WorldModel, latents: Float32Array, split: Split, draw: np.random.Generator
) -> tuple[float, float]:
    """How well the energy of candidate actions ranks them by distance from the action done."""
    correlations, distances = [], []
    for episode in tqdm(range(min(_SCENES, len(latents))), desc="validate energies", unit="scene"):
        frame = int(draw.integers(split.actions.shape[1]))
        done = split.actions[episode, frame]
        scene = Scene(
            latents[episode, frame], split.states[episode, frame], latents[episode, frame + 1]
        )
        candidates = np.tile(done, (_CANDIDATES, 1, 1))
        limit = np.abs(split.actions[..., POSITION]).max()
        candidates[:, 0, POSITION] = draw.uniform(-limit, limit, size=(_CANDIDATES, 3))
        energies = world_model.energies(scene, candidates)[:, 0]
        apart = np.linalg.norm(candidates[:, 0, POSITION] - done[POSITION], axis=1)
        correlations.append(spearmanr(energies, apart).statistic)
        distances.append(apart[energies.argmin()])
    return float(np.mean(correlations)), 100 * float(np.mean(distances))


def _closed_loop(world_model: WorldModel) -> Float64Array:
    """Final distances in metres of episodes in the simulation's own, fixed world."""
    planner = InProcessPlanner(world_model)
    with FrankaSim() as sim:
        episodes = tqdm(range(_EPISODES), desc="validate closed loop", unit="episode")
        courses = [
            reach(sim, world_model, planner, FAST_SEARCH, _EPISODE_SEEDS + index, _EPISODE_STEPS)
            for index in episodes
        ]
    return np.array([course.distances[-1] for course in courses])
