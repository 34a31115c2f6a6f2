# SPDX-License-Identifier: BSD-3-Clause
"""Particles, values and fields of all benchmarks, the same in every run."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

SEED = 5
CLOUDS = ("uniform", "clustered", "settled", "nearly sorted", "lattice", "ball")
MOVED = 0.3  # cells that `moved` moves a particle
REALS = {"real": 1, "complex": 2, "3": 3, "4": 4, "8": 8}  # reals per particle; numbers are real components


@lru_cache(maxsize=2)
def positions(
    cloud: str, count: int, dtype: str = "float32", ndim: int = 3, cells: int = 64, seed: int = SEED
) -> NDArray[np.floating]:
    """Return positions (count, ndim) in the unit box.

    Parameters
    ----------
    cloud : str
        ``uniform``: independent, in random order. ``clustered``: uniform in a cube of 1 % of the volume, in random
        order. ``settled``: uniform in the lowest eighth along the last axis, in random order. ``nearly sorted``:
        uniform, sorted by cell and then moved by 0.1 cells per axis (standard deviation). ``lattice``: a cubic
        lattice in its own order. ``ball``: nine tenths of the particles in a ball of radius 1/16.
    count, ndim : int
        Particles and axes.
    cells : int
        Cells per axis of ``nearly sorted``.
    dtype : str
        Type of the positions.
    """
    if cloud == "lattice":
        return _below_one(_lattice(count, ndim), dtype)
    rng = np.random.default_rng(seed)
    x: NDArray[np.floating] = rng.random((count, ndim), np.dtype(dtype).type)
    if cloud == "clustered":
        side = 0.01 ** (1 / ndim)
        x = (0.5 - side / 2) + side * x  # around the middle: its faces are not those of cells
    elif cloud == "settled":
        x[:, -1] *= 0.125
    elif cloud == "nearly sorted":
        x = x[np.argsort(keys(x, cells), kind="stable")]
        x = (x + rng.standard_normal(x.shape) * (0.1 / cells)) % 1.0
    elif cloud == "ball":
        dense = rng.random(count) < 0.9
        step = rng.standard_normal((count, ndim))
        step *= rng.random((count, 1)) ** (1 / ndim) / (16 * np.linalg.norm(step, axis=1, keepdims=True))
        x[dense] = 0.5 + step[dense]
    elif cloud != "uniform":
        raise ValueError(f"cloud is {cloud!r}; choose one of {', '.join(CLOUDS)}.")
    return _below_one(x, dtype)


def _lattice(count: int, ndim: int) -> NDArray[np.float64]:
    edge = math.ceil(count ** (1 / ndim) - 1e-9)
    site = np.arange(count) * edge**ndim // max(count, 1)  # with too many sites, some are left out evenly
    return (np.stack(np.unravel_index(site, (edge,) * ndim), -1) + 0.5) / edge


def _below_one(x: NDArray[np.floating], dtype: str) -> NDArray[np.floating]:
    y = x.astype(dtype)
    return np.minimum(y, np.nextafter(y.dtype.type(1), y.dtype.type(0)))


def keys(x: NDArray[np.floating], cells: int) -> NDArray[np.int64]:
    """Return the cell of each particle of the unit box, the last axis fastest."""
    place = np.minimum((x * cells).astype(np.int64), cells - 1)
    key = place[:, 0]
    for axis in range(1, x.shape[1]):
        key = key * cells + place[:, axis]
    return key


def moved(x: NDArray[np.floating], nodes: int) -> NDArray[np.floating]:
    """Return positions (N, 3) in the unit box after each particle moved by 0.3 cells in a random direction."""
    step = np.random.default_rng(SEED + 1).standard_normal(x.shape, np.float32)
    step *= (MOVED / nodes / np.linalg.norm(step, axis=1, keepdims=True)).astype(step.dtype)
    return np.mod(x + step.astype(x.dtype), x.dtype.type(1))


@lru_cache(maxsize=2)
def values(count: int, dtype: str, kind: str) -> NDArray[Any]:
    """Return normally distributed values (N,), or (c, N) of c real components."""
    return _normal((count,), dtype, kind, SEED + 2)


@lru_cache(maxsize=2)
def field(nodes: int, dtype: str, kind: str) -> NDArray[Any]:
    """Return a normally distributed field (K, K, K), or (c, K, K, K) of c real components."""
    return _normal((nodes,) * 3, dtype, kind, SEED + 3)


def _normal(core: tuple[int, ...], dtype: str, kind: str, seed: int) -> NDArray[Any]:
    rng, real = np.random.default_rng(seed), np.dtype(dtype)
    if kind == "complex":
        return rng.standard_normal((*core, 2), real.type).view(np.result_type(real, np.complex64))[..., 0]
    return rng.standard_normal(core if REALS[kind] == 1 else (REALS[kind], *core), real.type)


def side(count: int, neighbours: float, ndim: int = 3) -> float:
    """Return the side of a box with a given mean number of neighbours within unit distance, far from its faces."""
    ball = {1: 2.0, 2: math.pi, 3: 4 * math.pi / 3}[ndim]
    return float((count * ball / neighbours) ** (1 / ndim))


def caesium_chloride(copies: int) -> tuple[NDArray[np.float64], float, float]:
    """Return positions, side and cutoff of a CsCl crystal: every atom has 26 neighbours.

    The lattice constant is 4.12 angstrom, the cutoff 6: shells of 8, 6 and 12 atoms lie within it.
    """
    constant = 4.12
    corners = np.stack(np.meshgrid(*[np.arange(copies)] * 3, indexing="ij"), -1).reshape(-1, 1, 3)
    sites = (corners + np.array([0.25, 0.75]).reshape(2, 1)).reshape(-1, 3)
    return sites * constant, copies * constant, 6.0
