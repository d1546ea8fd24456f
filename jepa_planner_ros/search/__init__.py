"""Search for the action sequence of lowest energy. Knows neither networks nor clusters."""

from jepa_planner_ros.search.cem import CrossEntropyMethod
from jepa_planner_ros.search.energy import sequence_energy
from jepa_planner_ros.search.noise import Noise, seeded_noise

__all__ = ["CrossEntropyMethod", "Noise", "seeded_noise", "sequence_energy"]
