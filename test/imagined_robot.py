"""An arm, a camera and a planner that only count: every control mode at any speed, any fault."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from jepa_planner_ros.control import ControlSettings, Ended, Episode, Goal, SubGoal, begin
from jepa_planner_ros.control.episode import (
    Command,
    Effect,
    Event,
    Hold,
    Measurement,
    Observation,
    Observe,
    Observed,
    Planned,
    Report,
    Search,
    Tick,
    Transition,
    Warn,
)
from jepa_planner_ros.control.safety import Stream
from jepa_planner_ros.geometry import apply_action
from jepa_planner_ros.search import FAST_SEARCH
from jepa_planner_ros.types import Plan, PlanRequest, PlanTiming

TICK = 0.02
MODEL = "0123456789abcdef"
START = np.array([0.5, 0.0, 0.3, 0.0, 0.0, 0.0, 0.0])


def picture(state: np.ndarray) -> np.ndarray:
    """Latents (tokens, dim) that differ by as much as the poses do, in metres."""
    return np.tile(state[:3].astype(np.float32), (4, 1))


def goal_at(x: float = 0.0, y: float = 0.0, z: float = 0.0, **more: object) -> SubGoal:
    values: dict[str, object] = {"energy_threshold": 1e-3, "step_budget": 10} | more
    latent = picture(START + np.array([x, y, z, 0, 0, 0, 0]))
    return SubGoal(latent=latent, **values)  # type: ignore[arg-type]


def straight_plan(request: PlanRequest) -> Plan:
    """Straight towards the goal, 5 cm along each axis at most, as far ahead as is asked."""
    scene = request.scene
    left = (scene.goal_latent[0] - scene.latent[0]).astype(np.float64)
    actions, states = [], [scene.state]
    for _ in range(request.search.horizon):
        action = np.zeros(7)
        action[:3] = left.clip(-0.05, 0.05)
        left = left - action[:3]
        actions.append(action)
        states.append(apply_action(states[-1], action))
    latent = scene.latent + actions[0][:3].astype(np.float32)
    energies = np.zeros(len(actions))
    return Plan(
        actions=np.array(actions),
        states=np.array(states),
        energies=energies,
        predicted_latent=latent,
        start_energy=0.3,
        rollouts=1,
        rounds=(),
        timing=PlanTiming(total=0.3, rollouts=0.2),
        model_fingerprint=MODEL,
    )


@dataclass
class ImaginedRobot:
    """Everything takes its time on one clock, and can be made to fail.

    Attributes:
        motion: s that the arm takes for a step.
        planning: s for a plan, by its number.
        offset: what the arm misses every target by (7,).
        planner: makes plans.
        change: changes a tick before the control mode sees it.
    """

    transition: Transition
    settings: ControlSettings = field(default_factory=ControlSettings)
    motion: float = 1.0
    planning: Callable[[int], float] = lambda number: 0.86
    encoding: float = 0.02
    offset: np.ndarray = field(default_factory=lambda: np.zeros(7))
    planner: Callable[[PlanRequest], Plan] = straight_plan
    change: Callable[[Tick], Tick] = lambda tick: tick
    follows: bool = True
    time: float = 0.0
    origin: np.ndarray = field(default_factory=START.copy)
    target: np.ndarray = field(default_factory=START.copy)
    commanded: float = -100.0
    requests: list[tuple[float, PlanRequest]] = field(default_factory=list)
    effects: list[tuple[float, Effect]] = field(default_factory=list)
    due: list[tuple[float, int, Event]] = field(default_factory=list)
    order: itertools.count[int] = field(default_factory=itertools.count)

    @property
    def state(self) -> np.ndarray:
        u = min(1.0, (self.time - self.commanded) / self.motion)
        done = 10 * u**3 - 15 * u**4 + 6 * u**5
        return self.origin + done * (self.target - self.origin)

    def start(self, *subgoals: SubGoal, time_limit: float = 600.0) -> Episode:
        goal = Goal(subgoals, time_limit, MODEL, replace(FAST_SEARCH, horizon=1), 7)
        return begin(goal, self.settings, self.time)

    def run(self, episode: Episode, until: Callable[[Episode], bool] | None = None) -> Episode:
        """Run to the end, or until a condition holds after a tick."""
        for _ in range(50_000):
            if isinstance(episode.phase, Ended) or (until and until(episode)):
                return episode
            self.time += TICK
            while self.due and self.due[0][0] <= self.time:
                episode = self.feed(episode, heapq.heappop(self.due)[2])
            episode = self.feed(episode, self.change(self.tick()))
        raise AssertionError("the episode does not end")

    def tick(self) -> Tick:
        frame = math.floor(self.time * 10) / 10
        streams = (
            Stream("/image_raw", self.time - frame, 1.0),
            Stream("/joint_states", 0.0, 1.0),
        )
        arm = Measurement(self.state, stamp(self.time), self.time)
        return Tick(self.time, arm, stamp(frame), streams)

    def feed(self, episode: Episode, event: Event) -> Episode:
        episode, effects = self.transition(episode, event)
        for effect in effects:
            self.effects.append((self.time, effect))
            self.perform(effect)
        return episode

    def perform(self, effect: Effect) -> None:
        if isinstance(effect, Observe):
            seen = Observation(picture(self.state), self.state, stamp(self.time), 0.03, 0.02)
            self.later(self.encoding, Observed(self.time + self.encoding, seen, effect))
        elif isinstance(effect, Search):
            took = self.planning(len(self.requests))
            self.requests.append((self.time, effect.request))
            self.later(
                took, Planned(self.time + took, self.planner(effect.request), took, effect.request)
            )
        elif isinstance(effect, Command) and self.follows:
            self.go_to(effect.target + self.offset)
        elif isinstance(effect, Hold) and self.follows:
            self.go_to(effect.target)

    def go_to(self, target: np.ndarray) -> None:
        self.origin, self.target, self.commanded = self.state, target, self.time

    def later(self, delay: float, event: Event) -> None:
        heapq.heappush(self.due, (self.time + delay, next(self.order), event))

    @property
    def commands(self) -> list[tuple[float, Command]]:
        return [(time, one) for time, one in self.effects if isinstance(one, Command)]

    @property
    def reports(self) -> list[Report]:
        return [one for _, one in self.effects if isinstance(one, Report)]

    @property
    def warnings(self) -> str:
        return " ".join(one.text for _, one in self.effects if isinstance(one, Warn))

    @property
    def step_seconds(self) -> float:
        """Mean time from command to command."""
        return float(np.diff([time for time, _ in self.commands]).mean())


def stamp(time: float) -> int:
    """By the robot's clock, which is not the steady one."""
    return 1_700_000_000_000_000_000 + round(1e9 * time)


def ended(episode: Episode) -> Ended:
    assert isinstance(episode.phase, Ended)
    return episode.phase
