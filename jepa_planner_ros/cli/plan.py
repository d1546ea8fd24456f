"""``jepa-planner plan``: one plan from two photographs, without ROS and without Ray."""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from jepa_planner_ros.cli import CommandError
from jepa_planner_ros.cli.numbers import whole_number
from jepa_planner_ros.photograph import read_photograph, state_inside
from jepa_planner_ros.planning import InProcessPlanner
from jepa_planner_ros.search.profiles import DEFAULT_PROFILE, load_profile
from jepa_planner_ros.types import Float64Array, Plan, PlannerError, PlanRequest, Scene
from jepa_planner_ros.world_model import PRECISIONS, CheckpointError, load_world_model
from jepa_planner_ros.world_model.precision import AUTO, caution

_DESCRIPTION = """\
Make one plan: from what the camera sees now to what a photograph shows. Nothing moves. For trying a
checkpoint, a camera's place or a search before a robot is there.
"""

_EPILOG = """\
examples:
  jepa-planner plan now.png goal.png                           two of 'jepa-planner capture'
  jepa-planner plan now.jpg goal.jpg --state 0.4 0 0.3 0 0 0 0
  jepa-planner plan now.png goal.png --checkpoint vjepa2-ac-vitg.pt --device cuda

The state is the end effector's in the robot's base frame: metres, radians (extrinsic xyz), and the
gripper from 0, open, to 1, closed.
"""

_STATE = ("X", "Y", "Z", "ROLL", "PITCH", "YAW", "GRIPPER")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line."""
    parser.description, parser.epilog = _DESCRIPTION, _EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("frame", type=Path, metavar="FRAME", help="picture of the camera now")
    parser.add_argument(
        "goal", type=Path, metavar="GOAL", help="photograph of where the arm should be"
    )
    parser.add_argument(
        "--state",
        type=float,
        nargs=7,
        metavar=_STATE,
        help="the arm's pose now (default: the one in FRAME, where 'jepa-planner capture' took it)",
    )
    parser.add_argument(
        "--checkpoint",
        default="shipped",
        metavar="FILE",
        help="a .safetensors file, Meta's .pt, or a preset's name (default: %(default)s)",
    )
    parser.add_argument(
        "--device", default="cpu", metavar="NAME", help="cpu or cuda (default: %(default)s)"
    )
    parser.add_argument(
        "--precision",
        choices=(AUTO, *PRECISIONS),
        default=AUTO,
        help="number format; auto is fp16 on GPUs and fp32 on CPUs (default: %(default)s)",
    )
    parser.add_argument(
        "--search",
        default=DEFAULT_PROFILE,
        metavar="PROFILE",
        help="a profile of config/search, or a .yaml file like those (default: %(default)s)",
    )
    parser.add_argument(
        "--micro-batch",
        type=whole_number(1),
        metavar="N",
        help="candidates at once; fewer take less memory (default: 100 on GPUs, 16 on CPUs)",
    )
    parser.add_argument(
        "--seed",
        type=whole_number(0),
        default=0,
        metavar="S",
        help="of the search (default: %(default)s)",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the plan to FILE")


def run(args: argparse.Namespace) -> int:
    """Plan, and print the plan."""
    frame, goal = (_read_picture(path) for path in (args.frame, args.goal))
    state = _state_in(args.frame) if args.state is None else np.array(args.state)
    try:
        search = load_profile(args.search)
        started = time.perf_counter()
        print(f"Loading {args.checkpoint} ...", flush=True)
        model = load_world_model(args.checkpoint, args.device, args.precision, args.micro_batch)
        loaded = time.perf_counter()
        if warning := caution(model.precision, model.device):
            print(f"note: {warning}")
        print(f"Planning in {model.precision.name} on {model.device} ...", flush=True)
        scene = Scene(model.encode(frame), state, model.encode(goal))
        encoded = time.perf_counter()
        request = PlanRequest(scene, search, seed=args.seed)
        plan = InProcessPlanner(model).plan(request)
    except (CheckpointError, PlannerError, ValueError) as error:
        raise CommandError(str(error)) from error
    _print(plan)
    print(
        f"\n{plan.rollouts} rollouts in {plan.timing.total:.2f} s; loading took "
        f"{loaded - started:.1f} s, encoding two pictures {encoded - loaded:.2f} s. "
        f"Model {plan.model_fingerprint}."
    )
    if args.json:
        record = {
            "actions": plan.actions.tolist(),
            "states": plan.states.tolist(),
            "energies": plan.energies.tolist(),
            "start_energy": plan.start_energy,
            "rollouts": plan.rollouts,
            "timing": asdict(plan.timing),
            "model_fingerprint": plan.model_fingerprint,
        }
        args.json.write_text(json.dumps(record, indent=2) + "\n")
    return 0


def _read_picture(path: Path) -> NDArray[np.uint8]:
    """An RGB picture (height, width, 3)."""
    try:
        return read_photograph(path)[0]
    except (OSError, ValueError) as error:
        cause = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise CommandError(f"the picture {path} cannot be read: {cause.rstrip('.')}.") from error


def _state_in(picture: Path) -> Float64Array:
    """The arm's state (7,) that a picture holds."""
    state = state_inside(picture.read_bytes())
    if state is None:
        raise CommandError(
            f"{picture} does not tell the arm's state, as pictures of 'jepa-planner capture' do: "
            "give it with --state."
        )
    return state


def _print(plan: Plan) -> None:
    print(f"\n{'':<8}" + "".join(f"{name.lower():>9}" for name in _STATE) + f"{'energy':>9}")
    print("state 0 " + _cells(plan.states[0]) + f"{plan.start_energy:>9.4f}")
    for step, action in enumerate(plan.actions):
        print(f"action {step}" + _cells(action))
        print(f"state {step + 1} " + _cells(plan.states[step + 1]) + f"{plan.energies[step]:>9.4f}")


def _cells(values: NDArray[np.float64]) -> str:
    return "".join(f"{value:>9.4f}" for value in values)
