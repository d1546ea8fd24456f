"""Search for the action sequence of lowest energy. Knows neither networks nor clusters."""

from jepa_planner_ros.search.assisted import AssistedSettings
from jepa_planner_ros.search.base import Search
from jepa_planner_ros.search.cem import CrossEntropyMethod, CrossEntropySettings
from jepa_planner_ros.search.energy import sequence_energy
from jepa_planner_ros.search.gauss_newton import GaussNewtonSettings
from jepa_planner_ros.search.gradient import GradientSettings
from jepa_planner_ros.search.mppi import MppiSettings
from jepa_planner_ros.search.noise import Noise, seeded_noise
from jepa_planner_ros.search.registry import METHODS, search_for
from jepa_planner_ros.search.surrogate import SurrogateSettings

REFERENCE_SEARCH = CrossEntropySettings()
"""The released planner's search at the size the paper reports."""

FAST_SEARCH = SurrogateSettings()
"""The default."""

__all__ = [
    "FAST_SEARCH",
    "METHODS",
    "REFERENCE_SEARCH",
    "AssistedSettings",
    "CrossEntropyMethod",
    "CrossEntropySettings",
    "GaussNewtonSettings",
    "GradientSettings",
    "MppiSettings",
    "Noise",
    "Search",
    "SurrogateSettings",
    "search_for",
    "seeded_noise",
    "sequence_energy",
]
