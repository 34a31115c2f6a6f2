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
STRIDES = (1.0, 1.618, 1.324)  # between them, relatively: of one alone a lattice may show the same row again and again
PARTS = {1: 512, 2: 22, 3: 8}  # of an axis, by axes: about 500 of the box
AHEAD = 4  # places in memory: molecules in any order are not in order
NEAR = 0.6  # of the way to any other particle: who is that many places ahead is nearer where particles are in order
# Particles times applications from which on it pays to look, which takes some tenths of a millisecond.
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
    strides = dict.fromkeys(max(1, int(share * x.count / SAMPLE)) for share in STRIDES)
    samples = [_fractions(backend, box, x, 0, stride) for stride in strides]
    ahead = _fractions(backend, box, x, AHEAD, next(iter(strides)))
    return Arrangement(max(_filled(sample, box.ndim) for sample in samples), _in_order(box, samples[0], ahead))


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


def _in_order(box: Box, here: np.ndarray, ahead: np.ndarray) -> bool:
    """Return whether most particles are nearer to those a few places ahead in memory than to others."""
    if not len(ahead):
        return False

    def way(steps: np.ndarray) -> float:
        steps = np.where(box.periodic, steps - np.rint(steps), steps)  # to the nearest image
        return float(np.median(np.linalg.norm(steps @ box.matrix, axis=-1)))

    others = np.random.default_rng(0).permutation(here)
    return way(ahead - here[: len(ahead)]) < NEAR * way(others - here)
