"""Searches that people use pass the limits of a shared planner; the absurd do not, and hear why."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jepa_planner_ros.search import (
    REFERENCE_SEARCH,
    AssistedSettings,
    CrossEntropySettings,
    GaussNewtonSettings,
    GradientSettings,
    MppiSettings,
    SurrogateSettings,
)
from jepa_planner_ros.search.profiles import load_profile, profile_names
from jepa_planner_ros.serving.limits import require_affordable
from jepa_planner_ros.serving.wire import WireError
from jepa_planner_ros.types import Guard, SearchSettings


@pytest.mark.parametrize("name", profile_names())
def test_every_profile_passes(name: str) -> None:
    require_affordable(load_profile(name))


@pytest.mark.parametrize(
    "search",
    [
        REFERENCE_SEARCH,
        AssistedSettings(),
        GaussNewtonSettings(horizon=4, components=8192),
        GradientSettings(horizon=4),
        MppiSettings(horizon=4),
        SurrogateSettings(guard=None),
        SurrogateSettings(components=10**5),
    ],
    ids=lambda search: type(search).__name__,
)
def test_every_search_passes(search: SearchSettings) -> None:
    require_affordable(search)


@pytest.mark.parametrize(
    ("search", "complaint"),
    [
        (replace(REFERENCE_SEARCH, horizon=17), r"search\.horizon is 17, and 16"),
        (replace(REFERENCE_SEARCH, samples=10_001), r"search\.samples is 10001, and 10000"),
        (replace(REFERENCE_SEARCH, rounds=101), r"search\.rounds is 101, and 100"),
        (
            replace(REFERENCE_SEARCH, samples=10_000, rounds=100),
            r"search\.samples times rounds and horizon is 2000000, and 1000000",
        ),
        (SurrogateSettings(designs=(150_000,), components=8192), r"search\.designs is 150000"),
        (SurrogateSettings(designs=(15,) * 101), r"rounds of search\.designs is 101"),
        (
            SurrogateSettings(designs=(15, 9000), components=8192),
            r"search\.components times horizon and candidates of a round is 73728000",
        ),
        (GaussNewtonSettings(iterations=101), r"search\.iterations is 101"),
        (GaussNewtonSettings(horizon=16, components=10**6), r"search\.components times"),
        (GradientSettings(starts=20_000), r"search\.starts is 20000"),
        (MppiSettings(guard=Guard(samples=10**6)), r"search\.guard\.samples is 1000000"),
        (CrossEntropySettings(guard=Guard(rounds=10**6)), r"search\.guard\.rounds is 1000000"),
    ],
)
def test_a_search_of_absurd_size_is_refused_by_what_is_too_large(
    search: SearchSettings, complaint: str
) -> None:
    with pytest.raises(WireError, match=f"too large for a shared planner: .*{complaint}"):
        require_affordable(search)
