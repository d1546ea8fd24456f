"""The values of the node's parameters, read as frozen dataclasses and checked together."""

from __future__ import annotations

import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jepa_planner_ros.control import (
    ControlSettings,
    FreshnessLimits,
    LookAheadSettings,
    MotionSettings,
    QueueSettings,
    SafetyLimits,
)
from jepa_planner_ros.robot.limits import LIMITS, RobotLimits
from jepa_planner_ros.ros.declaration import ParameterError
from jepa_planner_ros.ros.parameters import check_choices
from jepa_planner_ros.ros.poses import ControllerFrame
from jepa_planner_ros.ros.wiring import Wiring
from jepa_planner_ros.search.profiles import load_profile
from jepa_planner_ros.serving import RemoteSettings
from jepa_planner_ros.serving.remote_settings import LONGEST_ROBOT_NAME
from jepa_planner_ros.types import SearchSettings

_MOTION_COMMANDERS = ("servo_twist", "joint_trajectory")
"""Those that are sent motions, not targets."""
_LEAST_SETPOINT_RATE = 20.0
"""Hz. From one setpoint to the next a controller goes as fast as it can, and nobody looks whether
the arm follows."""


@dataclass(frozen=True)
class EpisodeDefaults:
    """What an episode is run with where its goal does not say."""

    search_name: str
    search: SearchSettings
    plan_deadline: float | None
    seed: int
    control_mode: str
    energy_threshold: float
    step_budget: int
    time_limit: float
    ready_timeout: float
    control: ControlSettings


def read_wiring(values: Mapping[str, Any], node: str) -> Wiring:
    """What the node is connected to.

    Args:
        values: of the parameters.
        node: its full name.

    Raises:
        ParameterError: a value is not allowed.
    """
    check_choices(values)
    commander, rate = values["commander"], values["setpoint_rate"]
    if 0.0 < rate < _LEAST_SETPOINT_RATE:
        raise ParameterError(
            f"Parameter setpoint_rate = {rate:g} Hz is too low for setpoints to keep the limits of "
            f"speed, acceleration and jerk: set it to {_LEAST_SETPOINT_RATE:g} or more, or to 0 to "
            "send each target at once, without them."
        )
    if commander in _MOTION_COMMANDERS and rate == 0.0:
        raise ParameterError(
            f"Parameter setpoint_rate = 0 sends single targets, but commander = {commander} sends "
            "whole motions: set it to the rate of their points, for instance 50.0."
        )
    if values["encode"] == "remote" and values["planner"] != "remote":
        raise ParameterError(
            f"Parameter encode = remote has planner remote encode the frames, but planner = "
            f"{values['planner']}: set one of them to the other's value."
        )
    return Wiring(
        planner=values["planner"],
        remote=_read_remote(values, node) if values["planner"] == "remote" else None,
        encode=values["encode"],
        replicas=values["serving.replicas"],
        serving_device=values["serving.device"],
        start_timeout=values["serving.start_timeout"],
        plan_timeout=values["serving.plan_timeout"],
        checkpoint=values["world_model.checkpoint"],
        device=values["world_model.device"],
        precision=values["world_model.precision"],
        base_frame=values["base_frame"],
        joint_prefix=values["joint_prefix"],
        robot=values["robot"],
        commander=commander,
        gripper=values["gripper"],
        setpoint_rate=rate,
        enabled=values["enabled"],
        pose_source=values["pose_source"],
        controller_frame=ControllerFrame(values["controller_frame"]),
        image_transport=values["image_transport"],
        capture_directory=_read_path(values, "capture.directory"),
        freshness=FreshnessLimits(values["max_age.camera"], values["max_age.joints"]),
    )


def _read_path(values: Mapping[str, Any], name: str) -> Path:
    try:
        return Path(values[name]).expanduser()
    except RuntimeError as error:
        raise ParameterError(f"Parameter {name} = '{values[name]}' is no path: {error}") from error


def _read_remote(values: Mapping[str, Any], node: str) -> RemoteSettings:
    def file(name: str) -> Path | None:
        return _read_path(values, name) if values[name] else None

    try:
        return RemoteSettings(
            values["planner_address"],
            token_file=file("planner_token_file"),
            ca_file=file("planner_ca_file"),
            certificate_file=file("planner_certificate_file"),
            key_file=file("planner_key_file"),
            plan_timeout_s=values["serving.plan_timeout"],
            start_timeout_s=values["serving.start_timeout"],
            latents=values["planner_latents"],
            # Two arms may share a computer. Names too long differ at their ends.
            robot=f"{socket.gethostname()}{node}"[-LONGEST_ROBOT_NAME:],
        )
    except ValueError as error:
        raise ParameterError(f"Parameters of planner remote: {error}") from error


def read_episode_defaults(
    values: Mapping[str, Any], robot: RobotLimits | None = None
) -> EpisodeDefaults:
    """What an episode is run with.

    Args:
        values: of the parameters.
        robot: the arm as it is described; None: the model that is named.

    Raises:
        ParameterError: a value is not allowed, alone or together with another.
    """
    check_choices(values)
    limits = _section(values, "limits") | {"robot": robot or LIMITS[values["robot"]]}
    if values["commander"] == "dry_run":
        # Nobody follows in a dry run; every step is planned from where the arm is.
        limits["drift_patience"] = sys.maxsize
    try:
        control = ControlSettings(
            motion=MotionSettings(**_section(values, "motion")),
            freshness=FreshnessLimits(**_section(values, "max_age")),
            safety=SafetyLimits(**limits),
            look_ahead=LookAheadSettings(**_section(values, "non_blocking")),
            queue=QueueSettings(**_section(values, "queue")),
        )
        search = load_profile(values["search"])
    except ValueError as error:
        raise ParameterError(f"Parameter {error}") from error
    return EpisodeDefaults(
        search_name=values["search"],
        search=search,
        plan_deadline=values["plan_deadline"] or None,
        seed=values["seed"],
        control_mode=values["control_mode"],
        energy_threshold=values["energy_threshold"],
        step_budget=values["step_budget"],
        time_limit=values["time_limit"],
        ready_timeout=values["ready_timeout"],
        control=control,
    )


def _section(values: Mapping[str, Any], section: str) -> dict[str, Any]:
    prefix = f"{section}."
    return {
        name.removeprefix(prefix): _GEOMETRY[name](name, value) if name in _GEOMETRY else value
        for name, value in values.items()
        if name.startswith(prefix)
    }


def _point(name: str, value: Sequence[float]) -> tuple[float, ...]:
    if len(value) != 3:
        raise ParameterError(f"Parameter {name} must hold x, y and z, not {len(value)} numbers.")
    return tuple(value)


def _boxes(name: str, value: Sequence[float]) -> tuple[Any, ...]:
    if list(value) == [0.0]:
        return ()
    if len(value) % 6:
        raise ParameterError(
            f"Parameter {name} must hold six numbers for each box, its lowest corner x, y, z and "
            f"its highest, or a single 0.0 for none; it holds {len(value)}."
        )
    return tuple(
        (_point(name, value[start : start + 3]), _point(name, value[start + 3 : start + 6]))
        for start in range(0, len(value), 6)
    )


_GEOMETRY = {
    "limits.workspace_min": _point,
    "limits.workspace_max": _point,
    "limits.forbidden_boxes": _boxes,
}
