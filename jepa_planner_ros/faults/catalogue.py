"""What can go wrong around the planner, each fault by its name."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np
from numpy.typing import NDArray
from sensor_msgs.msg import Image, JointState

from jepa_planner_ros.control import Outcome
from jepa_planner_ros.ros.clock import nanoseconds, stamp_message
from jepa_planner_ros.ros.images import decode_image

JointFault = Callable[[JointState], JointState | None]
"""Makes of a joint state what is received instead; None: nothing."""
ImageFault = Callable[[Image], Image | None]
"""Makes of a camera frame what is received instead; None: nothing."""

_SECOND = 1_000_000_000
_FUTURE, _SET_BACK = 30 * _SECOND, -30 * _SECOND
_PADDING = 24  # bytes
# Of a joint: rad, in one of so many periods in ns.
_SPIKE, _SPIKE_PERIOD, _SPIKE_EVERY = 0.6, _SECOND // 100, 11


class Interference(Enum):
    """What a client or an operator does while a goal is pursued."""

    NONE = "nothing"
    SECOND_GOAL = "sends another goal"
    CANCEL = "cancels the goal"
    CANCEL_IN_MOTION = "cancels while the arm moves"
    CHANGE_PARAMETERS = "changes parameters"
    DISABLE = "disables motion"
    INTERRUPT = "interrupts the node while the arm moves"


ENDS_BY_ITSELF = frozenset({Outcome.REACHED, Outcome.BUDGET_SPENT})
_ABORTS = frozenset({Outcome.ABORTED})
_CANCELLED = frozenset({Outcome.CANCELLED})


@dataclass(frozen=True)
class Fault:
    """One thing that goes wrong.

    Attributes:
        text: in words.
        outcomes: those that are right for an episode that it strikes early.
        joints: what becomes of joint states.
        images: what becomes of camera frames.
        obeyed: whether commands come to the controller.
        interference: what others do.
        closes_gripper: whether the goal asks the gripper to close.
        plans_slowly: whether a plan takes a second or more.
    """

    text: str
    outcomes: frozenset[Outcome] = _ABORTS
    joints: JointFault = lambda message: message
    images: ImageFault = lambda message: message
    obeyed: bool = True
    interference: Interference = Interference.NONE
    closes_gripper: bool = False
    plans_slowly: bool = False


# --- Joint states --------------------------------------------------------------------------------


def _joints(message: JointState, keep: Callable[[str], bool], backwards: bool) -> JointState:
    chosen = [index for index, name in enumerate(message.name) if keep(name)]
    order = chosen[::-1] if backwards else chosen
    return JointState(
        header=message.header,
        name=[message.name[index] for index in order],
        position=[message.position[index] for index in order],
    )


def _reordered(message: JointState) -> JointState:
    shuffled = _joints(message, lambda name: True, backwards=True)
    return JointState(
        header=message.header,
        name=["a_turntable", *shuffled.name],
        position=[math.pi, *shuffled.position],
    )


def _without_velocities(message: JointState) -> JointState:
    return _joints(message, lambda name: True, backwards=False)


def _without_fingers(message: JointState) -> JointState:
    return _joints(message, lambda name: "finger" not in name, backwards=False)


def _without_fourth(message: JointState) -> JointState:
    return _joints(message, lambda name: not name.endswith("_joint4"), backwards=False)


def _not_finite(message: JointState) -> JointState:
    changed = _without_velocities(message)
    changed.position[3] = math.nan
    return changed


def _zeroed(message: JointState) -> JointState:
    changed = _without_velocities(message)
    changed.position = [0.0] * len(changed.position)
    return changed


def _spiked(message: JointState) -> JointState:
    changed = _without_velocities(message)
    if nanoseconds(message.header.stamp) // _SPIKE_PERIOD % _SPIKE_EVERY == 0:
        changed.position = [position + _SPIKE for position in changed.position]
    return changed


class _FrozenJoints:
    """The first joint state again and again, with the stamps of those that should have come."""

    def __init__(self) -> None:
        self._first: JointState | None = None

    def __call__(self, message: JointState) -> JointState:
        self._first = self._first or message
        return JointState(
            header=message.header, name=self._first.name, position=self._first.position
        )


# --- Camera frames -------------------------------------------------------------------------------


def _image(message: Image, pixels: NDArray[np.uint8], encoding: str) -> Image:
    height, width = pixels.shape[:2]
    return Image(
        header=message.header,
        height=height,
        width=width,
        encoding=encoding,
        step=pixels.nbytes // height,
        data=array("B", np.ascontiguousarray(pixels).tobytes()),
    )


def _padded(message: Image) -> Image:
    rows = np.frombuffer(message.data, np.uint8).reshape(message.height, message.step)
    padded = np.pad(rows, ((0, 0), (0, _PADDING)), constant_values=255)
    changed = _image(message, padded, message.encoding)
    changed.width = message.width
    return changed


def _blue_first(message: Image) -> Image:
    return _image(message, decode_image(message)[..., ::-1], "bgr8")


def _with_alpha(message: Image) -> Image:
    return _image(message, np.pad(decode_image(message), ((0, 0), (0, 0), (0, 1))), "rgba8")


def _grey(message: Image) -> Image:
    return _image(message, decode_image(message).mean(axis=2).astype(np.uint8), "mono8")


def _turned(message: Image) -> Image:
    return _image(message, np.rot90(decode_image(message)), "rgb8")


def _upside_down(message: Image) -> Image:
    return _image(message, decode_image(message)[::-1, ::-1], "rgb8")


def _depth(message: Image) -> Image:
    changed = _padded(message)
    changed.encoding = "32FC1"
    return changed


def _cut_short(message: Image) -> Image:
    changed = _padded(message)
    changed.data = changed.data[: len(changed.data) // 2]
    return changed


class _FrozenCamera:
    """The first frame again and again, with the stamps of those that should have come."""

    def __init__(self) -> None:
        self._first: Image | None = None

    def __call__(self, message: Image) -> Image:
        self._first = self._first or message
        return Image(
            header=message.header,
            height=self._first.height,
            width=self._first.width,
            encoding=self._first.encoding,
            step=self._first.step,
            data=self._first.data,
        )


# --- Both ----------------------------------------------------------------------------------------


def _nothing(message: object) -> None:
    return None


def _stamped(shift: int | None) -> Callable[[Image | JointState], Image | JointState]:
    """Moves stamps by nanoseconds; None takes them away."""

    def change(message: Image | JointState) -> Image | JointState:
        stamp = 0 if shift is None else nanoseconds(message.header.stamp) + shift
        message.header.stamp = stamp_message(stamp)
        return message

    return change


FAULTS: Mapping[str, Fault] = {
    "none": Fault("nothing goes wrong", ENDS_BY_ITSELF),
    "joints_in_any_order": Fault(
        "joints come backwards, with another among them", ENDS_BY_ITSELF, joints=_reordered
    ),
    "joints_without_velocities": Fault(
        "joint states have no velocities", ENDS_BY_ITSELF, joints=_without_velocities
    ),
    "joints_not_finite": Fault("a joint is NaN", joints=_not_finite),
    "joints_at_zero": Fault("all joints are at zero", joints=_zeroed),
    "joints_spiked": Fault(
        "now and then a joint state is far from all others", ENDS_BY_ITSELF, joints=_spiked
    ),
    "joints_incomplete": Fault("a joint is missing", joints=_without_fourth),
    "joints_frozen": Fault(
        "the same joint positions come with fresh stamps", joints=_FrozenJoints()
    ),
    "joints_silent": Fault("joint states stop", joints=_nothing),
    "joints_unstamped": Fault("joint states have no stamp", joints=_stamped(None)),
    "gripper_absent": Fault(
        "no fingers are reported, and the goal closes them",
        ENDS_BY_ITSELF,
        joints=_without_fingers,
        closes_gripper=True,
    ),
    "frames_padded": Fault("the rows of frames are padded", ENDS_BY_ITSELF, images=_padded),
    "frames_blue_first": Fault("frames come as bgr8", ENDS_BY_ITSELF, images=_blue_first),
    "frames_with_alpha": Fault("frames come as rgba8", ENDS_BY_ITSELF, images=_with_alpha),
    "frames_grey": Fault("frames come as mono8", ENDS_BY_ITSELF, images=_grey),
    "frames_turned": Fault("the camera is turned by 90 degrees", ENDS_BY_ITSELF, images=_turned),
    "frames_upside_down": Fault("the camera hangs head down", ENDS_BY_ITSELF, images=_upside_down),
    "frames_of_depth": Fault("frames are depth images", images=_depth),
    "frames_cut_short": Fault("frames lack half of their bytes", images=_cut_short),
    "frames_silent": Fault("frames stop", images=_nothing),
    "frames_unstamped": Fault("frames have no stamp", images=_stamped(None)),
    "frames_from_the_future": Fault("frames are stamped ahead", images=_stamped(_FUTURE)),
    "camera_frozen": Fault("the same frame comes with fresh stamps", images=_FrozenCamera()),
    "clock_set_back": Fault(
        "the robot's clock is set back", joints=_stamped(_SET_BACK), images=_stamped(_SET_BACK)
    ),
    "controller_deaf": Fault(
        "the controller ignores commands",
        # After one step or two it cannot be told from an arm that was held back, and each of them
        # is waited for.
        _ABORTS | {Outcome.BUDGET_SPENT, Outcome.TIMED_OUT},
        obeyed=False,
    ),
    "second_goal": Fault(
        "another goal is sent", ENDS_BY_ITSELF, interference=Interference.SECOND_GOAL
    ),
    "cancelled": Fault("the goal is cancelled", _CANCELLED, interference=Interference.CANCEL),
    "cancelled_while_planning": Fault(
        "the goal is cancelled while a plan is made, which comes after that",
        _CANCELLED,
        interference=Interference.CANCEL,
        plans_slowly=True,
    ),
    "cancelled_in_motion": Fault(
        "the goal is cancelled while the arm moves",
        _CANCELLED,
        interference=Interference.CANCEL_IN_MOTION,
    ),
    "parameters_changed": Fault(
        "parameters are changed", ENDS_BY_ITSELF, interference=Interference.CHANGE_PARAMETERS
    ),
    "motion_disabled": Fault("motion is disabled", interference=Interference.DISABLE),
    "node_interrupted": Fault(
        "the node is interrupted while the arm moves",
        _CANCELLED,
        interference=Interference.INTERRUPT,
    ),
}


def anew(fault: Fault) -> Fault:
    """The fault for another episode; one that remembers has forgotten."""
    if isinstance(fault.joints, _FrozenJoints):
        return replace(fault, joints=_FrozenJoints())
    if isinstance(fault.images, _FrozenCamera):
        return replace(fault, images=_FrozenCamera())
    return fault
