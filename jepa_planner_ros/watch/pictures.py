"""Pictures as the page loads them: JPEG, of a bounded size, made seldom and only when asked for."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image as PillowImage

_LONGEST_SIDE = 720
"""Pixels."""
_QUALITY = 85
_PERIOD = 0.15
"""Least time between two encodings of the same picture, s, however many ask for it."""


@dataclass(frozen=True, eq=False)
class Source:
    """A picture that may be asked for.

    Attributes:
        number: changes with the content.
        decode: gives RGB pixels (height, width, 3); raises ValueError when it cannot be done.
    """

    number: int
    decode: Callable[[], NDArray[np.uint8]]


def jpeg(pixels: NDArray[np.uint8]) -> bytes:
    """RGB pixels (height, width, 3) as a JPEG file, made smaller where they are many."""
    picture = PillowImage.fromarray(pixels)
    picture.thumbnail((_LONGEST_SIDE, _LONGEST_SIDE))
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=_QUALITY)
    return buffer.getvalue()


class Album:
    """The newest JPEG of each picture; asked by one thread at a time.

    Args:
        clock: seconds, steady.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._made: dict[str, tuple[int, float, bytes]] = {}

    def get(self, name: str, sources: Mapping[str, Source]) -> bytes | None:
        """The picture of that name, at most a moment old; None where there is none.

        Raises:
            ValueError: it cannot be decoded.
        """
        source = sources.get(name)
        if source is None:
            self._made.pop(name, None)
            return None
        now = self._clock()
        number, made_at, content = self._made.get(name, (None, 0.0, b""))
        if number is None or (number != source.number and now - made_at >= _PERIOD):
            content = jpeg(source.decode())
            self._made[name] = (source.number, now, content)
        return content
