"""Reaching in simulation without ROS: to validate models and to compare searches."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from jepa_planner_ros.geometry import POSITION
from jepa_planner_ros.sim.episodes import sample_reach_task
from jepa_planner_ros.sim.franka import FrankaSim
from jepa_planner_ros.types import Planner, PlanRequest, Scene, SearchSettings
from jepa_planner_ros.world_model import WorldModel


@dataclass(frozen=True)
class Reach:
    """The course of one episode.

    Attributes:
        distances: from the end effector to the photographed position at the start and after each
            step, metres; measured by the simulation, never seen by the planner.
        energies: latent distance to the goal at the start and after each step.
        plan_seconds: duration of each plan.
    """

    distances: tuple[float, ...]
    energies: tuple[float, ...]
    plan_seconds: tuple[float, ...]


def reach(
    sim: FrankaSim,
    world_model: WorldModel,
    planner: Planner,
    search: SearchSettings,
    seed: int,
    steps: int,
) -> Reach:
    """Let the arm reach for the goal photograph of the task with number `seed`."""
    task = sample_reach_task(sim, seed)
    goal_latent = world_model.encode(task.goal_image)
    latent = world_model.encode(sim.render())
    distances = [task.distance]
    energies = [float(np.abs(latent - goal_latent).mean())]
    plan_seconds = []
    previous = None
    for step in range(steps):
        scene = Scene(latent, sim.state, goal_latent)
        plan = planner.plan(PlanRequest(scene, search, seed, step, previous))
        previous = plan.actions
        sim.move(plan.actions[0])
        latent = world_model.encode(sim.render())
        distances.append(float(np.linalg.norm((sim.state - task.goal_state)[POSITION])))
        energies.append(float(np.abs(latent - goal_latent).mean()))
        plan_seconds.append(plan.timing.total)
    return Reach(tuple(distances), tuple(energies), tuple(plan_seconds))
