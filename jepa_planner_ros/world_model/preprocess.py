"""From a camera frame to what the encoder was trained on."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

# Mean and deviation of ImageNet's RGB channels.
_MEAN = (0.485, 0.456, 0.406)
_STD = (0.229, 0.224, 0.225)


def preprocess(image: NDArray[np.uint8], size: tuple[int, int]) -> Tensor:
    """Crop, resize and normalise one frame.

    The largest centred crop of the target's aspect ratio, resized bilinearly without antialiasing
    as upstream's evaluation transform does, then normalised with ImageNet's statistics.

    Args:
        image: RGB, uint8, (height, width, 3).
        size: (height, width) that the encoder sees.

    Returns:
        float32 (3, height, width).

    Raises:
        ValueError: `image` is not an RGB image of 8-bit values.
    """
    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3 or image.size == 0:
        raise ValueError(
            f"expected an RGB image of type uint8 and shape (height, width, 3), "
            f"got {image.dtype} {image.shape}."
        )
    height, width = image.shape[:2]
    crop_height = min(height, round(width * size[0] / size[1]))
    crop_width = min(width, round(height * size[1] / size[0]))
    top, left = (height - crop_height) // 2, (width - crop_width) // 2
    crop = np.ascontiguousarray(image[top : top + crop_height, left : left + crop_width])
    pixels = torch.from_numpy(crop).permute(2, 0, 1).float()
    resized = functional.interpolate(pixels[None], size=size, mode="bilinear", align_corners=False)[
        0
    ]
    mean, std = (torch.tensor(v).view(3, 1, 1) for v in (_MEAN, _STD))
    return (resized / 255.0 - mean) / std
