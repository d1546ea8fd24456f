"""Several photographs in order: the example of a goal, and three of them reached in simulation."""

from __future__ import annotations

import numpy as np
import yaml
from builtin_interfaces.msg import Duration
from jepa_planner_msgs.action import ReachGoal
from jepa_planner_msgs.msg import SubGoal as SubGoalMessage

from jepa_planner_ros.control import CONTROL_MODES, ControlSettings, Goal, Outcome, SubGoal, begin
from jepa_planner_ros.planning import InProcessPlanner
from jepa_planner_ros.search import FAST_SEARCH
from jepa_planner_ros.share import share_directory
from jepa_planner_ros.sim.franka import FrankaSim, SimSettings
from jepa_planner_ros.sim.timed_loop import Delays, TimedLoop
from jepa_planner_ros.world_model import load_world_model

CORNERS = ((0.45, -0.1, 0.3), (0.5, 0.1, 0.3), (0.5, 0.1, 0.2))


def test_the_example_is_a_goal() -> None:
    text = (share_directory() / "config" / "goals" / "pick_and_place.yaml").read_text()
    written = yaml.safe_load(text)
    written["subgoals"] = [SubGoalMessage(**one) for one in written["subgoals"]]
    written["time_limit"] = Duration(**written["time_limit"])
    goal = ReachGoal.Goal(**written)
    assert [one.close_gripper_from for one in goal.subgoals] == [-1, 3, -1]
    assert goal.time_limit.sec == 120


def test_three_photographs_are_reached_in_order() -> None:
    world_model = load_world_model()
    with FrankaSim(SimSettings(motion_duration_s=1.0)) as sim:
        photographs = []
        for corner in CORNERS:
            sim.place(np.array([*corner, 0.0, 0.0, 0.0, 0.0]))
            latent = world_model.encode(sim.render())
            photographs.append(SubGoal(latent, energy_threshold=0.13, step_budget=12))
        sim.place(np.array([0.6, -0.1, 0.35, 0.0, 0.0, 0.0, 0.0]))
        goal = Goal(tuple(photographs), 600.0, world_model.fingerprint, FAST_SEARCH)
        planner = InProcessPlanner(world_model)
        loop = TimedLoop(sim, world_model, planner, Delays(0.5), 1.0)
        episode = loop.run(begin(goal, ControlSettings(), 0.0), CONTROL_MODES["blocking"])
    assert episode.ended.outcome is Outcome.REACHED, episode.ended.reason
    assert "sub-goal 3 of 3" in episode.ended.reason
    nearest = [np.linalg.norm(episode.path - corner, axis=1) for corner in CORNERS]
    assert max(distances.min() for distances in nearest) < 0.05
    order = [int(distances.argmin()) for distances in nearest]
    assert order == sorted(order)
