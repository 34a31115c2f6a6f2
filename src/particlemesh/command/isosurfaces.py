# SPDX-License-Identifier: BSD-3-Clause
"""Surfaces on which a field has a value, in the box's coordinates. Marching cubes are scikit-image's, or VTK's."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec

import numpy as np

import particlemesh as pm

LIBRARIES = {"skimage": "scikit-image", "pyvista": "PyVista"}


def half_level(values: np.ndarray) -> list[float]:
    """Return the level whose outside has half of the sum of magnitudes, with both signs if the field has both."""
    size = np.sort(np.abs(values), axis=None)[::-1]
    total = np.cumsum(size)
    if not total[-1] > 0:
        raise ValueError("the field is zero everywhere and has no isosurface.")
    half = float(size[np.searchsorted(total, 0.5 * total[-1])])
    return [sign * half for sign, there in ((1.0, values.max() >= half), (-1.0, values.min() <= -half)) if there]


def surface(mesh: pm.Mesh, values: np.ndarray, level: float) -> tuple[np.ndarray, np.ndarray]:
    """Return points (P, 3) and triangles (T, 3) of a surface, which closes across periodic faces.

    Raises
    ------
    ImportError
        If neither scikit-image nor PyVista is installed.
    """
    if not values.min() < level < values.max():
        return np.empty((0, 3)), np.empty((0, 3), int)
    # One more layer along periodic axes, the first again.
    wrapped = np.pad(values, [(0, int(flag)) for flag in mesh.periodic], mode="wrap")
    if min(wrapped.shape) < 2:
        raise ValueError(f"an isosurface needs two nodes along every axis; the mesh has {mesh.shape}.")
    points, faces = marching_cubes()(wrapped, level)
    fraction = (points + np.array(mesh.offset)) / np.array(mesh.intervals)
    return mesh.box.origin + fraction @ mesh.box.matrix, faces


def marching_cubes() -> Callable[[np.ndarray, float], tuple[np.ndarray, np.ndarray]]:
    """Return the function that a library has: from values and a level to points, in nodes, and triangles.

    Raises
    ------
    ImportError
        If neither scikit-image nor PyVista is installed.
    """
    for name, function in (("skimage", _by_skimage), ("pyvista", _by_vtk)):
        if find_spec(name) is not None:
            return function
    raise ImportError(
        "an isosurface needs scikit-image or PyVista: pip install scikit-image. Projections need neither of them."
    )


def _by_skimage(values: np.ndarray, level: float) -> tuple[np.ndarray, np.ndarray]:
    from skimage.measure import marching_cubes

    points, faces, _, _ = marching_cubes(values, level)
    return points, faces


def _by_vtk(values: np.ndarray, level: float) -> tuple[np.ndarray, np.ndarray]:
    import pyvista

    image = pyvista.ImageData(dimensions=values.shape)
    image.point_data["values"] = values.ravel(order="F")
    surface = image.contour([level], scalars="values", compute_normals=False)
    return np.asarray(surface.points, float), np.asarray(surface.faces).reshape(-1, 4)[:, 1:]
