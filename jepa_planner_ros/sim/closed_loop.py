"""Reaching in simulation without ROS: to validate models and to compare searches."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from jepa_planner_ros.geometry import POSITION
from jepa_planner_ros.sim.episodes import sample_reach_task
from jepa_planner_ros.sim.franka import FrankaSim
from jepa_planner_ros.types import Plan, Planner, PlanRequest, Scene, SearchSettings
from jepa_planner_ros.world_model import WorldModel


@dataclass(frozen=True)
class Reach:
    """The course of one episode.

    Attributes:
        distances: from the end effector to the photographed position at the start and after each
            step, metres; measured by the simulation, never seen by the planner.
        energies: latent distance to the goal at the start and after each step.
        plan_seconds: duration of each plan.
        rollouts: of each plan.
        fallbacks: plans in which cross-entropy rounds took over.
    """

    distances: tuple[float, ...]
    energies: tuple[float, ...]
    plan_seconds: tuple[float, ...]
    rollouts: tuple[int, ...]
    fallbacks: int


def reach(
    sim: FrankaSim,
    world_model: WorldModel,
    planner: Planner,
    search: SearchSettings,
    seed: int,
    steps: int,
    world_seed: int | None = None,
) -> Reach:
    """Let the arm reach for the goal photograph of the task with number `seed`.

    Args:
        sim: the robot; it is reset.
        world_model: encodes what the camera sees.
        planner: with the same world model.
        search: how to plan.
        seed: of the task, and of the search's noise.
        steps: actions to carry out.
        world_seed: change cube, camera and light to this seed's once the goal is photographed.
    """
    task = sample_reach_task(sim, seed)
    if world_seed is not None:
        sim.reset(seed, world_seed)
    goal_latent = world_model.encode(task.goal_image)
    latent = world_model.encode(sim.render())
    distances = [task.distance]
    energies = [float(np.abs(latent - goal_latent).mean())]
    plans: list[Plan] = []
    for step in range(steps):
        scene = Scene(latent, sim.state, goal_latent)
        previous = plans[-1].actions if plans else None
        plan = planner.plan(PlanRequest(scene, search, seed, step, previous))
        plans.append(plan)
        sim.move(plan.actions[0])
        latent = world_model.encode(sim.render())
        distances.append(float(np.linalg.norm((sim.state - task.goal_state)[POSITION])))
        energies.append(float(np.abs(latent - goal_latent).mean()))
    return Reach(
        tuple(distances),
        tuple(energies),
        tuple(plan.timing.total for plan in plans),
        tuple(plan.rollouts for plan in plans),
        sum(plan.fallback is not None for plan in plans),
    )
