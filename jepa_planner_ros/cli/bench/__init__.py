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
    Command(
        "search",
        "compare searches in closed loop, in simulation",
        "jepa_planner_ros.cli.bench.search",
    ),
    Command(
        "landscape",
        "draw the energy around standing still, from two photographs",
        "jepa_planner_ros.cli.bench.landscape",
    ),
    Command(
        "null-space",
        "draw which first actions an energy leaves open",
        "jepa_planner_ros.cli.bench.null_space",
    ),
    Command(
        "serve",
        "measure what Ray adds to the rounds of a search",
        "jepa_planner_ros.cli.bench.serve",
    ),
    Command(
        "control",
        "compare control modes: pace, accuracy, and how long the arm stands still",
        "jepa_planner_ros.cli.bench.control",
    ),
    Command(
        "faults",
        "run episodes with a fault in each, and see that no limit is exceeded",
        "jepa_planner_ros.cli.bench.faults",
    ),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the group; each benchmark declares its own command line."""
    parser.description = (
        "Measure on this machine. Most benchmarks print a table, and write it as JSON with --json "
        "FILE; savings only prints, landscape and null-space draw a picture."
    )
