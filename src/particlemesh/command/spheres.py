# SPDX-License-Identifier: BSD-3-Clause
"""A picture of spheres in a box, by a depth buffer in NumPy."""

from __future__ import annotations

import itertools
import math

import numpy as np
from numba import njit
from scipy.ndimage import gaussian_filter, zoom

LIGHT = np.array([-0.45, 0.65, 0.62])
TURN, TILT = np.radians(33.0), np.radians(17.0)
DISTANCE = 3.4  # of the eye from the middle of the box, in edges
MIDDLE = 0.46  # height of the middle of the box, from the top
FINE = 2  # pixels of the buffer for one of the picture, along each axis
EDGE = np.array([0.36, 0.40, 0.45])


def render(
    centres: np.ndarray,
    radius: float | np.ndarray,
    edges: np.ndarray,
    colours: np.ndarray,
    size: int,
    haze: float = 0.5,
) -> np.ndarray:
    """Return a picture of lit spheres with shadows in the gaps, and the edges of the box.

    Parameters
    ----------
    centres : ndarray, shape (N, 3)
        Within the box, whose corner is at 0.
    radius : float or ndarray (N,)
        Of all spheres, or of each.
    edges : ndarray, shape (3,)
        Of the box.
    colours : ndarray, shape (N, 3)
        RGB from 0 to 1.
    size : int
        Pixels along each side, an even number.
    haze : float
        How pale the farthest spheres are, from 0 to 1.

    Returns
    -------
    ndarray, shape (size, size, 3)
        RGB from 0 to 1 on white, the first row on top.
    """
    longest = float(np.max(edges))
    view = _view()
    seen = (centres - edges / 2) @ view.T
    pixels = size * FINE
    depth = np.full((pixels, pixels), -np.inf)
    normals = np.zeros((pixels, pixels, 3))
    colour = np.ones((pixels, pixels, 3))
    scale = pixels * 0.62 * DISTANCE  # of lengths in edges, divided by the distance from the eye
    near = scale / (DISTANCE - seen[:, 2] / longest)  # pixels per edge at each sphere
    places = np.stack(
        [
            pixels / 2 + seen[:, 0] / longest * near, pixels * MIDDLE - seen[:, 1] / longest * near,
            seen[:, 2] / longest, np.broadcast_to(radius, len(seen)) / longest, near,
        ],
        axis=1,
    )  # fmt: skip
    _balls(depth, normals, colour, places, np.asarray(colours, float))
    picture = _lit(depth, normals, colour, haze)
    _frame(picture, depth, edges / longest, view, scale)
    return picture.reshape(size, FINE, size, FINE, 3).mean(axis=(1, 3)).clip(0, 1)


def extent(edges: np.ndarray, size: int, margin: float = 0.02) -> tuple[slice, slice]:
    """Return the rows and columns of a picture of `render` that the box fills, with a margin in parts of the size."""
    corners = np.array(list(itertools.product((-0.5, 0.5), repeat=3))) * edges / np.max(edges)
    x, y, z = (corners @ _view().T).T
    near = 0.62 * DISTANCE / (DISTANCE - z)
    return tuple(  # type: ignore[return-value]
        slice(max(int(size * (low - margin)), 0), min(math.ceil(size * (high + margin)), size))
        for low, high in (
            ((MIDDLE - y * near).min(), (MIDDLE - y * near).max()), ((0.5 + x * near).min(), (0.5 + x * near).max()),
        )
    )  # fmt: skip


def _view() -> np.ndarray:
    """Return the rotation to the eye's axes: right, up, towards the eye."""
    (ct, st), (cu, su) = (np.cos(TURN), np.sin(TURN)), (np.cos(TILT), np.sin(TILT))
    turned = np.array([[ct, st, 0], [0, 0, 1], [st, -ct, 0]])
    return np.array([[1, 0, 0], [0, cu, -su], [0, su, cu]]) @ turned


@njit(cache=True, nogil=True)
def _balls(depth, normals, colour, places, tints):
    """Draw spheres (column, row, height, radius, pixels per edge) where they are nearer than what is there."""
    pixels = len(depth)
    for n in range(len(places)):
        column, row, z, radius, near = places[n]
        reach = radius * near
        for i in range(max(int(row - reach), 0), min(int(row + reach) + 2, pixels)):
            v = (row - i - 0.5) / reach
            for j in range(max(int(column - reach), 0), min(int(column + reach) + 2, pixels)):
                u = (j + 0.5 - column) / reach
                inside = 1 - u * u - v * v
                if inside <= 0:
                    continue
                height = math.sqrt(inside)
                if z + radius * height > depth[i, j]:
                    depth[i, j] = z + radius * height
                    normals[i, j, 0], normals[i, j, 1], normals[i, j, 2] = u, v, height
                    colour[i, j] = tints[n]


def _lit(depth: np.ndarray, normals: np.ndarray, colour: np.ndarray, haze: float) -> np.ndarray:
    """Return colours with light from above, a highlight, dark gaps and haze with the distance."""
    there = np.isfinite(depth)
    if not there.any():
        return colour
    light = LIGHT / np.linalg.norm(LIGHT)
    half = light + [0, 0, 1]
    half /= np.linalg.norm(half)
    normals = normals[there]
    diffuse = 0.5 + 0.5 * (normals @ light)  # softer than the cosine: no side is black
    shade = 0.30 + 0.78 * diffuse**1.5
    shine = 0.22 * np.maximum(normals @ half, 0) ** 40
    solid = depth[there]
    back, front = np.quantile(solid, (0.01, 1.0))
    deep = max(front - back, 1e-9)
    # What lies behind its surroundings gets less light from the sky. Their mean is smooth: every fourth pixel will do.
    coarse = np.where(there, depth, back)[::4, ::4]
    for width, strength in ((len(depth) / 160, 5.0), (len(depth) / 40, 2.0)):
        around = zoom(gaussian_filter(coarse, width / 4), 4, order=1)[there]
        shade *= np.exp(-strength * np.maximum(around - solid, 0) / deep)
    veil = np.clip((front - solid) / deep, 0, 1)[:, None] ** 1.2 * haze
    picture = np.ones_like(colour)
    picture[there] = (colour[there] * shade[:, None] + shine[:, None]) * (1 - veil) + veil * [0.93, 0.95, 0.97]
    return picture


def _frame(picture: np.ndarray, depth: np.ndarray, edges: np.ndarray, view: np.ndarray, scale: float) -> None:
    """Draw the twelve edges of the box where no sphere is before them."""
    pixels = len(depth)
    t = np.linspace(0, 1, 3 * pixels)[:, None]
    for axis in range(3):
        for corner in itertools.product((-0.5, 0.5), repeat=2):
            start = np.insert(np.array(corner), axis, -0.5) * edges
            x, y, z = ((start + t * np.eye(3)[axis] * edges) @ view.T).T
            near = scale / (DISTANCE - z)
            columns, rows = (pixels / 2 + x * near).astype(int), (pixels * MIDDLE - y * near).astype(int)
            for dx, dy in itertools.product((0, 1), repeat=2):
                place = (rows + dy).clip(0, pixels - 1), (columns + dx).clip(0, pixels - 1)
                free = z > depth[place]
                picture[place[0][free], place[1][free]] = EDGE
