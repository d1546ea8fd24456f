"""The node's parameters, each with its default, description, range and unit.

What the node is wired to is read-only. What an episode is run with may be changed between
episodes. ``ros/settings.py`` reads their values, and says which cannot work together.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from rcl_interfaces.msg import FloatingPointRange, IntegerRange, ParameterDescriptor
from rclpy.node import Node
from rclpy.parameter import Parameter

from jepa_planner_ros.control import (
    CONTROL_MODES,
    FreshnessLimits,
    LookAheadSettings,
    MotionSettings,
    QueueSettings,
    SafetyLimits,
)
from jepa_planner_ros.control.action_queue import MERGE_RULES
from jepa_planner_ros.robot.limits import LIMITS
from jepa_planner_ros.ros.commander import COMMANDERS
from jepa_planner_ros.ros.declaration import ParameterError, declare
from jepa_planner_ros.ros.gripper import GRIPPERS
from jepa_planner_ros.ros.poses import ControllerFrame
from jepa_planner_ros.search.profiles import DEFAULT_PROFILE, profile_names
from jepa_planner_ros.serving import LatentPrecision
from jepa_planner_ros.world_model import PRECISIONS
from jepa_planner_ros.world_model.precision import AUTO

PLANNERS = ("local_ray", "in_process", "remote")
ENCODERS = ("onboard", "remote")
SERVING_DEVICES = ("auto", "cpu", "cuda")
POSE_SOURCES = ("joint_states", "current_pose")
IMAGE_TRANSPORTS = ("raw", "compressed")
SAFETY_SECTIONS = ("limits", "motion", "max_age")
"""Sections of parameters that safety depends on."""


@dataclass(frozen=True)
class _Declared:
    name: str
    default: Any
    description: str
    bounds: tuple[float, float] | None = None
    choices: Collection[str] = ()
    """Asked anew each time: a registry may grow."""
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
    choices: Collection[str] = (),
) -> _Declared:
    return _Declared(name, default, description, bounds, choices, read_only=False)


_MOTION, _FRESHNESS, _SAFETY = MotionSettings(), FreshnessLimits(), SafetyLimits()
_LOOK_AHEAD, _QUEUE = LookAheadSettings(), QueueSettings()

PARAMETERS = (
    _Declared(
        "planner",
        "local_ray",
        "Where plans are made: on a Ray cluster of this computer, in the node's own process, or by "
        "a planner that 'jepa-planner serve' has started somewhere.",
        choices=PLANNERS,
    ),
    _Declared(
        "planner_address",
        "",
        "Where planner remote is: grpc://HOST:PORT, or grpcs:// through a proxy with TLS.",
    ),
    _Declared(
        "planner_token_file",
        "",
        "File with the token that planner remote asks for. Empty: none is sent.",
    ),
    _Declared(
        "planner_ca_file",
        "",
        "Certificate (PEM) that vouches for planner remote's proxy. Empty: those that the system "
        "trusts.",
    ),
    _Declared(
        "planner_certificate_file",
        "",
        "The robot's own certificate (PEM), where planner remote's proxy asks for one.",
    ),
    _Declared("planner_key_file", "", "Private key (PEM) of planner_certificate_file."),
    _Declared(
        "planner_latents",
        "float32",
        "Number format of latents on their way to planner remote: exact, or float16 in half the "
        "bytes.",
        choices=get_args(LatentPrecision),
    ),
    _Declared(
        "encode",
        "onboard",
        "Where camera frames are encoded: on board, or by planner remote, which is sent each frame "
        "then; the node loads no world model.",
        choices=ENCODERS,
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
        "Most time for planner local_ray to start, or for planner remote to answer at first, s; a "
        "large model takes long to load.",
        bounds=(1.0, 3600.0),
    ),
    _Declared(
        "serving.plan_timeout",
        60.0,
        "Most time for one plan of planner local_ray or remote, s; beyond it the arm looks again "
        "and asks anew, within the goal's time limit. Planner remote takes 600 s at most.",
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
        "robot",
        _SAFETY.robot.name,
        "The model of arm, whose own limits hold besides those set here.",
        choices=tuple(LIMITS),
    ),
    _Declared(
        "commander",
        "crisp",
        "Controllers to command: CRISP's Cartesian impedance (target_pose), MoveIt Servo by poses "
        "(servo_node/pose_target_cmds) or by velocities (servo_node/delta_twist_cmds), a "
        "joint_trajectory_controller, or none: dry_run publishes on ~/would_command what would be "
        "commanded.",
        choices=COMMANDERS,
    ),
    _Declared(
        "gripper",
        "position",
        "Gripper to command: by its position on gripper/gripper_position_controller/commands, "
        "Franka's own by its actions (franka_msgs), one by the action of control_msgs, or none.",
        choices=GRIPPERS,
    ),
    _Declared(
        "setpoint_rate",
        50.0,
        "Setpoints per second on the way to a target, Hz, within the limits of speed, acceleration "
        "and jerk: 20 or more. 0: the target itself is sent at once, to a controller that finds "
        "its own way.",
        bounds=(0.0, 1000.0),
    ),
    _Declared(
        "enabled",
        True,
        "Whether the arm may move before ~/enable is called.",
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
        "non_blocking",
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
        "ready_timeout",
        10.0,
        "How long a goal waits at its beginning until camera and joints are fresh and a controller "
        "listens, s; a node that has just been started takes seconds to find them.",
        bounds=(0.0, 600.0),
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
        "motion.watchdog",
        _MOTION.watchdog,
        "The arm brakes when the control loop has not been heard of for this long, s.",
        bounds=(0.05, 10.0),
    ),
    _tunable(
        "non_blocking.look_from",
        _LOOK_AHEAD.look_from,
        "Part of a motion's duration after which frames count as showing the arrival.",
        bounds=(0.01, 1.0),
    ),
    _tunable(
        "non_blocking.use_distance",
        _LOOK_AHEAD.use_distance,
        "A plan made from a prediction is used as it is when the arm arrives this near to it, m; "
        "beyond, it is corrected.",
        bounds=(1e-4, 1.0),
    ),
    _tunable(
        "non_blocking.use_angle",
        _LOOK_AHEAD.use_angle,
        "The same for the angle, rad.",
        bounds=(1e-3, 3.0),
    ),
    _tunable(
        "non_blocking.redo_latent",
        _LOOK_AHEAD.redo_latent,
        "Mean absolute difference of predicted and seen latents from which a plan is redone.",
        bounds=(1e-3, 100.0),
    ),
    _tunable(
        "queue.chunk",
        _QUEUE.chunk,
        "Actions that a plan of control mode queue looks ahead.",
        bounds=(1, 16),
    ),
    _tunable(
        "queue.threshold",
        _QUEUE.threshold,
        "A plan is asked for when the queue holds this part of a chunk or less. 0: when it is "
        "empty, 1: at every step.",
        bounds=(0.0, 1.0),
    ),
    _tunable(
        "queue.merge",
        _QUEUE.merge,
        "How targets of one timestep in the queue and in a new chunk become one.",
        choices=MERGE_RULES,
    ),
    _tunable(
        "queue.similar_distance",
        _QUEUE.similar_distance,
        "With targets waiting, an observation nearer than this to the one last planned from is not "
        "planned from, m. 0: all are.",
        bounds=(0.0, 0.1),
    ),
    _tunable(
        "queue.similar_angle",
        _QUEUE.similar_angle,
        "The same for the angle, rad; both must be nearer.",
        bounds=(0.0, 1.0),
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
        "limits.forbidden_boxes",
        [0.0],
        "Boxes that the end effector keeps out of, base frame, m: six numbers for each, its lowest "
        "corner x, y, z and its highest. A single 0.0: none.",
    ),
    _tunable(
        "limits.clearance",
        _SAFETY.clearance,
        "How far before a forbidden box the end effector stops, m.",
        bounds=(1e-4, 0.5),
    ),
    _tunable(
        "limits.translation_speed",
        _SAFETY.translation_speed,
        "Largest speed of the end effector, m/s.",
        bounds=(1e-3, 3.0),
    ),
    _tunable(
        "limits.translation_acceleration",
        _SAFETY.translation_acceleration,
        "Largest acceleration of the end effector, m/s^2.",
        bounds=(1e-2, 13.0),
    ),
    _tunable(
        "limits.translation_jerk",
        _SAFETY.translation_jerk,
        "Largest jerk of the end effector, m/s^3.",
        bounds=(0.1, 6500.0),
    ),
    _tunable(
        "limits.rotation_speed",
        _SAFETY.rotation_speed,
        "Largest angular speed of the end effector, rad/s.",
        bounds=(1e-3, 2.5),
    ),
    _tunable(
        "limits.rotation_acceleration",
        _SAFETY.rotation_acceleration,
        "Largest angular acceleration of the end effector, rad/s^2.",
        bounds=(1e-2, 25.0),
    ),
    _tunable(
        "limits.rotation_jerk",
        _SAFETY.rotation_jerk,
        "Largest angular jerk of the end effector, rad/s^3.",
        bounds=(0.1, 12500.0),
    ),
    _tunable(
        "limits.joint_margin",
        _SAFETY.joint_margin,
        "How far from its limits every joint stays, rad.",
        bounds=(1e-3, 1.0),
    ),
    _tunable(
        "limits.lag_distance",
        _SAFETY.lag_distance,
        "Distance of the moving arm from its setpoint at which it is no longer pushed on, m.",
        bounds=(1e-3, 1.0),
    ),
    _tunable(
        "limits.lag_angle",
        _SAFETY.lag_angle,
        "Angle of the moving arm from its setpoint at which it is no longer pushed on, rad.",
        bounds=(1e-2, 3.0),
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
        "Steps in a row that may miss their target that far, or leave the arm standing, before an "
        "episode is aborted.",
        bounds=(1, 100),
    ),
)


def declare_parameters(node: Node) -> None:
    """Declare every parameter of the node.

    Raises:
        ParameterError: a given value is of the wrong type or out of range.
    """
    for declared in PARAMETERS:
        declare(node, declared.name, declared.default, declared.descriptor())


def current_values(node: Node) -> dict[str, Any]:
    """The present value of every parameter."""
    return {declared.name: node.get_parameter(declared.name).value for declared in PARAMETERS}


def changed_values(node: Node, changes: Sequence[Parameter]) -> dict[str, Any]:
    """The value of every parameter after changes."""
    return current_values(node) | {change.name: change.value for change in changes}


def check_choices(values: Mapping[str, Any]) -> None:
    """Raise ParameterError when a value is none of those that its parameter knows."""
    for declared in PARAMETERS:
        value = values[declared.name]
        if declared.choices and value not in declared.choices:
            raise ParameterError(
                f"Parameter {declared.name} = '{value}' is unknown; it must be one of: "
                f"{', '.join(declared.choices)}."
            )
