# SPDX-License-Identifier: BSD-3-Clause
"""How particles lie: how much of the box they fill, whether neighbours in memory are neighbours in space, how evenly.

Clusters are as dense as many more particles would be; particles in order meet fewer lines of memory; those of a lattice
lie in some layers of cells, many in each.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from particlemesh.arrays.positions import Coordinates
from particlemesh.backends.base import Backend
from particlemesh.box import Box
from particlemesh.mesh import Mesh

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
    occupied: float = 1.0  # of the mesh's layers of cells across an axis, the mean


def worth(backend: Backend, particles: int, applications: int) -> bool:
    """Return whether so much is to be done that it pays to look."""
    return particles * applications >= (WORTH_ON_CPU if backend.name == "cpu" else WORTH)


def look(backend: Backend, mesh: Mesh, x: Coordinates) -> Arrangement:
    """Return how particles lie, from a few of them; waits for the device."""
    box = mesh.box
    # Odd ones meet every site of a lattice's row of even length.
    strides = dict.fromkeys(int(share * x.count / SAMPLE) | 1 for share in STRIDES)
    samples = [_fractions(backend, box, x, 0, stride) for stride in strides]
    ahead = _fractions(backend, box, x, AHEAD, next(iter(strides)))
    filled = max(_filled(sample, box.ndim) for sample in samples)
    occupied = _occupied(np.concatenate(samples), mesh.shape, filled)
    return Arrangement(filled, _in_order(box, samples[0], ahead), occupied)


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


def _occupied(fractions: np.ndarray, shape: tuple[int, ...], filled: float) -> float:
    """Return the layers of cells with particles over those that as many particles anywhere would be in, of an axis.

    The geometric mean of all axes: 1 for particles anywhere, less for a lattice with fewer sites than cells.
    """
    shares = []
    for places, cells in zip(fractions.T, shape, strict=True):
        room = max(1.0, cells * filled ** (1 / len(shape)))  # layers of a cluster, if it is a cube
        expected = -room * math.expm1(-len(places) / room)
        shares.append(min(1.0, len(np.unique((places * cells).astype(np.int64))) / expected) if len(places) else 1.0)
    return math.prod(shares) ** (1 / len(shares))


def _in_order(box: Box, here: np.ndarray, ahead: np.ndarray) -> bool:
    """Return whether most particles are nearer to those a few places ahead in memory than to others."""
    if not len(ahead):
        return False

    def way(steps: np.ndarray) -> float:
        steps = np.where(box.periodic, steps - np.rint(steps), steps)  # to the nearest image
        return float(np.median(np.linalg.norm(steps @ box.matrix, axis=-1)))

    others = np.random.default_rng(0).permutation(here)
    return way(ahead - here[: len(ahead)]) < NEAR * way(others - here)
