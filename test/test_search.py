from dataclasses import replace

import numpy as np
import pytest
import torch
from landscapes import bent, evaluate, plan_on, scene_of, two_minima

from jepa_planner_ros.search import (
    FAST_SEARCH,
    METHODS,
    REFERENCE_SEARCH,
    AssistedSettings,
    CrossEntropyMethod,
    CrossEntropySettings,
    GaussNewtonSettings,
    GradientSettings,
    MppiSettings,
    SurrogateSettings,
    search_for,
    seeded_noise,
    sequence_energy,
)
from jepa_planner_ros.search.actions import latin_hypercube
from jepa_planner_ros.search.anchor import anchored_goal
from jepa_planner_ros.search.energy import latent_distance
from jepa_planner_ros.search.latent_model import LatentModel, random_components
from jepa_planner_ros.types import (
    LAST_STEP_ENERGY,
    MEAN_ENERGY,
    Energy,
    Guard,
    PlanRequest,
    RolloutReply,
    Scene,
)

GOAL = np.array([0.04, -0.03, 0.02])
SCENE = scene_of(bent, GOAL)
SMALL_CEM = CrossEntropySettings(
    samples=64,
    elites=10,
    rounds=6,
    horizon=1,
    energy=MEAN_ENERGY,
    max_translation=0.075,
    gripper_deviation=0.0,
)
EVERY_SEARCH = {
    "cross_entropy": SMALL_CEM,
    "cross_entropy, kept and tied": replace(
        SMALL_CEM, horizon=2, kept=3, tied=True, energy=LAST_STEP_ENERGY
    ),
    "assisted_cross_entropy": AssistedSettings(),
    "surrogate": FAST_SEARCH,
    "surrogate, two steps": SurrogateSettings(horizon=2, designs=(24, 16)),
    "surrogate, L2": SurrogateSettings(energy=Energy("l2")),
    "gauss_newton": GaussNewtonSettings(iterations=3),
    "gradient": GradientSettings(),
    "mppi": MppiSettings(),
}
each_search = pytest.mark.parametrize(
    "settings", list(EVERY_SEARCH.values()), ids=list(EVERY_SEARCH)
)


def distance_energy(candidates):
    """The energy after each action is the distance from a target that two actions can reach."""
    return np.linalg.norm(np.cumsum(candidates[..., :3], axis=1) - 1.5 * GOAL, axis=-1)


def cross_entropy(settings, noise, previous=None, close_gripper_from=None):
    start = np.zeros((settings.horizon, 7))
    request = PlanRequest(SCENE, settings, previous=previous, close_gripper_from=close_gripper_from)
    return CrossEntropyMethod(settings, request, start, noise)


def search_for_goal(settings, seed=0, **options):
    search = cross_entropy(settings, seeded_noise(seed, 0), **options)
    while not search.finished:
        search.tell(RolloutReply(distance_energy(search.propose().candidates)))
    return search


def own_energy(latents, plan, asked, settings):
    """What the search minimises, of its plan."""
    question = replace(asked[-1], candidates=plan.actions[None])
    return sequence_energy(evaluate(latents, SCENE, question).energies, settings.energy)[0]


# --- Every search --------------------------------------------------------------------------------


def test_every_registered_search_is_tested_here():
    assert {type(settings) for settings in EVERY_SEARCH.values()} == {
        method.settings for method in METHODS.values()
    }


@each_search
def test_it_finds_the_goal_on_a_nearly_affine_landscape(settings):
    plan, _ = plan_on(bent, SCENE, settings)
    at = plan.actions[:, :3].cumsum(axis=0)[-1]
    assert 100 * np.linalg.norm(at - GOAL) < 1.0
    assert plan.energies[-1] < 0.15 * plan.start_energy
    assert not plan.actions[:, 3:].any()


@each_search
def test_the_same_seed_gives_the_same_plan(settings):
    (first, _), (again, _) = (plan_on(bent, SCENE, settings, seed=3, step=2) for _ in range(2))
    np.testing.assert_array_equal(first.actions, again.actions)
    np.testing.assert_array_equal(first.energies, again.energies)


@each_search
def test_candidates_stay_within_the_limit_and_do_not_rotate(settings):
    far = scene_of(bent, np.array([0.2, -0.2, 0.2]))
    _, asked = plan_on(bent, far, settings)
    candidates = np.concatenate([question.candidates for question in asked])
    assert np.abs(candidates[..., :3]).max() <= settings.max_translation
    assert not candidates[..., 3:].any()


@each_search
def test_a_plan_tells_where_its_last_round_led(settings):
    plan, asked = plan_on(bent, SCENE, settings)
    last_round = asked[-2].candidates
    ways = last_round[..., :3].sum(axis=1)
    apart = np.abs(plan.imagined.ends[:, None] - SCENE.state[:3] - ways).max(axis=-1)
    assert len(plan.imagined.ends) == min(100, len(last_round))
    assert apart.min(axis=1).max() < 1e-12
    assert (np.diff(plan.imagined.energies) >= 0.0).all()
    assert plan.imagined.energies[0] == pytest.approx(plan.rounds[-1].best_energy)
    assert plan.rounds[-1].elites <= len(last_round)


@each_search
def test_the_gripper_closes_when_it_is_told_to(settings):
    plan, _ = plan_on(bent, SCENE, settings, close_gripper_from=0)
    assert (plan.actions[:, 6] > 0.9).all()


@each_search
def test_a_plan_is_never_worse_than_what_was_seen(settings):
    guarded = replace(settings, guard=Guard())
    previous = np.zeros((settings.horizon, 7))
    previous[-1, :3] = 0.01
    for seed in range(3):
        plan, asked = plan_on(two_minima, SCENE, guarded, seed, previous=previous, step=1)
        seen = [
            sequence_energy(evaluate(two_minima, SCENE, question).energies, settings.energy).min()
            for question in asked
        ]
        chosen = own_energy(two_minima, plan, asked, settings)
        assert chosen <= min(seen) + 1e-9
        in_rounds = sum(len(question.candidates) for question in asked)
        assert plan.rollouts == in_rounds + guarded.anchored


@each_search
def test_a_deadline_ends_a_search_with_what_it_has(settings):
    plan, asked = plan_on(bent, SCENE, replace(settings, guard=Guard()), deadline=1e-9)
    assert len(plan.rounds) == 1
    assert len(asked) == 2
    first = sequence_energy(evaluate(bent, SCENE, asked[0]).energies, settings.energy)
    assert own_energy(bent, plan, asked, settings) <= first.min() + 1e-9


def test_a_deadline_that_does_not_bind_changes_nothing():
    free, _ = plan_on(bent, SCENE, FAST_SEARCH)
    bounded, _ = plan_on(bent, SCENE, FAST_SEARCH, deadline=600.0)
    np.testing.assert_array_equal(free.actions, bounded.actions)


def test_near_the_goal_the_error_for_standing_still_is_taken_out():
    """Predictions that are all off by the same blur mislead, but for the anchor."""
    blur = 0.3 * torch.from_numpy(np.random.default_rng(5).standard_normal(8 * 16))
    scene = scene_of(bent, 0.25 * GOAL)

    def blurred(displacement):
        return bent(displacement) + blur

    missed = {}
    for anchored in (False, True):
        settings = replace(FAST_SEARCH, anchored=anchored)
        plan, _ = plan_on(blurred, scene, settings)
        missed[anchored] = np.linalg.norm(plan.actions[0, :3] - 0.25 * GOAL)
    assert missed[True] < 0.0005
    assert missed[False] > 4 * missed[True]


def test_far_from_the_goal_nothing_is_taken_out():
    still = SCENE.latent + 0.01
    np.testing.assert_array_equal(anchored_goal(SCENE, still), SCENE.goal_latent)
    np.testing.assert_array_equal(anchored_goal(SCENE, SCENE.latent), SCENE.goal_latent)


def test_settings_without_a_search_are_refused():
    class Unknown(SurrogateSettings):
        pass

    with pytest.raises(ValueError, match="Unknown are the settings of no registered search"):
        search_for(PlanRequest(SCENE, Unknown()))


# --- The guard -----------------------------------------------------------------------------------


def test_the_first_round_rolls_out_the_warm_start_and_standing_still():
    settings = replace(FAST_SEARCH, horizon=2, designs=(16, 8))
    previous = np.zeros((2, 7))
    previous[1, :3] = [0.01, -0.02, 0.03]
    _, asked = plan_on(bent, SCENE, settings, previous=previous, step=1)
    np.testing.assert_array_equal(asked[0].candidates[0, 0], previous[1])
    assert not asked[0].candidates[0, 1].any()
    assert not asked[0].candidates[1].any()


def rough(displacement):
    """Latents that jump about: nothing to fit a surrogate to."""
    return bent(displacement) * torch.cos(700.0 * displacement.sum(-1, keepdim=True))


def test_a_surrogate_that_is_wrong_gives_way_to_cross_entropy():
    plan, asked = plan_on(rough, SCENE, FAST_SEARCH)
    assert plan.fallback is not None
    assert "predicted energies were off by" in plan.fallback
    assert len(plan.rounds) == 2 + FAST_SEARCH.guard.rounds
    assert len(asked[2].candidates) == FAST_SEARCH.guard.samples


def test_a_surrogate_that_is_right_is_left_alone():
    plan, _ = plan_on(bent, SCENE, FAST_SEARCH)
    assert plan.fallback is None
    assert plan.rollouts <= 50


@pytest.mark.parametrize("seed", range(4))
def test_on_two_minima_the_plan_is_as_good_as_cross_entropy_with_as_many_rollouts(seed):
    goal = np.array([-0.05, 0.02, 0.01])
    scene = scene_of(two_minima, goal)
    plan, _ = plan_on(two_minima, scene, FAST_SEARCH, seed)
    rounds = plan.rollouts // 8
    same_time = replace(SMALL_CEM, samples=8, elites=3, rounds=rounds, guard=Guard())
    rival, _ = plan_on(two_minima, scene, same_time, seed)
    assert plan.fallback is not None or plan.energies[-1] <= 1.05 * rival.energies[-1]


# --- Energies ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("energy", "expected"),
    [
        (LAST_STEP_ENERGY, [3.0, 0.0]),
        (MEAN_ENERGY, [2.0, 1.0]),
        (Energy(steps=(3.0, 1.0)), [1.5, 1.5]),
    ],
)
def test_sequence_energy(energy, expected):
    np.testing.assert_allclose(
        sequence_energy(np.array([[1.0, 3.0], [2.0, 0.0]]), energy), expected
    )


def test_distances_of_components():
    components, goal = np.array([[3.0, -4.0], [0.0, 0.0]]), np.zeros(2)
    np.testing.assert_allclose(latent_distance(components, goal, "l1"), [3.5, 0.0])
    np.testing.assert_allclose(latent_distance(components, goal, "l2"), [np.sqrt(12.5), 0.0])


def test_mean_energy_determines_the_first_action():
    """With the last step's energy any split of the sum will do; with the mean one split is best."""
    settings = CrossEntropySettings(samples=200, elites=20, max_translation=0.075)
    mean = replace(settings, energy=MEAN_ENERGY)
    spread = {
        name: np.ptp(
            [search_for_goal(s, seed).finalists[0, 0, :3] for seed in range(8)], axis=0
        ).max()
        for name, s in (("last", settings), ("mean", mean))
    }
    assert spread["mean"] < 0.01
    assert spread["last"] > 2 * spread["mean"]


# --- The cross-entropy method --------------------------------------------------------------------


def test_the_reference_setting_is_the_published_one():
    assert (REFERENCE_SEARCH.samples, REFERENCE_SEARCH.elites) == (800, 80)
    assert (REFERENCE_SEARCH.rounds, REFERENCE_SEARCH.horizon) == (10, 2)
    assert REFERENCE_SEARCH.energy == LAST_STEP_ENERGY
    assert REFERENCE_SEARCH.guard is None


def test_the_reference_finds_the_minimum():
    best = search_for_goal(REFERENCE_SEARCH).finalists
    assert distance_energy(best)[0, -1] < 0.002


def test_energies_fall_from_round_to_round():
    rounds = search_for_goal(REFERENCE_SEARCH).rounds
    assert len(rounds) == 10
    assert rounds[-1].elite_energy < 0.2 * rounds[0].elite_energy


def test_noise_is_addressed_by_seed_step_and_round():
    draws = {
        (seed, step, index): seeded_noise(seed, step)(index, (2, 5)).tobytes()
        for seed in (0, 1)
        for step in (0, 1)
        for index in (0, 1)
    }
    assert len(set(draws.values())) == 8
    assert seeded_noise(1, 1)(1, (2, 5)).tobytes() == draws[1, 1, 1]


def test_ties_go_to_the_candidate_with_the_lower_index():
    settings = CrossEntropySettings(samples=6, elites=2, rounds=1, horizon=1, momentum_mean=0.0)
    search = cross_entropy(settings, seeded_noise(0, 0))
    candidates = search.propose().candidates
    search.tell(RolloutReply(np.zeros((6, 1))))
    np.testing.assert_allclose(search.finalists[0, :, :3], candidates[:2, :, :3].mean(0))


def test_the_gripper_is_searched_within_its_bound():
    candidates = cross_entropy(REFERENCE_SEARCH, seeded_noise(0, 0)).propose().candidates
    assert candidates.shape == (800, 2, 7)
    assert 0.5 < np.abs(candidates[..., 6]).max() <= 0.75


def test_kept_elites_are_proposed_again():
    search = cross_entropy(replace(SMALL_CEM, kept=2), seeded_noise(0, 0))
    candidates = search.propose().candidates
    energies = distance_energy(candidates)
    search.tell(RolloutReply(energies))
    best = np.argsort(energies[:, 0])[:2]
    np.testing.assert_array_equal(search.propose().candidates[-2:], candidates[best])


def test_tied_actions_are_the_same_at_every_step():
    search = cross_entropy(replace(SMALL_CEM, horizon=3, tied=True), seeded_noise(0, 0))
    for _ in range(2):
        candidates = search.propose().candidates
        np.testing.assert_array_equal(candidates[:, 0], candidates[:, 2])
        search.tell(RolloutReply(distance_energy(candidates)))


def test_a_warm_start_continues_the_previous_sequence():
    previous = np.zeros((2, 7))
    previous[1, :3] = [0.05, 0.0, -0.05]
    settings = replace(SMALL_CEM, horizon=2, samples=2, elites=2, warm_start_deviation=1e-9)
    search = search_for(PlanRequest(SCENE, settings, previous=previous))
    np.testing.assert_allclose(search.propose().candidates[0, 0], previous[1], atol=1e-8)
    np.testing.assert_allclose(search.propose().candidates[0, 1], 0.0, atol=1e-8)


# --- The surrogate -------------------------------------------------------------------------------


def test_a_latin_hypercube_has_one_point_in_every_interval_of_every_axis():
    points = latin_hypercube(np.random.default_rng(0).standard_normal((10, 3)))
    expected = np.tile(np.linspace(-0.9, 0.9, 10)[:, None], 3)
    np.testing.assert_allclose(np.sort(points, axis=0), expected)


def test_a_fit_recovers_a_diagonal_quadratic_function():
    draw = np.random.default_rng(0)
    points = draw.uniform(-0.05, 0.05, (12, 3))
    parts = draw.standard_normal((7, 2, 40))

    def truth(at):
        features = np.column_stack((np.ones(len(at)), 20 * at, 400 * np.square(at)))
        return np.tensordot(features, parts, axes=1)

    model = LatentModel.fit(points, truth(points), np.zeros(3), 0.05, 1e-9)
    elsewhere = draw.uniform(-0.05, 0.05, (5, 3))
    np.testing.assert_allclose(model.components(elsewhere), truth(elsewhere), atol=1e-5)
    nudge = 1e-6 * np.eye(3)
    slopes = (truth(elsewhere[0] + nudge) - truth(elsewhere[0] - nudge)) / 2e-6
    np.testing.assert_allclose(model.jacobian(elsewhere[0]), slopes, atol=1e-3)


@pytest.mark.parametrize("distance", ["l1", "l2"])
def test_the_minimum_of_a_fit_is_where_the_goal_is(distance):
    draw = np.random.default_rng(0)
    points = draw.uniform(-0.05, 0.05, (12, 3))
    slopes = draw.standard_normal((3, 1, 40))
    goal = np.tensordot(GOAL, slopes, axes=1)[0]
    # An outlier that the L1 distance ignores.
    spoilt = goal + np.eye(40)[0] * (0.5 if distance == "l1" else 0.0)
    model = LatentModel.fit(points, np.tensordot(points, slopes, axes=1), np.zeros(3), 0.05, 1e-9)
    box = np.full(3, 0.05)
    minimum = model.minimum(spoilt, Energy(distance), np.zeros((1, 3)), -box, box)
    np.testing.assert_allclose(minimum, GOAL, atol=1e-4)


def test_components_are_a_fixed_choice():
    chosen = random_components(1000, 30)
    np.testing.assert_array_equal(chosen, random_components(1000, 30))
    assert len(np.unique(chosen)) == 30
    assert len(random_components(10, 30)) == 10


def test_what_comes_back_weighs_kilobytes():
    _, asked = plan_on(bent, SCENE, replace(FAST_SEARCH, components=20))
    reply = evaluate(bent, SCENE, asked[0])
    assert reply.components.shape[1:] == (1, 20)


# --- Settings ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "change", "named"),
    [
        (CrossEntropySettings, {"elites": 100, "samples": 50}, "search.elites"),
        (CrossEntropySettings, {"horizon": 0}, "search.horizon"),
        (CrossEntropySettings, {"max_translation": -0.1}, "search.max_translation"),
        (CrossEntropySettings, {"momentum_std": 1.0}, "search.momentum_std"),
        (SurrogateSettings, {"designs": (1,)}, "search.designs"),
        (SurrogateSettings, {"energy": Energy(steps=(1.0, 1.0))}, "energy.steps"),
        (GaussNewtonSettings, {"nudge": 1.0}, "search.nudge"),
        (GradientSettings, {"starts": 0}, "search.starts"),
        (MppiSettings, {"temperature": 0.0}, "search.temperature"),
        (AssistedSettings, {"gripper_deviation": 0.5}, "search.gripper_deviation"),
        (Energy, {"distance": "l3"}, "energy.distance"),
        (Energy, {"steps": "first"}, "energy.steps"),
        (Guard, {"samples": 1}, "guard"),
    ],
)
def test_unusable_settings_are_named(make, change, named):
    with pytest.raises(ValueError, match=named):
        make(**change)


def test_a_scene_is_checked_once_for_all_searches():
    foreign = Scene(np.zeros((3, 4), np.float32), np.zeros(7), np.zeros((3, 4), np.float32))
    with pytest.raises(Exception, match="encode with the same checkpoint"):
        plan_on(bent, foreign, FAST_SEARCH)
