"""Confidence intervals without assumptions about how the figures are distributed."""

from __future__ import annotations

import numpy as np

from jepa_planner_ros.types import Float64Array

_RESAMPLES = 10_000
_PERCENTILES = (2.5, 97.5)


def mean_interval(values: Float64Array) -> tuple[float, float]:
    """95 % confidence interval of the mean of values (n,), by the percentile bootstrap.

    For two searches on the same episodes, pass the differences: that is the paired bootstrap
    (Efron and Tibshirani, "An Introduction to the Bootstrap", 1993, Sec. 13.3).
    """
    draws = np.random.default_rng(0).integers(len(values), size=(_RESAMPLES, len(values)))
    low, high = np.percentile(values[draws].mean(axis=1), _PERCENTILES)
    return float(low), float(high)
