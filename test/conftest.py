"""What holds for the whole test process, settled before a test imports what depends on it."""

from __future__ import annotations

import os

import jepa_planner_ros.sim  # noqa: F401  chooses MuJoCo's OpenGL library
from jepa_planner_ros.cli.domain import enter_domain, free_domain

# A domain of our own keeps other ROS programs on this computer out of the tests.
enter_domain(free_domain(), os.environ)
