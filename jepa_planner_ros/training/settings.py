"""What a training run is made of."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class TrainingSettings:
    """A run of ``jepa-planner train``. The defaults made the shipped weights.

    The order is V-JEPA 2-AC's own: first the encoder, then, with the encoder frozen, the predictor.
    """

    seed: int = 0
    episodes: int = 440
    """Simulated episodes, those held out for validation included."""
    held_out: int = 40
    episode_steps: int = 16
    stills: int = 12_000
    """Single frames for the encoder, each in a world of its own."""
    max_translation: float = 0.075
    """Largest translation of one action along each axis, metres."""
    workers: int = 2
    """Processes that simulate episodes."""

    encoder_updates: int = 2000
    encoder_batch: int = 48
    encoder_rate: float = 3e-3
    predictor_updates: int = 2000
    predictor_batch: int = 20
    predictor_rate: float = 4e-3
    state_noise: float = 0.003
    """Deviation of the noise on positions shown to the predictor, metres: real arms are inexact."""

    def __post_init__(self) -> None:
        if not 0 < self.held_out < self.episodes:
            raise ValueError(
                f"held_out {self.held_out} must be at least 1 and below episodes {self.episodes}."
            )
        for name in ("episode_steps", "stills", "workers", "encoder_updates", "predictor_updates"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}.")

    def to_dict(self) -> dict[str, Any]:
        """Plain values, to be stored beside the weights."""
        return asdict(self)
