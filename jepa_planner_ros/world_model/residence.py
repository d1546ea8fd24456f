"""Latents on the device."""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import Tensor

from jepa_planner_ros.types import Float32Array

# The frame's and the goal's, for a few plans that are made in turns.
_RESIDENTS = 48


class ResidentLatents:
    """Keeps the latents in use on the device, so that a round need not send them there again.

    Latents are known by the array that holds them, which must not change while it is in use.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        # With each tensor goes its array: as long as that lives, no other has its identity.
        self._residents: OrderedDict[int, tuple[Float32Array, Tensor]] = OrderedDict()

    def tensor(self, latent: Float32Array) -> Tensor:
        """The latents (tokens, dim) on the device."""
        key = id(latent)
        if key not in self._residents:
            # What is made in inference mode could not be differentiated later.
            with torch.inference_mode(False):
                self._residents[key] = latent, torch.tensor(latent, device=self._device)
            if len(self._residents) > _RESIDENTS:
                self._residents.popitem(last=False)
        self._residents.move_to_end(key)
        return self._residents[key][1]
