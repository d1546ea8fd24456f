"""Every control mode under random faults: it always ends, and commands nothing out of bounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from imagined_robot import MODEL, TICK, ImaginedRobot, ended, goal_at, straight_plan

from jepa_planner_ros.control import CONTROL_MODES, ControlSettings, Outcome
from jepa_planner_ros.control.episode import (
    CancelRequested,
    Command,
    Deciding,
    Effect,
    Encoding,
    Ended,
    Episode,
    Event,
    Failed,
    Flowing,
    Hold,
    Looking,
    Observed,
    Overlapping,
    Planned,
    Planning,
    Settling,
    Tick,
    Unplanned,
)
from jepa_planner_ros.control.safety import distance
from jepa_planner_ros.control.setpoints import Setpoints
from jepa_planner_ros.faults.audit import SetpointAudit
from jepa_planner_ros.types import Plan, PlanRequest

LIMITS = ControlSettings().safety

FIRST_STEPS: Mapping[type, set[type]] = {
    Settling: {Settling, Looking},
    Looking: {Looking, Encoding},
    Encoding: {Encoding, Planning, Settling},
    Planning: {Planning, Deciding, Settling},
    Deciding: {Deciding, Settling},
}
LEGAL: Mapping[str, Mapping[type, set[type]]] = {
    "blocking": FIRST_STEPS,
    "non_blocking": {
        **FIRST_STEPS,
        Deciding: {Deciding, Settling, Overlapping},
        Overlapping: {Overlapping, Settling},
    },
    "queue": {
        **FIRST_STEPS,
        Deciding: {Deciding, Settling, Flowing},
        Flowing: {Flowing, Settling},
    },
}
"""Which phase may follow which, besides the end, which may follow any."""


@dataclass
class Faults:
    """What goes wrong, decided by a stream of random numbers."""

    random: np.random.Generator
    rate: float
    frozen: Tick | None = None
    silent: int = 0

    def strike(self) -> bool:
        return bool(self.random.random() < self.rate)

    def tick(self, tick: Tick) -> Tick:
        """A look at a robot whose sensors freeze, fall silent, or tell nonsense."""
        if self.strike():
            self.silent = int(self.random.integers(1, 80))
        if self.silent:
            self.silent -= 1
            self.frozen = self.frozen or tick
            streams = tuple(
                replace(stream, age=tick.time - self.frozen.time) for stream in tick.streams
            )
            return replace(self.frozen, time=tick.time, streams=streams)
        self.frozen = None
        if self.strike():
            return replace(tick, arm=None)
        if self.strike():
            return replace(tick, frame_stamp=None)
        if self.strike() and tick.frame_stamp is not None:
            return replace(tick, frame_stamp=tick.frame_stamp - 10**9)
        if self.random.random() < self.rate / 20:
            return replace(tick, fault="The driver reports a reflex.")
        return tick

    def plan(self, request: PlanRequest) -> Plan:
        """A plan that may be wild, not finite, or of another model."""
        plan = straight_plan(request)
        actions = plan.actions.copy()
        actions[:, :6] += self.random.normal(0.0, 0.004, (len(actions), 6))
        if self.strike():
            actions *= 30.0
        if self.random.random() < self.rate / 10:
            actions[0, int(self.random.integers(7))] = np.nan
        model = "another" if self.random.random() < self.rate / 20 else MODEL
        return replace(plan, actions=actions, model_fingerprint=model)


@dataclass
class UnreliableRobot(ImaginedRobot):
    """Checks on the way that everything commanded is allowed, down to the setpoints."""

    mode: str = "blocking"
    faults: Faults = field(default_factory=lambda: Faults(np.random.default_rng(0), 0.0))
    steps: int = 0
    setpoints: Setpoints = field(default_factory=Setpoints)
    audit: SetpointAudit = field(default_factory=lambda: SetpointAudit(LIMITS, TICK))
    last_target: np.ndarray | None = None

    def tick(self) -> Tick:
        motion = self.settings.motion
        self.setpoints = self.setpoints.watched(self.time, 0.0, (0.0, self.state), motion, LIMITS)
        setpoint = self.setpoints.at(self.time)
        if setpoint is not None and self.setpoints.sending(self.time):
            self.audit.judge(setpoint, self.state, round(self.time / TICK), self.time)
        return replace(super().tick(), fault=self.setpoints.fault)

    def feed(self, episode: Episode, event: Event) -> Episode:
        if self.faults.random.random() < self.faults.rate / 30:
            event = Failed(self.time, "A worker failed.")
        if isinstance(event, Planned | Observed):
            asked = event.request if isinstance(event, Planned) else event.asked
            if self.faults.random.random() < 10 * self.faults.rate:
                pause = float(self.faults.random.uniform(0.0, 2.0))
                event = Unplanned(self.time, "The planner is away: it was stopped.", pause, asked)
        if self.faults.random.random() < self.faults.rate / 60:
            event = CancelRequested(self.time, "Enough.")
        before = type(episode.phase)
        episode = super().feed(episode, event)
        after = type(episode.phase)
        assert after is Ended or after in LEGAL[self.mode][before], f"{before} -> {after}"
        self.steps += 1
        return episode

    def perform(self, effect: Effect) -> None:
        if isinstance(effect, Command):
            self.check(effect.target)
            self.last_target = effect.target
            self.setpoints = self.setpoints.towards(
                effect.target, self.state, self.time, self.settings.motion, LIMITS
            )
        if isinstance(effect, Hold) and self.setpoints.fault is None:
            self.setpoints = self.setpoints.braked(self.time, LIMITS)
        if isinstance(effect, Command | Hold):
            self.follows = not self.faults.strike()
            self.offset = self.faults.random.normal(0.0, 0.004, 7)
            assert np.isfinite(effect.target).all()
        super().perform(effect)

    def check(self, target: np.ndarray) -> None:
        position = target[:3]
        assert (position >= LIMITS.workspace_min).all()
        assert (position <= LIMITS.workspace_max).all()
        assert self.step_from(self.last_target, target) or self.step_from(self.state, target)

    def step_from(self, base: np.ndarray | None, target: np.ndarray) -> bool:
        """Whether a target is a step away from the last one, or from where the arm was seen."""
        if base is None:
            return False
        longest = np.abs(target - base)[:3].max()
        _, radians = distance(base, target)
        return bool(
            longest <= LIMITS.step_translation + 1e-9 and radians <= LIMITS.step_rotation + 1e-6
        )


@pytest.mark.parametrize("mode", CONTROL_MODES)
def test_an_arm_that_is_late_is_held_when_the_episode_ends(mode: str) -> None:
    robot = ImaginedRobot(
        CONTROL_MODES[mode], motion=3.0, planning=lambda number: 0.8 if number == 0 else 20.0
    )
    episode = robot.run(robot.start(goal_at(0.25, 0.2)), until=lambda _: bool(robot.commands))
    (departed, _), *_ = robot.commands
    episode = robot.run(episode, until=lambda _: robot.time > departed + 1.1)
    robot.feed(episode, CancelRequested(robot.time, "Enough."))
    _, hold = robot.effects[-1]
    assert isinstance(hold, Hold)
    np.testing.assert_array_equal(hold.target, robot.state)


@pytest.mark.parametrize("mode", CONTROL_MODES)
def test_no_fault_leads_out_of_bounds_or_to_an_episode_that_does_not_end(mode: str) -> None:
    steps, outcomes, audited = 0, set(), []

    @given(st.integers(0, 2**32 - 1), st.sampled_from([0.0, 0.005, 0.02]))
    @settings(
        max_examples=60,
        deadline=None,
        derandomize=True,
        suppress_health_check=[HealthCheck.too_slow],
    )
    def run(seed: int, rate: float) -> None:
        nonlocal steps
        random = np.random.default_rng(seed)
        faults = Faults(random, rate)
        robot = UnreliableRobot(
            CONTROL_MODES[mode],
            mode=mode,
            faults=faults,
            planner=faults.plan,
            change=faults.tick,
            planning=lambda number: float(random.uniform(0.05, 2.0)),
        )
        goals = [goal_at(*random.uniform(-0.12, 0.12, 3), energy_threshold=1e-2) for _ in range(2)]
        result = ended(robot.run(robot.start(*goals, time_limit=60.0)))
        assert result.elapsed <= 60.0 + 0.1
        assert result.reason.endswith(".")
        commanded = len(robot.commands)
        over = replace(robot.start(goal_at()), phase=result)
        for _ in range(100):
            robot.time += TICK
            robot.feed(over, robot.tick())
        assert len(robot.commands) == commanded, "nothing is commanded after the end"
        assert not robot.setpoints.moving(robot.time)
        assert robot.audit.violations == []
        audited.append(robot.audit.highest)
        steps += robot.steps
        outcomes.add(result.outcome)

    run()
    assert steps > 10_000
    fastest = max(highest.get("translation_speed", 0.0) for highest in audited)
    assert fastest > 0.5, "the arm really moves"
    assert {Outcome.REACHED, Outcome.ABORTED} <= outcomes
