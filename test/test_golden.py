"""Our world model and search against reference values of Meta's code on a tiny random network.

`JEPA_GOLDEN_DIR` names the directory with `checkpoint.pt`, `config.json` and `golden.npz`.
"""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from jepa_planner_ros.search import CrossEntropyMethod, CrossEntropySettings
from jepa_planner_ros.types import PlanRequest, Scene
from jepa_planner_ros.world_model import (
    Context,
    WorldModel,
    WorldModelConfig,
    energy,
    preprocess,
    read_checkpoint,
)
from jepa_planner_ros.world_model.precision import FP64
from jepa_planner_ros.world_model.reference import reference_rollout

GOLDEN = Path(os.environ.get("JEPA_GOLDEN_DIR", Path(__file__).parent / "data" / "golden"))
TOLERANCE = 5e-6

CONFIG = json.loads((GOLDEN / "config.json").read_text())
VALUES = np.load(GOLDEN / "golden.npz")
SIZE = (CONFIG["img_size"], CONFIG["img_size"])

# Keyword defaults of the reference's `cem` function, which the named settings override.
REFERENCE_DEFAULTS = {
    "maxnorm": 0.05,
    "momentum_mean": 0.25,
    "momentum_std": 0.95,
    "momentum_mean_gripper": 0.15,
    "momentum_std_gripper": 0.15,
}


@pytest.fixture(scope="module")
def checkpoint():
    stored = read_checkpoint(GOLDEN / "checkpoint.pt", image_size=SIZE)
    # Head counts cannot be read from weights: Meta's heads are 64 wide, a test's may differ.
    config = WorldModelConfig(
        replace(stored.config.encoder, heads=CONFIG["encoder_heads"]),
        replace(stored.config.predictor, heads=CONFIG["predictor_heads"]),
    )
    return replace(stored, config=config)


@pytest.fixture(scope="module")
def model(checkpoint):
    return WorldModel(checkpoint)


@pytest.fixture(scope="module")
def scene():
    return Scene(VALUES["latent"], VALUES["state"].astype(np.float64), VALUES["goal_latent"])


def assert_close(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=0, atol=TOLERANCE)


def test_sizes_are_read_from_the_weights(model):
    encoder, predictor = model.config.encoder, model.config.predictor
    assert (encoder.dim, encoder.depth) == (CONFIG["embed_dim"], CONFIG["encoder_depth"])
    assert encoder.patch_size == CONFIG["patch_size"]
    assert encoder.tubelet_size == CONFIG["tubelet_size"]
    assert encoder.mlp_hidden == int(CONFIG["embed_dim"] * CONFIG["mlp_ratio"])
    assert predictor.dim == CONFIG["predictor_dim"]
    assert predictor.depth == CONFIG["predictor_depth"]


@pytest.mark.parametrize("name", ["", "goal_"])
def test_preprocessing(name):
    image = VALUES[f"{name}image"]
    assert_close(preprocess(image, SIZE).numpy(), VALUES[f"{name}preprocessed"])


@pytest.mark.parametrize("name", ["", "goal_"])
def test_latents(model, name):
    assert_close(model.encode(VALUES[f"{name}image"]), VALUES[f"{name}latent"])


def test_rollout_latents_and_states(model, scene):
    actions = VALUES["actions"].astype(np.float64)
    outcome = model.rollout(scene.latent, scene.state, actions)
    assert_close(outcome.latents[:4].numpy(), VALUES["rollout_latents"])
    expected = VALUES["rollout_states"]
    assert_close(outcome.states[:, -expected.shape[1] :].numpy(), expected)


def test_energies(model, scene):
    energies = model.energies(scene, VALUES["actions"].astype(np.float64))
    assert_close(energies, VALUES["energies"])


@pytest.mark.parametrize("run", CONFIG["cem"]["runs"])
def test_reference_cem_action_sequence(model, scene, run):
    sizes = CONFIG["cem"]
    given = REFERENCE_DEFAULTS | sizes["runs"][run]
    close_from = given.pop("close_gripper", None)
    settings = CrossEntropySettings(
        samples=sizes["samples"],
        elites=sizes["topk"],
        rounds=sizes["rounds"],
        horizon=2,
        max_translation=given.pop("maxnorm"),
        **given,
    )
    noise = VALUES["cem_noise"].astype(np.float64)
    request = PlanRequest(scene, settings, close_gripper_from=close_from)
    search = CrossEntropyMethod(settings, request, np.zeros((2, 7)), lambda index, _: noise[index])
    while not search.finished:
        search.tell(model.evaluate(scene, search.propose()))
    assert_close(search.finalists[0], VALUES[f"cem_action_{run}"])


@pytest.mark.parametrize("horizon", [1, 2, 3])
def test_fast_rollouts_equal_recomputation_in_double_precision(checkpoint, scene, horizon):
    _, predictor = checkpoint.build(dtype=torch.float64)
    actions = VALUES["actions"].astype(np.float64)[:, :horizon]
    latent = torch.from_numpy(scene.latent).double()
    context = Context.present(latent, torch.from_numpy(scene.state))
    with torch.inference_mode():
        reference = reference_rollout(predictor, context, torch.from_numpy(actions))
    fast = WorldModel(checkpoint, precision=FP64)
    rolled_out = fast.rollout(scene.latent, scene.state, actions)
    assert (rolled_out.latents - reference.latents).abs().max() <= 1e-12
    expected = energy(reference.latents, torch.from_numpy(scene.goal_latent).double())
    assert np.abs(fast.energies(scene, actions) - expected.numpy()).max() <= 1e-12
