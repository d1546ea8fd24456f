"""A Franka Panda in physics simulation that follows Cartesian targets.

The controller draws a minimum-jerk path from the present motion to the target, solves the inverse
kinematics along it, and sets the joints that result as goals of the position servos.

States are ``[x, y, z, roll, pitch, yaw, gripper]`` of the *upright* fingertip frame (see
`jepa_planner_ros.robot.kinematics`) in the robot's base frame: a gripper that points down with the
hand's x forward has roll = pitch = yaw = 0.

The same settings, seed and calls give bit-identical states and frames.
"""

from __future__ import annotations

from dataclasses import dataclass

import mujoco
import numpy as np
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from jepa_planner_ros.geometry import GRIPPER, POSITION, ROTATION, action_between, apply_action
from jepa_planner_ros.robot.kinematics import HOME_JOINTS, InverseKinematics, end_effector_state
from jepa_planner_ros.robot.limits import PANDA
from jepa_planner_ros.robot.motion import Reference, shortest_duration
from jepa_planner_ros.sim import scene
from jepa_planner_ros.sim.minimum_jerk import MinimumJerkMotion
from jepa_planner_ros.types import Float64Array

Image = NDArray[np.uint8]

CONTROL_PERIOD = 0.01
"""s; the controller sets new joint targets this often."""

_STEPS_PER_CONTROL_PERIOD = round(CONTROL_PERIOD / scene.TIME_STEP)
_IK_ITERATIONS_PER_PERIOD = 4
_REACH_TOLERANCE = 1e-3  # m and rad
_REACH_BISECTIONS = 6
_LONGEST_JOINT_STEP = np.array(PANDA.joint_speed) * CONTROL_PERIOD
_SETTLED_SPEED = 2e-3  # rad/s and m/s
_LONGEST_SETTLING = 1.0  # s


@dataclass(frozen=True)
class SimSettings:
    """What is physical and what is random about the simulated robot."""

    motion_duration_s: float = 0.25
    """Time from one target to the next; stretched where the speed or acceleration limit asks."""
    execution_noise_m: float = 0.0
    """Standard deviation, along each axis, of the error of every target that arrives."""
    translation_speed: float = 0.8
    """Limit, m/s."""
    translation_acceleration: float = 8.0
    """Limit, m/s^2."""
    rotation_speed: float = 2.0
    """Limit, rad/s."""
    rotation_acceleration: float = 20.0
    """Limit, rad/s^2."""
    workspace_min: tuple[float, float, float] = (0.35, -0.25, 0.12)
    """Lower corner of the box that seeded fingertip positions come from, base frame, m."""
    workspace_max: tuple[float, float, float] = (0.65, 0.25, 0.45)
    """Upper corner of the box, m."""
    start_yaw_rad: float = 0.0
    """Seeded starts turn the gripper by up to this much either way."""
    camera_jitter_m: float = 0.0
    """Standard deviation of the camera's position along each axis at a reset."""
    light_jitter: float = 0.0
    """Largest relative change of the lamp's brightness at a reset; its direction changes too."""

    def __post_init__(self) -> None:
        for name in (
            "motion_duration_s",
            "translation_speed",
            "translation_acceleration",
            "rotation_speed",
            "rotation_acceleration",
        ):
            if not getattr(self, name) > 0.0:
                raise ValueError(f"{name} = {getattr(self, name)} must be greater than 0.")
        for name in ("execution_noise_m", "start_yaw_rad", "camera_jitter_m", "light_jitter"):
            if not getattr(self, name) >= 0.0:
                raise ValueError(f"{name} = {getattr(self, name)} must not be negative.")
        if not np.less(self.workspace_min, self.workspace_max).all():
            raise ValueError(
                f"workspace_min {self.workspace_min} must be below workspace_max "
                f"{self.workspace_max} on every axis."
            )


@dataclass(frozen=True, eq=False)
class JointReading:
    """What a joint state broadcaster reports: the arm's seven joints, then the two fingers."""

    names: tuple[str, ...]
    positions: Float64Array
    """(9,), rad and for the fingers m."""
    velocities: Float64Array
    """(9,), rad/s and for the fingers m/s."""


class FrankaSim:
    """The simulated robot. One instance belongs to one thread: its OpenGL context does.

    Args:
        settings: physics and randomisation.
        seed: seed of the first `reset`.
        model: a compiled world to simulate, from `scene.build_model`; built when None.
    """

    def __init__(
        self,
        settings: SimSettings = SimSettings(),
        seed: int = 0,
        model: mujoco.MjModel | None = None,
    ) -> None:
        self.settings = settings
        self._model = scene.build_model() if model is None else model
        self._data = mujoco.MjData(self._model)
        self._inverse_kinematics = InverseKinematics()
        self._renderers: dict[tuple[int, int], mujoco.Renderer] = {}

        joints = [self._model.joint(name) for name in scene.ARM_JOINTS + scene.FINGER_JOINTS]
        self._positions = np.array([joint.qposadr[0] for joint in joints])
        self._velocities = np.array([joint.dofadr[0] for joint in joints])
        self._arm_controls = [self._model.actuator(name).id for name in scene.ARM_JOINTS]
        self._gripper_control = self._model.actuator(scene.HAND_ACTUATOR).id
        self._nominal_camera = self._model.cam_pos.copy()
        self._nominal_lamp = self._model.light_diffuse.copy(), self._model.light_dir.copy()

        self._target: Float64Array
        self._error: Float64Array
        self._joint_targets: Float64Array
        self._origin: Reference
        self._motion: MinimumJerkMotion
        self._joint_path: _JointPath | None
        self.reset(seed)

    def reset(self, seed: int, world_seed: int | None = None) -> Float64Array:
        """Start over: cube, camera, light and arm as `seed` says. Returns the state (7,).

        Args:
            seed: of everything that is random.
            world_seed: cube, camera and light as another seed has them; None as `seed` has them.
        """
        world, start, execution = np.random.default_rng(seed).spawn(3)
        if world_seed is not None:
            world = np.random.default_rng(world_seed).spawn(1)[0]
        self._execution = execution
        mujoco.mj_resetData(self._model, self._data)
        self._vary_world(world)
        settings = self.settings
        yaw = start.uniform(-settings.start_yaw_rad, settings.start_yaw_rad)
        position = start.uniform(settings.workspace_min, settings.workspace_max)
        return self.place(np.array([*position, 0.0, 0.0, yaw, 0.0]))

    def place(self, state: Float64Array) -> Float64Array:
        """Put the arm at a state (7,) at once, at rest, and let it settle. Returns the state (7,).

        Raises:
            ValueError: the arm cannot reach it, or it is not finite.
        """
        _require_finite(state)
        joints = self._joints_reaching(state, HOME_JOINTS)
        if joints is None:
            raise ValueError(
                f"The arm cannot reach {np.round(state, 3).tolist()} "
                "([x, y, z] in m, [roll, pitch, yaw] in rad, gripper closedness)."
            )
        fingers = np.full(2, PANDA.finger_travel * (1.0 - state[GRIPPER]))
        self._data.qpos[self._positions] = np.concatenate((joints, fingers))
        self._data.qvel[:] = 0.0
        self._joint_targets = joints
        self._hold(state)
        mujoco.mj_forward(self._model, self._data)
        self.settle()
        return self.state

    @property
    def state(self) -> Float64Array:
        """The measured end-effector state (7,) in the base frame."""
        positions = self._data.qpos[self._positions]
        opening = positions[7:].sum() / (2.0 * PANDA.finger_travel)
        return end_effector_state(positions[:7], float(np.clip(1.0 - opening, 0.0, 1.0)))

    @property
    def target(self) -> Float64Array:
        """The last commanded state (7,), without the execution error."""
        return self._target.copy()

    @property
    def joints(self) -> JointReading:
        """The measured joints."""
        return JointReading(
            names=scene.ARM_JOINTS + tuple(name.split("/")[-1] for name in scene.FINGER_JOINTS),
            positions=self._data.qpos[self._positions].copy(),
            velocities=self._data.qvel[self._velocities].copy(),
        )

    @property
    def cube_position(self) -> Float64Array:
        """Centre of the cube (3,) in the base frame, m."""
        position: Float64Array = self._data.body(scene.CUBE).xpos.copy()
        return position

    @property
    def moving(self) -> bool:
        """Whether the arm is on its way to a target, or anything in the scene not yet at rest."""
        under_way = self._motion_time < self._motion.duration
        return under_way or bool(np.abs(self._data.qvel).max() > _SETTLED_SPEED)

    def set_target(self, state: Float64Array) -> None:
        """Command a state (7,) in the base frame; `advance` makes the arm go there.

        Every new pose gets an execution error of its own; repeating the last one, or changing the
        gripper only, keeps the error as it is. Towards a pose out of reach the arm goes as far as
        it can on the straight line.

        Raises:
            ValueError: the state is not finite.
        """
        _require_finite(state)
        if self._joint_path is not None:
            self._hold(end_effector_state(self._joint_targets, self._target[GRIPPER]))
        if not np.array_equal(state[:GRIPPER], self._target[:GRIPPER]):
            self._error = self._execution.normal(0.0, self.settings.execution_noise_m, 3)
        reference, velocity, acceleration = self._reference()
        turn = Rotation.from_euler("xyz", state[ROTATION]) * reference.rotation.inv()
        distance = np.concatenate(
            (
                state[POSITION] + self._error - reference.position,
                turn.as_rotvec(),
                [np.clip(state[GRIPPER], 0.0, 1.0) - reference.gripper],
            )
        )
        distance[:GRIPPER] *= self._reachable_share(reference, distance)
        settings = self.settings
        duration = max(
            settings.motion_duration_s,
            shortest_duration(
                float(np.linalg.norm(distance[POSITION])),
                settings.translation_speed,
                settings.translation_acceleration,
            ),
            shortest_duration(
                float(np.linalg.norm(distance[ROTATION])),
                settings.rotation_speed,
                settings.rotation_acceleration,
            ),
        )
        self._target = np.array(state, dtype=np.float64)
        self._origin = reference
        self._motion = MinimumJerkMotion(distance, duration, velocity, acceleration)
        self._motion_time = 0.0

    def follow_joints(self, times: Float64Array, positions: Float64Array) -> None:
        """Command a path of the arm's joints, as a trajectory controller does.

        It begins at the present joint targets; between its points they are interpolated linearly.

        Args:
            times: (n,), each later than the one before, the first later than now, s from now.
            positions: (n, 7), rad.

        Raises:
            ValueError: the path is none, or leads beyond the joints' limits.
        """
        wrong = (
            positions.shape != (len(times), 7)
            or len(times) == 0
            or not (np.isfinite(times).all() and np.isfinite(positions).all())
            or not (np.diff(times, prepend=0.0) > 0.0).all()
        )
        if wrong or (positions < PANDA.joint_min).any() or (positions > PANDA.joint_max).any():
            raise ValueError(
                "A path has seven finite joint positions, within their limits, at each of its "
                "times, which increase from above 0."
            )
        path = _JointPath(
            np.concatenate(([0.0], times)), np.concatenate(([self._joint_targets], positions))
        )
        self._hold(end_effector_state(positions[-1], self._target[GRIPPER]))
        still = np.zeros(7)
        self._motion = MinimumJerkMotion(still, float(times[-1]), still, still)
        self._joint_path = path

    def advance(self, seconds: float) -> None:
        """Simulate for `seconds`, rounded to whole control periods of 10 ms."""
        lead = scene.DAMPING_RATIO_TIME / CONTROL_PERIOD
        for _ in range(round(seconds / CONTROL_PERIOD)):
            self._motion_time += CONTROL_PERIOD
            reference, _, _ = self._reference()
            wanted = self._wanted_joints(reference)
            step = wanted - self._joint_targets
            step /= max(1.0, float((np.abs(step) / _LONGEST_JOINT_STEP).max()))
            self._joint_targets = self._joint_targets + step
            # Position servos brake in proportion to speed; leading the target makes up for it.
            self._data.ctrl[self._arm_controls] = self._joint_targets + lead * step
            self._data.ctrl[self._gripper_control] = 1.0 - reference.gripper
            mujoco.mj_step(self._model, self._data, _STEPS_PER_CONTROL_PERIOD)

    def settle(self) -> None:
        """Simulate until the arm has arrived and the scene is at rest, for a second at most."""
        self.advance(max(0.0, self._motion.duration - self._motion_time))
        self.advance(CONTROL_PERIOD)
        for _ in range(round(_LONGEST_SETTLING / CONTROL_PERIOD)):
            if not self.moving:
                return
            self.advance(CONTROL_PERIOD)

    def move(self, action: Float64Array) -> Float64Array:
        """Apply an action (7,) to the last target and wait for rest. Returns the state (7,)."""
        self.set_target(apply_action(self._target, action))
        self.settle()
        return self.state

    def render(
        self, camera: str = scene.CAMERA, width: int = 256, height: int = 256, supersample: int = 1
    ) -> Image:
        """The camera's picture, RGB (height, width, 3).

        Args:
            camera: name of a camera of the scene.
            width: pixels.
            height: pixels.
            supersample: render this many times larger along each side and average: smooth edges.

        Raises:
            RuntimeError: there is no OpenGL to render with.
        """
        size = (height * supersample, width * supersample)
        if size not in self._renderers:
            self._renderers[size] = _new_renderer(self._model, *size)
        renderer = self._renderers[size]
        renderer.update_scene(self._data, camera)
        picture: Image = renderer.render()
        if supersample == 1:
            return picture.copy()
        blocks = picture.reshape(height, supersample, width, supersample, 3)
        smooth: Image = blocks.mean(axis=(1, 3)).round().astype(np.uint8)
        return smooth

    def focal_length(self, height: int, camera: str = scene.CAMERA) -> float:
        """Of a camera whose picture is `height` pixels high: pixels, the same along both axes."""
        field_of_view = np.radians(self._model.camera(camera).fovy[0])
        return float(0.5 * height / np.tan(0.5 * field_of_view))

    def close(self) -> None:
        """Free the OpenGL contexts; call it from the thread that rendered."""
        while self._renderers:
            self._renderers.popitem()[1].close()

    def __enter__(self) -> FrankaSim:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _wanted_joints(self, reference: Reference) -> Float64Array:
        if self._joint_path is not None:
            return self._joint_path.at(self._motion_time)
        return self._inverse_kinematics.solve(
            reference.as_state(), self._joint_targets, _IK_ITERATIONS_PER_PERIOD
        )

    def _hold(self, state: Float64Array) -> None:
        """Make `state` the target and the reference, at rest."""
        self._target = np.array(state, dtype=np.float64)
        self._error = np.zeros(3)
        self._origin = Reference.from_state(state)
        self._joint_path = None
        still = np.zeros(7)
        self._motion = MinimumJerkMotion(still, 0.0, still, still)
        self._motion_time = 0.0

    def _reference(self) -> tuple[Reference, Float64Array, Float64Array]:
        """Where the controller steers to now, with the velocity and acceleration (7,) there."""
        distance, velocity, acceleration = self._motion.at(self._motion_time)
        return self._origin.moved(distance), velocity, acceleration

    def _reachable_share(self, reference: Reference, distance: Float64Array) -> float:
        """How much of the way (7,) from the reference the arm can go, 0..1."""

        def reached(share: float) -> bool:
            state = reference.moved(share * distance).as_state()
            return self._joints_reaching(state, self._joint_targets) is not None

        if reached(1.0):
            return 1.0
        low, high = 0.0, 1.0
        for _ in range(_REACH_BISECTIONS):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if reached(middle) else (low, middle)
        return low

    def _joints_reaching(self, state: Float64Array, start: Float64Array) -> Float64Array | None:
        """Joints (7,) near `start` that bring the arm to a state; None where it cannot go."""
        joints = self._inverse_kinematics.solve(state, start)
        missed = action_between(state, end_effector_state(joints, state[GRIPPER]))
        return joints if np.abs(missed).max() < _REACH_TOLERANCE else None

    def _vary_world(self, random: np.random.Generator) -> None:
        settings, model = self.settings, self._model
        cube = self._data.joint(model.body(scene.CUBE).jntadr[0])
        cube.qpos[:2] = random.uniform(scene.CUBE_REGION_MIN, scene.CUBE_REGION_MAX)
        turn = 0.5 * random.uniform(-np.pi, np.pi)
        cube.qpos[3:] = np.cos(turn), 0.0, 0.0, np.sin(turn)
        shift = random.normal(0.0, settings.camera_jitter_m, self._nominal_camera.shape)
        model.cam_pos[:] = self._nominal_camera + shift
        brightness, direction = self._nominal_lamp
        model.light_diffuse[:] = brightness * (
            1.0 + random.uniform(-settings.light_jitter, settings.light_jitter)
        )
        model.light_dir[:] = direction + random.uniform(
            -settings.light_jitter, settings.light_jitter, direction.shape
        )
        model.light_dir[:] /= np.linalg.norm(model.light_dir, axis=1, keepdims=True)


@dataclass(frozen=True, eq=False)
class _JointPath:
    """Joints (n, 7) at times (n,) since its start, the last of which is held."""

    times: Float64Array
    positions: Float64Array

    def at(self, time: float) -> Float64Array:
        return np.array([np.interp(time, self.times, joint) for joint in self.positions.T])


def _require_finite(state: Float64Array) -> None:
    if np.shape(state) != (7,) or not np.isfinite(state).all():
        raise ValueError(f"A state has 7 finite entries; got {state}.")


def _new_renderer(model: mujoco.MjModel, height: int, width: int) -> mujoco.Renderer:
    try:
        return mujoco.Renderer(model, height, width)
    except (RuntimeError, ImportError, AttributeError) as error:
        raise RuntimeError(
            "The simulated camera found no OpenGL to render with. On Debian or Ubuntu: "
            "apt-get install libegl1 libgl1-mesa-dri (and leave MUJOCO_GL unset or set it to egl)."
        ) from error
