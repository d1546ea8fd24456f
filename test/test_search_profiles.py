from dataclasses import fields
from pathlib import Path

import pytest

from jepa_planner_ros.cli.search_reference import attribute_docstrings
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
        ("samples: 3", "the entry 'method' is missing; it must be one of: cross_entropy"),
        ("3", "the entry 'method' is missing"),
        ("method: surogate", "method 'surogate' is unknown; .*mppi. Did you mean surrogate?"),
        ("method: [mppi]", "is unknown; it must be one of"),
        (
            "method: mppi\nsample: 3",
            r"entry sample is unknown. Did you mean samples\? Known are: h",
        ),
        ("method: mppi\n3: 3", "entry 3 is unknown. Known are"),
        ("method: mppi\nenergy: {step: last}", "entry energy.step is unknown. Did you mean steps?"),
        ("method: mppi\nsamples: 1", "search.samples = 1 must be 2 or more."),
        ("method: mppi\nmax_translation: 5", "= 5 must be more than 0 and less than 1. docs/ref"),
        ("method: mppi\nsamples: many", "samples must be a whole number, such as 32, not the text"),
        ("method: mppi\nsamples: 3.0", "samples must be a whole number, such as 32, not 3.0"),
        ("method: mppi\nsamples: true", "samples must be a whole number, such as 32, not true"),
        ("method: mppi\nshrink: 1e-3", "shrink must be a number, such as 0.6, not the text '1e-3'"),
        ("method: mppi\nanchored: 1", "anchored must be true or false, not 1"),
        ("method: mppi\nenergy: l2", r"energy must be entries \(distance, steps\), not the text"),
        ("method: mppi\nenergy: {distance: l3}", "energy.distance must be l1 or l2, not the"),
        ("method: mppi\nenergy: {steps: 1}", "energy.steps must be last or mean or a list of num"),
        ("method: mppi\nguard: false", r"guard must be entries \(.*\) or null, not false"),
        ("method: mppi\nguard: {rounds: 0}", r"guard \(disagreement 0.5, .*, rounds 0\) cannot"),
        (
            "method: surrogate\ndesigns: 15",
            r"designs must be a list of whole numbers, such as \[15",
        ),
        ("method: surrogate\ndesigns: [9, x]", r"designs must be a list of whole numbers, .*'x'"),
        (
            "method: mppi\nsamples: [",
            "mine.yaml' cannot be used: line 2: expected the node content",
        ),
        pytest.param("[" * 10_000, "nested too deeply", id="nested beyond bounds"),
        ("\0", "mine.yaml' cannot be used: unacceptable character"),
    ],
)
def test_what_is_wrong_in_a_profile_is_named(tmp_path: Path, text, complaint):
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(ProfileError, match=complaint) as caught:
        load_profile(str(path))
    assert "Settings" not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "name", ["quick", "/nowhere/mine.yaml", "~nosuchuser/mine.yaml", "null\0character"]
)
def test_a_missing_profile_is_refused_with_those_there_are(name):
    with pytest.raises(ProfileError, match="one of: fast, reference, robust, vjepa2_ac; or"):
        load_profile(name)


@pytest.mark.parametrize("kind", [*(one.settings for one in METHODS.values()), Energy, Guard])
def test_the_reference_tells_what_every_entry_means(kind):
    assert {field.name for field in fields(kind)} == attribute_docstrings(kind).keys()


def test_what_an_entry_means_may_be_told_where_it_is_inherited_from():
    own, inherited = (
        attribute_docstrings(METHODS[name].settings)["max_translation"]
        for name in ("cross_entropy", "mppi")
    )
    assert own.startswith(inherited.removesuffix("."))
    assert own.endswith("also the initial deviation.")
