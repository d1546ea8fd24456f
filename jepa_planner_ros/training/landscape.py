"""A picture of the energy around an action: what a search sees."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from jepa_planner_ros.geometry import ACTION_DIM
from jepa_planner_ros.types import Float64Array, Scene
from jepa_planner_ros.world_model import WorldModel

_POINTS = 21
_AXES = ("x", "y", "z")
_PLANES = ((0, 1), (0, 2), (1, 2))


def draw_landscape(
    world_model: WorldModel, scene: Scene, done: Float64Array, limit: float, path: Path
) -> None:
    """Draw the energy of single actions in three planes through the action that was done.

    Args:
        world_model: predicts the outcomes.
        scene: its goal is the frame after `done`, so the energy should be lowest there.
        done: the action (7,) that leads from the scene to its goal.
        limit: largest translation shown along each axis, metres.
        path: picture file to write.
    """
    ticks = np.linspace(-limit, limit, _POINTS)
    figure = Figure(figsize=(12, 4), layout="constrained")
    for axes, (first, second) in zip(figure.subplots(1, 3), _PLANES, strict=True):
        horizontal, vertical = np.meshgrid(ticks, ticks)
        candidates = np.zeros((_POINTS**2, 1, ACTION_DIM)) + done
        candidates[:, 0, first] = horizontal.ravel()
        candidates[:, 0, second] = vertical.ravel()
        energies = world_model.energies(scene, candidates)[:, 0].reshape(_POINTS, _POINTS)
        lowest = np.unravel_index(energies.argmin(), energies.shape)
        contours = axes.contourf(100 * ticks, 100 * ticks, energies, levels=30, cmap="viridis")
        axes.plot(100 * done[first], 100 * done[second], "w*", markersize=16, label="action done")
        axes.plot(
            100 * ticks[lowest[1]],
            100 * ticks[lowest[0]],
            "r+",
            markersize=14,
            label="lowest energy",
        )
        axes.set_xlabel(f"d{_AXES[first]} [cm]")
        axes.set_ylabel(f"d{_AXES[second]} [cm]")
        axes.set_aspect("equal")
        figure.colorbar(contours, ax=axes, shrink=0.8)
    figure.axes[0].legend(loc="lower left", fontsize=8)
    figure.suptitle("Energy of one action: latent L1 between its predicted outcome and the goal")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
