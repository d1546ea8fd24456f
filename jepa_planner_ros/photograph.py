"""Photographs of goals as files: PNG, with the arm's state inside."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from jepa_planner_ros.types import Float64Array

STATE_KEY = "end_effector_state"
"""Name of the text in a PNG that holds the state, a JSON list of seven numbers."""


def save_photograph(image: NDArray[np.uint8], state: Float64Array, path: Path) -> None:
    """Write an RGB image (height, width, 3) as PNG, with the state (7,) that it was taken at.

    Raises:
        OSError: the file cannot be written.
    """
    Image.fromarray(image).save(path, "PNG", pnginfo=_texts(state))


def photograph_file(
    image: NDArray[np.uint8], state: Float64Array | None, compress_level: int
) -> bytes:
    """The same as the content of a file; the state may be unknown. Levels of compression: 0..9."""
    buffer = io.BytesIO()
    texts = None if state is None else _texts(state)
    Image.fromarray(image).save(buffer, "PNG", pnginfo=texts, compress_level=compress_level)
    return buffer.getvalue()


def _texts(state: Float64Array) -> PngInfo:
    texts = PngInfo()
    texts.add_text(STATE_KEY, json.dumps(state.tolist()))
    return texts


def state_inside(content: bytes) -> Float64Array | None:
    """The state (7,) in the content of a photograph's file; None where there is none of use."""
    try:
        with Image.open(io.BytesIO(content)) as picture:
            return _state_in(picture)
    except (OSError, ValueError):
        return None


def read_photograph(path: Path) -> tuple[NDArray[np.uint8], Float64Array | None]:
    """RGB pixels (height, width, 3) of any picture, and the arm's state (7,) if it holds one.

    Raises:
        OSError: there is no such picture.
    """
    with Image.open(path) as picture:
        return np.array(picture.convert("RGB")), _state_in(picture)


def _state_in(picture: Image.Image) -> Float64Array | None:
    try:
        state = np.array(json.loads(picture.info[STATE_KEY]), dtype=np.float64)
    except (ArithmeticError, KeyError, RecursionError, TypeError, ValueError):
        # Numbers of any size and lists of any depth are JSON, too.
        return None
    return state if state.shape == (7,) and np.isfinite(state).all() else None
