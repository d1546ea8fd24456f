from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from jepa_planner_ros.planning import InProcessPlanner
from jepa_planner_ros.search import FAST_SEARCH
from jepa_planner_ros.sim.closed_loop import reach
from jepa_planner_ros.sim.franka import FrankaSim
from jepa_planner_ros.training.dataset import WORLD, collect_episodes
from jepa_planner_ros.training.encoder import coarse_patches
from jepa_planner_ros.training.optimise import optimise
from jepa_planner_ros.training.predictor import rollout_loss
from jepa_planner_ros.training.settings import TrainingSettings
from jepa_planner_ros.world_model import (
    SMALL,
    EncoderConfig,
    Predictor,
    PredictorConfig,
    WorldModelConfig,
    energy,
    load_world_model,
    read_checkpoint,
)
from jepa_planner_ros.world_model.checkpoint import SHIPPED

FEW = replace(TrainingSettings(), episodes=3, held_out=1, episode_steps=3, workers=1)


@pytest.fixture(scope="module")
def collected(tmp_path_factory):
    directory = tmp_path_factory.mktemp("episodes")
    return directory, collect_episodes(FEW, 128, directory)


def test_episodes_hold_frames_states_and_what_was_achieved_between_them(collected):
    _, dataset = collected
    split = dataset.training
    assert split.images.shape == (2, 4, 128, 128, 3)
    assert split.states.shape == (2, 4, 7)
    assert split.actions.shape == (2, 3, 7)
    moved = split.states[:, 1:, :3] - split.states[:, :-1, :3]
    np.testing.assert_allclose(split.actions[..., :3], moved, atol=1e-12)
    assert 0.005 < np.abs(split.actions[..., :3]).max() < FEW.max_translation + 0.005
    low, high = np.array(WORLD.workspace_min) - 0.05, np.array(WORLD.workspace_max) + 0.05
    assert ((split.states[..., :3] > low) & (split.states[..., :3] < high)).all()


def test_collection_goes_on_where_it_stopped_and_repeats_itself(collected, tmp_path):
    directory, dataset = collected
    kept = directory / "00000.npz"
    before = kept.stat().st_mtime_ns
    (directory / "00002.npz").unlink()
    again = collect_episodes(FEW, 128, directory)
    assert kept.stat().st_mtime_ns == before
    np.testing.assert_array_equal(again.training.images, dataset.training.images)
    np.testing.assert_array_equal(again.training.states, dataset.training.states)


def test_an_interrupted_optimisation_ends_as_an_uninterrupted_one(tmp_path):
    def train(progress: Path, *, stop_at: int | None = None) -> torch.nn.Linear:
        torch.manual_seed(0)
        network = torch.nn.Linear(4, 1)

        def loss(update: int) -> torch.Tensor:
            if update == stop_at:
                raise KeyboardInterrupt
            batch = torch.randn(8, 4, generator=torch.Generator().manual_seed(update))
            return (network(batch) - batch.sum(1, keepdim=True)).square().mean()

        optimise(network, loss, 450, 1e-2, progress, "test")
        return network

    whole = train(tmp_path / "whole.pt")
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "resumed.pt", stop_at=300)
    resumed = train(tmp_path / "resumed.pt")
    assert torch.equal(whole.weight, resumed.weight)
    assert (whole.weight - 1).abs().max() < 0.05


def test_coarse_patches_are_in_the_order_of_the_tokens():
    frames = torch.zeros(1, 3, 128, 128)
    frames[:, :, 16:32, 48:64] = 1.0
    patches = coarse_patches(frames, SMALL.encoder)
    assert patches.shape == (1, 64, 48)
    assert patches[0].sum(-1).nonzero().flatten().tolist() == [1 * 8 + 3]


def test_the_second_step_of_the_loss_is_fed_with_the_first_prediction():
    """Hiding the true middle frame changes the error of the first step only."""
    config = WorldModelConfig(
        EncoderConfig((32, 32), dim=16, depth=1, heads=2, mlp_hidden=16),
        PredictorConfig(dim=16, depth=1, heads=2, mlp_hidden=16),
    )
    torch.manual_seed(0)
    network = Predictor(config)
    latents = torch.randn(2, 3, 4, 16)
    actions, states = torch.randn(2, 2, 7), torch.randn(2, 2, 7)
    changed = latents.clone()
    changed[:, 1] += 1.0

    def second_step_error(frames):
        first, _ = network.step(frames[:, 0], actions[:, 0], states[:, 0], None, frame=0)
        first_error = energy(first, frames[:, 1]).mean()
        return rollout_loss(network, frames, actions, states) - first_error

    assert torch.allclose(second_step_error(latents), second_step_error(changed), atol=1e-5)


def test_the_shipped_model_is_small_and_tells_how_it_was_made():
    assert SHIPPED.stat().st_size < 6e6
    checkpoint = read_checkpoint("shipped")
    provenance = checkpoint.provenance
    assert provenance["command"] == "jepa-planner train"
    assert provenance["settings"] == TrainingSettings().to_dict()
    validation = provenance["validation"]
    assert validation["one_step_error"] < 0.75 * validation["one_step_copy"]
    assert validation["one_step_error"] < 0.75 * validation["one_step_shuffled"]
    assert validation["closed_loop_reached"] == 1.0


def test_the_shipped_model_brings_the_arm_to_the_photograph():
    model = load_world_model()
    with FrankaSim() as sim:
        course = reach(sim, model, InProcessPlanner(model), FAST_SEARCH, seed=2000, steps=8)
    assert course.distances[0] > 0.15
    assert course.distances[-1] < 0.05
    assert course.energies[-1] < 0.5 * course.energies[0]
