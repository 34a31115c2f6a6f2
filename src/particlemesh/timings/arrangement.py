# SPDX-License-Identifier: BSD-3-Clause
"""How particles lie: how much of the box they fill, and whether neighbours in memory are neighbours in space.

Clusters are as dense as many more particles would be; particles in order meet fewer lines of memory.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from particlemesh.backends.base import Backend
from particlemesh.box import Box
from particlemesh.geometry import Coordinates

SAMPLE = 1024  # particles that are looked at
PARTS = {1: 512, 2: 22, 3: 8}  # of an axis, by axes: about 500 of the box
NEAR = 0.3  # of the way to any other particle: the next in memory is nearer where particles are in order
# Particles times applications from which on it pays to look, which takes about 0.1 ms.
WORTH, WORTH_ON_CPU = 100_000, 10_000


class Arrangement(NamedTuple):
    """How particles lie; anywhere in the box and in any order, where nobody has looked."""

    filled: float = 1.0  # of the box
    in_order: bool = False


def worth(backend: Backend, particles: int, applications: int) -> bool:
    """Return whether so much is to be done that it pays to look."""
    return particles * applications >= (WORTH_ON_CPU if backend.name == "cpu" else WORTH)


def look(backend: Backend, box: Box, x: Coordinates) -> Arrangement:
    """Return how particles lie, from a few of them; waits for the device."""
    stride = max(1, x.count // SAMPLE)
    here, behind = (_fractions(backend, box, x, first, stride) for first in (0, 1))
    return Arrangement(_filled(here, box.ndim), _in_order(here, behind))


def _fractions(backend: Backend, box: Box, x: Coordinates, first: int, stride: int) -> np.ndarray:
    """Return the places of every so many particles (N, axes), in fractions of the box."""
    rows = {id(array): backend.download(array[first::stride]) for array in {id(a): a for a in x.arrays}.values()}
    found = [rows[id(array)] for array in x.arrays]
    sample = np.stack([f if f.ndim == 1 else f[:, axis] for axis, f in enumerate(found)], axis=-1)
    with np.errstate(all="ignore"):  # positions may be as far away as numbers go
        fractions = np.mod(box.fractional(sample), 1)
    return np.where(np.isfinite(fractions), fractions, 0)


def _filled(fractions: np.ndarray, ndim: int) -> float:
    """Return the fraction of a box in which particles are.

    One over the box's parts times the chance that two particles are in the same one: 1 for particles anywhere.
    """
    parts = PARTS[ndim]
    cells = (fractions * parts).astype(np.int64).clip(0, parts - 1)
    inside = np.bincount(np.ravel_multi_index(tuple(cells.T), (parts,) * ndim))
    pairs = float((inside * (inside - 1)).sum())  # of different particles: few of them do not look like a cluster
    alike = pairs / (len(fractions) * max(len(fractions) - 1, 1))
    return float(min(1.0, 1 / max(alike * parts**ndim, 1.0)))


def _in_order(here: np.ndarray, behind: np.ndarray) -> bool:
    """Return whether most particles are much nearer to the next in memory (``behind``) than to others."""
    half = len(here) // 2
    if not half:
        return False

    def way(steps: np.ndarray) -> float:
        return float(np.median(np.abs(steps - np.rint(steps)).max(axis=-1)))  # to the nearest image

    return way(behind - here[: len(behind)]) < NEAR * way(here[half:] - here[: len(here) - half])
