"""Frames of the simulated arm: collected in parallel, kept on disk, loaded as arrays."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from jepa_planner_ros.geometry import ACTION_DIM, GRIPPER, POSITION, STATE_DIM, action_between
from jepa_planner_ros.sim.franka import FrankaSim, SimSettings
from jepa_planner_ros.training.settings import TrainingSettings
from jepa_planner_ros.types import Float64Array

CAMERA_SIZE = 256
"""Side of the camera's picture in pixels, as the simulation publishes it."""

WORLD = SimSettings(start_yaw_rad=0.3, camera_jitter_m=0.01, light_jitter=0.25)
"""The randomised world that episodes are collected in."""

# How far outside the workspace of starts and goals the arm may wander, so that what a planner
# considers at the border has been seen.
_MARGIN = 0.04
_GRIPPER_CHANGES = 0.15
_WAYPOINT_NOISE = 0.015

_INDEPENDENT_SHARE = 0.5
# Seeds of worlds, far from those that demos and benchmarks use.
_FIRST_SEED = 10_000_000
_FIRST_STILL_SEED = 20_000_000
_ALBUM = 100

Behaviour = Callable[[Float64Array, np.random.Generator], Float64Array]
"""From the present state (7,) to the action (7,) to do."""


@dataclass(frozen=True, eq=False)
class Split:
    """Episodes of equal length.

    Attributes:
        images: RGB uint8 (episodes, frames, height, width, 3).
        states: (episodes, frames, 7).
        actions: what was achieved between frames, (episodes, frames - 1, 7).
    """

    images: NDArray[np.uint8]
    states: Float64Array
    actions: Float64Array


@dataclass(frozen=True, eq=False)
class Stills:
    """Single frames, RGB uint8 (frames, height, width, 3), and states (frames, 7)."""

    images: NDArray[np.uint8]
    states: Float64Array


@dataclass(frozen=True, eq=False)
class Dataset:
    """Episodes to train on, and others to validate with."""

    training: Split
    validation: Split


def collect_episodes(settings: TrainingSettings, side: int, directory: Path) -> Dataset:
    """Simulate the episodes that `directory` does not hold yet, and load all of them.

    Args:
        settings: the run.
        side: pixels of a stored frame; the camera's picture is averaged down to it.
        directory: where episodes are kept, one file each.
    """
    files = [directory / f"{episode:05d}.npz" for episode in range(settings.episodes)]
    _complete(files, _record_episode, settings, side, "simulate episodes")
    images, states = _load(files)
    actions = np.stack(
        [[action_between(start, end) for start, end in pairwise(run)] for run in states]
    )
    held_out = settings.held_out
    return Dataset(
        training=Split(images[held_out:], states[held_out:], actions[held_out:]),
        validation=Split(images[:held_out], states[:held_out], actions[:held_out]),
    )


def collect_stills(settings: TrainingSettings, side: int, directory: Path) -> Stills:
    """Photograph arms placed at random, each in a world of its own; as `collect_episodes`."""
    albums = -(-settings.stills // _ALBUM)
    files = [directory / f"{album:05d}.npz" for album in range(albums)]
    _complete(files, _photograph_album, settings, side, "photograph stills")
    images, states = _load(files)
    return Stills(images.reshape(-1, *images.shape[2:]), states.reshape(-1, STATE_DIM))


def _complete(
    files: list[Path],
    work: Callable[[TrainingSettings, int, int, Path], None],
    settings: TrainingSettings,
    side: int,
    title: str,
) -> None:
    """Have each missing file written by one of several processes, given its index."""
    missing = [(index, file) for index, file in enumerate(files) if not file.exists()]
    if not missing:
        return
    files[0].parent.mkdir(parents=True, exist_ok=True)
    # Software renderers otherwise start a thread per core in each of the processes.
    os.environ.setdefault("LP_NUM_THREADS", "1")
    pool = ProcessPoolExecutor(
        settings.workers, mp_context=get_context("spawn"), initializer=_start_worker
    )
    done = len(files) - len(missing)
    with pool, tqdm(total=len(files), initial=done, desc=title, unit="file") as bar:
        jobs = [pool.submit(work, settings, side, index, file) for index, file in missing]
        try:
            for job in as_completed(jobs):
                job.result()
                bar.update()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def reachable(position: Float64Array) -> Float64Array:
    """The position (3,) moved into the box that episodes stay in, base frame, metres."""
    low, high = np.array(WORLD.workspace_min), np.array(WORLD.workspace_max)
    return position.clip(low - _MARGIN, high + _MARGIN)


_simulation: FrankaSim


def _start_worker() -> None:
    """Build this process's simulation once; compiling the world takes seconds."""
    global _simulation
    _simulation = FrankaSim(WORLD)


def _record_episode(settings: TrainingSettings, side: int, index: int, file: Path) -> None:
    """Simulate one episode and write it."""
    draw = np.random.default_rng((settings.seed, 0, index))
    sim = _simulation
    sim.reset(_FIRST_SEED + settings.seed * 100_000 + index)
    independent = draw.random() < _INDEPENDENT_SHARE
    behave = wander(settings) if independent else visit_waypoints(settings)
    images, states = [_photograph(sim, side)], [sim.state]
    for _ in range(settings.episode_steps):
        action = behave(sim.state, draw)
        action[POSITION] = reachable(sim.state[POSITION] + action[POSITION]) - sim.state[POSITION]
        sim.move(action)
        images.append(_photograph(sim, side))
        states.append(sim.state)
    _write(file, images, states)


def _photograph_album(settings: TrainingSettings, side: int, index: int, file: Path) -> None:
    """Photograph `_ALBUM` arms and write the pictures."""
    draw = np.random.default_rng((settings.seed, 3, index))
    images, states = [], []
    for still in range(_ALBUM):
        upright = _simulation.reset(_FIRST_STILL_SEED + index * _ALBUM + still)
        states.append(_place_anywhere(_simulation, upright, draw))
        images.append(_photograph(_simulation, side))
    _write(file, images, states)


def _place_anywhere(
    sim: FrankaSim, upright: Float64Array, draw: np.random.Generator
) -> Float64Array:
    """Put the arm at a random position with the orientation of a state (7,); returns its state."""
    low, high = np.array(WORLD.workspace_min), np.array(WORLD.workspace_max)
    while True:
        state = upright.copy()
        state[POSITION] = draw.uniform(low - _MARGIN, high + _MARGIN)
        state[GRIPPER] = draw.uniform()
        try:
            return sim.place(state)
        except ValueError:
            continue  # A far corner of the box is beyond the arm's reach.


def _write(file: Path, images: list[NDArray[np.uint8]], states: list[Float64Array]) -> None:
    partial = file.with_suffix(".partial.npz")
    np.savez(partial, images=np.stack(images), states=np.stack(states))
    partial.replace(file)


def wander(settings: TrainingSettings) -> Behaviour:
    """Independent actions that fill the box a search samples from."""

    def behave(state: Float64Array, draw: np.random.Generator) -> Float64Array:
        limit = settings.max_translation
        return _action(draw.uniform(-limit, limit, size=3), state, draw)

    return behave


def visit_waypoints(settings: TrainingSettings) -> Behaviour:
    """Straight, noisy runs to points of the workspace, as a planner's motion is."""
    waypoint: Float64Array | None = None

    def behave(state: Float64Array, draw: np.random.Generator) -> Float64Array:
        nonlocal waypoint
        limit = settings.max_translation
        if waypoint is None or np.abs(waypoint - state[POSITION]).max() < limit / 2:
            waypoint = draw.uniform(WORLD.workspace_min, WORLD.workspace_max)
        step = (waypoint - state[POSITION]) * draw.uniform(0.2, 1.0)
        step += draw.normal(scale=_WAYPOINT_NOISE, size=3)
        return _action(step.clip(-limit, limit), state, draw)

    return behave


def _action(
    translation: Float64Array, state: Float64Array, draw: np.random.Generator
) -> Float64Array:
    action = np.zeros(ACTION_DIM)
    action[POSITION] = translation
    if draw.random() < _GRIPPER_CHANGES:
        action[GRIPPER] = draw.uniform() - state[GRIPPER]
    return action


def _photograph(sim: FrankaSim, side: int) -> NDArray[np.uint8]:
    """The camera's picture averaged down, which is what preprocessing makes of it, too."""
    image = sim.render(width=CAMERA_SIZE, height=CAMERA_SIZE)
    factor = CAMERA_SIZE // side
    blocks = image.reshape(side, factor, side, factor, 3).astype(np.float32)
    return blocks.mean(axis=(1, 3)).round().astype(np.uint8)


def _load(files: list[Path]) -> tuple[NDArray[np.uint8], Float64Array]:
    contents = [np.load(file) for file in files]
    images = [content["images"] for content in tqdm(contents, desc="load frames", unit="file")]
    return np.stack(images), np.stack([content["states"] for content in contents])
