"""How the energies along a sequence make one number to minimise."""

from __future__ import annotations

from jepa_planner_ros.types import EnergyName, Float64Array


def sequence_energy(energies: Float64Array, name: EnergyName) -> Float64Array:
    """One energy per candidate (batch,) from its energies after each action (batch, horizon).

    ``last_step`` is the reference (V-JEPA 2, Eq. 5). Over two steps it determines little more than
    the *sum* of the actions, so the first one, the only one executed, is left to chance;
    ``mean_over_steps`` also asks the first action to approach the goal.
    """
    if name == "last_step":
        return energies[:, -1]
    return energies.mean(axis=1)
