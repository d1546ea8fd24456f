"""``jepa-planner doctor``: what a checkpoint holds, what the machine has, what to mend."""

from __future__ import annotations

import argparse
import platform
from collections.abc import Iterable, Iterator
from importlib.metadata import version

import torch
from tqdm import tqdm

from jepa_planner_ros import __version__
from jepa_planner_ros.cli import machine
from jepa_planner_ros.cli.findings import Finding
from jepa_planner_ros.world_model import (
    PRECISIONS,
    Checkpoint,
    CheckpointError,
    locate_checkpoint,
    read_checkpoint,
)
from jepa_planner_ros.world_model.memory import (
    encoder_parameters,
    memory_need,
    predictor_parameters,
)
from jepa_planner_ros.world_model.model import default_micro_batch

_DESCRIPTION = """\
Look at a world model's file and at this machine, and tell what to mend. Every value of the file is
read and checked; nothing is changed and no code in it is run. 'ok' is well, 'note' limits what can
be done, 'FAIL' stops everything; the line below it says what to do.
"""

_EPILOG = """\
examples:
  jepa-planner doctor --checkpoint vjepa2-ac-vitg.pt   on a GPU machine
  jepa-planner doctor --need ros ray                   on a robot's computer

exit code: 0 without a FAIL, else 1
"""

PARTS = ("ros", "ray", "simulation")

_GIB = 2**30
_HORIZON = 2
# Below this the library's loader is done before a progress bar is read.
_WORTH_A_BAR = 2**28


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line."""
    parser.description, parser.epilog = _DESCRIPTION, _EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "--checkpoint",
        default="shipped",
        metavar="FILE",
        help="a .safetensors file, Meta's .pt, or a preset's name (default: %(default)s)",
    )
    parser.add_argument(
        "--need",
        nargs="+",
        choices=PARTS,
        default=[],
        help="parts that this machine must have; without them they FAIL (default: none)",
    )


def run(args: argparse.Namespace) -> int:
    """Print the diagnosis."""
    sections = (
        (f"World model {args.checkpoint}", examine_checkpoint(args.checkpoint)),
        ("Machine", examine_machine()),
        ("ROS 2, for the node", machine.check_ros("ros" in args.need)),
        ("Ray, for planning on several processes or GPUs", [machine.check_ray("ray" in args.need)]),
        ("Simulation, for the demo", machine.check_simulation("simulation" in args.need)),
    )
    findings = [finding for title, section in sections for finding in _show(title, section)]
    failures = [finding.subject for finding in findings if finding.fatal]
    notes = [finding.subject for finding in findings if finding.fix and not finding.fatal]
    if failures:
        print(f"\nTo be mended first: {', '.join(failures)}.")
    elif notes:
        print(f"\nReady to plan. Notes: {', '.join(notes)}.")
    else:
        print("\nAll is well.")
    return 1 if failures else 0


def examine_checkpoint(name: str) -> Iterator[Finding]:
    """What the file holds and needs, or why it cannot be used."""
    try:
        path = locate_checkpoint(name)
        checkpoint = read_checkpoint(name)
        _check_values(checkpoint)
    except CheckpointError as error:
        fix = "give a good file to --checkpoint, or leave it out to see the shipped model"
        yield Finding("file", str(error), fix, needed=True)
        return
    yield Finding("file", f"{path}, {path.stat().st_size / 1e6:.1f} MB, {_stored(checkpoint)}")
    encoder, predictor = checkpoint.config.encoder, checkpoint.config.predictor
    rows, columns = encoder.image_size
    yield Finding(
        "encoder",
        f"{encoder.dim} wide, {encoder.depth} deep, {encoder.heads} heads, "
        f"{_millions(encoder_parameters(encoder))} parameters; "
        f"{rows} x {columns} pixels make {encoder.tokens} tokens",
    )
    yield Finding(
        "predictor",
        f"{predictor.dim} wide, {predictor.depth} deep, {predictor.heads} heads, "
        f"{_millions(predictor_parameters(checkpoint.config))} parameters",
    )
    yield Finding("values", "all finite")
    yield Finding("fingerprint", checkpoint.fingerprint())
    yield from _examine_provenance(checkpoint)
    yield from _examine_need(checkpoint)


def examine_machine() -> Iterator[Finding]:
    """Software, processor, memory, GPUs and the compiler."""
    yield machine.check_python()
    packages = ", ".join(f"{name} {version(name)}" for name in ("torch", "numpy", "safetensors"))
    yield Finding("packages", f"jepa_planner_ros {__version__}, {packages}")
    yield Finding("system", f"{platform.system()} {platform.release()}")
    yield machine.check_processor()
    yield machine.check_memory()
    yield from machine.check_gpus()
    yield machine.check_compile()


def _show(title: str, section: Iterable[Finding]) -> Iterator[Finding]:
    """Print each finding as soon as it is made, and pass it on."""
    print(f"\n{title}")
    for finding in section:
        print(finding, flush=True)
        yield finding


def _check_values(checkpoint: Checkpoint) -> None:
    size = sum(weight.nbytes for _, weight in checkpoint.weights())
    weights = tqdm(
        checkpoint.weights(), "check values", leave=False, disable=size < _WORTH_A_BAR or None
    )
    checkpoint.require_finite(iter(weights))


def _stored(checkpoint: Checkpoint) -> str:
    """Number formats of the stored weights."""
    formats = {str(weight.dtype).removeprefix("torch.") for _, weight in checkpoint.weights()}
    return " and ".join(sorted(formats))


def _examine_provenance(checkpoint: Checkpoint) -> Iterator[Finding]:
    """How the weights were made, and how well they did."""
    made = checkpoint.provenance
    if not made:
        yield Finding("made by", "not recorded in the file, as in all of Meta's")
        return
    source = f" from {made['source']}" if "source" in made else ""
    yield Finding("made by", f"{made.get('command', 'an unknown command')}{source}")
    if "validation" in made:
        figures = (f"{name} {value:.3g}" for name, value in made["validation"].items())
        yield Finding("validation", f"on episodes held out of training: {', '.join(figures)}")


def _examine_need(checkpoint: Checkpoint) -> Iterator[Finding]:
    """Memory in each precision, against what the CPU and each GPU have left."""
    places = {"the CPU": machine.memory()[1]}
    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            places[f"GPU {index}"] = torch.cuda.mem_get_info(index)[0]
    batch = default_micro_batch("cuda" if torch.cuda.is_available() else "cpu")
    fits_somewhere = False
    for name, precision in PRECISIONS.items():
        need = memory_need(checkpoint.config, precision, batch, _HORIZON)
        fitting = [place for place, free in places.items() if need.total <= free]
        fits_somewhere = fits_somewhere or bool(fitting)
        yield Finding(
            f"need in {name}",
            f"{need.total / _GIB:.2f} GiB = {need.weights / _GIB:.2f} weights "
            f"+ {need.key_values / _GIB:.2f} keys and values "
            f"+ {need.activations / _GIB:.2f} activations; "
            f"fits {' and '.join(fitting) if fitting else 'nowhere now'}",
        )
    yield Finding(
        "micro-batches",
        f"the above is for {batch} candidates, {_HORIZON} actions each; "
        "each replica of the planner needs as much, and the node its weights once more",
        "" if fits_somewhere else "free memory, or use a machine with more, or smaller batches",
        needed=True,
    )


def _millions(count: int) -> str:
    return f"{count / 1e6:.1f} M"
