"""Reaching tasks for the simulated robot: a seeded start, a goal, and its photograph."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from jepa_planner_ros.geometry import POSITION
from jepa_planner_ros.sim.franka import FrankaSim
from jepa_planner_ros.types import Float64Array

_ATTEMPTS = 10_000


@dataclass(frozen=True, eq=False)
class ReachTask:
    """A start, a goal, and the goal's photograph: all that a planner may see of the goal."""

    start_state: Float64Array
    """Measured state (7,) in the base frame."""
    goal_state: Float64Array
    """Measured state (7,) at which the photograph was taken; for scoring."""
    goal_image: NDArray[np.uint8]
    """RGB (height, width, 3), taken with the arm really at the goal."""

    @property
    def distance(self) -> float:
        """From start to goal, m."""
        return float(np.linalg.norm((self.goal_state - self.start_state)[POSITION]))


def sample_reach_task(
    sim: FrankaSim,
    seed: int,
    distance_range: tuple[float, float] = (0.15, 0.25),
    width: int = 256,
    height: int = 256,
) -> ReachTask:
    """Reset the simulation to a seeded start and photograph a seeded goal.

    The goal lies in the workspace of the simulation's settings, with the start's orientation and
    gripper, and the photograph shows the cube, the camera's place and the light of the episode. The
    simulation is left at the start.

    Args:
        sim: the robot; it is reset.
        seed: seed of the task; the same seed gives the same task.
        distance_range: least and greatest distance from start to goal, m.
        width: of the photograph, pixels.
        height: of the photograph, pixels.

    Raises:
        ValueError: the workspace has no room for such a distance.
    """
    start = sim.reset(seed)
    goal = start.copy()
    goal[POSITION] = _sample_goal(sim, np.random.default_rng([seed, 1]), start, distance_range)
    goal_state = sim.place(goal)
    goal_image = sim.render(width=width, height=height)
    return ReachTask(sim.reset(seed), goal_state, goal_image)


def _sample_goal(
    sim: FrankaSim,
    random: np.random.Generator,
    start: Float64Array,
    distance_range: tuple[float, float],
) -> Float64Array:
    """A position (3,) in the workspace at a distance from the start."""
    nearest, farthest = distance_range
    for _ in range(_ATTEMPTS):
        goal = random.uniform(sim.settings.workspace_min, sim.settings.workspace_max)
        if nearest <= np.linalg.norm(goal - start[POSITION]) <= farthest:
            return goal
    raise ValueError(
        f"No point of the workspace {sim.settings.workspace_min}..{sim.settings.workspace_max} is "
        f"between {nearest} and {farthest} m from the start {np.round(start[POSITION], 3)}."
    )
