# SPDX-License-Identifier: BSD-3-Clause
"""Clouds of particles that uniform grids are measured on; the same every time."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

CLOUDS = ("uniform", "clustered", "settled", "nearly sorted", "lattice")


def cloud(name: str, count: int, ndim: int = 3, cells: int = 64, dtype: str = "float32") -> NDArray[np.floating]:
    """Return positions (count, ndim) in the unit box.

    Parameters
    ----------
    name : str
        ``uniform``: independent, in random order. ``clustered``: uniform in a cube of 1 % of the volume, random order.
        ``settled``: uniform in the lowest eighth along the last axis, random order. ``nearly sorted``: uniform, in
        the order of the cells a step ago, each coordinate moved by 0.1 cells since (standard deviation).
        ``lattice``: a cubic lattice in its own order.
    count, ndim : int
        Particles and axes.
    cells : int
        Cells per axis, for ``nearly sorted``.
    dtype : str
        Of the positions.
    """
    if name == "lattice":
        return _below_one(_lattice(count, ndim).astype(dtype))
    x = _uniform(2 ** max(10, math.ceil(math.log2(max(count, 1)))), ndim)[:count]
    if name == "clustered":
        side = 0.01 ** (1 / ndim)
        x = (0.5 - side / 2) + side * x  # around the middle: the faces of the cube are not those of cells
    elif name == "settled":
        x = x * np.array([1.0] * (ndim - 1) + [0.125])
    elif name == "nearly sorted":
        x = x[np.argsort(keys(x, cells), kind="stable")]
        x = (x + np.random.default_rng(5).standard_normal(x.shape) * (0.1 / cells)) % 1.0
    elif name != "uniform":
        raise ValueError(f"There is no cloud {name!r}; there are {', '.join(CLOUDS)}.")
    return _below_one(x.astype(dtype))


def keys(x: NDArray[np.floating], cells: int) -> NDArray[np.int64]:
    """Return the cell of each particle of the unit box, the last axis fastest."""
    place = np.minimum((x * cells).astype(np.int64), cells - 1)
    key = place[:, 0]
    for axis in range(1, x.shape[1]):
        key = key * cells + place[:, axis]
    return key


def side(count: int, neighbours: float, ndim: int = 3) -> float:
    """Return the side of a box in which ``neighbours`` lie within unit distance, in the mean and far from faces."""
    ball = {1: 2.0, 2: math.pi, 3: 4 * math.pi / 3}[ndim]
    return float((count * ball / neighbours) ** (1 / ndim))


def caesium_chloride(copies: int) -> tuple[NDArray[np.float64], float, float]:
    """Return positions, side and cutoff of a CsCl crystal in which every atom has 26 neighbours.

    The lattice constant is 4.12 angstrom, the cutoff 6: shells of 8, 6 and 12 atoms lie within it.
    """
    constant = 4.12
    corners = np.stack(np.meshgrid(*[np.arange(copies)] * 3, indexing="ij"), -1).reshape(-1, 1, 3)
    sites = (corners + np.array([0.25, 0.75]).reshape(2, 1)).reshape(-1, 3)
    return sites * constant, copies * constant, 6.0


@lru_cache(maxsize=2)
def _uniform(count: int, ndim: int) -> NDArray[np.float64]:
    return np.random.default_rng(1).random((count, ndim))


def _lattice(count: int, ndim: int) -> NDArray[np.float64]:
    edge = math.ceil(count ** (1 / ndim) - 1e-9)
    site = np.arange(count) * edge**ndim // max(count, 1)  # too many sites: some are left out, evenly
    return (np.stack(np.unravel_index(site, (edge,) * ndim), -1) + 0.5) / edge


def _below_one(x: NDArray[np.floating]) -> NDArray[np.floating]:
    return np.minimum(x, np.nextafter(x.dtype.type(1), x.dtype.type(0)))
