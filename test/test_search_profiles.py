from pathlib import Path

import pytest

from jepa_planner_ros.search import FAST_SEARCH, METHODS, REFERENCE_SEARCH
from jepa_planner_ros.search.profiles import (
    DEFAULT_PROFILE,
    ProfileError,
    in_words,
    load_profile,
    profile_names,
)
from jepa_planner_ros.types import Energy, Guard


def test_the_profiles_are_what_the_code_has_as_defaults():
    assert load_profile("reference") == REFERENCE_SEARCH
    assert load_profile(DEFAULT_PROFILE) == FAST_SEARCH


@pytest.mark.parametrize("name", profile_names())
def test_every_profile_loads(name):
    settings = load_profile(name)
    assert type(settings) in {method.settings for method in METHODS.values()}
    assert f"horizon {settings.horizon}" in in_words(settings)


def test_a_profile_of_ones_own(tmp_path: Path):
    path = tmp_path / "mine.yaml"
    path.write_text(
        "method: mppi\nhorizon: 2\nenergy: {distance: l2, steps: [1.0, 3.0]}\nguard: {rounds: 2}\n"
    )
    settings = load_profile(str(path))
    assert settings == METHODS["mppi"].settings(
        horizon=2, energy=Energy("l2", (1.0, 3.0)), guard=Guard(rounds=2)
    )


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("samples: 3", "needs an entry 'method', one of: cross_entropy"),
        ("method: annealing", "needs an entry 'method'"),
        ("method: mppi\nsample: 3", "entry sample is unknown; MppiSettings has horizon"),
        ("method: mppi\nenergy: {step: last}", "entry energy.step is unknown"),
        ("method: mppi\nsamples: 1", "search.samples = 1 cannot be used"),
        ("method: mppi\nsamples: many", "mine.yaml"),
        ("method: [", "mine.yaml"),
        pytest.param("[" * 10_000, "mine.yaml", id="nested beyond bounds"),
        ("\0", "mine.yaml"),
    ],
)
def test_what_is_wrong_in_a_profile_is_named(tmp_path: Path, text, complaint):
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(ProfileError, match=complaint):
        load_profile(str(path))


@pytest.mark.parametrize(
    "name", ["quick", "/nowhere/mine.yaml", "~nosuchuser/mine.yaml", "null\0character"]
)
def test_a_missing_profile_is_refused_with_those_there_are(name):
    with pytest.raises(ProfileError, match="one of: fast, reference, robust, vjepa2_ac; or"):
        load_profile(name)
