"""Whole episodes of blocking control in microseconds: an imagined arm, a clock that only counts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from jepa_planner_ros.control import (
    ControlSettings,
    Ended,
    Episode,
    Goal,
    GripperMotion,
    Outcome,
    Report,
    SubGoal,
    begin,
)
from jepa_planner_ros.control.blocking import transition
from jepa_planner_ros.control.episode import (
    CancelRequested,
    Command,
    Effect,
    Event,
    Failed,
    Hold,
    Measurement,
    Observation,
    Observe,
    Observed,
    Planned,
    Planning,
    Search,
    Settling,
    Tick,
    Warn,
)
from jepa_planner_ros.control.safety import Stream
from jepa_planner_ros.search import FAST_SEARCH
from jepa_planner_ros.types import Plan, PlanRequest, PlanTiming, SearchRound

TICK = 0.02
MODEL = "0123456789abcdef"
START = np.array([0.5, 0.0, 0.3, 0.0, 0.0, 0.0, 0.0])


def stamp(time: float) -> int:
    """By the robot's clock, which is not the steady one."""
    return 1_700_000_000_000_000_000 + round(1e9 * time)


def picture(state: np.ndarray) -> np.ndarray:
    """Latents (tokens, dim) that differ by as much as the poses do, in metres."""
    return np.tile(state[:3].astype(np.float32), (4, 1))


def subgoal(x: float = 0.0, y: float = 0.0, z: float = 0.0, **more: object) -> SubGoal:
    latent = picture(START + np.array([x, y, z, 0, 0, 0, 0]))
    values: dict[str, object] = {"energy_threshold": 1e-3, "step_budget": 10} | more
    return SubGoal(latent=latent, **values)  # type: ignore[arg-type]


def straight_plan(request: PlanRequest) -> Plan:
    """Straight towards the goal, 5 cm along each axis at most."""
    scene = request.scene
    step = np.zeros(7)
    step[:3] = (scene.goal_latent[0] - scene.latent[0]).clip(-0.05, 0.05)
    if request.close_gripper_from == 0:
        step[6] = 1.0
    return make_plan(request, np.stack((step, np.zeros(7))))


def make_plan(request: PlanRequest, actions: np.ndarray, model: str = MODEL) -> Plan:
    states = np.stack([request.scene.state] * 3)
    timing = PlanTiming(total=0.3, rollouts=0.2)
    rounds = (SearchRound(0.1, 0.2),)
    energies, latent = np.array([0.2, 0.1]), np.zeros((4, 8), np.float32)
    return Plan(actions, states, energies, latent, 0.3, 8, rounds, timing, model)


@dataclass
class World:
    """An arm that goes straight to its target in `duration`, seen by a camera at 10 Hz."""

    planner: Callable[[PlanRequest], Plan] = straight_plan
    encode: Callable[[np.ndarray], np.ndarray] = picture
    duration: float = 0.6
    follows: bool = True
    offset: np.ndarray = field(default_factory=lambda: np.zeros(7))
    time: float = 5.0
    origin: np.ndarray = field(default_factory=START.copy)
    target: np.ndarray = field(default_factory=START.copy)
    commanded_at: float = -100.0
    stop_camera_at: float = math.inf
    stop_joints_at: float = math.inf
    requests: list[PlanRequest] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    pending: list[Event] = field(default_factory=list)

    @property
    def state(self) -> np.ndarray:
        done = min(1.0, (self.time - self.commanded_at) / self.duration)
        end = self.target + self.offset if self.commanded_at > 0 else self.target
        return self.origin + done * (end - self.origin)

    def tick(self) -> Tick:
        self.time += TICK
        seen = min(self.time, self.stop_camera_at)
        felt = min(self.time, self.stop_joints_at)
        frame_time = math.floor(seen * 10) / 10
        streams = (
            Stream("/image_raw", self.time - frame_time, 1.0),
            Stream("/joint_states", self.time - felt, 1.0),
        )
        arm = Measurement(self.state, stamp(felt), felt)
        return Tick(self.time, arm, stamp(frame_time), streams)

    def answer(self, effect: Effect) -> Iterator[Event]:
        self.effects.append(effect)
        if isinstance(effect, Observe):
            self.time += 0.05
            yield Observed(
                self.time,
                Observation(self.encode(self.state), self.state, stamp(self.time), 0.03, 0.05),
                effect,
            )
        elif isinstance(effect, Search):
            self.requests.append(effect.request)
            self.time += 0.4
            yield Planned(self.time, self.planner(effect.request), 0.4, effect.request)
        elif isinstance(effect, Command | Hold) and self.follows:
            self.origin, self.target = self.state, effect.target
            self.commanded_at = self.time

    def run(self, episode: Episode, until: Callable[[Episode], bool] | None = None) -> Episode:
        """Let the episode run to its end, or until a condition holds after a tick."""
        for _ in range(20_000):
            if isinstance(episode.phase, Ended) or (until and until(episode)):
                return episode
            event = self.pending.pop(0) if self.pending else self.tick()
            episode, effects = transition(episode, event)
            for effect in effects:
                self.pending.extend(self.answer(effect))
        raise AssertionError("the episode does not end")

    def commands(self) -> list[Command | Hold]:
        return [effect for effect in self.effects if isinstance(effect, Command | Hold)]

    def warnings(self) -> str:
        return " ".join(effect.text for effect in self.effects if isinstance(effect, Warn))


def episode_for(
    world: World, *subgoals: SubGoal, time_limit: float = 600.0, seed: int = 7
) -> Episode:
    search = replace(FAST_SEARCH, horizon=2)
    goal = Goal(subgoals, time_limit, MODEL, search, seed)
    return begin(goal, ControlSettings(), world.time)


def ended(episode: Episode) -> Ended:
    assert isinstance(episode.phase, Ended)
    return episode.phase


def in_motion(episode: Episode) -> bool:
    return isinstance(episode.phase, Settling) and episode.phase.origin is not None


def test_the_arm_reaches_the_photograph() -> None:
    world = World()
    result = ended(world.run(episode_for(world, subgoal(x=0.12, z=-0.08))))
    assert result.outcome is Outcome.REACHED
    assert "Reached the goal at step 3 of sub-goal 1 of 1" in result.reason
    assert result.steps == 3
    assert result.energy <= 1e-3
    np.testing.assert_allclose(world.state[:3], START[:3] + np.array([0.12, 0, -0.08]), atol=1e-6)
    assert 3 * (0.4 + 1.0) < result.elapsed < 3 * (0.4 + 1.0 + 0.2 + 0.3 + 2 * TICK)


def test_every_plan_starts_from_a_frame_taken_at_rest() -> None:
    world = World()
    moving: list[bool] = []

    def watchful(request: PlanRequest) -> Plan:
        np.testing.assert_allclose(request.scene.state, world.state)
        np.testing.assert_allclose(request.scene.latent, picture(world.state))
        moving.append(world.time - 0.45 - world.commanded_at < world.duration)
        return straight_plan(request)

    world.planner = watchful
    world.run(episode_for(world, subgoal(x=0.2)))
    assert moving == [False] * 4


def test_plans_depend_on_seed_and_number_and_start_from_the_one_before() -> None:
    world = World()
    world.run(episode_for(world, subgoal(x=0.08), subgoal(x=0.08, y=0.08), seed=3))
    assert [(one.seed, one.step) for one in world.requests] == [(3, 0), (3, 1), (3, 2), (3, 3)]
    assert [one.previous is None for one in world.requests] == [True, False, True, False]


def test_a_search_that_fell_back_is_told_with_what_that_means() -> None:
    world = World(planner=lambda request: replace(straight_plan(request), fallback="it was off"))
    world.run(episode_for(world, subgoal(x=0.04)))
    assert world.warnings() == (
        "The search fell back to cross-entropy rounds: it was off. The plan is as good, and took "
        "longer."
    )


def test_each_step_is_reported_with_where_its_time_went() -> None:
    world = World()
    world.run(episode_for(world, subgoal(x=0.08)))
    reports = [effect for effect in world.effects if isinstance(effect, Report)]
    assert [(one.subgoal, one.step) for one in reports] == [(0, 0), (0, 1)]
    latency = reports[0].latency
    assert (latency.capture_age, latency.encode, latency.plan) == (0.03, 0.05, 0.3)
    assert latency.network == pytest.approx(0.1)
    assert reports[0].energy == pytest.approx(0.08 / 3, rel=1e-3)
    np.testing.assert_allclose(reports[0].target[:3], START[:3] + np.array([0.05, 0, 0]))


def test_subgoals_are_pursued_in_order() -> None:
    world = World()
    result = ended(world.run(episode_for(world, subgoal(x=0.1), subgoal(x=0.1, y=0.1))))
    assert result.outcome is Outcome.REACHED
    assert result.steps == 4
    assert "sub-goal 2 of 2" in result.reason


def test_a_subgoal_already_reached_takes_no_step() -> None:
    world = World()
    result = ended(world.run(episode_for(world, subgoal(), subgoal())))
    assert (result.outcome, result.steps) == (Outcome.REACHED, 0)
    assert world.commands() == []


def test_the_gripper_closes_from_its_step_on_and_once() -> None:
    world = World()
    goal = subgoal(x=0.05, close_gripper_from=2)
    result = ended(world.run(episode_for(world, goal)))
    assert result.outcome is Outcome.REACHED
    assert [one.close_gripper_from for one in world.requests] == [2, 1, 0]
    steps = [one for one in world.commands() if isinstance(one, Command)]
    assert [one.gripper for one in steps] == [None, None, GripperMotion.CLOSE]
    assert world.commands()[-1].target[6] == 1.0


def test_a_budget_that_is_spent_ends_the_episode() -> None:
    world = World()
    result = ended(world.run(episode_for(world, subgoal(x=0.3, step_budget=2))))
    assert (result.outcome, result.steps) == (Outcome.BUDGET_SPENT, 2)
    assert "step_budget" in result.reason
    assert len(world.commands()) == 2


@pytest.mark.parametrize(
    ("distance", "threshold", "told"),
    [
        (0.3, 1e-6, "sub-goal 1 of 1 (energy 0.1, threshold 1e-06): raise"),
        (0.12012, 0.04, "sub-goal 1 of 1 (energy 0.04004, threshold 0.04): raise"),
    ],
)
def test_energies_are_told_in_digits_that_tell_them_apart(
    distance: float, threshold: float, told: str
) -> None:
    world = World()
    goal = subgoal(x=distance, step_budget=0, energy_threshold=threshold)
    assert told in ended(world.run(episode_for(world, goal))).reason


def test_a_time_limit_that_passes_before_a_frame_was_seen_says_so() -> None:
    world = World()
    episode = episode_for(world, subgoal(x=0.3), time_limit=0.2)
    world.time += 1.0
    episode, _ = transition(episode, world.tick())
    assert ended(episode).reason == (
        "The time limit of 0.2 s passed at step 0 of sub-goal 1 of 1 "
        "(no frame seen yet, threshold 0.001)."
    )


def test_the_time_limit_holds_the_arm_in_motion() -> None:
    world = World(duration=100.0)
    result = ended(world.run(episode_for(world, subgoal(x=0.3), time_limit=2.0)))
    assert result.outcome is Outcome.TIMED_OUT
    assert "2 s" in result.reason
    assert len(world.commands()) == 2
    assert world.commands()[-1].target[0] < START[0] + 0.01, "the arm is held where it was"


def test_cancel_in_motion_holds_the_arm_where_it_is() -> None:
    world = World()
    episode = world.run(episode_for(world, subgoal(x=0.3)), until=in_motion)
    for _ in range(10):
        episode, _ = transition(episode, world.tick())
    episode, effects = transition(episode, CancelRequested(world.time, "Enough."))
    assert (ended(episode).outcome, ended(episode).reason) == (Outcome.CANCELLED, "Enough.")
    (hold,) = effects
    assert isinstance(hold, Hold)
    np.testing.assert_allclose(hold.target[:3], world.state[:3])
    assert START[0] < hold.target[0] < START[0] + 0.05


def test_a_plan_that_comes_after_the_cancel_moves_nothing() -> None:
    world = World()
    episode = world.run(
        episode_for(world, subgoal(x=0.3)), until=lambda one: isinstance(one.phase, Planning)
    )
    episode, effects = transition(episode, CancelRequested(world.time, "Enough."))
    assert effects == (), "an arm at rest holds its last target by itself"
    request = world.requests[-1]
    late = Planned(world.time + 1.0, straight_plan(request), 1.0, request)
    assert transition(episode, late) == (episode, ())


def planning_for(world: World) -> tuple[Episode, Planned]:
    """An episode whose first plan is due, and that plan, not delivered yet."""
    episode = world.run(
        episode_for(world, subgoal(x=0.3)), until=lambda one: isinstance(one.phase, Planning)
    )
    (planned,) = world.pending
    world.pending.clear()
    assert isinstance(planned, Planned)
    return episode, planned


def test_an_arm_moved_while_a_plan_was_made_is_planned_for_anew() -> None:
    world = World()
    episode, planned = planning_for(world)
    world.origin = world.target = START + np.array([0.0, 0.2, 0.0, 0.0, 0.0, 0.0, 0.0])
    world.pending.append(planned)
    episode = world.run(episode, until=lambda one: one.steps == 1)
    assert "moved while a plan was made" in world.warnings()
    assert len(world.requests) == 2
    (command,) = world.commands()
    np.testing.assert_allclose(command.target[:2], [START[0] + 0.05, 0.15], atol=1e-6)


def test_a_plan_that_comes_with_stale_sensors_moves_nothing() -> None:
    world = World()
    episode, planned = planning_for(world)
    world.stop_joints_at = world.time
    world.time += 10.0
    episode, effects = transition(episode, planned)
    assert effects == ()
    result = ended(world.run(episode))
    assert result.outcome is Outcome.ABORTED
    assert "/joint_states" in result.reason
    assert not world.commands()


def test_an_old_pose_is_not_held() -> None:
    """Going back to where the arm was half a second ago would be a jerk."""
    world = World(duration=2.0)
    episode = world.run(episode_for(world, subgoal(x=0.3)), until=in_motion)
    world.stop_joints_at = world.time
    world.time += 0.5
    episode, _ = transition(episode, world.tick())
    episode, effects = transition(episode, CancelRequested(world.time, "Enough."))
    (hold,) = effects
    assert isinstance(hold, Hold)
    assert episode.target is not None
    np.testing.assert_array_equal(hold.target, episode.target)


def test_a_failing_planner_aborts_with_its_cause() -> None:
    world = World()
    episode = world.run(
        episode_for(world, subgoal(x=0.3)), until=lambda one: isinstance(one.phase, Planning)
    )
    episode, effects = transition(episode, Failed(world.time, "All replicas died."))
    assert (ended(episode).outcome, ended(episode).reason) == (
        Outcome.ABORTED,
        "All replicas died.",
    )
    assert effects == ()


@pytest.mark.parametrize("broken", [math.nan, math.inf])
def test_a_plan_that_is_not_finite_is_never_commanded(broken: float) -> None:
    world = World(planner=lambda request: make_plan(request, np.full((2, 7), broken)))
    result = ended(world.run(episode_for(world, subgoal(x=0.3))))
    assert result.outcome is Outcome.ABORTED
    assert "not finite" in result.reason
    assert world.commands() == []


def test_a_plan_of_another_model_is_never_commanded() -> None:
    world = World(planner=lambda request: replace(straight_plan(request), model_fingerprint="x"))
    result = ended(world.run(episode_for(world, subgoal(x=0.3))))
    assert result.outcome is Outcome.ABORTED
    assert "world_model.checkpoint" in result.reason
    assert world.commands() == []


def test_a_target_out_of_bounds_is_moved_in_and_the_operator_told() -> None:
    down = np.array([[0.0, 0.0, -9.0, 0.0, 0.0, 0.0, 0.0]] * 2)
    world = World(planner=lambda request: make_plan(request, down))
    world.run(episode_for(world, subgoal(x=0.3, step_budget=6)))
    heights = [one.target[2] for one in world.commands()]
    np.testing.assert_allclose(heights, [0.225, 0.15, 0.075, 0.005, 0.005, 0.005], atol=1e-9)
    assert "limits.step_translation" in world.warnings()
    assert "moved into the workspace" in world.warnings()


@pytest.mark.parametrize("stream", ["camera", "joints"])
def test_sensors_that_fall_silent_in_motion_abort(stream: str) -> None:
    world = World(duration=3.0)
    episode = world.run(episode_for(world, subgoal(x=0.3)), until=in_motion)
    if stream == "camera":
        world.stop_camera_at = world.time
    else:
        world.stop_joints_at = world.time
    result = ended(world.run(episode))
    topic = {"camera": "/image_raw", "joints": "/joint_states"}[stream]
    assert result.outcome is Outcome.ABORTED
    assert f"on {topic} is 1.0 s old" in result.reason
    command, hold = world.commands()
    kept = np.array_equal(hold.target, command.target)
    assert kept == (stream == "joints"), "an arm whose pose is unknown keeps its last target"


def test_an_arm_that_ignores_commands_is_not_pushed_on() -> None:
    world = World(follows=False)
    result = ended(world.run(episode_for(world, subgoal(x=0.3))))
    assert result.outcome is Outcome.ABORTED
    assert "does not follow" in result.reason
    for command in world.commands():
        assert np.abs(command.target - START).max() <= 0.05 + 1e-9, "each from where the arm is"


def test_an_arm_that_misses_its_target_is_resynchronised() -> None:
    world = World()
    episode = world.run(episode_for(world, subgoal(x=0.3, step_budget=4)), until=in_motion)
    world.offset = np.array([0.0, 0.1, 0.0, 0.0, 0.0, 0.0, 0.0])
    episode = world.run(episode, until=lambda one: one.drifts == 1 and one.steps == 2)
    world.offset = np.zeros(7)
    episode = world.run(episode, until=lambda one: one.steps == 3)
    assert "Resynchronised" in world.warnings()
    second = world.commands()[1].target
    np.testing.assert_allclose(second[:2], [START[0] + 0.1, START[1] + 0.05], atol=1e-6)
    assert episode.drifts == 0


def test_small_errors_of_execution_do_not_add_up() -> None:
    world = World(offset=np.array([0.0, 0.01, 0.0, 0.0, 0.0, 0.0, 0.0]))
    goal = subgoal(x=0.2, y=0.01)
    world.run(episode_for(world, goal))
    sideways = [one.target[1] for one in world.commands()]
    assert max(np.abs(sideways)) < 0.02, "deltas add to the last target, not to what was measured"


def test_an_arm_that_never_rests_aborts() -> None:
    world = World(duration=1000.0, commanded_at=5.0, target=START + 5.0)
    result = ended(world.run(episode_for(world, subgoal(x=0.3))))
    assert result.outcome is Outcome.ABORTED
    assert "did not come to rest within 5 s" in result.reason
    assert world.requests == []


def test_a_camera_that_freezes_with_fresh_stamps_aborts() -> None:
    world = World()
    episode = world.run(episode_for(world, subgoal(x=0.3)), until=in_motion)
    first = next(one for one in world.effects if isinstance(one, Report)).observation
    world.encode = lambda state: first.latent
    result = ended(world.run(episode))
    assert result.outcome is Outcome.ABORTED
    assert "stream is frozen" in result.reason
    assert len(world.commands()) == 1


def test_a_frozen_camera_is_noticed_however_short_the_steps() -> None:
    def short(request: PlanRequest) -> Plan:
        return make_plan(request, np.array([[0.0, 0.0, -0.011, 0.0, 0.0, 0.0, 0.0]] * 2))

    frozen = picture(START)
    world = World(planner=short, encode=lambda state: frozen)
    result = ended(world.run(episode_for(world, subgoal(z=-0.25))))
    assert result.outcome is Outcome.ABORTED
    assert "moved 22 mm: its stream is frozen" in result.reason
    assert len(world.commands()) == 2


def test_a_camera_with_another_clock_aborts() -> None:
    world = World()
    episode = episode_for(world, subgoal(x=0.3))
    for _ in range(1000):
        tick = world.tick()
        episode, _ = transition(episode, replace(tick, frame_stamp=round(1e9 * tick.time)))
    assert "synchronise the clocks" in ended(episode).reason
