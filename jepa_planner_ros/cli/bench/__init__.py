"""``jepa-planner bench``: measurements that anyone can repeat."""

from __future__ import annotations

import argparse

from jepa_planner_ros.cli import Command

COMMANDS = (
    Command(
        "rollout",
        "time the world model's rollouts in every precision",
        "jepa_planner_ros.cli.bench.rollout",
    ),
    Command(
        "savings",
        "measure what each shortcut of the rollouts brings",
        "jepa_planner_ros.cli.bench.savings",
    ),
    Command(
        "precision",
        "measure what each precision does to a search, and draw it",
        "jepa_planner_ros.cli.bench.precision",
    ),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the group; each benchmark declares its own command line."""
    parser.description = "Measure on this machine. Each benchmark prints a table and writes JSON."
