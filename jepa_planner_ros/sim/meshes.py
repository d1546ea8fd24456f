"""The Panda's visual meshes, thinned out so that a CPU renders them in milliseconds.

The manufacturer's meshes have 134,000 triangles, far more than a camera frame shows, and are
coloured by a texture that holds nothing but patches of plain colours. Each mesh is split by colour
and each part simplified on its own, which keeps the borders between the colours.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import fast_simplification  # type: ignore[import-untyped]
import numpy as np
from numpy.typing import NDArray
from PIL import Image

Colour = tuple[int, int, int]

# Parts with fewer triangles are indicator lights and labels, smaller than a pixel.
_SMALLEST_PART = 16


@dataclass(frozen=True, eq=False)
class ColouredMesh:
    """Triangles of one colour: vertices (n, 3) in m, faces (m, 3) as indices of vertices."""

    colour: Colour
    vertices: NDArray[np.float32]
    faces: NDArray[np.int32]


@cache
def load_coloured_meshes(
    path: Path, texture: Path | None, keep_faces: float
) -> tuple[ColouredMesh, ...]:
    """Read a Wavefront file, split it by the texture's colours and simplify the parts.

    The result is kept: every simulation in a process needs the same.

    Args:
        path: the ``.obj`` file; triangles with texture coordinates.
        texture: the picture that the texture coordinates refer to; None makes the mesh white.
        keep_faces: share of the triangles to keep, 0..1.
    """
    vertices, coordinates, faces, face_coordinates = _read_triangles(path)
    colours = np.full((len(faces), 3), 255, dtype=np.uint8)
    if texture is not None:
        colours = _colours_of(coordinates[face_coordinates].mean(axis=1), texture)
    parts = []
    for colour in np.unique(colours, axis=0):
        mine = (colours == colour).all(axis=1)
        used, part_faces = np.unique(faces[mine], return_inverse=True)
        part_vertices, part_faces = fast_simplification.simplify(
            vertices[used], part_faces.reshape(-1, 3).astype(np.int32), 1.0 - keep_faces
        )
        if len(part_faces) >= _SMALLEST_PART:
            red, green, blue = (int(channel) for channel in colour)
            parts.append(ColouredMesh((red, green, blue), part_vertices, part_faces))
    return tuple(parts)


def _read_triangles(
    path: Path,
) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.int32], NDArray[np.int32]]:
    """Vertices, texture coordinates, and the indices of both for each triangle."""
    vertices: list[list[str]] = []
    coordinates: list[list[str]] = []
    corners: list[list[str]] = []
    for line in path.read_text().splitlines():
        kind, *values = line.split() or [""]
        if kind == "v":
            vertices.append(values[:3])
        elif kind == "vt":
            coordinates.append(values[:2])
        elif kind == "f":
            corners.append([index for corner in values for index in corner.split("/")[:2]])
    indices = np.array(corners, dtype=np.int32).reshape(-1, 3, 2) - 1
    return (
        np.array(vertices, dtype=np.float32),
        np.array(coordinates, dtype=np.float32),
        indices[..., 0],
        indices[..., 1],
    )


def _colours_of(coordinates: NDArray[np.float32], texture: Path) -> NDArray[np.uint8]:
    """Colours (n, 3) of texture coordinates (n, 2), whose second axis points up."""
    with Image.open(texture) as picture:
        pixels = np.asarray(picture.convert("RGB"))
    height, width, _ = pixels.shape
    column = np.floor(coordinates[:, 0] * width).astype(int) % width
    row = np.floor((1.0 - coordinates[:, 1]) * height).astype(int) % height
    colours: NDArray[np.uint8] = pixels[row, column]
    return colours
