"""The fast rollouts: the reference's values, whatever is saved, in every precision."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from jepa_planner_ros import geometry
from jepa_planner_ros.world_model import (
    PRECISIONS,
    Context,
    EncoderConfig,
    Precision,
    Predictor,
    PredictorConfig,
    Rollout,
    RolloutEngine,
    WorldModelConfig,
    choose_precision,
    energy,
)
from jepa_planner_ros.world_model import predictor as predictor_module
from jepa_planner_ros.world_model import reference as reference_module
from jepa_planner_ros.world_model import rope as rope_module
from jepa_planner_ros.world_model import transformer as transformer_module
from jepa_planner_ros.world_model.compilation import Compiler, obstacle
from jepa_planner_ros.world_model.precision import FP64
from jepa_planner_ros.world_model.reference import reference_rollout

CPU = torch.device("cpu")
GATE = 1e-12
"""Largest difference of latents in double precision."""

BATCH = 3
STATE = torch.tensor([0.4, 0.1, 0.3, 3.0, 0.1, -0.5, 0.9], dtype=torch.float64)


def sizes(head_dim: int, grid: tuple[int, int]) -> WorldModelConfig:
    encoder = EncoderConfig((16 * grid[0], 16 * grid[1]), dim=40, depth=1, heads=2)
    return WorldModelConfig(encoder, PredictorConfig(2 * head_dim, 2, 2, 96))


def random_predictor(config: WorldModelConfig, dtype: torch.dtype = torch.float64) -> Predictor:
    torch.manual_seed(0)
    return Predictor(config).to(dtype)


def random_context(config: WorldModelConfig, frames: int) -> Context:
    shape = frames, config.encoder.tokens, config.encoder.dim
    latents = functional.layer_norm(torch.randn(shape, dtype=torch.float64), shape[-1:])
    states = STATE + 0.1 * torch.randn(frames, 7, dtype=torch.float64)
    return Context(latents, states, random_actions(frames - 1, 1)[:, 0])


def random_actions(count: int, horizon: int) -> Tensor:
    return 0.3 * torch.randn(count, horizon, 7, dtype=torch.float64)


def fast_rollout(predictor: Predictor, config: WorldModelConfig, context: Context, actions: Tensor):
    engine = RolloutEngine(config, predictor.state_dict(), len(actions), CPU, FP64)
    engine.observe(context, actions.shape[1])
    (outcome,) = engine.rollouts(actions.numpy())
    return outcome


def difference(one: Rollout, other: Rollout) -> float:
    return float((one.latents - other.latents).abs().max())


@pytest.mark.parametrize(
    ("head_dim", "grid", "frames", "horizon"),
    itertools.product((24, 48, 64), ((3, 3), (2, 5), (4, 2)), (1, 2, 3), (1, 2, 3, 4)),
)
@torch.inference_mode()
def test_fast_rollouts_equal_full_recomputation(
    head_dim: int, grid: tuple[int, int], frames: int, horizon: int
) -> None:
    config = sizes(head_dim, grid)
    predictor = random_predictor(config)
    context, actions = random_context(config, frames), random_actions(BATCH, horizon)
    reference = reference_rollout(predictor, context, actions)
    fast = fast_rollout(predictor, config, context, actions)
    assert difference(fast, reference) <= GATE
    assert (fast.states - reference.states).abs().max() <= GATE


def rotate_action_like_a_patch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the conditioning tokens the position of the first patch in the second row."""
    original = rope_module.frame_positions

    def positions(frame, grid, conditioning, device=None):
        table = original(frame, grid, conditioning, device)
        table[:conditioning, 1] = 1
        return table

    monkeypatch.setattr(predictor_module, "frame_positions", positions)


def leave_action_unrotated(monkeypatch: pytest.MonkeyPatch) -> None:
    original = rope_module.frame_positions

    def positions(frame, grid, conditioning, device=None):
        table = original(frame, grid, conditioning, device)
        table[:conditioning] = 0
        return table

    monkeypatch.setattr(predictor_module, "frame_positions", positions)


def do_not_advance_the_pose(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference_module, "integrate_state", lambda state, action: state)


def do_not_clip_the_gripper(monkeypatch: pytest.MonkeyPatch) -> None:
    def integrate(state, action):
        moved = geometry.integrate_state(state, action)
        moved[geometry.GRIPPER] = state[geometry.GRIPPER] + action[geometry.GRIPPER]
        return moved

    monkeypatch.setattr(reference_module, "integrate_state", integrate)


def turn_in_the_hands_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    """R(state) @ R(action) in place of R(action) @ R(state)."""

    def integrate(state, action):
        moved, turned = (
            geometry.integrate_state(*pair) for pair in ((state, action), (action, state))
        )
        moved[geometry.ROTATION] = turned[geometry.ROTATION]
        return moved

    monkeypatch.setattr(reference_module, "integrate_state", integrate)


def count_frames_from_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attention sees differences of frames; so the first frame alone is moved."""
    original = rope_module.frame_positions

    def positions(frame, grid, conditioning, device=None):
        return original(frame + 1 if frame else 0, grid, conditioning, device)

    monkeypatch.setattr(predictor_module, "frame_positions", positions)


def forget_the_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    original = rope_module.frame_positions
    monkeypatch.setattr(
        predictor_module,
        "frame_positions",
        lambda frame, grid, conditioning, device=None: original(0, grid, conditioning, device),
    )


def do_not_scale_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    original = rope_module.frame_positions

    def positions(frame, grid, conditioning, device=None):
        table = original(frame, grid, conditioning, device)
        table[:, 2] *= grid[1] / grid[0]
        return table

    monkeypatch.setattr(predictor_module, "frame_positions", positions)


def changed_table(change: Callable[[Tensor, int], Tensor]) -> Callable[[pytest.MonkeyPatch], None]:
    """Reorder the components of every head's rotations."""

    def apply(monkeypatch: pytest.MonkeyPatch) -> None:
        original = rope_module.rope_table

        def table(positions, head_dim, dtype):
            return rope_module.RopeTable(
                *(change(part, head_dim) for part in original(positions, head_dim, dtype))
            )

        monkeypatch.setattr(predictor_module, "rope_table", table)

    return apply


def interleaved(part: Tensor, head_dim: int) -> Tensor:
    """Frequencies ``[f0, f0, f1, f1, ...]``, as a pairwise rotation would have them."""
    width = 2 * ((head_dim // 3) // 2)
    parts = [
        part[:, axis * width : axis * width + width // 2].repeat_interleave(2, dim=-1)
        for axis in range(3)
    ]
    return torch.cat((*parts, part[:, 3 * width :]), dim=-1)


def remainder_first(part: Tensor, head_dim: int) -> Tensor:
    return part.roll(head_dim - 3 * 2 * ((head_dim // 3) // 2), dims=-1)


def leave_out_the_last_norm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predictor_module, "latent_norm", lambda x: x)


def norm_with_pytorchs_epsilon(monkeypatch: pytest.MonkeyPatch) -> None:
    """1e-5 in place of 1e-6."""
    original = functional.layer_norm
    monkeypatch.setattr(
        torch.nn.LayerNorm,
        "forward",
        lambda self, x: original(x, x.shape[-1:], self.weight, self.bias, 1e-5),
    )


def attend_to_later_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    original = transformer_module.Block.forward
    monkeypatch.setattr(
        transformer_module.Block,
        "forward",
        lambda self, x, rope, past=None, mask=None: original(self, x, rope, past),
    )


@torch.inference_mode()
@pytest.mark.parametrize(
    "mutate",
    [
        leave_action_unrotated,
        rotate_action_like_a_patch,
        do_not_advance_the_pose,
        do_not_clip_the_gripper,
        turn_in_the_hands_frame,
        count_frames_from_one,
        forget_the_frame,
        do_not_scale_columns,
        pytest.param(changed_table(interleaved), id="interleaved_frequencies"),
        pytest.param(changed_table(remainder_first), id="remainder_first"),
        leave_out_the_last_norm,
        norm_with_pytorchs_epsilon,
        attend_to_later_frames,
    ],
)
def test_the_gate_catches(
    mutate: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each mistake that upstream's structure invites is made on one side, and is seen."""
    config = sizes(64, (2, 5))
    predictor = random_predictor(config)
    context, actions = random_context(config, frames=1), random_actions(BATCH, 2)
    actions[:, 0, geometry.GRIPPER] = 0.9
    fast = fast_rollout(predictor, config, context, actions)
    assert difference(fast, reference_rollout(predictor, context, actions)) <= GATE
    mutate(monkeypatch)
    assert difference(fast, reference_rollout(predictor, context, actions)) > 1e3 * GATE


@torch.inference_mode()
def test_compiled_rollouts_are_those_that_are_not(
    tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each block of each step runs compiled code, which is counted."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    config = sizes(24, (1, 2))
    predictor, context = random_predictor(config), random_context(config, frames=1)
    compiler, actions = Compiler("aot_eager"), random_actions(BATCH, 3)
    compiled = RolloutEngine(config, predictor.state_dict(), BATCH, CPU, FP64, compiler)
    compiled.observe(context, horizon=3)
    assert compiler.runs == 0
    (outcome,) = compiled.rollouts(actions.numpy())
    assert compiler.runs == 3 * config.predictor.depth
    assert difference(outcome, reference_rollout(predictor, context, actions)) <= GATE


def test_a_disabled_compiler_is_an_obstacle() -> None:
    assert obstacle(CPU, {"TORCH_COMPILE_DISABLE": "1"}).endswith("unset TORCH_COMPILE_DISABLE.")
    assert "C++ compiler" in obstacle(CPU, {"CXX": "no-such-compiler"})
    assert not obstacle(CPU, {"TORCHDYNAMO_DISABLE": "0"})


def test_precisions_err_in_the_expected_order() -> None:
    """Among candidates as close together as those of a late round, against double precision.

    What all errors have in common moves no candidate before another; their deviation does.
    """
    config = sizes(64, (4, 4))
    predictor, context = random_predictor(config), random_context(config, frames=1)
    goal = random_context(config, frames=1).latents[0]
    actions = random_actions(1, 2) + 1e-2 * torch.randn(64, 2, 7, dtype=torch.float64)

    def energies(precision: Precision) -> Tensor:
        engine = RolloutEngine(config, predictor.state_dict(), 16, CPU, precision)
        latents = context.latents.to(precision.residual)
        engine.observe(replace(context, latents=latents), horizon=2)
        outcomes = engine.rollouts(actions.numpy())
        return torch.cat([energy(one.latents[:, -1].double(), goal) for one in outcomes])

    truth = energies(FP64)
    noise = {
        name: float((energies(choose_precision(name, CPU)) - truth).std()) for name in PRECISIONS
    }
    assert noise["tf32"] == noise["fp32"] < 0.1 * noise["fp16"]
    assert noise["fp16"] < 0.25 * noise["bf16"] < noise["int8"]
    assert noise["fp16"] < 0.1 * float(truth.std())


def test_only_a_few_horizons_are_kept_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """With calls in place of CUDA graphs, which need a GPU."""
    recorded: list[int] = []

    def record(function: Callable[[Tensor], Rollout], example: Tensor) -> Callable[..., Rollout]:
        recorded.append(example.shape[1])
        return function

    monkeypatch.setattr("jepa_planner_ros.world_model.rollout.RecordedCall", record)
    config = sizes(16, (2, 2))
    engine = RolloutEngine(config, random_predictor(config).state_dict(), BATCH, CPU, FP64)
    engine._records = True
    engine.observe(random_context(config, 1), horizon=6)

    def roll(horizon: int) -> None:
        list(engine.rollouts(random_actions(BATCH, horizon).numpy()))

    for horizon in (1, 2, 3, 4, 1, 5, 6, 1):
        roll(horizon)
    assert recorded == [1, 2, 3, 4, 5, 6]
    roll(2)
    assert recorded == [1, 2, 3, 4, 5, 6, 2]
