"""The planner node: robot, control loop and planner wired together, from start to end."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from threading import Event
from typing import Any

import numpy as np
from rcl_interfaces.msg import SetParametersResult
from rclpy.callback_groups import MutuallyExclusiveCallbackGroup
from rclpy.executors import Executor, MultiThreadedExecutor
from rclpy.node import Node
from rclpy.parameter import Parameter

from jepa_planner_ros.control import EpisodeRunner, Worker
from jepa_planner_ros.planning import InProcessPlanner
from jepa_planner_ros.ros.capture import CaptureService
from jepa_planner_ros.ros.declaration import ParameterError, unknown_parameters
from jepa_planner_ros.ros.diagnostics import Diagnostics, last_network, last_report
from jepa_planner_ros.ros.gripper import GripperError
from jepa_planner_ros.ros.parameters import (
    PARAMETERS,
    SAFETY_SECTIONS,
    changed_values,
    current_values,
    declare_parameters,
)
from jepa_planner_ros.ros.reach_server import ReachServer
from jepa_planner_ros.ros.reporting import Reporter
from jepa_planner_ros.ros.robot import RosRobot
from jepa_planner_ros.ros.settings import read_episode_defaults, read_wiring
from jepa_planner_ros.ros.startup import given_parameters
from jepa_planner_ros.ros.wiring import Wiring
from jepa_planner_ros.search import REFERENCE_SEARCH
from jepa_planner_ros.serving import LocalRayPlanner, RemotePlanner
from jepa_planner_ros.types import Encoder, ModelDescription, Planner, PlannerError
from jepa_planner_ros.world_model import CheckpointError, WorldModel, load_world_model
from jepa_planner_ros.world_model.precision import caution

NAME = "jepa_planner"

# One for the episode, one for the sensors, one for what moves the arm and stops it, and two so
# that services never wait for any of them.
_THREADS = 5
_STOPPING = 1.0
"""How long each part of the node may take to stop, s."""
_BRAKING = 8.0
"""The same for the arm, s, as much as the launch files leave: small accelerations take long."""

_BLANK_FRAME = np.zeros((64, 64, 3), np.uint8)
# s. Executor and network share Python's lock, which changes hands at every operation of a network;
# at the usual 5 ms an encoding of a few milliseconds takes a second.
_SWITCH_INTERVAL = 0.0005


class PlannerNode(Node):
    """Wires the robot, the control loop and the planner together.

    Construction takes as long as the planner needs to be ready. The options are those of rclpy's
    class.

    Raises:
        ParameterError: a parameter is not allowed.
        CheckpointError: the world model cannot be loaded.
        GripperError: the gripper cannot be commanded.
        PlannerError: the planner cannot be started, or has another model.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(NAME, **options)
        declare_parameters(self)
        names = [one.name for one in PARAMETERS]
        for sentence in unknown_parameters(self, names, strict=SAFETY_SECTIONS):
            self.get_logger().warning(sentence)
        wiring = read_wiring(current_values(self), self.get_fully_qualified_name())
        read_episode_defaults(current_values(self))

        sensors, motion, services = (MutuallyExclusiveCallbackGroup() for _ in range(3))
        reporter = Reporter(self, wiring)
        self._robot = robot = RosRobot(self, wiring, sensors, motion)
        self._planning, self._seeing = Worker("planning"), Worker("seeing")
        self._planner, encoder = self._start_planner(wiring)
        runner = EpisodeRunner(robot, encoder.encode, self._planner, self._planning, self._seeing)
        self._server = ReachServer(self, robot, runner, encoder, self._seeing, reporter)
        self._capture = CaptureService(self, robot, wiring.capture_directory, services)
        self._diagnostics = Diagnostics(
            self,
            robot,
            reporter,
            self._planner.describe(),
            served=lambda: last_report(self._planner),
            network=lambda: last_network(self._planner),
        )
        self.add_on_set_parameters_callback(self._consider_parameters)
        reporter.say("Ready for goals.")

    def stop(self) -> bool:
        """End the present episode, with the arm held, and release the planner.

        Returns whether everything has come to its end; a search in this process may not have.
        """
        idle = self._server.stop("The planner node is shutting down.", _STOPPING)
        self._robot.rest(_BRAKING)
        self._planner.close()
        return self._seeing.stop(_STOPPING) and self._planning.stop(_STOPPING) and idle

    def _start_planner(self, wiring: Wiring) -> tuple[Planner, Encoder]:
        """Whoever plans and whoever encodes, with the same model, and ready."""
        self.get_logger().info(
            "Starting the planner on Ray, which may take half a minute ..."
            if wiring.planner == "local_ray"
            else f"Starting the planner ({wiring.planner}) ..."
        )
        if wiring.remote is not None and wiring.encode == "remote":
            both = RemotePlanner(wiring.remote)
            self._introduce(both.describe())
            return both, both
        world_model = load_world_model(wiring.checkpoint, wiring.device, wiring.precision)
        if warning := caution(world_model.precision, world_model.device):
            self.get_logger().warning(f"world_model.precision: {warning}")
        planner = _make_planner(wiring, world_model)
        there, here = planner.describe(), world_model.describe()
        if there.fingerprint != here.fingerprint:
            planner.close()
            raise PlannerError(
                f"The planner has model {there.fingerprint} but frames are encoded on board with "
                f"model {here.fingerprint}: give both the same world_model.checkpoint."
            )
        self._introduce(there)
        # The first frame takes longer than all others; no goal should wait for it.
        self._seeing.submit(lambda: world_model.encode(_BLANK_FRAME)).result()
        return planner, world_model

    def _introduce(self, model: ModelDescription) -> None:
        how = f"{model.precision}, compiled" if model.compiled else model.precision
        self.get_logger().info(
            f"Model {model.fingerprint} with {model.parameters / 1e6:.1f} M parameters plans on "
            f"{model.replicas} x {model.device} in {how}."
        )

    def _consider_parameters(self, changes: Sequence[Parameter]) -> SetParametersResult:
        if self._server.busy:
            return SetParametersResult(
                successful=False,
                reason="A goal is being pursued: change parameters before or after it.",
            )
        try:
            read_episode_defaults(changed_values(self, changes))
        except ParameterError as error:
            return SetParametersResult(successful=False, reason=str(error))
        except Exception as error:
            # Whatever leaves this callback ends the executor, and the node with it.
            self.get_logger().error(traceback.format_exc())
            cause = str(error) or type(error).__name__
            return SetParametersResult(successful=False, reason=f"The node failed: {cause}")
        return SetParametersResult(successful=True)


def _make_planner(wiring: Wiring, world_model: WorldModel) -> Planner:
    if wiring.planner == "in_process":
        world_model.rehearse(REFERENCE_SEARCH.horizon)
        return InProcessPlanner(world_model)
    if wiring.remote is not None:
        return RemotePlanner(wiring.remote)
    return LocalRayPlanner(
        wiring.checkpoint,
        wiring.replicas or None,
        device=wiring.serving_device,
        precision=wiring.precision,
        start_timeout_s=wiring.start_timeout,
        plan_timeout_s=wiring.plan_timeout,
    )


def run(arguments: list[str]) -> None:
    """Run the node with the arguments of a command line, until it is interrupted.

    Raises:
        SystemExit: the node cannot start; the message says why.
    """
    sys.setswitchinterval(_SWITCH_INTERVAL)
    try:
        _spin_until_interrupted(PlannerNode(parameter_overrides=given_parameters(NAME, arguments)))
    except (ParameterError, CheckpointError, GripperError, PlannerError) as error:
        sys.exit(f"planner_node: {error}")


def _spin_until_interrupted(node: PlannerNode) -> None:
    executor = MultiThreadedExecutor(_THREADS)
    executor.add_node(node)
    # In a thread of its own, so that clients hear how their goal ended while the node stops.
    thread, stopped, status = Worker("executor"), Event(), 0
    try:
        thread.submit(executor.spin).result()
    except Exception:
        # A callback failed. The others go on, since setpoints must come until the arm is at rest.
        status = 1
        node.get_logger().fatal(traceback.format_exc())
        thread.submit(lambda: _spin_on(executor, stopped))
        raise
    finally:
        if not node.stop():
            # A search in this process cannot be interrupted, and nobody awaits its plan.
            os._exit(status)
        stopped.set()
        executor.shutdown(_STOPPING)
        node.destroy_node()


def _spin_on(executor: Executor, stopped: Event) -> None:
    while not stopped.is_set():
        with suppress(Exception):
            executor.spin()
