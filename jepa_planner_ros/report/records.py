"""The record of a run: what the camera saw, what was planned, and how far the goal was.

Live episodes, recorded ones and benchmarks are all told in these records, so that one page shows
them all. States, actions and images are as everywhere in the project: states (7,) in the robot's
base frame, images RGB (height, width, 3).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from jepa_planner_ros.geometry import POSITION
from jepa_planner_ros.types import Float64Array

Image = NDArray[np.uint8]
"""A picture in RGB, (height, width, 3)."""

REACHED_CM = 5.0
"""An episode that ends closer than this to the photographed position has reached it."""


@dataclass(frozen=True)
class LatencyRecord:
    """Where the time of one step went, seconds; the fields of the message ``Latency``."""

    capture_age: float
    encode: float
    plan: float
    network: float

    @property
    def total(self) -> float:
        """Seconds from the capture of the frame to the plan in hand."""
        return self.capture_age + self.encode + self.plan + self.network


@dataclass(frozen=True, eq=False)
class PlannedMotion:
    """What another version planned from the same frame; the fields are those of `StepRecord`."""

    actions: Float64Array
    predicted_states: Float64Array
    energy: float
    predicted_energies: Float64Array
    latency: LatencyRecord


@dataclass(frozen=True, eq=False)
class StepRecord:
    """One step of an episode: a frame, and the plan made from it.

    Attributes:
        frame: what the camera saw.
        state: the end effector's state (7,) that the plan starts from.
        actions: the planned actions (horizon, 7); the arm executes the first.
        predicted_states: the states (horizon, 7) expected after each action.
        energy: distance of the frame from the goal photograph in latent space.
        predicted_energies: the energies (horizon,) expected after each action.
        latency: where the time went.
        rollouts: how many action sequences the world model imagined.
        model_fingerprint: the weights that planned.
        recorded: in a replay, the plan to compare with; None where there is none.
    """

    frame: Image
    state: Float64Array
    actions: Float64Array
    predicted_states: Float64Array
    energy: float
    predicted_energies: Float64Array
    latency: LatencyRecord
    rollouts: int = 0
    model_fingerprint: str = ""
    recorded: PlannedMotion | None = None

    @property
    def difference_mm(self) -> float:
        """Largest difference of an action's translation from the recorded one, mm; NaN if none."""
        if self.recorded is None:
            return float("nan")
        steps = min(len(self.actions), len(self.recorded.actions))
        apart = self.actions[:steps, POSITION] - self.recorded.actions[:steps, POSITION]
        return 1000.0 * float(np.abs(apart).max())


@dataclass(frozen=True, eq=False)
class EpisodeRecord:
    """One goal, from the start photograph to the end.

    Attributes:
        name: how people call it, for instance ``seed 3``.
        start_image: the camera's first frame.
        goal_image: the photograph that the planner was given.
        final_image: the camera's frame when the arm had come to rest.
        start_state: the end effector's state (7,) at the start.
        final_state: the same at the end.
        goal_state: the true state (7,) in the photograph; None where nobody knows it.
        steps: the steps, in order.
        outcome: how the action ended, in lower case: ``reached``, ``budget_spent``, ...
        reason: the action's sentence about it.
        final_energy: energy of the last frame that was encoded; NaN where nobody knows it.
        elapsed_s: duration, seconds.
        energy_threshold: energy at which the goal counts as reached; None where nobody knows it.
    """

    name: str
    start_image: Image
    goal_image: Image
    final_image: Image
    start_state: Float64Array
    final_state: Float64Array
    goal_state: Float64Array | None
    steps: tuple[StepRecord, ...]
    outcome: str
    reason: str
    final_energy: float
    elapsed_s: float
    energy_threshold: float | None = None

    def distance_cm(self, state: Float64Array) -> float:
        """How far a state (7,) is from the photographed position, cm; NaN where it is unknown."""
        if self.goal_state is None:
            return float("nan")
        return 100.0 * float(np.linalg.norm(state[POSITION] - self.goal_state[POSITION]))

    @property
    def start_cm(self) -> float:
        """Distance to the photographed position at the start."""
        return self.distance_cm(self.start_state)

    @property
    def final_cm(self) -> float:
        """Distance to the photographed position at the end."""
        return self.distance_cm(self.final_state)

    @property
    def distances_cm(self) -> tuple[float, ...]:
        """Distance before each step and at the end, cm: one more than there are steps."""
        states = (*(step.state for step in self.steps), self.final_state)
        return tuple(self.distance_cm(state) for state in states)

    @property
    def energies(self) -> tuple[float, ...]:
        """Energy before each step and at the end: one more than there are steps."""
        return (*(step.energy for step in self.steps), self.final_energy)

    @property
    def reached(self) -> bool:
        """Whether the arm came to the photographed position; by its own account if unknown."""
        if self.goal_state is None:
            return self.outcome == "reached"
        return self.final_cm < REACHED_CM


@dataclass(frozen=True, eq=False)
class Camera:
    """A pinhole camera that does not move.

    Attributes:
        projection: matrix (3, 4) from homogeneous points in the robot's base frame, metres, to
            homogeneous pixels.
    """

    projection: Float64Array

    @classmethod
    def placed(cls, intrinsics: Float64Array, pose: Float64Array) -> Camera:
        """A camera at a pose.

        Args:
            intrinsics: matrix (3, 3) of ``CameraInfo``, for images without distortion.
            pose: of its optical frame (x right, y down, z forward) in the robot's base frame: x, y,
                z (m) and quaternion x, y, z, w: (7,).
        """
        turn = Rotation.from_quat(pose[3:]).as_matrix().T
        return cls(intrinsics @ np.column_stack((turn, -turn @ pose[:3])))

    def pixels(self, points: Float64Array) -> Float64Array:
        """Pixels (n, 2), right and down, of points (n, 3) in the base frame, metres."""
        homogeneous = np.concatenate((points, np.ones((len(points), 1))), axis=1)
        image = homogeneous @ self.projection.T
        pixels: Float64Array = image[:, :2] / image[:, 2:]
        return pixels


@dataclass(frozen=True, eq=False)
class RunRecord:
    """Episodes that belong together.

    Attributes:
        title: what was done, in a few words.
        command: the command line that repeats it.
        settings: what it was done with, as name and value, for the reader.
        episodes: at least one.
        camera: where to draw planned motions in the frames; None leaves them out.
        headline: the outcome in one line; None says how many goals were reached.
        lead: what was done, in some sentences; None says it of episodes.
    """

    title: str
    command: str
    settings: Mapping[str, str]
    episodes: tuple[EpisodeRecord, ...]
    camera: Camera | None = None
    headline: str | None = None
    lead: str | None = None

    @property
    def is_replay(self) -> bool:
        """Whether there are recorded plans to compare with."""
        return any(step.recorded is not None for one in self.episodes for step in one.steps)
