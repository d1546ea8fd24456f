"""What holds for the whole test process, settled before a test imports what depends on it."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

import jepa_planner_ros.sim  # noqa: F401  chooses MuJoCo's OpenGL library
from jepa_planner_ros.cli.domain import enter_domain, free_domain

# A domain of our own keeps other ROS programs on this computer out of the tests.
_DOMAIN = free_domain()
enter_domain(_DOMAIN, os.environ)


@pytest.fixture(autouse=True)
def back_in_our_domain() -> Iterator[None]:
    """Commands that a test calls in this process enter domains of their own."""
    yield
    enter_domain(_DOMAIN, os.environ)
