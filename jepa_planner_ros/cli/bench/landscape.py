"""``jepa-planner bench landscape``: what a search sees between two photographs of one's own."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy.stats import spearmanr
from tqdm import tqdm

from jepa_planner_ros.cli import CommandError
from jepa_planner_ros.cli.numbers import real_number, whole_number
from jepa_planner_ros.geometry import ACTION_DIM, POSITION, STATE_DIM, action_between
from jepa_planner_ros.photograph import read_photograph
from jepa_planner_ros.search.actions import latin_hypercube
from jepa_planner_ros.search.latent_model import LatentModel, random_components
from jepa_planner_ros.types import MEAN_ENERGY, Float64Array, RolloutRequest, Scene
from jepa_planner_ros.world_model import CheckpointError, WorldModel, load_world_model

_AXES = "xyz"
_PLANES = ((0, 1), (0, 2), (1, 2))
_COMPONENTS = 2048
_RIDGE = 1e-3

_DESCRIPTION = """\
Draw the energy of single actions around standing still, from a goal's photograph and a frame.

The upper row is what the world model predicts, in three planes of translations; the lower row is a
surrogate fitted to a few of its rollouts, as the surrogate search does. Where the rows look alike
and the lowest points agree, that search can be trusted; where they do not, use the profile robust.
A landscape without a bowl around the action that leads to the goal tells of a camera that the model
does not understand: move the camera, not the search's settings.

Pictures of ~/capture_goal hold the arm's state; for others, give --state. Where both pictures hold
it, the action that leads from one to the other is marked.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line."""
    parser.description = _DESCRIPTION
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add = parser.add_argument
    add("goal", type=Path, metavar="GOAL", help="photograph of the goal")
    add("frame", type=Path, metavar="FRAME", help="photograph of where the arm is now")
    add(
        "--state",
        type=float,
        nargs=STATE_DIM,
        metavar=("X", "Y", "Z", "ROLL", "PITCH", "YAW", "GRIPPER"),
        help="the arm's state in FRAME: m, rad, closedness (default: as written in the picture)",
    )
    add(
        "--limit",
        type=real_number(0.001, 1.0),
        default=0.075,
        metavar="M",
        help="largest translation, m (default: 0.075)",
    )
    add(
        "--points",
        type=whole_number(3),
        default=15,
        metavar="N",
        help="along each axis (default: 15)",
    )
    add(
        "--rollouts",
        type=whole_number(8),
        default=16,
        metavar="N",
        help="to fit the surrogate to (default: 16)",
    )
    add("--checkpoint", default="shipped", metavar="FILE", help="world model (default: shipped)")
    add("--device", default="cpu", metavar="NAME", help="where the world model runs (default: cpu)")
    add(
        "--output",
        type=Path,
        default=Path("landscape.png"),
        metavar="FILE",
        help="picture to write (default: landscape.png)",
    )


def run(args: argparse.Namespace) -> int:
    """Draw the picture and print how well the surrogate fits."""
    goal, goal_state = _photograph(args.goal)
    frame, state = _photograph(args.frame)
    state = state if args.state is None else np.array(args.state)
    if state is None:
        raise CommandError(
            f"{args.frame} does not hold the arm's state, as pictures of ~/capture_goal do: give "
            "it as --state X Y Z ROLL PITCH YAW GRIPPER."
        )
    try:
        world_model = load_world_model(args.checkpoint, args.device)
        scene = Scene(world_model.encode(frame), state, world_model.encode(goal))
    except (CheckpointError, ValueError) as error:
        raise CommandError(str(error)) from error
    done = None if goal_state is None else action_between(state, goal_state)[POSITION]
    planes = _planes(world_model, scene, args.limit, args.points, args.rollouts)
    _draw(planes, done, args.output)
    for plane in planes:
        first, second = (_AXES[axis] for axis in plane.axes)
        rank = spearmanr(plane.exact.ravel(), plane.surrogate.ravel()).statistic
        apart = np.linalg.norm(_lowest(plane, plane.exact) - _lowest(plane, plane.surrogate))
        print(
            f"{first}{second}: rank correlation of surrogate and exact energies {rank:.3f}, lowest "
            f"points {100 * apart:.1f} cm apart"
        )
    print(f"picture: {args.output.absolute()}")
    return 0


@dataclass(frozen=True, eq=False)
class _Plane:
    """Energies (points, points) over the second and first of two axes, at `ticks` (points,), m."""

    axes: tuple[int, int]
    ticks: Float64Array
    exact: Float64Array
    surrogate: Float64Array


def _planes(
    world_model: WorldModel, scene: Scene, limit: float, points: int, rollouts: int
) -> list[_Plane]:
    components = random_components(scene.goal_latent.size, _COMPONENTS)
    goal = scene.goal_latent.ravel()[components].astype(np.float64)
    draws = np.random.default_rng(0).standard_normal((rollouts, 3))
    design = limit * latin_hypercube(draws)
    reply = world_model.evaluate(scene, RolloutRequest(_actions(design), components=components))
    assert reply.components is not None
    model = LatentModel.fit(design, reply.components, np.zeros(3), limit, _RIDGE)
    ticks = np.linspace(-limit, limit, points)
    planes = []
    for axes in tqdm(_PLANES, desc="landscape", unit="plane"):
        at = np.zeros((points**2, 3))
        at[:, axes] = np.stack([grid.ravel() for grid in np.meshgrid(ticks, ticks)], axis=1)
        exact = world_model.energies(scene, _actions(at))[:, 0]
        surrogate = model.energies(at, goal, MEAN_ENERGY)
        planes.append(_Plane(axes, ticks, exact.reshape(points, -1), surrogate.reshape(points, -1)))
    return planes


def _actions(translations: Float64Array) -> Float64Array:
    actions = np.zeros((len(translations), 1, ACTION_DIM))
    actions[:, 0, POSITION] = translations
    return actions


def _lowest(plane: _Plane, energies: Float64Array) -> Float64Array:
    row, column = np.unravel_index(energies.argmin(), energies.shape)
    return plane.ticks[[column, row]]


def _draw(planes: list[_Plane], done: Float64Array | None, path: Path) -> None:
    figure = Figure(figsize=(13, 8), layout="constrained")
    rows = figure.subplots(2, len(planes))
    for column, plane in enumerate(planes):
        levels = np.linspace(
            min(plane.exact.min(), plane.surrogate.min()),
            max(plane.exact.max(), plane.surrogate.max()),
            30,
        )
        for row, (title, energies) in enumerate(
            (("exact", plane.exact), ("surrogate", plane.surrogate))
        ):
            axes: Axes = rows[row][column]
            extent = 100 * plane.ticks
            contours = axes.contourf(extent, extent, energies, levels=levels, cmap="viridis")
            axes.plot(*100 * _lowest(plane, energies), "r+", markersize=14, label="lowest energy")
            if done is not None:
                axes.plot(*100 * done[list(plane.axes)], "w*", markersize=14, label="to the goal")
                axes.set_xlim(extent[0], extent[-1])
                axes.set_ylim(extent[0], extent[-1])
            axes.set_xlabel(f"d{_AXES[plane.axes[0]]} [cm]")
            axes.set_ylabel(f"d{_AXES[plane.axes[1]]} [cm]")
            axes.set_title(title)
            axes.set_aspect("equal")
            figure.colorbar(contours, ax=axes, shrink=0.8)
    rows[0][0].legend(loc="best", fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def _photograph(path: Path) -> tuple[NDArray[np.uint8], Float64Array | None]:
    """RGB pixels (height, width, 3), and the arm's state (7,) if the picture holds it."""
    try:
        return read_photograph(path)
    except (OSError, ValueError) as error:
        raise CommandError(f"{path} cannot be read as a photograph: {error}") from error
