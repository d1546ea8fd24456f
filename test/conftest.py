"""What holds for the whole test process, settled before a test imports what depends on it."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import torch

import jepa_planner_ros.sim  # noqa: F401  chooses MuJoCo's OpenGL library
from jepa_planner_ros.cli.domain import enter_domain, free_domain

# A domain of our own keeps other ROS programs on this computer out of the tests.
_DOMAIN = free_domain()
enter_domain(_DOMAIN, os.environ)


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """PyTorch computes in one thread: beside a Ray or a node, more would wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(autouse=True)
def back_in_our_domain() -> Iterator[None]:
    """Commands that a test calls in this process enter domains of their own."""
    yield
    enter_domain(_DOMAIN, os.environ)
