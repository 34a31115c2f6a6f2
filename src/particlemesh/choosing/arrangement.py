# SPDX-License-Identifier: BSD-3-Clause
"""The arrangement of particles, estimated from a sample: clustering, order in memory, and lattices.

Clusters are as dense as many more particles would be. Particles in order touch fewer cache lines. Particles of a
lattice occupy few layers of cells, with many in each.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from particlemesh.arrays.positions import Coordinates
from particlemesh.backends.base import Backend
from particlemesh.box import Box
from particlemesh.mesh import Mesh

SAMPLE = 1024  # particles
STRIDES = (1.0, 1.618, 1.324)  # of samples, relative: with a single one a lattice may show the same row repeatedly
PARTS = {1: 512, 2: 22, 3: 8}  # per axis, by number of axes: about 500 of the box
AHEAD = 4  # places in memory: beyond one molecule
NEAR = 0.6  # in order: the particle AHEAD is nearer than this fraction of the distance to a random one
# The least particles times applications for which sampling pays; it takes some tenths of a millisecond.
WORTH, WORTH_ON_CPU = 100_000, 10_000


class Arrangement(NamedTuple):
    """The arrangement of particles; by default uniform and in random order."""

    filled: float = 1.0  # of the box
    in_order: bool = False
    occupied: float = 1.0  # of the layers of cells across an axis, relative to uniform particles; mean over axes


def worth(backend: Backend, particles: int, applications: int) -> bool:
    """Return whether there is enough work for sampling to pay."""
    return particles * applications >= (WORTH_ON_CPU if backend.name == "cpu" else WORTH)


def look(backend: Backend, mesh: Mesh, x: Coordinates) -> Arrangement:
    """Return the arrangement of particles, from a sample; waits for the device."""
    box = mesh.box
    # Odd strides visit every site of a lattice's row of even length.
    strides = dict.fromkeys(int(share * x.count / SAMPLE) | 1 for share in STRIDES)
    samples = [_fractions(backend, box, x, 0, stride) for stride in strides]
    ahead = _fractions(backend, box, x, AHEAD, next(iter(strides)))
    filled = max(_filled(sample, box.ndim) for sample in samples)
    occupied = _occupied(np.concatenate(samples), mesh.shape, filled)
    return Arrangement(filled, _in_order(box, samples[0], ahead), occupied)


def _fractions(backend: Backend, box: Box, x: Coordinates, first: int, stride: int) -> np.ndarray:
    """Return the positions of every ``stride``-th particle (N, axes), in fractions of the box."""
    rows = {id(array): backend.download(array[first::stride]) for array in {id(a): a for a in x.arrays}.values()}
    per_axis = [rows[id(array)] for array in x.arrays]
    sample = np.stack([r if r.ndim == 1 else r[:, axis] for axis, r in enumerate(per_axis)], axis=-1)
    with np.errstate(all="ignore"):  # positions may be as large as numbers can be
        fractions = np.mod(box.fractional(sample), 1)
    return np.where(np.isfinite(fractions), fractions, 0)


def _filled(fractions: np.ndarray, ndim: int) -> float:
    """Return the fraction of a box that particles fill.

    It is 1 / (parts * probability that two particles share a part): 1 for uniform particles.
    """
    parts = PARTS[ndim]
    cells = (fractions * parts).astype(np.int64).clip(0, parts - 1)
    inside = np.bincount(np.ravel_multi_index(tuple(cells.T), (parts,) * ndim))
    pairs = float((inside * (inside - 1)).sum())  # of different particles: so few are no cluster
    alike = pairs / (len(fractions) * max(len(fractions) - 1, 1))
    return float(min(1.0, 1 / max(alike * parts**ndim, 1.0)))


def _occupied(fractions: np.ndarray, shape: tuple[int, ...], filled: float) -> float:
    """Return the occupied layers of cells across an axis, relative to those that uniform particles would occupy.

    The geometric mean over axes: 1 for uniform particles, less for a lattice with fewer sites than cells.
    """
    shares = []
    for places, cells in zip(fractions.T, shape, strict=True):
        room = max(1.0, cells * filled ** (1 / len(shape)))  # layers across a cubic cluster
        expected = -room * math.expm1(-len(places) / room)
        shares.append(min(1.0, len(np.unique((places * cells).astype(np.int64))) / expected) if len(places) else 1.0)
    return math.prod(shares) ** (1 / len(shares))


def _in_order(box: Box, here: np.ndarray, ahead: np.ndarray) -> bool:
    """Return whether most particles are nearer to those :data:`AHEAD` in memory than to random ones."""
    if not len(ahead):
        return False

    def distance(steps: np.ndarray) -> float:
        steps = np.where(box.periodic, steps - np.rint(steps), steps)  # to the nearest image
        return float(np.median(np.linalg.norm(steps @ box.matrix, axis=-1)))

    others = np.random.default_rng(0).permutation(here)
    return distance(ahead - here[: len(ahead)]) < NEAR * distance(others - here)
