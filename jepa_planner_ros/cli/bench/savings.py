"""``jepa-planner bench savings``: what each shortcut of the rollouts brings, by leaving it out.

The variants live here, so that the engine itself needs no switches.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from jepa_planner_ros.cli.bench.rollout import (
    add_trial_arguments,
    device_name,
    seconds,
    trial_of,
)
from jepa_planner_ros.cli.bench.trial import FastPath, ReferencePath, Trial, progress
from jepa_planner_ros.cli.numbers import whole_number
from jepa_planner_ros.geometry import integrate_state
from jepa_planner_ros.world_model import (
    PRECISIONS,
    RolloutEngine,
    choose_precision,
    prepared,
    rollout,
)

_SPREAD = 0.03


@dataclass(frozen=True)
class Saving:
    """A shortcut, and how to do without it.

    Attributes:
        name: in a few words.
        left_out: a context in which engines are built and run without it.
    """

    name: str
    left_out: Callable[[], Any]


@contextmanager
def replaced(owner: object, **attributes: Any) -> Iterator[None]:
    """Other values for attributes of a module or class, for a while."""
    before = {name: getattr(owner, name) for name in attributes}
    for name, value in attributes.items():
        setattr(owner, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(owner, name, value)


def without_memory() -> Any:
    """Every earlier frame is computed again at every step."""
    predict = RolloutEngine._predict

    def recompute(
        self: RolloutEngine, x: Tensor, attendance: prepared.Attendance | None, frame: int
    ) -> Tensor:
        for earlier in range(frame):
            predict(self, x, None, earlier)
        return predict(self, x, attendance, frame)

    # What earlier frames hold does not matter to the time they take, only that they are computed.
    return replaced(RolloutEngine, _predict=recompute)


def without_sharing() -> Any:
    """The present frame is embedded, and its first layer computed, for every candidate."""
    predict = RolloutEngine._predict

    def compute_all(
        self: RolloutEngine, x: Tensor, attendance: prepared.Attendance | None, frame: int
    ) -> Tensor:
        if attendance is not None:
            latent = torch.zeros(
                len(x), x.shape[1] - 2, self._config.encoder.dim, device=x.device, dtype=x.dtype
            )
            self._embed(latent)
        return predict(self, x, None, frame)

    return replaced(RolloutEngine, _predict=compute_all)


def without_skipping() -> Any:
    """In the last layer, action and state tokens are computed, too, and thrown away."""
    forward: Callable[..., Tensor] = rollout.forward

    def compute_all(*args: Any) -> Tensor:
        *given, left_out = args
        return forward(*given, 0)[:, left_out:]

    return replaced(rollout, forward=compute_all)


def with_a_mask() -> Any:
    """Attention is told what it may see, although it may see all there is."""
    attend = functional.scaled_dot_product_attention

    def masked(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        mask = torch.ones(
            queries.shape[-2], keys.shape[-2], dtype=torch.bool, device=queries.device
        )
        keys, values = keys.to(queries.dtype), values.to(queries.dtype)
        return attend(queries, keys, values, attn_mask=mask, scale=1.0)

    return replaced(prepared, attend=masked)


def with_neighbours() -> Any:
    """Rotations pair neighbouring components, as the weights are stored."""

    def rotate(x: Tensor, table: Any) -> Tensor:
        even, odd = x.unflatten(-1, (-1, 2)).unbind(-1)
        turned = torch.stack((-odd, even), dim=-1).flatten(-2)
        return (x * table.cos + turned * table.sin).to(x.dtype)

    return replaced(prepared, rotate_halves=rotate)


def with_poses_one_by_one() -> Any:
    """States are integrated in a loop over the candidates."""

    def integrate(state: Tensor, actions: Tensor) -> Tensor:
        states = [state]
        for step in range(actions.shape[1]):
            pairs = zip(states[-1].cpu(), actions[:, step].cpu(), strict=True)
            states.append(torch.stack([integrate_state(*pair) for pair in pairs]).to(state.device))
        return torch.stack(states, dim=1)

    return replaced(rollout, integrate_sequence=integrate)


def without_onednn() -> Any:
    """On a CPU, products go where PyTorch sends them by itself."""
    return replaced(prepared, _on_onednn=lambda dtype: False)


SAVINGS = (
    Saving("memory of earlier frames", without_memory),
    Saving("first layer of frame 0 shared", without_sharing),
    Saving("last layer for patches only", without_skipping),
    Saving("no mask", with_a_mask),
    Saving("rotations of halves", with_neighbours),
    Saving("poses all at once", with_poses_one_by_one),
    Saving("oneDNN's products (CPU)", without_onednn),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line."""
    parser.description = (
        "Time rollouts as they are, then with one shortcut left out after the other. Repetitions "
        "take turns, and the quickest of each counts."
    )
    parser.epilog = "example: jepa-planner bench savings --preset mid --samples 50 --precision bf16"
    add_trial_arguments(parser)
    parser.add_argument(
        "--precision",
        choices=tuple(PRECISIONS),
        default="fp32",
        help="number format of the rollouts (default: %(default)s)",
    )
    parser.add_argument(
        "--repeat",
        type=whole_number(1),
        default=5,
        metavar="N",
        help="rounds to time of each (default: %(default)s)",
    )


def run(args: argparse.Namespace) -> int:
    """Measure, and print a table."""
    trial = trial_of(args)
    generator = torch.Generator().manual_seed(0)
    shape = args.samples, args.horizon, 7
    candidates = (_SPREAD * torch.randn(shape, generator=generator, dtype=torch.float64)).numpy()
    quickest = dict.fromkeys(("as it is", *(saving.name for saving in SAVINGS)), float("inf"))
    whole = _path(trial, args)
    reduced = []
    for saving in SAVINGS:
        with saving.left_out():
            reduced.append(_path(trial, args))
    reference, reference_s = ReferencePath(trial), float("inf")
    with progress(args.repeat * (2 + len(SAVINGS))) as shown:
        for _ in range(args.repeat):
            shown.step("as it is")
            quickest["as it is"] = min(quickest["as it is"], seconds(whole, candidates))
            for saving, path in zip(SAVINGS, reduced, strict=True):
                shown.step(f"without: {saving.name}")
                with saving.left_out():
                    quickest[saving.name] = min(quickest[saving.name], seconds(path, candidates))
            shown.step("reference")
            reference_s = min(reference_s, seconds(reference, candidates))
    best = quickest.pop("as it is")
    print(
        f"{args.checkpoint or args.preset} in {args.precision} on {device_name(trial.device)}: "
        f"{args.samples} candidates of {args.horizon} actions in {best:.3f} s; the reference takes "
        f"{reference_s:.3f} s\n\n{'without':<32}{'s a round':>10}{'slower by':>11}"
    )
    for name, spent in quickest.items():
        print(f"{name:<32}{spent:>10.3f}{spent / best - 1.0:>11.1%}")
    return 0


def _path(trial: Trial, args: argparse.Namespace) -> FastPath:
    return FastPath(trial, choose_precision(args.precision, trial.device))
