"""The guard, on networks that a surrogate should not be trusted with."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from jepa_planner_ros.planning import InProcessPlanner
from jepa_planner_ros.search import FAST_SEARCH, CrossEntropySettings, search_for
from jepa_planner_ros.serving.shards import parcels
from jepa_planner_ros.sim.episodes import sample_reach_task
from jepa_planner_ros.sim.franka import FrankaSim
from jepa_planner_ros.types import (
    DEFAULT_GUARD,
    PlanRequest,
    RolloutReply,
    RolloutRequest,
    Scene,
)
from jepa_planner_ros.world_model import (
    SMALL,
    Checkpoint,
    Encoder,
    Predictor,
    WorldModel,
    read_checkpoint,
)

SEEDS = (1000, 1001, 1002)
CORRUPTED_DIMENSION = 5


def random_weights() -> Checkpoint:
    torch.manual_seed(0)
    predictor = Predictor(SMALL)
    return Checkpoint(SMALL, Encoder(SMALL.encoder).state_dict(), predictor.state_dict(), {})


def one_corrupted_dimension() -> Checkpoint:
    """The shipped model, with one dimension of its predictions blown up and turned about."""
    shipped = read_checkpoint("shipped")
    predictor = {name: weight.clone() for name, weight in shipped.predictor.items()}
    predictor["proj.weight"][CORRUPTED_DIMENSION] *= -30.0
    return replace(shipped, predictor=predictor)


@pytest.fixture(scope="module")
def photographs() -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Frames, states and goals of a few episodes."""
    with FrankaSim() as sim:
        found = []
        for seed in SEEDS:
            task = sample_reach_task(sim, seed)
            found.append((sim.render(), sim.state, task.goal_image))
    return found


@pytest.mark.parametrize("damage", [random_weights, one_corrupted_dimension])
def test_a_plan_is_as_good_as_cross_entropys_with_as_many_rollouts(damage, photographs):
    model = WorldModel(damage(), micro_batch=8)
    planner = InProcessPlanner(model)
    for seed, (frame, state, goal) in zip(SEEDS, photographs, strict=True):
        scene = Scene(model.encode(frame), state, model.encode(goal))
        plan = planner.plan(PlanRequest(scene, FAST_SEARCH, seed))
        rival = CrossEntropySettings(
            samples=8,
            elites=3,
            rounds=-(-plan.rollouts // 8),
            horizon=1,
            energy=FAST_SEARCH.energy,
            max_translation=FAST_SEARCH.max_translation,
            gripper_deviation=0.0,
            anchored=True,
            guard=DEFAULT_GUARD,
        )
        same_time = planner.plan(PlanRequest(scene, rival, seed))
        assert plan.fallback is not None or plan.energies[-1] <= 1.05 * same_time.energies[-1]


def test_on_the_shipped_model_the_surrogate_is_trusted_and_ends_lower_than_cross_entropy(
    photographs,
):
    model = WorldModel(read_checkpoint("shipped"), micro_batch=8)
    planner = InProcessPlanner(model)
    for seed, (frame, state, goal) in zip(SEEDS, photographs, strict=True):
        scene = Scene(model.encode(frame), state, model.encode(goal))
        plan = planner.plan(PlanRequest(scene, FAST_SEARCH, seed))
        assert plan.fallback is None
        assert plan.rollouts <= 50
        large = CrossEntropySettings(
            horizon=1,
            energy=FAST_SEARCH.energy,
            samples=64,
            elites=8,
            rounds=6,
            max_translation=FAST_SEARCH.max_translation,
            gripper_deviation=0.0,
            anchored=True,
        )
        rival = planner.plan(PlanRequest(scene, large, seed))
        candidates = np.stack((plan.actions, rival.actions, np.zeros((1, 7))))
        question = RolloutRequest(candidates, FAST_SEARCH.energy.distance)
        ours, theirs, still = model.evaluate(scene, question).energies[:, 0]
        assert (ours - theirs) / (still - theirs) < 0.2


@pytest.mark.parametrize("replicas", [1, 2, 3])
def test_a_search_over_shards_makes_the_same_plan(replicas, photographs):
    """Designs of several micro-batches, each of which goes to one replica."""
    model = WorldModel(random_weights(), micro_batch=8)
    frame, state, goal = photographs[0]
    scene = Scene(model.encode(frame), state, model.encode(goal))
    request = PlanRequest(scene, replace(FAST_SEARCH, designs=(29, 13)))
    whole, shared = search_for(request), search_for(request)
    while not whole.finished:
        question = whole.propose()
        whole.tell(model.evaluate(scene, question))
        parts = [
            model.evaluate(scene, shared.propose().part(shard.candidates))
            for (shard,) in parcels([len(question.candidates)], model.micro_batch, replicas)
        ]
        shared.tell(RolloutReply.joined(parts))
    np.testing.assert_array_equal(whole.finalists, shared.finalists)
    assert whole.rounds == shared.rounds
