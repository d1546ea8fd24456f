import numpy as np
import pytest
import torch

from jepa_planner_ros.planning import InProcessPlanner
from jepa_planner_ros.types import PlannerError, PlanRequest, Scene, SearchSettings
from jepa_planner_ros.world_model import (
    SMALL,
    VJEPA2_AC_VITG,
    Checkpoint,
    CheckpointError,
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

TINY = WorldModelConfig(
    EncoderConfig(image_size=(32, 64), dim=48, depth=1, heads=2, mlp_hidden=64),
    PredictorConfig(dim=48, depth=2, heads=1, mlp_hidden=64),
)


@pytest.fixture(scope="module")
def checkpoint():
    torch.manual_seed(0)
    return Checkpoint(TINY, Encoder(TINY.encoder).state_dict(), Predictor(TINY).state_dict(), {})


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


def test_energies_do_not_depend_on_how_candidates_are_split(model, scene):
    """Whole micro-batches give the same bits wherever they are computed."""
    everything = candidates(20)
    together = model.energies(scene, everything)
    apart = [model.energies(scene, part) for part in (everything[:8], everything[8:])]
    np.testing.assert_array_equal(together, np.concatenate(apart))


def test_actions_change_the_prediction(model, scene):
    energies = model.energies(scene, candidates(8))
    assert len(np.unique(energies[:, 0])) == 8


def test_the_same_request_gives_the_same_plan(model, scene):
    settings = SearchSettings(samples=20, elites=4, rounds=3)
    planner = InProcessPlanner(model)
    first, again = (planner.plan(PlanRequest(scene, settings, seed=5, step=2)) for _ in range(2))
    np.testing.assert_array_equal(first.actions, again.actions)
    np.testing.assert_array_equal(first.energies, model.energies(scene, first.actions[None])[0])
    assert first.rollouts == 61
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


def test_meta_layout_is_read_strictly(checkpoint, tmp_path):
    config = WorldModelConfig(
        EncoderConfig((32, 32), dim=64, depth=1, heads=1, mlp_hidden=64),
        PredictorConfig(dim=64, depth=1, heads=1, mlp_hidden=64),
    )
    encoder, predictor = Encoder(config.encoder).state_dict(), Predictor(config).state_dict()
    renamed = ("embed", "blocks", "norm", "proj")
    content = {
        "encoder": {f"module.backbone.{name}": weight for name, weight in encoder.items()},
        "predictor": {
            f"module.{'predictor_' if name.startswith(renamed) else ''}{name}": weight
            for name, weight in predictor.items()
        },
    }
    torch.save(content, tmp_path / "meta.pt")
    read = read_checkpoint(tmp_path / "meta.pt", image_size=(32, 32))
    assert read.config == config
    read.build()

    del content["predictor"]["module.predictor_proj.bias"]
    torch.save(content, tmp_path / "half.pt")
    with pytest.raises(CheckpointError, match=r"(?s)predictor.*proj\.bias"):
        read_checkpoint(tmp_path / "half.pt", image_size=(32, 32)).build()


def test_files_that_hold_no_world_model_are_refused(tmp_path):
    with pytest.raises(CheckpointError, match="there is no file"):
        read_checkpoint(tmp_path / "missing.pt")
    (tmp_path / "text.safetensors").write_text("not a checkpoint")
    with pytest.raises(CheckpointError, match="not a world model"):
        read_checkpoint(tmp_path / "text.safetensors")
    (tmp_path / "text.pt").write_text("not a checkpoint")
    with pytest.raises(CheckpointError, match="cannot be read"):
        read_checkpoint(tmp_path / "text.pt")
    torch.save({"model": {}}, tmp_path / "foreign.pt")
    with pytest.raises(CheckpointError, match=r"holds \['model'\]"):
        read_checkpoint(tmp_path / "foreign.pt")


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
        planner.plan(PlanRequest(scene, SearchSettings(samples=8, elites=2, rounds=1)))
