"""The demo's processes, from their start to the last episode."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from scipy.spatial.transform import Rotation
from sensor_msgs.msg import CameraInfo

from jepa_planner_ros.cli import CommandError
from jepa_planner_ros.cli.display import PATIENCE_AT_START, Display
from jepa_planner_ros.cli.domain import enter_domain, free_domain
from jepa_planner_ros.cli.episode_client import PLANNER, SIMULATION, EpisodeClient
from jepa_planner_ros.cli.processes import ProcessFamily, Program
from jepa_planner_ros.cli.record import RECORDING
from jepa_planner_ros.cli.watch import SERVED_AT
from jepa_planner_ros.report import Camera, EpisodeRecord, RunRecord
from jepa_planner_ros.robot.limits import PANDA
from jepa_planner_ros.search.profiles import ProfileError, in_words, load_profile
from jepa_planner_ros.serving import RemotePlanner, RemoteSettings
from jepa_planner_ros.share import share_directory
from jepa_planner_ros.sim import scene
from jepa_planner_ros.sim.franka import SimSettings
from jepa_planner_ros.types import Float64Array, PlannerError
from jepa_planner_ros.world_model import CheckpointError, read_checkpoint

# Seconds allowed for a plan, many times what a CPU needs that does nothing else.
_PLAN_TIMEOUT = 300.0
# Seconds in which a planner that was started before has to answer.
_ANSWER_WITHIN = 10.0
_MOTION_DURATION = 0.25  # s, simulated
_SIMULATED = SimSettings()
_CONTROLLER_LIMITS = {
    **asdict(PANDA.motion),
    "translation_speed": _SIMULATED.translation_speed,
    "translation_acceleration": _SIMULATED.translation_acceleration,
    "rotation_speed": _SIMULATED.rotation_speed,
    "rotation_acceleration": _SIMULATED.rotation_acceleration,
}


@dataclass(frozen=True)
class DemoSettings:
    """What the options of ``jepa-planner demo`` say."""

    episodes: int
    seed: int
    steps: int
    search: str
    control_mode: str
    commander: str
    planner: str
    replicas: int
    checkpoint: str
    real_time_factor: float | None
    logs: Path
    bag: Path | None
    watch: bool
    domain: int | None
    command_line: str

    @property
    def simulation_parameters(self) -> Mapping[str, object]:
        """Parameters of the simulation's node that differ from its configuration file."""
        return {
            "lockstep": self.real_time_factor is None,
            "real_time_factor": self.real_time_factor or 1.0,
            "motion_duration": _MOTION_DURATION,
        }

    @property
    def planner_parameters(self) -> Mapping[str, object]:
        """Parameters of the planner node that differ from its configuration file."""
        return {
            "planner": "remote" if self.planner_is_elsewhere else self.planner,
            "planner_address": self.planner if self.planner_is_elsewhere else "",
            "serving.replicas": self.replicas,
            "serving.start_timeout": PATIENCE_AT_START,
            "serving.plan_timeout": _PLAN_TIMEOUT,
            "search": self.search,
            "control_mode": self.control_mode,
            "world_model.checkpoint": self.checkpoint,
            "controller_frame": "upright",
            "commander": self.commander,
            **(self._direct if self.commander == "crisp" else {}),
        }

    @property
    def planner_is_elsewhere(self) -> bool:
        """Whether `planner` is the address of a planner that was started before."""
        return "://" in self.planner

    @property
    def _direct(self) -> Mapping[str, object]:
        """Targets at once: the simulated controller draws its own path, within its own limits."""
        parameters: dict[str, object] = {"setpoint_rate": 0.0}
        parameters |= {f"limits.{name}": limit for name, limit in _CONTROLLER_LIMITS.items()}
        if self.real_time_factor is None:
            # In lockstep the arm is only seen at rest, once the command has come to the simulation.
            return parameters | {"motion.duration": 0.25, "motion.still_time": 0.1}
        return parameters | {"motion.duration": _MOTION_DURATION / self.real_time_factor}


def run_episodes(settings: DemoSettings) -> RunRecord:
    """Start simulation and planner, run the episodes, and end what was started.

    Raises:
        CommandError: something could not be started, died, or did not answer.
    """
    try:
        read_checkpoint(settings.checkpoint)
        load_profile(settings.search)
    except (CheckpointError, ProfileError) as error:
        raise CommandError(str(error)) from error
    domain = free_domain() if settings.domain is None else settings.domain
    enter_domain(domain, os.environ)
    with ProcessFamily() as family, Display(settings.episodes) as display:
        if settings.planner_is_elsewhere:
            display.tell(f"asking {settings.planner} ...")
            _require_planner(settings.planner)
        if settings.watch:
            # First, so that the page shows how the others come.
            page = _start_watch(family, settings.logs)
            display.wait_for(page, lambda: SERVED_AT in page.log.read_text(), family.check)
            display.tell(page.log.read_text().splitlines()[0])
        simulation = _start_node(
            family,
            "simulation",
            "jepa_planner_ros.sim.sim_node",
            SIMULATION,
            "sim.yaml",
            settings.simulation_parameters,
            settings.logs,
        )
        planner = _start_node(
            family,
            "planner",
            "jepa_planner_ros.ros.planner_node",
            PLANNER,
            "planner.yaml",
            settings.planner_parameters,
            settings.logs,
        )
        awaited = [simulation, planner]
        if settings.bag is not None:
            awaited.append(_start_recorder(family, settings.bag, settings.logs))
        with EpisodeClient(family.check) as client:
            conditions = (
                client.simulation_ready,
                client.planner_ready,
                lambda: RECORDING in awaited[-1].log.read_text(),
            )
            for program, ready in zip(awaited, conditions, strict=False):
                display.wait_for(program, ready, family.check)
            episodes = [
                _run_episode(client, display, settings, settings.seed + index)
                for index in range(settings.episodes)
            ]
            camera = None if client.camera_info is None else _camera(client.camera_info)
    return RunRecord(
        title=f"Simulated Franka, {_planner_in_words(settings)}",
        command=settings.command_line,
        settings=_settings_in_words(settings, episodes),
        episodes=tuple(episodes),
        camera=camera,
    )


def _require_planner(address: str) -> None:
    """Raise `CommandError` where no planner answers; the node would wait for it for minutes."""
    try:
        RemotePlanner(RemoteSettings(address, start_timeout_s=_ANSWER_WITHIN)).close()
    except (PlannerError, ValueError) as error:
        raise CommandError(
            f"{error} --planner must be the address of a 'jepa-planner serve' that runs."
        ) from error


def _start_node(
    family: ProcessFamily,
    name: str,
    module: str,
    node: str,
    configuration: str,
    parameters: Mapping[str, object],
    logs: Path,
) -> Program:
    command = [sys.executable, "-m", module, "--ros-args", "-r", f"__node:={node}"]
    command += ["--params-file", str(share_directory() / "config" / configuration)]
    for parameter, value in parameters.items():
        # JSON is YAML, which nodes read; and an empty text stays one.
        command += ["-p", f"{parameter}:={json.dumps(value)}"]
    return family.start(name, command, logs / f"{name}.log")


def _start_recorder(family: ProcessFamily, bag: Path, logs: Path) -> Program:
    if bag.exists():
        raise CommandError(f"--record {bag} exists already: remove it or give another name.")
    command = [sys.executable, "-m", "jepa_planner_ros.cli.main", "record", str(bag)]
    return family.start("recorder", command, logs / "recorder.log")


def _start_watch(family: ProcessFamily, logs: Path) -> Program:
    pose = [f"{value:.5f}" for value in _camera_pose()]
    command = [sys.executable, "-m", "jepa_planner_ros.cli.main", "watch", "--port", "0"]
    return family.start("page", [*command, "--camera-pose", *pose], logs / "watch.log")


def _run_episode(
    client: EpisodeClient, display: Display, settings: DemoSettings, seed: int
) -> EpisodeRecord:
    task = client.reset(seed)
    display.begin(f"seed {seed}", task.start_state, task.goal_state)
    episode = client.reach(
        task,
        settings.steps,
        settings.steps * _PLAN_TIMEOUT,
        display.show_step,
    )
    display.end(episode)
    return episode


def _camera(info: CameraInfo) -> Camera:
    """The simulation's camera, which the planner knows nothing about."""
    return Camera.placed(np.array(info.k).reshape(3, 3), _camera_pose())


def _camera_pose() -> Float64Array:
    """Of its optical frame in the base frame: position (m) and quaternion x, y, z, w: (7,)."""
    position = np.array(scene.CAMERA_POSITION)
    forward = np.array(scene.CAMERA_TARGET) - position
    right = np.cross(forward, (0.0, 0.0, 1.0))
    down = np.cross(forward, right)
    axes = np.stack([axis / np.linalg.norm(axis) for axis in (right, down, forward)])
    return np.concatenate((position, Rotation.from_matrix(axes.T).as_quat()))


def _planner_in_words(settings: DemoSettings) -> str:
    if settings.planner == "in_process":
        return "planned in the node's own process"
    if settings.planner != "local_ray":
        return f"planned by {settings.planner}"
    copies = {0: "", 1: ", 1 replica"}.get(settings.replicas, f", {settings.replicas} replicas")
    return f"planned on a local Ray cluster{copies}"


def _range_in_words(first: int, count: int) -> str:
    if count == 1:
        return f"{first}"
    return f"{first} to {first + count - 1}; --seed repeats a single one"


def _settings_in_words(settings: DemoSettings, episodes: list[EpisodeRecord]) -> Mapping[str, str]:
    fingerprints = {step.model_fingerprint for episode in episodes for step in episode.steps}
    return {
        "World model": f"{settings.checkpoint} (fingerprint {', '.join(sorted(fingerprints))})",
        "Search": f"{settings.search}: {in_words(load_profile(settings.search))}",
        "Control mode": settings.control_mode,
        "Commander": settings.commander,
        "Planner": _planner_in_words(settings),
        "Seeds": _range_in_words(settings.seed, settings.episodes),
        "Step budget": f"{settings.steps}",
        "Simulation": "in lockstep with the planner"
        if settings.real_time_factor is None
        else f"real-time factor {settings.real_time_factor:g}",
    }
