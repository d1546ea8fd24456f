"""An arm's geometry and joint limits out of its description, a URDF as text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from xml.etree import ElementTree

import numpy as np
from scipy.spatial.transform import Rotation

from jepa_planner_ros.robot.chain import Chain, transform
from jepa_planner_ros.robot.limits import RobotLimits
from jepa_planner_ros.types import Float64Array

_JOINTS = 7
_REVOLUTE = ("revolute", "continuous")


class DescriptionError(ValueError):
    """A description does not tell what is needed of it; the message says what is missing."""


@dataclass(frozen=True, eq=False)
class _Joint:
    name: str
    kind: str
    parent: str
    child: str
    origin: Float64Array
    axis: Float64Array
    limits: dict[str, float]


def described(urdf: str, robot: RobotLimits, joint_prefix: str, base_frame: str) -> RobotLimits:
    """An arm as its description tells: its own geometry, and the narrower of both joint limits.

    The fingertips are the link ``<arm>_hand_tcp``; where there is none they are where the Franka
    Hand has them.

    Args:
        urdf: the description.
        robot: the arm's model.
        joint_prefix: how the arm's joints are called up to their number.
        base_frame: the link from which the arm is reckoned.

    Raises:
        DescriptionError: it is no URDF, or one of another robot.
    """
    joints = _read_joints(urdf)
    by_child = {joint.child: joint for joint in joints.values()}
    names = [f"{joint_prefix}{index}" for index in range(1, _JOINTS + 1)]
    missing = [name for name in names if name not in joints or joints[name].kind not in _REVOLUTE]
    if missing:
        raise DescriptionError(f"It has no revolute joint {', '.join(missing)}.")
    arm = [joints[name] for name in names]
    links, start, aligned = [], base_frame, np.eye(4)
    for joint in arm:
        turned = _aligning(joint.axis)
        links.append(
            _inverse(aligned) @ _fixed(by_child, start, joint.parent) @ joint.origin @ turned
        )
        start, aligned = joint.child, turned
    tip = f"{joint_prefix.removesuffix('joint')}hand_tcp"
    fingertips = robot.chain.fingertips
    if tip in by_child:
        fingertips = _inverse(aligned) @ _fixed(by_child, start, tip)
    return replace(
        robot,
        joint_min=_narrower(max, arm, "lower", robot.joint_min),
        joint_max=_narrower(min, arm, "upper", robot.joint_max),
        joint_speed=_narrower(min, arm, "velocity", robot.joint_speed),
        chain=Chain(np.array(links), fingertips),
    )


def _read_joints(urdf: str) -> dict[str, _Joint]:
    try:
        root = ElementTree.fromstring(urdf)
        return {joint.get("name", ""): _read_joint(joint) for joint in root.findall("joint")}
    except (ElementTree.ParseError, ValueError) as error:
        raise DescriptionError(f"It cannot be read as URDF: {error}.") from error


def _read_joint(joint: ElementTree.Element) -> _Joint:
    def part(name: str) -> dict[str, str]:
        found = joint.find(name)
        return {} if found is None else dict(found.attrib)

    origin = part("origin")
    turn = Rotation.from_euler("xyz", _three(origin.get("rpy", "0 0 0")))
    x, y, z = _three(origin.get("xyz", "0 0 0"))
    limits = {name: float(value) for name, value in part("limit").items()}
    if np.isnan(list(limits.values())).any():
        raise ValueError(f"a limit of joint '{joint.get('name')}' is no number")
    return _Joint(
        name=joint.get("name", ""),
        kind=joint.get("type", ""),
        parent=part("parent").get("link", ""),
        child=part("child").get("link", ""),
        origin=transform(turn, (x, y, z)),
        axis=np.array(_three(part("axis").get("xyz", "1 0 0"))),
        limits={
            name: float(limits[name]) for name in ("lower", "upper", "velocity") if name in limits
        },
    )


def _three(text: str) -> tuple[float, float, float]:
    numbers = tuple(map(float, text.split()))
    if len(numbers) != 3 or not np.isfinite(numbers).all():
        raise ValueError(f"'{text}' are not three numbers")
    return numbers


def _fixed(by_child: dict[str, _Joint], start: str, end: str) -> Float64Array:
    """The pose (4, 4) of a link in the frame of one above it, with nothing that moves between."""
    pose = np.eye(4)
    link, passed = end, set[str]()
    while link != start:
        joint = by_child.get(link)
        if joint is None or link in passed:
            raise DescriptionError(f"It has no way from link '{start}' to link '{end}'.")
        if joint.kind != "fixed":
            raise DescriptionError(
                f"Joint '{joint.name}' between link '{start}' and link '{end}' is not fixed."
            )
        pose = joint.origin @ pose
        passed.add(link)
        link = joint.parent
    return pose


def _aligning(axis: Float64Array) -> Float64Array:
    """The pose (4, 4) of a frame whose z axis is an axis (3,)."""
    length = float(np.linalg.norm(axis))
    if length == 0.0:
        raise DescriptionError("A joint has no axis.")
    unit = axis / length
    normal = np.array([-unit[1], unit[0], 0.0])
    sine, cosine = float(np.linalg.norm(normal)), float(unit[2])
    if sine < 1e-12:
        turn = Rotation.identity() if cosine > 0.0 else Rotation.from_euler("x", np.pi)
    else:
        turn = Rotation.from_rotvec(normal / sine * np.arctan2(sine, cosine))
    return transform(turn, (0.0, 0.0, 0.0))


def _inverse(pose: Float64Array) -> Float64Array:
    return np.asarray(np.linalg.inv(pose), dtype=np.float64)


def _narrower(
    choose: Callable[[float, float], float],
    arm: Sequence[_Joint],
    name: str,
    known: Sequence[float],
) -> tuple[float, ...]:
    return tuple(
        choose(joint.limits.get(name, own), own) for joint, own in zip(arm, known, strict=True)
    )
