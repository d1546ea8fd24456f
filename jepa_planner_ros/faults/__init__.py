"""Faults on purpose: a relay between robot and planner that misbehaves, and a judge of the rest."""
