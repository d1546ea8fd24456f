"""Episodes with a fault each, by the real planner node and the real simulation, and verdicts."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil
from jepa_planner_msgs.action import ReachGoal
from jepa_planner_msgs.msg import SubGoal
from jepa_planner_msgs.srv import ResetSimulation
from rclpy.action.client import ActionClient
from rclpy.client import Client
from rclpy.parameter import Parameter
from rclpy.parameter_client import AsyncParameterClient
from sensor_msgs.msg import Image
from std_srvs.srv import SetBool

from jepa_planner_ros.cli import CommandError
from jepa_planner_ros.cli.processes import ProcessFamily, Program
from jepa_planner_ros.control import Outcome, SafetyLimits
from jepa_planner_ros.faults.audit import SetpointAudit
from jepa_planner_ros.faults.catalogue import (
    FAULTS,
    Fault,
    Interference,
    anew,
)
from jepa_planner_ros.faults.relay import ROBOT, TOPICS, Relay
from jepa_planner_ros.faults.scenarios import Campaign, Scenario, Verdict, is_expected
from jepa_planner_ros.ros.background import BackgroundNode
from jepa_planner_ros.ros.clock import duration_message

PLANNER, SIMULATION = "jepa_planner", "franka_sim"

LIMITS = SafetyLimits(
    translation_speed=0.35,
    translation_acceleration=3.0,
    translation_jerk=60.0,
    rotation_speed=1.0,
    rotation_acceleration=8.0,
    rotation_jerk=160.0,
    lag_distance=0.2,
)
"""Of the arm here: a step takes half of the time that it takes by default. A simulation that has to
wait for a busy computer is not taken for an arm that does not follow."""

_RATE = 50.0  # setpoints per second
_TIME_LIMIT = 15.0
"""Of a goal, s."""
_HUNG_AFTER = _TIME_LIMIT + 15.0
_START_PATIENCE = 120.0
_ANSWER_PATIENCE = 30.0
_STOP_PATIENCE = 20.0
# A motion that is called off takes less than that to stop, s, and setpoints linger after it.
_REST_PATIENCE = 5.0
# They are over when their end has been repeated and nothing has come for a while, or, where their
# sender has gone, for a long while.
_QUIET, _GONE = 0.2, 2.0
_POLL = 0.01
_IN_MOTION = (Interference.CANCEL_IN_MOTION, Interference.INTERRUPT)

_PLANNER_PARAMETERS: Mapping[str, object] = {
    "controller_frame": "upright",
    "setpoint_rate": _RATE,
    "motion.duration": 0.3,
    "motion.still_time": 0.1,
    "motion.time_limit": 3.0,
    "max_age.camera": 2.0,
    "max_age.joints": 2.0,
    "world_model.checkpoint": "shipped",
    **{f"limits.{name}": value for name, value in asdict(LIMITS.motion).items()},
    "limits.lag_distance": LIMITS.lag_distance,
}
_SLOW_SEARCH = """\
method: cross_entropy
horizon: 1
max_translation: 0.075
samples: 100
elites: 10
rounds: 8
"""
_SIMULATION_PARAMETERS: Mapping[str, object] = {
    "motion_duration": 0.05,
    "image_width": 128,
    "image_height": 128,
}


def run(
    scenarios: Sequence[Scenario], planner: str, logs: Path, told: Callable[[Verdict], None]
) -> Campaign:
    """Run the episodes, with simulation and planner started anew after each interrupted node.

    Args:
        scenarios: of the episodes.
        planner: where plans are made, `in_process` or `local_ray`.
        logs: folder for what the processes say.
        told: is told of each verdict.

    Raises:
        CommandError: something could not be started, or died.
    """
    verdicts: list[Verdict] = []
    leaked: list[str] = []
    audit = SetpointAudit(LIMITS, 1.0 / _RATE)
    waiting = deque(scenarios)
    while waiting:
        folder = logs / f"from_{len(verdicts):03d}"
        with ProcessFamily() as family, _Stage(family, planner, folder, audit) as stage:
            while waiting and not stage.interrupted:
                verdicts.append(stage.perform(waiting.popleft()))
                told(verdicts[-1])
            leaked += stage.stop()
    return Campaign(tuple(verdicts), tuple(leaked), dict(audit.highest), audit.received)


class _LateError(CommandError):
    """Something did not happen in time."""


class _Stage:
    """Simulation, planner and the relay between them."""

    def __init__(
        self, family: ProcessFamily, planner: str, logs: Path, audit: SetpointAudit
    ) -> None:
        self.interrupted = False
        """Whether the planner has been told to end."""
        self._family = family
        self._audit = audit
        self._slow_search = logs / "slow.yaml"
        logs.mkdir(parents=True, exist_ok=True)
        self._slow_search.write_text(_SLOW_SEARCH)
        self._others = set(psutil.Process().children(recursive=True))
        remapped = [f"{topic}:={ROBOT}/{topic}" for topic in TOPICS]
        self._simulation = _start(
            family,
            "jepa_planner_ros.sim.sim_node",
            _SIMULATION_PARAMETERS,
            remapped,
            logs / "simulation.log",
        )
        self._planner = _start(
            family,
            "jepa_planner_ros.ros.planner_node",
            {**_PLANNER_PARAMETERS, "planner": planner},
            (),
            logs / "planner.log",
        )
        self._background = BackgroundNode("fault_relay")
        node = self._background.node
        self._relay = Relay(node, audit)
        self._reset: Client[Any, Any] = node.create_client(ResetSimulation, f"{SIMULATION}/reset")
        self._enable: Client[Any, Any] = node.create_client(SetBool, f"{PLANNER}/enable")
        self._reach: ActionClient[Any, Any, Any] = ActionClient(
            node, ReachGoal, f"{PLANNER}/reach_goal"
        )
        self._parameters = AsyncParameterClient(node, PLANNER)
        self._background.start()

    def __enter__(self) -> _Stage:
        ready = (
            self._reset.service_is_ready,
            self._enable.service_is_ready,
            self._reach.server_is_ready,
            self._parameters.services_are_ready,
        )
        self._await(lambda: all(one() for one in ready), _START_PATIENCE, "the nodes to be ready")
        return self

    def __exit__(self, *_: object) -> None:
        self._background.close()

    def perform(self, scenario: Scenario) -> Verdict:
        """Run one episode."""
        fault, before = anew(FAULTS[scenario.fault]), len(self._audit.violations)
        photograph = self._prepare(scenario, fault)
        if scenario.strikes is None:
            self._relay.fault = fault
        begun = time.monotonic()
        goal = _goal(photograph, scenario, fault)
        moving: list[object] = []
        handle = self._answer(self._reach.send_goal_async(goal, moving.append))
        if not handle.accepted:
            raise CommandError("the planner did not take a goal: see its log.")
        result = handle.get_result_async()
        self._strike(scenario, fault, handle, goal, result.done, moving)
        try:
            self._await(result.done, _HUNG_AFTER, "the result")
            told = result.result().result
            outcome, reason = Outcome(told.outcome), told.reason
        except _LateError as late:
            outcome, reason = None, str(late)
        elapsed = time.monotonic() - begun
        rested = self._rests()
        self._audit.end()
        return Verdict(
            scenario,
            outcome,
            reason,
            elapsed,
            is_expected(fault, scenario, outcome),
            rested,
            tuple(self._audit.violations[before:]),
        )

    def stop(self) -> list[str]:
        """Interrupt simulation and planner. Returns what is left of them too long after."""
        if not self.interrupted:
            self._interrupt()
        self._simulation.process.send_signal(signal.SIGINT)
        left: list[psutil.Process] = []
        deadline = time.monotonic() + _STOP_PATIENCE
        while time.monotonic() < deadline:
            for program in (self._planner, self._simulation):
                program.process.poll()
            children = psutil.Process().children(recursive=True)
            left = [child for child in children if child not in self._others]
            if not left:
                break
            time.sleep(0.1)
        return [" ".join(_command_line(process)) for process in left]

    def _interrupt(self) -> None:
        self.interrupted = True
        self._planner.process.send_signal(signal.SIGINT)

    def _prepare(self, scenario: Scenario, fault: Fault) -> Image:
        """Bring everything in order for an episode. Returns the photograph of its goal."""
        relay = self._relay
        relay.fault = FAULTS["none"]
        self._answer(self._enable.call_async(SetBool.Request(data=True)))
        search = str(self._slow_search) if fault.plans_slowly else "fast"
        changes = [
            Parameter("search", value=search),
            Parameter("seed", value=scenario.seed),
            Parameter("limits.translation_speed", value=LIMITS.translation_speed),
        ]
        for change in self._answer(self._parameters.set_parameters(changes)).results:
            if not change.successful:
                raise CommandError(f"the planner refuses a parameter: {change.reason}")
        task = self._answer(self._reset.call_async(ResetSimulation.Request(seed=scenario.seed)))
        if not task.success:
            raise CommandError(f"the simulation cannot start seed {scenario.seed}: {task.message}")
        frames, joints = relay.frames + 2, relay.joint_states + 2
        self._await(
            lambda: relay.frames >= frames and relay.joint_states >= joints,
            _ANSWER_PATIENCE,
            "the sensors",
        )
        return task.goal_image

    def _strike(
        self,
        scenario: Scenario,
        fault: Fault,
        handle: Any,
        goal: ReachGoal.Goal,
        over: Callable[[], bool],
        moving: list[object],
    ) -> None:
        """Let the fault happen at its time."""
        due = time.monotonic() + (scenario.strikes or 0.0)
        if fault.interference in _IN_MOTION:
            self._await(lambda: bool(moving) or over(), _HUNG_AFTER, "motion")
        else:
            self._await(lambda: time.monotonic() >= due or over(), _HUNG_AFTER, "the fault")
        self._relay.fault = fault
        match fault.interference:
            case Interference.CANCEL | Interference.CANCEL_IN_MOTION:
                self._answer(handle.cancel_goal_async())
            case Interference.SECOND_GOAL:
                another = self._answer(self._reach.send_goal_async(goal))
                if another.accepted and not over():
                    raise CommandError("the planner took a second goal while it pursued one.")
            case Interference.CHANGE_PARAMETERS:
                change = Parameter("limits.translation_speed", value=3.0 * LIMITS.translation_speed)
                self._answer(self._parameters.set_parameters([change]))
            case Interference.DISABLE:
                self._answer(self._enable.call_async(SetBool.Request(data=False)))
            case Interference.INTERRUPT:
                self._interrupt()

    def _rests(self) -> bool:
        """Whether the setpoints come to rest in time and then fall silent."""
        try:
            self._await(
                lambda: self._relay.silence > (_QUIET if self._audit.over else _GONE),
                _REST_PATIENCE,
                "setpoints to come to rest",
            )
        except _LateError:
            return False
        return True

    def _answer(self, future: Any) -> Any:
        self._await(future.done, _ANSWER_PATIENCE, "an answer")
        return future.result()

    def _await(self, condition: Callable[[], bool], patience: float, what: str) -> None:
        deadline = time.monotonic() + patience
        while not condition():
            if not self.interrupted:
                self._family.check()
            if time.monotonic() > deadline:
                raise _LateError(f"waited {patience:g} s for {what}.")
            time.sleep(_POLL)


def _goal(photograph: Image, scenario: Scenario, fault: Fault) -> ReachGoal.Goal:
    subgoal = SubGoal(image=photograph, step_budget=scenario.budget, close_gripper_from=-1)
    if fault.closes_gripper:
        subgoal.close_gripper_from = 0
    return ReachGoal.Goal(
        subgoals=[subgoal], time_limit=duration_message(_TIME_LIMIT), control_mode=scenario.mode
    )


def _start(
    family: ProcessFamily,
    module: str,
    parameters: Mapping[str, object],
    remapped: Sequence[str],
    log: Path,
) -> Program:
    command = [sys.executable, "-m", module, "--ros-args"]
    for rule in remapped:
        command += ["-r", rule]
    for parameter, value in parameters.items():
        command += ["-p", f"{parameter}:={json.dumps(value)}"]
    return family.start(log.stem, command, log)


def _command_line(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except psutil.NoSuchProcess:
        return []
