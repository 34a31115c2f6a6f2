# SPDX-License-Identifier: BSD-3-Clause
"""A picture of spheres in a box, by a depth buffer in NumPy."""

from __future__ import annotations

import itertools

import numpy as np
from scipy.ndimage import gaussian_filter, zoom

LIGHT = np.array([-0.45, 0.65, 0.62])
TURN, TILT = np.radians(33.0), np.radians(17.0)
DISTANCE = 3.4  # of the eye from the middle of the box, in edges
MIDDLE = 0.46  # height of the middle of the box, from the top
FINE = 2  # pixels of the buffer for one of the picture, along each axis
EDGE = np.array([0.36, 0.40, 0.45])


def render(centres: np.ndarray, radius: float, edges: np.ndarray, colours: np.ndarray, size: int) -> np.ndarray:
    """Return a picture of lit spheres with shadows in the gaps, and the edges of the box.

    Parameters
    ----------
    centres : ndarray, shape (N, 3)
        Within the box, whose corner is at 0.
    radius : float
        Of all spheres.
    edges : ndarray, shape (3,)
        Of the box.
    colours : ndarray, shape (N, 3)
        RGB from 0 to 1.
    size : int
        Pixels along each side, an even number.

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
    for (x, y, z), tint in zip(seen / longest, colours, strict=True):
        near = scale / (DISTANCE - z)
        _ball(
            depth, normals, colour, pixels / 2 + x * near, pixels * MIDDLE - y * near, z, radius / longest, near, tint
        )
    picture = _lit(depth, normals, colour)
    _frame(picture, depth, edges / longest, view, scale)
    return picture.reshape(size, FINE, size, FINE, 3).mean(axis=(1, 3)).clip(0, 1)


def _view() -> np.ndarray:
    """Return the rotation to the eye's axes: right, up, towards the eye."""
    (ct, st), (cu, su) = (np.cos(TURN), np.sin(TURN)), (np.cos(TILT), np.sin(TILT))
    turned = np.array([[ct, st, 0], [0, 0, 1], [st, -ct, 0]])
    return np.array([[1, 0, 0], [0, cu, -su], [0, su, cu]]) @ turned


def _ball(depth, normals, colour, column, row, z, radius, near, tint):
    """Draw one sphere where it is nearer than what is there."""
    reach = radius * near
    rows = slice(max(int(row - reach), 0), max(min(int(row + reach) + 2, len(depth)), 0))
    columns = slice(max(int(column - reach), 0), max(min(int(column + reach) + 2, len(depth)), 0))
    u = (np.arange(columns.start, columns.stop) + 0.5 - column) / reach
    v = (row - np.arange(rows.start, rows.stop) - 0.5) / reach
    inside = 1 - u * u - (v * v)[:, None]
    height = np.sqrt(np.maximum(inside, 0))
    front = (inside > 0) & (z + radius * height > depth[rows, columns])
    depth[rows, columns][front] = (z + radius * height)[front]
    normal = np.stack(np.broadcast_arrays(u, v[:, None], height), axis=-1)
    normals[rows, columns][front] = normal[front]
    colour[rows, columns][front] = tint


def _lit(depth: np.ndarray, normals: np.ndarray, colour: np.ndarray) -> np.ndarray:
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
    haze = np.clip((front - solid) / deep, 0, 1)[:, None] ** 1.2 * 0.5
    picture = np.ones_like(colour)
    picture[there] = (colour[there] * shade[:, None] + shine[:, None]) * (1 - haze) + haze * [0.93, 0.95, 0.97]
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
