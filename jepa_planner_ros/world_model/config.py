"""Sizes of a world model, from the shipped one to Meta's V-JEPA 2-AC."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any


@dataclass(frozen=True)
class EncoderConfig:
    """A vision transformer over tubelets of `tubelet_size` x `patch_size` x `patch_size` pixels.

    Defaults: ViT-g/16 at 256 pixels, the encoder of V-JEPA 2-AC.
    """

    image_size: tuple[int, int] = (256, 256)
    """(height, width) in pixels."""
    patch_size: int = 16
    tubelet_size: int = 2
    dim: int = 1408
    depth: int = 40
    heads: int = 22
    mlp_hidden: int = 6144

    @property
    def grid(self) -> tuple[int, int]:
        """Patches per (column, row) of a frame."""
        return self.image_size[0] // self.patch_size, self.image_size[1] // self.patch_size

    @property
    def tokens(self) -> int:
        """Patch tokens per frame."""
        return self.grid[0] * self.grid[1]


@dataclass(frozen=True)
class PredictorConfig:
    """The frame-causal, action-conditioned predictor. Defaults: V-JEPA 2-AC's."""

    dim: int = 1024
    depth: int = 24
    heads: int = 16
    mlp_hidden: int = 4096


@dataclass(frozen=True)
class WorldModelConfig:
    """Encoder and predictor sizes. Defaults: V-JEPA 2-AC (Assran et al. 2025, Sec. 3.2)."""

    encoder: EncoderConfig = EncoderConfig()
    predictor: PredictorConfig = PredictorConfig()

    def __post_init__(self) -> None:
        for name, part in (("encoder", self.encoder), ("predictor", self.predictor)):
            if part.heads < 1 or part.dim % part.heads or (part.dim // part.heads) % 2:
                raise ValueError(
                    f"{name}.dim {part.dim} must split into {part.heads} heads of even width."
                )
        if any(side % self.encoder.patch_size for side in self.encoder.image_size):
            raise ValueError(
                f"encoder.image_size {self.encoder.image_size} must be a multiple of "
                f"encoder.patch_size {self.encoder.patch_size}."
            )

    def to_dict(self) -> dict[str, Any]:
        """Plain values, to be stored beside the weights."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> WorldModelConfig:
        """The inverse of `to_dict`."""
        encoder = dict(values["encoder"])
        encoder["image_size"] = tuple(encoder["image_size"])
        return cls(EncoderConfig(**encoder), PredictorConfig(**values["predictor"]))


VIT_L = EncoderConfig(dim=1024, depth=24, heads=16, mlp_hidden=4096)
"""The encoder of Meta's ``vitl.pt``."""

VIT_H = EncoderConfig(dim=1280, depth=32, heads=16, mlp_hidden=5120)
"""The encoder of Meta's ``vith.pt``."""

VIT_G = EncoderConfig()
"""The encoder of Meta's ``vitg.pt`` and ``vjepa2-ac-vitg.pt``."""

VJEPA2_AC_VITG = WorldModelConfig(VIT_G)
"""Meta's released checkpoint ``vjepa2-ac-vitg.pt``: 1.3 billion parameters."""

SMALL = WorldModelConfig(
    EncoderConfig(image_size=(128, 128), dim=128, depth=3, heads=4, mlp_hidden=512),
    PredictorConfig(dim=128, depth=3, heads=4, mlp_hidden=512),
)
"""The shipped model: the same structure with a thousandth of the parameters."""

PRESETS: Mapping[str, WorldModelConfig] = MappingProxyType(
    {
        "shipped": SMALL,
        "vjepa2-ac-vitl": WorldModelConfig(VIT_L),
        "vjepa2-ac-vith": WorldModelConfig(VIT_H),
        "vjepa2-ac-vitg": VJEPA2_AC_VITG,
    }
)
"""Sizes by name. Only ``shipped`` comes with weights; Meta released those of ``vjepa2-ac-vitg``."""
