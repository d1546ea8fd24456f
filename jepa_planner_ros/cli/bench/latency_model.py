"""How long a plan takes on how many replicas: a model of three numbers, and its fit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from scipy.optimize import nnls


@dataclass(frozen=True)
class LatencyModel:
    """A plan of so many rounds takes ``rounds * (r / effective(W) + c * (W - 1))`` seconds.

    ``effective(W) = W / (1 + k * (W - 1))`` replicas would share a round's work without loss.

    Attributes:
        r: a round on one replica, s.
        k: what each further replica takes from the others' share, unitless.
        c: what each further replica adds to a round, s.
    """

    r: float
    k: float
    c: float

    def effective(self, replicas: int) -> float:
        """How many replicas' work is done at a time."""
        return replicas / (1.0 + self.k * (replicas - 1))

    def round_seconds(self, replicas: int) -> float:
        """A round, s."""
        return self.r / self.effective(replicas) + self.c * (replicas - 1)

    def error(self, measured: Mapping[int, float]) -> float:
        """Root mean square of the relative error, given seconds of a round by replicas."""
        errors = [self.round_seconds(one) / seconds - 1.0 for one, seconds in measured.items()]
        return float(np.sqrt(np.mean(np.square(errors))))


def fit(measured: Mapping[int, float]) -> LatencyModel:
    """The model nearest to seconds of a round by replicas, in the least squares of relative errors.

    In ``r``, ``r * k`` and ``c`` it is linear; none of them may be negative.

    Raises:
        ValueError: there are fewer than three numbers of replicas.
    """
    if len(measured) < 3:
        raise ValueError("three numbers of replicas at least are needed to fit three numbers.")
    replicas = np.array(list(measured), dtype=float)
    seconds = np.array(list(measured.values()))
    terms = np.stack((1.0 / replicas, (replicas - 1.0) / replicas, replicas - 1.0), axis=1)
    (r, rk, c), _ = nnls(terms / seconds[:, None], np.ones(len(seconds)))
    return LatencyModel(float(r), float(rk / r), float(c))


def draw(model: LatencyModel, measured: Mapping[int, float], most: int, path: Path) -> None:
    """Draw rounds as measured and as the model continues them.

    Args:
        model: fitted to `measured`.
        measured: seconds of a round by replicas.
        most: replicas to continue to.
        path: picture file to write.
    """
    figure = Figure(figsize=(7.0, 4.2), layout="constrained")
    axes = figure.add_subplot()
    replicas = range(1, most + 1)
    axes.loglog(
        replicas,
        [1e3 * model.round_seconds(one) for one in replicas],
        color="#2a78d6",
        label=f"model: r {1e3 * model.r:.1f} ms, k {model.k:.3f}, c {1e3 * model.c:.2f} ms",
    )
    axes.loglog(
        replicas,
        [1e3 * model.r / one for one in replicas],
        ":",
        color="0.6",
        label="without any loss",
    )
    axes.loglog(
        list(measured),
        [1e3 * seconds for seconds in measured.values()],
        "o",
        color="#eda100",
        label="measured",
    )
    axes.set_xlabel("replicas")
    axes.set_ylabel("a round [ms]")
    axes.set_xticks([2**power for power in range(int(np.log2(most)) + 1)])
    axes.xaxis.set_major_formatter("{x:g}")
    axes.grid(alpha=0.3, which="both")
    axes.legend(frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
