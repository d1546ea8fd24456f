"""Reading the arm and the gripper out of a joint state, whatever else it carries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from jepa_planner_ros.robot.limits import LIMITS, PANDA, RobotLimits
from jepa_planner_ros.types import Float64Array

_JOINTS = 7
_FINGERS = 2
# How far beyond a joint's limits it may be measured, rad.
_RANGE_MARGIN = 0.05


class JointsError(ValueError):
    """A joint state that does not tell where the arm is; the message says what is missing."""


@dataclass(frozen=True, eq=False)
class ArmReading:
    """Where the arm and the gripper are.

    Attributes:
        positions: of the arm's joints (7,), base to flange, rad.
        gripper: closedness, 0 open to 1 closed; None where no finger is reported.
        joint_prefix: how the arm's joints are called, up to their number.
    """

    positions: Float64Array
    gripper: float | None
    joint_prefix: str


def read_arm(
    names: Sequence[str],
    positions: Sequence[float] | Float64Array,
    joint_prefix: str | None = None,
) -> ArmReading:
    """Pick the arm's joints and the fingers out of a joint state.

    Joints may come in any order and among others. A finger left out, as by a gripper that reports
    only one of the two, counts like the other.

    Args:
        names: of the joints.
        positions: of the joints in the order of their names; rad, and m for fingers.
        joint_prefix: how the arm's joints are called up to their number, for example
            ``left_fr3_joint``; None looks for ``panda_joint`` and ``fr3_joint``.

    Raises:
        JointsError: a joint of the arm is missing or not finite, or the names and positions do not
            match.
    """
    if len(names) != len(positions):
        raise JointsError(
            f"The joint state names {len(names)} joints but gives {len(positions)} positions."
        )
    reported = dict(zip(names, map(float, positions), strict=True))
    prefix = _find_prefix(reported, joint_prefix)
    expected = [f"{prefix}{index}" for index in range(1, _JOINTS + 1)]
    missing = [name for name in expected if name not in reported]
    if missing:
        raise JointsError(
            f"The joint state lacks {_listed(missing)}. Expected are {expected[0]} to "
            f"{expected[-1]}; it names {_listed(names) or 'no joint at all'}."
        )
    hand = prefix.removesuffix("joint")
    fingers = [f"{hand}finger_joint{index}" for index in range(1, _FINGERS + 1)]
    reported_fingers = [name for name in fingers if name in reported]
    broken = [name for name in (*expected, *reported_fingers) if not np.isfinite(reported[name])]
    if broken:
        raise JointsError(f"The joint state gives no finite position for {_listed(broken)}.")
    return ArmReading(
        positions=np.array([reported[name] for name in expected]),
        gripper=_closedness([reported[name] for name in reported_fingers]),
        joint_prefix=prefix,
    )


def require_range(positions: Float64Array, limits: RobotLimits) -> None:
    """Refuse positions (7,) in rad that the arm cannot have, as zeros are.

    Raises:
        JointsError: one is outside the limits of its joint.
    """
    for number, (position, low, high) in enumerate(
        zip(positions, limits.joint_min, limits.joint_max, strict=True), start=1
    ):
        if not low - _RANGE_MARGIN <= position <= high + _RANGE_MARGIN:
            raise JointsError(
                f"Joint {number} of robot = {limits.name} cannot be at {position:.2f} rad, but "
                f"from {low:.2f} to {high:.2f}: check that robot names the arm that is there."
            )


def _find_prefix(reported: dict[str, float], joint_prefix: str | None) -> str:
    if joint_prefix is not None:
        return joint_prefix
    known = [limits.joint_prefix for limits in LIMITS.values()]
    present = [
        prefix
        for prefix in known
        if any(f"{prefix}{index}" in reported for index in range(1, _JOINTS + 1))
    ]
    if len(present) > 1:
        raise JointsError(
            f"The joint state names the joints of several arms, {_listed(present)}. "
            "Say with the joint prefix which one to move."
        )
    if not present:
        raise JointsError(
            f"The joint state names no Franka arm: expected are {known[0]}1 to {known[0]}7 or "
            f"{known[1]}1 to {known[1]}7, or another joint prefix to be given. "
            f"It names {_listed(tuple(reported)) or 'no joint at all'}."
        )
    return present[0]


def _closedness(fingers: Sequence[float]) -> float | None:
    """How far closed the fingers are, from how far each is open in m."""
    if not fingers:
        return None
    opening = float(np.mean(fingers)) / PANDA.finger_travel
    return float(np.clip(1.0 - opening, 0.0, 1.0))


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names)
