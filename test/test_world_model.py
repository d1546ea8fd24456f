import numpy as np
import pytest
import torch
from random_weights import random_checkpoint

from jepa_planner_ros.planning import InProcessPlanner
from jepa_planner_ros.search import CrossEntropySettings
from jepa_planner_ros.types import (
    PlannerError,
    PlanRequest,
    RolloutReply,
    RolloutRequest,
    Scene,
)
from jepa_planner_ros.world_model import (
    PRECISIONS,
    SMALL,
    VJEPA2_AC_VITG,
    Checkpoint,
    Encoder,
    EncoderConfig,
    Predictor,
    PredictorConfig,
    WorldModel,
    WorldModelConfig,
    preprocess,
    read_checkpoint,
    write_checkpoint,
)
from jepa_planner_ros.world_model.compilation import Compiler
from jepa_planner_ros.world_model.precision import FP64

TINY = WorldModelConfig(
    EncoderConfig(image_size=(32, 64), dim=48, depth=1, heads=2, mlp_hidden=64),
    PredictorConfig(dim=48, depth=2, heads=1, mlp_hidden=64),
)


@pytest.fixture(scope="module")
def checkpoint():
    return random_checkpoint(TINY)


@pytest.fixture(scope="module")
def model(checkpoint):
    return WorldModel(checkpoint, micro_batch=8)


@pytest.fixture(scope="module")
def scene(model):
    draw = np.random.default_rng(0)
    frame, goal = draw.integers(0, 256, size=(2, 40, 90, 3), dtype=np.uint8)
    state = np.array([0.4, 0.1, 0.3, 3.0, 0.1, -0.5, 0.2])
    return Scene(model.encode(frame), state, model.encode(goal))


def candidates(count):
    return np.random.default_rng(1).normal(scale=0.05, size=(count, 2, 7))


def test_full_size_is_the_published_one():
    with torch.device("meta"):
        encoder, predictor = Encoder(VJEPA2_AC_VITG.encoder), Predictor(VJEPA2_AC_VITG)
    millions = [sum(p.numel() for p in part.parameters()) / 1e6 for part in (encoder, predictor)]
    assert 1000 < millions[0] < 1020
    assert 300 < millions[1] < 310
    assert VJEPA2_AC_VITG.encoder.tokens == 256


@pytest.mark.parametrize("precision", PRECISIONS)
def test_energies_do_not_depend_on_how_candidates_are_split(checkpoint, scene, precision):
    """Whole micro-batches give the same bits wherever they are computed."""
    model = WorldModel(checkpoint, precision=precision, micro_batch=8)
    everything = candidates(20)
    together = model.energies(scene, everything)
    apart = [model.energies(scene, part) for part in (everything[:8], everything[8:])]
    np.testing.assert_array_equal(together, np.concatenate(apart))


def test_a_question_asked_in_parts_is_answered_to_the_bit(model, scene):
    question = RolloutRequest(
        candidates(20),
        components=np.array([3, 70, 5]),
        gradient_weights=np.array([0.5, 0.5]),
    )
    together = model.evaluate(scene, question)
    shares = (slice(0, 8), slice(8, 16), slice(16, 20))
    apart = RolloutReply.joined([model.evaluate(scene, question.part(share)) for share in shares])
    for name in ("energies", "components", "gradients"):
        np.testing.assert_array_equal(getattr(together, name), getattr(apart, name))


def test_only_what_is_asked_for_is_answered(model, scene):
    reply = model.evaluate(scene, RolloutRequest(candidates(2)))
    assert reply.energies.shape == (2, 2)
    assert reply.components is reply.gradients is None


def test_components_are_those_of_the_rollout(model, scene):
    chosen = np.array([0, 7, 95])
    reply = model.evaluate(scene, RolloutRequest(candidates(8), components=chosen))
    latents = model.rollout(scene.latent, scene.state, candidates(8)).latents.numpy()
    np.testing.assert_array_equal(reply.components, latents.reshape(8, 2, -1)[..., chosen])


def test_the_l2_distance_is_the_root_mean_square(model, scene):
    reply = model.evaluate(scene, RolloutRequest(candidates(8), distance="l2"))
    latents = model.rollout(scene.latent, scene.state, candidates(8)).latents.numpy()
    expected = np.sqrt(np.square(latents - scene.goal_latent).mean(axis=(-2, -1)))
    np.testing.assert_allclose(reply.energies, expected, rtol=1e-6)


@pytest.mark.parametrize("distance", ["l1", "l2"])
def test_gradients_are_those_of_the_weighted_energies(checkpoint, scene, distance):
    exact = WorldModel(checkpoint, precision=FP64, micro_batch=4)
    weights, nudge = np.array([0.3, 0.7]), 1e-4
    reply = exact.evaluate(scene, RolloutRequest(candidates(2), distance, gradient_weights=weights))
    for dimension in np.ndindex(2, 7):
        apart = np.zeros((2, 7))
        apart[dimension] = nudge
        sides = np.concatenate((candidates(2) + apart, candidates(2) - apart))
        energies = exact.evaluate(scene, RolloutRequest(sides, distance)).energies @ weights
        slopes = (energies[:2] - energies[2:]) / (2 * nudge)
        np.testing.assert_allclose(reply.gradients[(slice(None), *dimension)], slopes, atol=2e-3)


def test_actions_change_the_prediction(model, scene):
    energies = model.energies(scene, candidates(8))
    assert len(np.unique(energies[:, 0])) == 8


def test_the_same_request_gives_the_same_plan(model, scene):
    settings = CrossEntropySettings(samples=20, elites=4, rounds=3)
    planner = InProcessPlanner(model)
    first, again = (planner.plan(PlanRequest(scene, settings, seed=5, step=2)) for _ in range(2))
    np.testing.assert_array_equal(first.actions, again.actions)
    exact = model.energies(scene, first.actions[None])[0]
    np.testing.assert_allclose(first.energies, exact, rtol=1e-6)
    assert first.rollouts == 61
    predicted = model.rollout(scene.latent, scene.state, np.repeat(first.actions[None], 8, 0))
    np.testing.assert_array_equal(first.predicted_latent, predicted.latents[0, 0].numpy())
    assert first.model_fingerprint == model.fingerprint
    np.testing.assert_array_equal(first.states[0], scene.state)


def test_a_checkpoint_survives_the_disk(checkpoint, tmp_path):
    write_checkpoint(checkpoint, tmp_path / "model.safetensors")
    again = read_checkpoint(tmp_path / "model.safetensors")
    assert again.config == checkpoint.config
    assert again.fingerprint() == checkpoint.fingerprint()


def test_a_fingerprint_tells_models_apart(checkpoint):
    changed = {name: weight.clone() for name, weight in checkpoint.predictor.items()}
    changed["proj.bias"][0] += 1e-3
    other = Checkpoint(TINY, checkpoint.encoder, changed, {})
    assert other.fingerprint() != checkpoint.fingerprint()


def test_the_full_sizes_survive_the_metadata():
    for config in (SMALL, VJEPA2_AC_VITG):
        assert WorldModelConfig.from_dict(config.to_dict()) == config


@pytest.mark.parametrize(
    "image",
    [
        np.zeros((4, 4), np.uint8),
        np.zeros((4, 4, 4), np.uint8),
        np.zeros((4, 4, 3), np.float32),
        np.zeros((0, 4, 3), np.uint8),
    ],
)
def test_what_is_not_an_rgb_image_is_refused(image):
    with pytest.raises(ValueError, match="expected an RGB image"):
        preprocess(image, (32, 32))


def test_preprocessing_crops_the_centre():
    image = np.zeros((32, 96, 3), np.uint8)
    image[:, 32:64] = 255
    pixels = preprocess(image, (32, 32))
    assert (pixels == pixels[:, :1, :1]).all()
    assert pixels.min() > 2.0


@pytest.mark.parametrize("name", ["latent", "state", "goal_latent"])
def test_a_scene_that_is_not_finite_is_refused(scene, name):
    parts = {"latent": scene.latent, "state": scene.state, "goal_latent": scene.goal_latent}
    parts[name] = parts[name].copy()
    parts[name].flat[3] = np.nan
    with pytest.raises(ValueError, match=f"{name} holds a value that is not finite"):
        Scene(**parts)


def test_damaged_weights_do_not_make_a_plan(checkpoint, scene):
    damaged = {name: weight.clone() for name, weight in checkpoint.predictor.items()}
    damaged["proj.bias"][0] = torch.nan
    planner = InProcessPlanner(WorldModel(Checkpoint(TINY, checkpoint.encoder, damaged, {})))
    with pytest.raises(PlannerError, match="not finite"):
        planner.plan(PlanRequest(scene, CrossEntropySettings(samples=8, elites=2, rounds=1)))


def test_a_scene_of_another_encoder_is_refused_by_every_planner(model):
    foreign = Scene(np.zeros((9, 48), np.float32), np.zeros(7), np.zeros((9, 48), np.float32))
    with pytest.raises(PlannerError, match=r"\(9, 48\).*\(8, 48\)"):
        InProcessPlanner(model).plan(PlanRequest(foreign, CrossEntropySettings()))


def test_a_model_tells_its_precision(checkpoint, model):
    assert model.describe().precision == "fp32", "what auto is on a CPU"
    described = WorldModel(checkpoint, precision="bf16").describe()
    assert (described.precision, described.compiled) == ("bf16", False)
    assert described.fingerprint == model.fingerprint, "the weights are the same"
    with pytest.raises(ValueError, match=r"world_model\.precision 'fp8' is unknown.*auto, fp32"):
        WorldModel(checkpoint, precision="fp8")


@pytest.mark.parametrize(
    ("precision", "tolerance"), [("fp16", 3e-3), ("bf16", 3e-2), ("int8", 6e-2)]
)
def test_frames_are_encoded_in_every_precision(checkpoint, model, precision, tolerance):
    image = np.random.default_rng(0).integers(0, 256, size=(40, 90, 3), dtype=np.uint8)
    rough = WorldModel(checkpoint, precision=precision).encode(image)
    difference = np.abs(rough - model.encode(image)).mean()
    assert 0.0 < difference < tolerance


def test_a_failing_compiler_does_not_keep_the_model_from_planning(checkpoint, scene, caplog):
    """As on a GPU whose compiler is broken; here it is one that knows no blocks."""

    def fail(*_):
        raise RuntimeError("no kernel for this device")

    broken = WorldModel(checkpoint, micro_batch=8)
    broken._compiler, broken._engine._forward = Compiler("eager"), fail
    broken.rehearse(horizon=2)
    assert "so it runs uncompiled: no kernel for this device" in caplog.text
    assert not broken.describe().compiled
    whole = WorldModel(checkpoint, micro_batch=8)
    np.testing.assert_array_equal(
        broken.energies(scene, candidates(3)), whole.energies(scene, candidates(3))
    )
