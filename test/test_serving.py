"""The planner on a real, local Ray: equal plans, survived deaths, clean ends."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch
from random_weights import random_checkpoint

from jepa_planner_ros.planning import InProcessPlanner
from jepa_planner_ros.search import (
    FAST_SEARCH,
    AssistedSettings,
    CrossEntropySettings,
    GaussNewtonSettings,
    GradientSettings,
    MppiSettings,
    SurrogateSettings,
)
from jepa_planner_ros.serving import LocalRayPlanner
from jepa_planner_ros.serving.shards import parcels
from jepa_planner_ros.types import (
    Plan,
    Planner,
    PlannerError,
    PlannerUnavailableError,
    PlanRequest,
    Scene,
    SearchSettings,
)
from jepa_planner_ros.world_model import (
    SMALL,
    load_world_model,
    write_checkpoint,
)

# The reference's energy and gripper, with candidates that do not fill their last micro-batch.
SEARCH = CrossEntropySettings(samples=72, elites=8, rounds=3, horizon=2)
# Long enough to be broken off, with two micro-batches a round for each of two replicas.
LONG_SEARCH = replace(SEARCH, samples=128, rounds=6)
# One of each, with rounds of more than one micro-batch.
EVERY_SEARCH = (
    AssistedSettings(samples=40, rounds=2),
    SurrogateSettings(designs=(40, 33)),
    GaussNewtonSettings(horizon=2),
    GradientSettings(starts=33, rounds=2),
    MppiSettings(samples=40, rounds=2),
)
# A terminal's Ctrl-C must leave nothing behind after this time.
END_S = 5.0

# Starts a planner on a checkpoint, plans two steps, writes them down and waits.
OWNER = """
import sys, time
from pathlib import Path
from test_serving import episode, save, LocalRayPlanner
planner = LocalRayPlanner(Path(sys.argv[1]), replicas=1, start_timeout_s=300.0)
save(episode(planner), Path(sys.argv[2]))
print("planned", flush=True)
time.sleep(600)
"""


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("weights") / "random.safetensors"
    write_checkpoint(random_checkpoint(SMALL), path)
    return path


@pytest.fixture(scope="module")
def in_process(checkpoint: Path) -> Iterator[Planner]:
    threads = torch.get_num_threads()
    # Beside a Ray, more threads than cores would wait for each other.
    torch.set_num_threads(1)
    yield InProcessPlanner(load_world_model(checkpoint))
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def two_replicas(checkpoint: Path) -> Iterator[LocalRayPlanner]:
    started = time.monotonic()
    planner = LocalRayPlanner(checkpoint, replicas=2, start_timeout_s=300.0)
    print(f"a Ray of two replicas started in {time.monotonic() - started:.1f} s")
    yield planner
    planner.close()


def scene(tokens: int = 64) -> Scene:
    draw = np.random.default_rng(0).standard_normal
    return Scene(
        latent=draw((tokens, 128)).astype(np.float32),
        state=np.array([0.4, 0.0, 0.3, 3.1, 0.0, 0.1, 0.2]),
        goal_latent=draw((tokens, 128)).astype(np.float32),
    )


def episode(planner: Planner, search: SearchSettings = SEARCH) -> list[Plan]:
    """Two plans, the second of which starts from the first."""
    cold = planner.plan(PlanRequest(scene(), search, seed=7))
    return [cold, planner.plan(PlanRequest(scene(), search, 7, 1, cold.actions))]


def numbers(plan: Plan) -> np.ndarray:
    """Everything in a plan but its timing."""
    rounds = [(entry.best_energy, entry.elite_energy) for entry in plan.rounds]
    parts = (
        plan.actions,
        plan.states,
        plan.energies,
        plan.predicted_latent,
        plan.start_energy,
        plan.rollouts,
        rounds,
    )
    return np.concatenate([np.ravel(part) for part in parts])


def save(plans: list[Plan], path: Path) -> None:
    np.save(path, [numbers(plan) for plan in plans])


def world_model_processes() -> list[psutil.Process]:
    descendants = psutil.Process().children(recursive=True)
    return [process for process in descendants if "WorldModel" in _command(process)]


def ray_directory(processes: list[psutil.Process]) -> Path:
    commands = " ".join(map(_command, processes))
    found = re.search(r"/tmp/jepa_ray_\w+", commands)
    assert found is not None
    return Path(found.group())


def wait_until_gone(processes: list[psutil.Process]) -> list[psutil.Process]:
    """The processes that still live after the time they have to end."""
    deadline = time.monotonic() + END_S
    while living := [process for process in processes if _lives(process)]:
        if time.monotonic() > deadline:
            break
        time.sleep(0.05)
    return living


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize("candidates", [[1], [33], [800], [5, 31, 33], [100, 1, 64, 32]])
@pytest.mark.parametrize("replicas", [1, 2, 3, 8])
def test_a_round_is_whole_micro_batches_shared_evenly(candidates: list[int], replicas: int) -> None:
    shares = parcels(candidates, micro_batch=32, replicas=replicas)

    covered: list[list[int]] = [[] for _ in candidates]
    for shard in (shard for share in shares for shard in share):
        covered[shard.question] += range(candidates[shard.question])[shard.candidates]
        assert shard.candidates.start % 32 == 0
    assert covered == [list(range(number)) for number in candidates]
    assert len(shares) <= replicas
    batches = [
        sum(-(-(one.candidates.stop - one.candidates.start) // 32) for one in share)
        for share in shares
    ]
    assert max(batches) - min(batches) <= 1
    assert all(len({shard.question for shard in share}) == len(share) for share in shares)


def test_a_missing_checkpoint_is_refused_at_once(tmp_path: Path) -> None:
    started = time.monotonic()
    with pytest.raises(PlannerError, match="there is no file"):
        LocalRayPlanner(tmp_path / "none.safetensors")
    assert time.monotonic() - started < 1.0


def test_two_replicas_plan_what_this_process_plans(
    in_process: Planner, two_replicas: LocalRayPlanner
) -> None:
    description = two_replicas.describe()
    assert description.replicas == 2
    assert description == replace(in_process.describe(), replicas=2)
    for ours, theirs in zip(episode(in_process), episode(two_replicas), strict=True):
        np.testing.assert_array_equal(numbers(ours), numbers(theirs))

    report = two_replicas.last_report
    assert report is not None
    # Three rounds of three micro-batches make two shards each; the chosen sequence makes one.
    assert sum(report.shards.values()) == 7
    assert sorted(report.shards.values()) == [3, 4]
    assert report.collisions == report.retries == 0


@pytest.mark.parametrize("settings", EVERY_SEARCH, ids=lambda settings: type(settings).__name__)
def test_every_search_plans_the_same_on_two_replicas(
    in_process: Planner, two_replicas: LocalRayPlanner, settings: SearchSettings
) -> None:
    for ours, theirs in zip(
        episode(in_process, settings), episode(two_replicas, settings), strict=True
    ):
        np.testing.assert_array_equal(numbers(ours), numbers(theirs))


def test_plans_of_several_threads_do_not_mix(
    in_process: Planner, two_replicas: LocalRayPlanner
) -> None:
    requests = [PlanRequest(scene(), FAST_SEARCH, seed=seed) for seed in range(3)]
    with ThreadPoolExecutor(3) as threads:
        plans = list(threads.map(two_replicas.plan, requests))
    for request, plan in zip(requests, plans, strict=True):
        np.testing.assert_array_equal(numbers(in_process.plan(request)), numbers(plan))


def test_a_scene_of_another_encoder_is_refused_and_the_next_plan_works(
    two_replicas: LocalRayPlanner,
) -> None:
    with pytest.raises(PlannerError, match=r"\(49, 128\).*\(64, 128\)") as refusal:
        two_replicas.plan(PlanRequest(scene(tokens=49), SEARCH))
    assert "Traceback" not in str(refusal.value)
    assert two_replicas.plan(PlanRequest(scene(), SEARCH)).rollouts == 3 * 72 + 1


def test_a_plan_that_takes_too_long_is_given_up(two_replicas: LocalRayPlanner) -> None:
    usual, two_replicas.plan_timeout_s = two_replicas.plan_timeout_s, 0.05
    try:
        with pytest.raises(PlannerError, match=r"serving\.plan_timeout 0\.05 s"):
            two_replicas.plan(PlanRequest(scene(), LONG_SEARCH))
    finally:
        two_replicas.plan_timeout_s = usual
    assert two_replicas.plan(PlanRequest(scene(), SEARCH)).rollouts == 3 * 72 + 1


def test_the_death_of_a_replica_does_not_cost_the_plan(
    in_process: Planner, two_replicas: LocalRayPlanner
) -> None:
    victim = world_model_processes()[0]
    threading.Timer(0.2, victim.kill).start()
    plan = two_replicas.plan(PlanRequest(scene(), LONG_SEARCH))

    assert not _lives(victim)
    expected = in_process.plan(PlanRequest(scene(), LONG_SEARCH))
    np.testing.assert_array_equal(numbers(expected), numbers(plan))
    after = two_replicas.plan(PlanRequest(scene(), SEARCH))
    np.testing.assert_array_equal(
        numbers(in_process.plan(PlanRequest(scene(), SEARCH))), numbers(after)
    )


def test_a_ray_that_is_lost_is_started_again(
    in_process: Planner, two_replicas: LocalRayPlanner
) -> None:
    request = PlanRequest(scene(), SEARCH)
    lost = psutil.Process().children(recursive=True)
    for process in lost:
        process.kill()
    with pytest.raises(PlannerUnavailableError, match="started again in the background"):
        two_replicas.plan(request)
    complaints = []
    while True:
        try:
            plan = two_replicas.plan(request)
        except PlannerUnavailableError as away:
            complaints.append(str(away))
            time.sleep(away.retry_after)
        else:
            break
    assert complaints
    assert all("Ray is being started again" in complaint for complaint in complaints)
    assert not wait_until_gone(lost)
    np.testing.assert_array_equal(numbers(in_process.plan(request)), numbers(plan))


def test_close_ends_every_process_even_in_the_middle_of_a_plan(
    two_replicas: LocalRayPlanner,
) -> None:
    processes = psutil.Process().children(recursive=True)
    assert len(processes) > 5
    directory = ray_directory(processes)
    with ThreadPoolExecutor(1) as threads:
        plan = threads.submit(two_replicas.plan, PlanRequest(scene(), LONG_SEARCH))
        time.sleep(0.2)
        two_replicas.close()
        with pytest.raises(PlannerError, match="closed"):
            plan.result(timeout=END_S)
    assert not wait_until_gone(processes)
    assert not directory.exists()
    with pytest.raises(PlannerError, match="closed"):
        two_replicas.plan(PlanRequest(scene(), SEARCH))


def test_one_replica_plans_the_same_and_ray_dies_with_its_owner(
    checkpoint: Path, in_process: Planner, tmp_path: Path
) -> None:
    plans = tmp_path / "plans.npy"
    with _owner(checkpoint, plans) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "planned\n"
        processes = psutil.Process(owner.pid).children(recursive=True)
        directory = ray_directory(processes)
        owner.kill()
    expected = [numbers(plan) for plan in episode(in_process)]
    np.testing.assert_array_equal(expected, np.load(plans))
    assert len(processes) > 5
    assert not wait_until_gone(processes)
    assert not directory.exists()


def test_an_interrupt_during_the_start_ends_every_process(checkpoint: Path, tmp_path: Path) -> None:
    with _owner(checkpoint, tmp_path / "plans.npy") as owner:
        while not (processes := psutil.Process(owner.pid).children(recursive=True))[2:]:
            time.sleep(0.05)
        # What a terminal does on Ctrl-C.
        os.killpg(owner.pid, signal.SIGINT)
        interrupted = time.monotonic()
        assert owner.wait(timeout=END_S) == -signal.SIGINT
        assert not wait_until_gone(processes)
        assert time.monotonic() - interrupted < END_S
        assert owner.stderr is not None
        # Python's own last word, and nothing from Ray.
        assert owner.stderr.read().count("Traceback") == 1


def test_weights_that_predict_nonsense_are_reported_in_a_sentence(tmp_path: Path) -> None:
    damaged = random_checkpoint(SMALL)
    damaged.predictor["norm.weight"].fill_(float("nan"))
    write_checkpoint(damaged, tmp_path / "damaged.safetensors")
    with pytest.raises(PlannerError) as refusal:
        LocalRayPlanner(tmp_path / "damaged.safetensors", replicas=1, start_timeout_s=300.0)
    assert str(refusal.value) == (
        "the world model predicts values that are not finite; its weights may be damaged."
    )
    assert not wait_until_gone(psutil.Process().children(recursive=True))


def _owner(checkpoint: Path, plans: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", OWNER, str(checkpoint), str(plans)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parent,
        start_new_session=True,
    )
