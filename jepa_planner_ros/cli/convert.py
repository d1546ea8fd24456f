"""``jepa-planner convert``: Meta's checkpoint as a safetensors file."""

from __future__ import annotations

import argparse
import shutil
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor
from tqdm import tqdm

from jepa_planner_ros.cli import CommandError
from jepa_planner_ros.world_model import (
    Checkpoint,
    CheckpointError,
    read_checkpoint,
    write_checkpoint,
)

PRECISIONS = {"fp16": torch.float16, "fp32": torch.float32}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line."""
    parser.description = (
        "Make a safetensors file of Meta's vjepa2-ac-vitg.pt. It holds only what planning needs "
        "(2.6 GB in fp16 instead of 11.7 GB), describes itself, and loads without any unpickling. "
        "Every value is checked on the way."
    )
    parser.epilog = (
        "example: jepa-planner convert vjepa2-ac-vitg.pt vjepa2-ac-vitg.safetensors. fp32 keeps "
        "Meta's values and so the fingerprint; fp16 rounds them, which makes another model: give "
        "node and planner the same file."
    )
    parser.add_argument("source", type=Path, metavar="META.pt", help="the file to read")
    parser.add_argument(
        "output", type=Path, metavar="OUT.safetensors", help="the file to write; must not exist yet"
    )
    parser.add_argument(
        "--precision",
        choices=PRECISIONS,
        default="fp16",
        help="number format of the written weights (default: %(default)s)",
    )


def run(args: argparse.Namespace) -> int:
    """Convert, and tell what was written."""
    output: Path = args.output
    if output.suffix != ".safetensors":
        raise CommandError(f"the output {output} should end in .safetensors.")
    if output.exists():
        raise CommandError(f"{output} exists already: remove it or give another name.")
    try:
        source = read_checkpoint(args.source)
        _require_space(source, output, PRECISIONS[args.precision])
        converted = convert(source, PRECISIONS[args.precision])
    except CheckpointError as error:
        raise CommandError(str(error)) from error
    provenance = dict(source.provenance) | {
        "command": f"jepa-planner convert --precision {args.precision}",
        "source": args.source.name,
        "source_fingerprint": source.fingerprint(),
    }
    print(f"Writing {output} ...", flush=True)
    write_checkpoint(replace(converted, provenance=provenance), output)
    written = read_checkpoint(output)
    print(f"wrote        {output} ({output.stat().st_size / 1e6:.1f} MB, {args.precision})")
    print(f"fingerprint  {written.fingerprint()} (of the source: {source.fingerprint()})")
    print(f"look at it   jepa-planner doctor --checkpoint {output}")
    return 0


def convert(checkpoint: Checkpoint, dtype: torch.dtype) -> Checkpoint:
    """The same model with weights in `dtype`, all finite; shows a progress bar.

    Raises:
        CheckpointError: a value is not finite, or too large for `dtype`.
    """
    weights: dict[str, Tensor] = {}
    for name, weight in tqdm(
        checkpoint.weights(),
        "convert",
        total=len(checkpoint.encoder) + len(checkpoint.predictor),
        unit="weight",
        disable=None,
    ):
        weights[name] = weight.to(dtype)
        checkpoint.require_finite(iter([(name, weights[name])]))
    return replace(
        checkpoint,
        encoder={name: weights[f"encoder.{name}"] for name in checkpoint.encoder},
        predictor={name: weights[f"predictor.{name}"] for name in checkpoint.predictor},
    )


def _require_space(checkpoint: Checkpoint, output: Path, dtype: torch.dtype) -> None:
    needed = sum(weight.numel() for _, weight in checkpoint.weights()) * dtype.itemsize
    output.parent.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(output.parent).free
    if needed > free:
        raise CommandError(
            f"{output} will have {needed / 1e9:.1f} GB, but {output.parent.absolute()} has only "
            f"{free / 1e9:.1f} GB left."
        )
