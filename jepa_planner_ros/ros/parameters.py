"""The node's parameters: declared with description, range and unit, read as frozen dataclasses.

What the node is wired to is read-only. What an episode is run with may be changed between
episodes; a change that cannot work is refused with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rcl_interfaces.msg import FloatingPointRange, IntegerRange, ParameterDescriptor
from rclpy.exceptions import InvalidParameterTypeException, InvalidParameterValueException
from rclpy.node import Node
from rclpy.parameter import Parameter

from jepa_planner_ros.control import (
    CONTROL_MODES,
    ControlSettings,
    FreshnessLimits,
    MotionSettings,
    SafetyLimits,
)
from jepa_planner_ros.ros.poses import ControllerFrame
from jepa_planner_ros.search.profiles import (
    DEFAULT_PROFILE,
    load_profile,
    profile_names,
)
from jepa_planner_ros.types import SearchSettings
from jepa_planner_ros.world_model import PRECISIONS
from jepa_planner_ros.world_model.precision import AUTO

PLANNERS = ("local_ray", "in_process")
SERVING_DEVICES = ("auto", "cpu", "cuda")
POSE_SOURCES = ("joint_states", "current_pose")
IMAGE_TRANSPORTS = ("raw", "compressed")


class ParameterError(ValueError):
    """The node cannot run with these parameters; the message says which and what is allowed."""


@dataclass(frozen=True)
class _Declared:
    name: str
    default: Any
    description: str
    bounds: tuple[float, float] | None = None
    choices: Sequence[str] = ()
    read_only: bool = True

    def descriptor(self) -> ParameterDescriptor:
        descriptor = ParameterDescriptor(
            name=self.name, description=self.description, read_only=self.read_only
        )
        if self.choices:
            descriptor.additional_constraints = "One of: " + ", ".join(self.choices)
        if self.bounds is None:
            return descriptor
        low, high = self.bounds
        if isinstance(self.default, int):
            whole = IntegerRange(from_value=int(low), to_value=int(high))
            descriptor.integer_range = [whole]
        else:
            real = FloatingPointRange(from_value=float(low), to_value=float(high))
            descriptor.floating_point_range = [real]
        return descriptor


def _tunable(
    name: str,
    default: Any,
    description: str,
    bounds: tuple[float, float] | None = None,
    choices: Sequence[str] = (),
) -> _Declared:
    return _Declared(name, default, description, bounds, choices, read_only=False)


_MOTION, _FRESHNESS, _SAFETY = MotionSettings(), FreshnessLimits(), SafetyLimits()

PARAMETERS = (
    _Declared(
        "planner",
        "local_ray",
        "Where plans are made: on a Ray cluster of this computer, or in the node's own process.",
        choices=PLANNERS,
    ),
    _Declared(
        "serving.replicas",
        0,
        "Copies of the world model that share a search with planner local_ray. 0: one per GPU, or "
        "two where there is none.",
        bounds=(0, 64),
    ),
    _Declared(
        "serving.device",
        "auto",
        "Where the copies of planner local_ray run: auto takes GPUs where there are any.",
        choices=SERVING_DEVICES,
    ),
    _Declared(
        "serving.start_timeout",
        120.0,
        "Most time for planner local_ray to start, s; a large model takes long to load.",
        bounds=(1.0, 3600.0),
    ),
    _Declared(
        "serving.plan_timeout",
        60.0,
        "Most time for one plan of planner local_ray, s; an episode is aborted beyond it.",
        bounds=(0.1, 3600.0),
    ),
    _Declared(
        "world_model.checkpoint",
        "shipped",
        "Weights: 'shipped', a .safetensors file of 'jepa-planner train', or Meta's "
        "vjepa2-ac-vitg.pt.",
    ),
    _Declared(
        "world_model.device",
        "cpu",
        "Device that encodes the camera frames on board, for instance cpu or cuda.",
    ),
    _Declared(
        "world_model.precision",
        AUTO,
        "Number format of encoder and rollouts: auto is fp16 on GPUs and fp32 on CPUs. bf16 is "
        "faster on CPUs that have it; plans differ a little.",
        choices=(AUTO, *PRECISIONS),
    ),
    _Declared(
        "base_frame", "panda_link0", "Name of the robot's base frame, in which all poses are given."
    ),
    _Declared(
        "joint_prefix",
        "",
        "How the arm's joints are called up to their number, for instance fr3_joint. Empty: looked "
        "for among panda_joint and fr3_joint.",
    ),
    _Declared(
        "pose_source",
        "joint_states",
        "Where the end effector's pose comes from: joint_states by forward kinematics, or the "
        "controller's current_pose.",
        choices=POSE_SOURCES,
    ),
    _Declared(
        "controller_frame",
        ControllerFrame.FINGERTIPS.value,
        "End-effector frame of target_pose and current_pose: fingertips (Franka's own, z out of "
        "the hand) or upright (the same turned by pi about x, as the simulation uses).",
        choices=[frame.value for frame in ControllerFrame],
    ),
    _Declared(
        "image_transport",
        "raw",
        "Camera topic: raw subscribes to image_raw, compressed to image_raw/compressed.",
        choices=IMAGE_TRANSPORTS,
    ),
    _Declared(
        "max_age.camera",
        _FRESHNESS.camera,
        "Largest age of the newest camera frame, s; an episode is aborted beyond it.",
        bounds=(0.01, 60.0),
    ),
    _Declared(
        "max_age.joints",
        _FRESHNESS.joints,
        "Largest age of the newest measured pose, s; an episode is aborted beyond it.",
        bounds=(0.01, 60.0),
    ),
    _Declared(
        "capture.directory",
        "~/.local/share/jepa_planner/goals",
        "Where ~/capture_goal saves goals that are given no path.",
    ),
    _tunable(
        "search",
        DEFAULT_PROFILE,
        "How to look for actions: the name of a profile in config/search, one of "
        f"{', '.join(profile_names())}; or the path of a .yaml file like those.",
    ),
    _tunable(
        "plan_deadline",
        0.0,
        "Time for one plan, s; a search that needs longer returns the best found by then. 0: none, "
        "and the same seed always gives the same plan.",
        bounds=(0.0, 3600.0),
    ),
    _tunable("seed", 0, "Seed of the search's noise.", bounds=(0, 2**63 - 1)),
    _tunable(
        "control_mode",
        "blocking",
        "How planning and motion share the time, where a goal does not say.",
        choices=tuple(CONTROL_MODES),
    ),
    _tunable(
        "energy_threshold",
        0.04,
        "Energy (mean absolute difference of latents) at which a sub-goal is reached, where it "
        "does not say.",
        bounds=(0.0, 10.0),
    ),
    _tunable(
        "step_budget",
        12,
        "Most steps to spend on a sub-goal, where it does not say.",
        bounds=(1, 10_000),
    ),
    _tunable(
        "time_limit",
        120.0,
        "Most time to spend on a goal, s, where it does not say.",
        bounds=(0.1, 86_400.0),
    ),
    _tunable(
        "motion.duration",
        _MOTION.duration,
        "Time that the controller takes for one step, s.",
        bounds=(0.01, 60.0),
    ),
    _tunable(
        "motion.still_time",
        _MOTION.still_time,
        "How long the measured pose must stay within the tolerances to count as still, s.",
        bounds=(0.01, 10.0),
    ),
    _tunable(
        "motion.still_distance",
        _MOTION.still_distance,
        "Largest movement of a still end effector, m.",
        bounds=(1e-6, 0.1),
    ),
    _tunable(
        "motion.still_angle",
        _MOTION.still_angle,
        "Largest rotation of a still end effector, rad.",
        bounds=(1e-6, 1.0),
    ),
    _tunable(
        "motion.time_limit",
        _MOTION.time_limit,
        "The arm must be still this long after a command, s; an episode is aborted beyond it.",
        bounds=(0.1, 600.0),
    ),
    _tunable(
        "limits.step_translation",
        _SAFETY.step_translation,
        "Largest translation of one step along each axis, m.",
        bounds=(1e-4, 0.5),
    ),
    _tunable(
        "limits.step_rotation",
        _SAFETY.step_rotation,
        "Largest rotation of one step, rad.",
        bounds=(1e-3, 3.0),
    ),
    _tunable(
        "limits.workspace_min",
        list(_SAFETY.workspace_min),
        "Lowest corner x, y, z of the box that targets are kept in, base frame, m.",
    ),
    _tunable(
        "limits.workspace_max",
        list(_SAFETY.workspace_max),
        "Highest corner x, y, z of the box that targets are kept in, base frame, m.",
    ),
    _tunable(
        "limits.drift_distance",
        _SAFETY.drift_distance,
        "Distance between the last target and the arm at rest that makes them resynchronise, m.",
        bounds=(1e-4, 1.0),
    ),
    _tunable(
        "limits.drift_angle",
        _SAFETY.drift_angle,
        "Angle between the last target and the arm at rest that makes them resynchronise, rad.",
        bounds=(1e-3, 3.0),
    ),
    _tunable(
        "limits.drift_patience",
        _SAFETY.drift_patience,
        "Steps in a row that may miss their target that far before an episode is aborted.",
        bounds=(1, 100),
    ),
)


@dataclass(frozen=True)
class Wiring:
    """What the node is connected to; fixed while it runs."""

    planner: str
    replicas: int
    serving_device: str
    start_timeout: float
    plan_timeout: float
    checkpoint: str
    device: str
    precision: str
    base_frame: str
    joint_prefix: str
    pose_source: str
    controller_frame: ControllerFrame
    image_transport: str
    capture_directory: Path
    freshness: FreshnessLimits


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
    control: ControlSettings


def declare_parameters(node: Node) -> None:
    """Declare every parameter of the node.

    Raises:
        ParameterError: a given value is of the wrong type or out of range.
    """
    for declared in PARAMETERS:
        try:
            node.declare_parameter(declared.name, declared.default, declared.descriptor())
        except InvalidParameterTypeException as error:
            raise ParameterError(
                f"Parameter {declared.name} must be {_kind(declared.default)}. "
                f"{declared.description}"
            ) from error
        except InvalidParameterValueException as error:
            low, high = declared.bounds or (None, None)
            raise ParameterError(
                f"Parameter {declared.name} must lie between {low} and {high}. "
                f"{declared.description}"
            ) from error


def current_values(node: Node) -> dict[str, Any]:
    """The present value of every parameter."""
    return {declared.name: node.get_parameter(declared.name).value for declared in PARAMETERS}


def changed_values(node: Node, changes: Sequence[Parameter]) -> dict[str, Any]:
    """The value of every parameter after changes."""
    return current_values(node) | {change.name: change.value for change in changes}


def read_wiring(values: Mapping[str, Any]) -> Wiring:
    """What the node is connected to.

    Raises:
        ParameterError: a value is not allowed.
    """
    _check_choices(values)
    return Wiring(
        planner=values["planner"],
        replicas=values["serving.replicas"],
        serving_device=values["serving.device"],
        start_timeout=values["serving.start_timeout"],
        plan_timeout=values["serving.plan_timeout"],
        checkpoint=values["world_model.checkpoint"],
        device=values["world_model.device"],
        precision=values["world_model.precision"],
        base_frame=values["base_frame"],
        joint_prefix=values["joint_prefix"],
        pose_source=values["pose_source"],
        controller_frame=ControllerFrame(values["controller_frame"]),
        image_transport=values["image_transport"],
        capture_directory=Path(values["capture.directory"]).expanduser(),
        freshness=FreshnessLimits(values["max_age.camera"], values["max_age.joints"]),
    )


def read_episode_defaults(values: Mapping[str, Any]) -> EpisodeDefaults:
    """What an episode is run with.

    Raises:
        ParameterError: a value is not allowed, alone or together with another.
    """
    _check_choices(values)
    try:
        control = ControlSettings(
            motion=MotionSettings(**_section(values, "motion")),
            freshness=FreshnessLimits(**_section(values, "max_age")),
            safety=SafetyLimits(**_section(values, "limits")),
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
        control=control,
    )


def _section(values: Mapping[str, Any], section: str) -> dict[str, Any]:
    prefix = f"{section}."
    return {
        name.removeprefix(prefix): _point(name, value) if "workspace" in name else value
        for name, value in values.items()
        if name.startswith(prefix)
    }


def _point(name: str, value: Sequence[float]) -> tuple[float, ...]:
    if len(value) != 3:
        raise ParameterError(f"Parameter {name} must hold x, y and z, not {len(value)} numbers.")
    return tuple(value)


def _check_choices(values: Mapping[str, Any]) -> None:
    for declared in PARAMETERS:
        value = values[declared.name]
        if declared.choices and value not in declared.choices:
            raise ParameterError(
                f"Parameter {declared.name} = '{value}' is unknown; it must be one of: "
                f"{', '.join(declared.choices)}."
            )


def _kind(default: Any) -> str:
    if isinstance(default, float):
        return f"a number with a decimal point, such as {default}"
    if isinstance(default, int):
        return f"a whole number, such as {default}"
    if isinstance(default, list):
        return f"a list of numbers with decimal points, such as {default}"
    return f"a text, such as '{default}'"
