from dataclasses import replace

import numpy as np
import pytest

from jepa_planner_ros.search import CrossEntropyMethod, seeded_noise, sequence_energy
from jepa_planner_ros.types import FAST_SEARCH, REFERENCE_SEARCH, SearchSettings

TWO_STEPS = replace(FAST_SEARCH, horizon=2)
GOAL = np.array([0.04, -0.03, 0.02])


def distance_energy(candidates):
    """The energy after each action is the distance from a target that two actions can reach."""
    return np.linalg.norm(np.cumsum(candidates[..., :3], axis=1) - 1.5 * GOAL, axis=-1)


def search_for_goal(settings, seed=0, **options):
    noise = seeded_noise(seed, 0, settings.horizon, settings.samples)
    search = CrossEntropyMethod(settings, noise, **options)
    while not search.finished:
        search.tell(distance_energy(search.propose()))
    return search


def test_the_reference_setting_is_the_published_one():
    assert (REFERENCE_SEARCH.samples, REFERENCE_SEARCH.elites) == (800, 80)
    assert (REFERENCE_SEARCH.rounds, REFERENCE_SEARCH.horizon) == (10, 2)
    assert REFERENCE_SEARCH.energy == "last_step"


def test_cem_finds_the_minimum():
    best = search_for_goal(REFERENCE_SEARCH).best
    assert distance_energy(best[None])[0, -1] < 0.002


def test_energies_fall_from_round_to_round():
    rounds = search_for_goal(REFERENCE_SEARCH).rounds
    assert len(rounds) == 10
    assert rounds[-1].elite_energy < 0.2 * rounds[0].elite_energy


def test_mean_energy_determines_the_first_action():
    """With the last step's energy any split of the sum will do; with the mean one split is best."""
    settings = SearchSettings(samples=200, elites=20, rounds=10, max_translation=0.075)
    mean = SearchSettings(
        samples=200, elites=20, rounds=10, max_translation=0.075, energy="mean_over_steps"
    )
    spread = {
        name: np.ptp([search_for_goal(s, seed).best[0, :3] for seed in range(8)], axis=0).max()
        for name, s in (("last", settings), ("mean", mean))
    }
    assert spread["mean"] < 0.01
    assert spread["last"] > 2 * spread["mean"]


def test_same_seed_same_sequence_other_seed_other_sequence():
    first, again, other = (search_for_goal(FAST_SEARCH, seed).best for seed in (3, 3, 4))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_noise_is_addressed_by_seed_step_and_round():
    draws = {
        (seed, step, index): seeded_noise(seed, step, 2, 5)(index).tobytes()
        for seed in (0, 1)
        for step in (0, 1)
        for index in (0, 1)
    }
    assert len(set(draws.values())) == 8
    assert seeded_noise(1, 1, 2, 5)(1).tobytes() == draws[1, 1, 1]


def test_ties_go_to_the_candidate_with_the_lower_index():
    settings = SearchSettings(samples=6, elites=2, rounds=1, horizon=1, momentum_mean=0.0)
    search = CrossEntropyMethod(settings, seeded_noise(0, 0, 1, 6))
    candidates = search.propose()
    search.tell(np.zeros((6, 1)))
    np.testing.assert_allclose(search.best[:, :3], candidates[:2, :, :3].mean(0))


def test_candidates_stay_within_their_bounds_and_do_not_rotate():
    search = CrossEntropyMethod(REFERENCE_SEARCH, seeded_noise(0, 0, 2, 800))
    candidates = search.propose()
    assert candidates.shape == (800, 2, 7)
    assert np.abs(candidates[..., :3]).max() <= REFERENCE_SEARCH.max_translation
    assert np.abs(candidates[..., 6]).max() <= 0.75
    assert not candidates[..., 3:6].any()


def test_the_gripper_stays_as_it_is_unless_searched_or_closed():
    assert not search_for_goal(FAST_SEARCH).best[:, 6].any()
    closing = search_for_goal(TWO_STEPS, close_gripper_from=1).best
    assert closing[0, 6] == 0.0
    assert closing[1, 6] > 0.9


def test_a_warm_start_continues_the_previous_sequence():
    previous = np.zeros((2, 7))
    previous[1, :3] = [0.05, 0.0, -0.05]
    search = CrossEntropyMethod(TWO_STEPS, lambda _: np.zeros((2, 64, 4)), previous=previous)
    np.testing.assert_allclose(search.propose()[0, 0], previous[1])
    assert not search.propose()[0, 1].any()


@pytest.mark.parametrize(
    ("name", "expected"), [("last_step", [3.0, 0.0]), ("mean_over_steps", [2.0, 1.0])]
)
def test_sequence_energy(name, expected):
    energies = np.array([[1.0, 3.0], [2.0, 0.0]])
    np.testing.assert_array_equal(sequence_energy(energies, name), expected)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"elites": 100, "samples": 50}, "search.elites"),
        ({"horizon": 0}, "search.horizon"),
        ({"max_translation": -0.1}, "search.max_translation"),
        ({"energy": "first"}, "search.energy"),
        ({"momentum_std": 1.0}, "search.momentum_std"),
    ],
)
def test_unusable_settings_are_named(change, named):
    with pytest.raises(ValueError, match=named):
        SearchSettings(**change)
