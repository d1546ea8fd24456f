"""The simulated world: a Franka Panda at a table, a cube, and one fixed camera to its left.

The arm's description and meshes come from the installed wheel ``dm-robotics-panda`` (Franka's own
files, Apache-2.0); this module adds what that description leaves out: the hand on the flange,
position actuators, things to collide with, light and surroundings.

The world frame is the robot's base frame: x forward, y left, z up, the table's top at z = 0.
"""

from __future__ import annotations

import importlib.metadata
import math
from pathlib import Path

import mujoco

from jepa_planner_ros.sim.meshes import load_coloured_meshes

ASSETS_PACKAGE = "dm-robotics-panda"
ARM_JOINTS = tuple(f"panda_joint{index}" for index in range(1, 8))
FINGER_JOINTS = ("hand/panda_finger_joint1", "hand/panda_finger_joint2")
HAND_ACTUATOR = "hand/panda_hand_actuator"
"""Its control is the opening, 1 open to 0 closed."""
CAMERA = "camera"
CUBE = "cube"
CUBE_SIZE = 0.044
"""Edge of the cube, m."""
CUBE_REGION_MIN, CUBE_REGION_MAX = (0.35, -0.25), (0.65, 0.25)
"""Corners of the part of the table where the cube may lie, base frame, m."""
TIME_STEP = 0.002
"""s"""
DAMPING_RATIO_TIME = 0.05
"""Damping over stiffness of every joint's servo, s."""
LARGEST_PICTURE = 960
"""Pixels along a side."""

_HAND_PREFIX = "hand/"
_UNSEEN_GROUP = 5
# The gripper is small in the picture and what the eye follows: only the links are simplified.
_KEPT_FACES = {"hand": 0.5, "finger": 1.0}
_KEPT_FACES_OF_LINKS = 0.12

# Stiffness (N m/rad) that follows a smooth target within a millimetre at the fingertips, and
# the torque limits of the real joints (Franka Emika Robot datasheet).
_STIFFNESS = (4500.0, 4500.0, 3500.0, 3500.0, 1500.0, 1500.0, 1500.0)
_TORQUE_LIMITS = (87.0, 87.0, 87.0, 87.0, 12.0, 12.0, 12.0)

_ARMATURE = 0.1  # kg m^2
_FRICTION = 0.1  # N m

CAMERA_POSITION = (1.20, 0.86, 0.78)
"""Where the camera is, base frame, m."""
CAMERA_TARGET = (0.40, -0.02, 0.32)
"""The point in the middle of its picture, base frame, m."""
_CAMERA_FIELD_OF_VIEW = 43.0

_TABLE_COLOUR = (0.70, 0.58, 0.45, 1.0)
_WALL_COLOUR = (0.42, 0.55, 0.62, 1.0)
_FLOOR_COLOUR = (0.30, 0.31, 0.33, 1.0)
_CUBE_COLOUR = (0.80, 0.16, 0.12, 1.0)


def assets_directory() -> Path:
    """Where the installed wheel keeps the Panda's description.

    Raises:
        FileNotFoundError: the wheel is not installed, or holds no description.
    """
    try:
        distribution = importlib.metadata.distribution(ASSETS_PACKAGE)
    except importlib.metadata.PackageNotFoundError as error:
        raise FileNotFoundError(
            f"The simulation takes the Panda's meshes from the wheel {ASSETS_PACKAGE}, which is "
            f"not installed. Run: pip install --no-deps {ASSETS_PACKAGE}==0.4.8"
        ) from error
    directory = Path(str(distribution.locate_file("dm_robotics/panda/assets/panda")))
    if not (directory / "panda.xml").is_file():
        raise FileNotFoundError(
            f"{ASSETS_PACKAGE} {distribution.version} has no {directory}/panda.xml. "
            f"Run: pip install --no-deps {ASSETS_PACKAGE}==0.4.8"
        )
    return directory


def build_model() -> mujoco.MjModel:
    """Compile the world. Takes about two seconds, most of them to simplify the meshes."""
    assets = assets_directory()
    world = mujoco.MjSpec.from_file(str(assets / "panda.xml"))
    hand = mujoco.MjSpec.from_file(str(assets / "panda_hand.xml"))
    for spec in (world, hand):
        _replace_meshes(spec, assets)
        for site in spec.sites:
            site.group = _UNSEEN_GROUP
    _attach_hand(world, hand)
    _actuate_joints(world)
    _add_surroundings(world)
    _add_light_and_camera(world)
    world.option.timestep = TIME_STEP
    world.option.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    return world.compile()


def _replace_meshes(spec: mujoco.MjSpec, assets: Path) -> None:
    """Put simplified, plainly coloured meshes, which only the camera sees, in place of the own."""
    originals = {mesh.name: mesh for mesh in spec.meshes}
    for geom in [geom for geom in spec.geoms if geom.type == mujoco.mjtGeom.mjGEOM_MESH]:
        texture = None if geom.material == "panda_white" else assets / "panda.png"
        path = assets / originals[geom.meshname].file
        keep = _KEPT_FACES.get(path.stem, _KEPT_FACES_OF_LINKS)
        for part in load_coloured_meshes(path, texture, keep):
            colour = "#{:02x}{:02x}{:02x}".format(*part.colour)
            name = f"{path.stem} {colour}"
            if spec.mesh(name) is None:
                spec.add_mesh(
                    name=name,
                    uservert=part.vertices.flatten().tolist(),
                    userface=part.faces.flatten().tolist(),
                    inertia=mujoco.mjtMeshInertia.mjMESH_INERTIA_SHELL,
                )
            if spec.material(colour) is None:
                spec.add_material(
                    name=colour,
                    rgba=[*(channel / 255 for channel in part.colour), 1.0],
                    specular=0.4,
                    shininess=0.4,
                )
            geom.parent.add_geom(
                type=mujoco.mjtGeom.mjGEOM_MESH,
                meshname=name,
                material=colour,
                contype=0,
                conaffinity=0,
                mass=0.0,
            )
        spec.delete(geom)
    for item in (*originals.values(), spec.material("panda"), spec.texture("panda")):
        spec.delete(item)


def _attach_hand(world: mujoco.MjSpec, hand: mujoco.MjSpec) -> None:
    """Mount the hand on the flange, turned by -45 degrees as on the real arm."""
    # MuJoCo makes convex hulls of meshes collide; a box around the hand is as good and faster.
    hand.body("panda_hand").add_geom(
        type=mujoco.mjtGeom.mjGEOM_BOX,
        pos=[0.0, 0.0, 0.033],
        size=[0.032, 0.102, 0.035],
        group=_UNSEEN_GROUP,
        mass=0.0,
    )
    mount = world.body("panda_link8").add_frame(
        quat=[math.cos(math.pi / 8), 0.0, 0.0, -math.sin(math.pi / 8)]
    )
    mount.attach_body(hand.body("panda_hand"), _HAND_PREFIX, "")


def _actuate_joints(world: mujoco.MjSpec) -> None:
    """Position servos, with the inertia and friction of the motors behind their gears."""
    for name, stiffness, torque in zip(ARM_JOINTS, _STIFFNESS, _TORQUE_LIMITS, strict=True):
        joint = world.joint(name)
        joint.armature, joint.frictionloss = _ARMATURE, _FRICTION
        actuator = world.add_actuator(
            name=name,
            target=name,
            trntype=mujoco.mjtTrn.mjTRN_JOINT,
            forcelimited=True,
            forcerange=[-torque, torque],
        )
        actuator.set_to_position(kp=stiffness, kv=DAMPING_RATIO_TIME * stiffness)


def _add_surroundings(world: mujoco.MjSpec) -> None:
    body = world.worldbody
    body.add_geom(
        name="table",
        type=mujoco.mjtGeom.mjGEOM_BOX,
        pos=[0.35, 0.0, -0.03],
        size=[0.60, 0.62, 0.03],
        rgba=_TABLE_COLOUR,
    )
    body.add_geom(
        name="floor",
        type=mujoco.mjtGeom.mjGEOM_PLANE,
        pos=[0.0, 0.0, -0.75],
        size=[4.0, 4.0, 0.1],
        rgba=_FLOOR_COLOUR,
    )
    for name, position, size in (
        ("wall behind", [-1.2, 0.0, 0.5], [0.05, 4.0, 1.3]),
        ("wall right", [0.0, -1.6, 0.5], [4.0, 0.05, 1.3]),
    ):
        body.add_geom(
            name=name,
            type=mujoco.mjtGeom.mjGEOM_BOX,
            pos=position,
            size=size,
            rgba=_WALL_COLOUR,
            contype=0,
            conaffinity=0,
        )
    cube = body.add_body(name=CUBE, pos=[0.5, 0.0, CUBE_SIZE / 2])
    cube.add_freejoint()
    cube.add_geom(
        type=mujoco.mjtGeom.mjGEOM_BOX,
        size=[CUBE_SIZE / 2] * 3,
        rgba=_CUBE_COLOUR,
        mass=0.05,
        condim=4,
        friction=[1.0, 0.01, 0.0001],
    )


def _add_light_and_camera(world: mujoco.MjSpec) -> None:
    headlight = world.visual.headlight
    headlight.ambient = [0.40, 0.40, 0.40]
    headlight.diffuse = [0.18, 0.18, 0.18]
    headlight.specular = [0.0, 0.0, 0.0]
    world.visual.global_.offwidth = world.visual.global_.offheight = LARGEST_PICTURE
    world.visual.quality.shadowsize = 512
    world.visual.quality.offsamples = 0
    # Shadows are drawn within this many metres of the lamp's axis.
    world.stat.extent = 1.0
    world.visual.map.shadowclip = 1.0
    world.worldbody.add_light(
        name="lamp",
        type=mujoco.mjtLightType.mjLIGHT_DIRECTIONAL,
        pos=[0.4, 0.3, 1.8],
        dir=[0.1, -0.25, -1.0],
        diffuse=[0.56, 0.54, 0.50],
        specular=[0.25, 0.25, 0.25],
        castshadow=True,
    )
    body = world.worldbody
    body.add_camera(
        name=CAMERA,
        pos=CAMERA_POSITION,
        quat=_looking_at(CAMERA_POSITION, CAMERA_TARGET),
        fovy=_CAMERA_FIELD_OF_VIEW,
    )


def _looking_at(
    position: tuple[float, float, float], target: tuple[float, float, float]
) -> list[float]:
    """Quaternion [w, x, y, z] of an upright camera, which looks along its own -z."""
    backward = [here - there for here, there in zip(position, target, strict=True)]
    azimuth = math.atan2(backward[1], backward[0])
    elevation = math.atan2(backward[2], math.hypot(backward[0], backward[1]))
    turn, tilt = 0.5 * (azimuth + math.pi / 2), 0.5 * (math.pi / 2 - elevation)
    return [
        math.cos(turn) * math.cos(tilt),
        math.cos(turn) * math.sin(tilt),
        math.sin(turn) * math.sin(tilt),
        math.sin(turn) * math.cos(tilt),
    ]
