"""Every search by its name, and how a request gets its search."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from jepa_planner_ros.search.actions import close_gripper, warm_start
from jepa_planner_ros.search.assisted import AssistedCrossEntropy, AssistedSettings
from jepa_planner_ros.search.base import Search
from jepa_planner_ros.search.cem import CrossEntropyMethod, CrossEntropySettings
from jepa_planner_ros.search.gauss_newton import GaussNewton, GaussNewtonSettings
from jepa_planner_ros.search.gradient import GradientDescent, GradientSettings
from jepa_planner_ros.search.guard import Guarded
from jepa_planner_ros.search.mppi import MppiSettings, PathIntegral
from jepa_planner_ros.search.noise import Noise, seeded_noise
from jepa_planner_ros.search.surrogate import SurrogateSearch, SurrogateSettings
from jepa_planner_ros.types import Float64Array, PlanRequest, SearchSettings


@dataclass(frozen=True)
class Method:
    """A way to search: the settings that ask for it, and the class that does it."""

    settings: type[SearchSettings]
    search: Callable[[Any, PlanRequest, Float64Array, Noise], Search]


METHODS: Mapping[str, Method] = {
    "cross_entropy": Method(CrossEntropySettings, CrossEntropyMethod),
    "assisted_cross_entropy": Method(AssistedSettings, AssistedCrossEntropy),
    "surrogate": Method(SurrogateSettings, SurrogateSearch),
    "gauss_newton": Method(GaussNewtonSettings, GaussNewton),
    "gradient": Method(GradientSettings, GradientDescent),
    "mppi": Method(MppiSettings, PathIntegral),
}


def search_for(request: PlanRequest) -> Search:
    """The search that a request's settings ask for, at its beginning.

    Raises:
        ValueError: there is no search with such settings.
    """
    settings = request.search
    for method in METHODS.values():
        if type(settings) is method.settings:
            break
    else:
        raise ValueError(f"{type(settings).__name__} are the settings of no registered search.")
    noise, start = seeded_noise(request.seed, request.step), warm_start(request)
    search = method.search(settings, request, start, noise)
    if settings.guard is None:
        return search
    obvious = np.stack((start, 0.0 * start) if start.any() else (start,))
    obvious = close_gripper(obvious, request.close_gripper_from)
    return Guarded(settings.guard, search, request, obvious, noise)
