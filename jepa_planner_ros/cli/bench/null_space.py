"""``jepa-planner bench null-space``: which first actions an energy leaves open."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from jepa_planner_ros.cli import CommandError
from jepa_planner_ros.cli.numbers import whole_number
from jepa_planner_ros.geometry import ACTION_DIM, POSITION
from jepa_planner_ros.planning import InProcessPlanner
from jepa_planner_ros.search import SurrogateSettings, sequence_energy
from jepa_planner_ros.sim.episodes import sample_reach_task
from jepa_planner_ros.sim.franka import FrankaSim
from jepa_planner_ros.types import (
    LAST_STEP_ENERGY,
    MEAN_ENERGY,
    Float64Array,
    PlanRequest,
    Scene,
)
from jepa_planner_ros.world_model import CheckpointError, load_world_model

_SEARCH = SurrogateSettings(horizon=2, designs=(32, 32))
_DISTANCE = (0.08, 0.1)  # m, two actions away
_EXTENT = 0.05  # m, of first actions to either side of half the way
_NEARLY_BEST = 0.05  # of the possible drop of the energy: no search tells them apart
_ENERGIES = {
    "energy of the last step": LAST_STEP_ENERGY,
    "energy averaged over the steps": MEAN_ENERGY,
}

_DESCRIPTION = """\
Draw which first actions are open to a search that looks two actions ahead.

Two actions that together lead to the goal are shared out differently: the first one varies in a
plane, the second makes up for it. With the energy of the last step all shares are nearly the same
to a search, though the arm executes nothing but the first action. With the energy averaged over
both steps one share is best.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line."""
    parser.description = _DESCRIPTION
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add = parser.add_argument
    add(
        "--seed",
        type=whole_number(0),
        default=1000,
        metavar="S",
        help="of the episode (default: 1000)",
    )
    add(
        "--points",
        type=whole_number(3),
        default=21,
        metavar="N",
        help="along each axis (default: 21)",
    )
    add("--checkpoint", default="shipped", metavar="FILE", help="world model (default: shipped)")
    add(
        "--output",
        type=Path,
        default=Path("null_space.png"),
        metavar="FILE",
        help="picture to write (default: null_space.png)",
    )


def run(args: argparse.Namespace) -> int:
    """Draw the picture and print how many first actions are as good as the best."""
    try:
        world_model = load_world_model(args.checkpoint)
    except CheckpointError as error:
        raise CommandError(str(error)) from error
    with FrankaSim() as sim:
        task = sample_reach_task(sim, args.seed, _DISTANCE)
        scene = Scene(
            world_model.encode(sim.render()), sim.state, world_model.encode(task.goal_image)
        )
    plan = InProcessPlanner(world_model).plan(PlanRequest(scene, _SEARCH, args.seed))
    way = plan.actions[:, POSITION].sum(axis=0)
    ticks = np.linspace(-_EXTENT, _EXTENT, args.points)
    still = world_model.energies(scene, np.zeros((1, 2, ACTION_DIM)))
    shared = world_model.energies(scene, _shares(way, ticks))
    figure = Figure(figsize=(11, 5.4), layout="constrained")
    panels = figure.subplots(1, 2, sharex=True, sharey=True)
    for axes, (title, energy) in zip(panels, _ENERGIES.items(), strict=True):
        scores = sequence_energy(shared, energy)
        drop = sequence_energy(still, energy)[0] - scores.min()
        missing = ((scores - scores.min()) / drop).reshape(args.points, args.points)
        x, y = 100 * (way[0] / 2 + ticks), 100 * (way[1] / 2 + ticks)
        filled = axes.contourf(x, y, missing, levels=np.linspace(0, 1, 21), extend="max")
        axes.contour(x, y, missing, levels=[_NEARLY_BEST], colors="white", linewidths=2)
        axes.plot(0, 0, "w+", markersize=12)
        axes.plot(100 * way[0], 100 * way[1], "w*", markersize=14)
        axes.set_title(title)
        axes.set_xlabel("first action, dx [cm]")
        axes.set_ylabel("first action, dy [cm]")
        axes.set_aspect("equal")
        open_share = (missing < _NEARLY_BEST).mean()
        print(f"{title}: {open_share:.0%} of the plane within 5 percent of the possible drop")
    figure.colorbar(filled, ax=panels, label="energy above the best, of the possible drop")
    args.output.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(args.output, dpi=110)
    print(f"picture: {args.output.absolute()}")
    return 0


def _shares(way: Float64Array, ticks: Float64Array) -> Float64Array:
    """Sequences (n, 2, 7) that all go the same way (3,), with first actions in the xy plane."""
    offsets = np.stack([grid.ravel() for grid in np.meshgrid(ticks, ticks)], axis=1)
    sequences = np.zeros((len(offsets), 2, ACTION_DIM))
    sequences[..., POSITION] = way / 2
    sequences[:, 0, :2] += offsets
    sequences[:, 1, :2] -= offsets
    return sequences
