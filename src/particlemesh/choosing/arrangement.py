# SPDX-License-Identifier: BSD-3-Clause
"""The arrangement of particles, estimated from a sample: clustering, order in memory, and lattices.

Clusters are as dense as many more particles would be. The time of a particle depends on how many others are near it,
not on the mean density. Particles in order touch fewer cache lines. Particles of a lattice occupy few layers of
cells, with many in each.
"""

from __future__ import annotations

import functools
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
BITS = {1: 21, 2: 15, 3: 10}  # of a place along an axis, by number of axes
NEARLY = 0.8  # of the box: particles that fill as much have no crowds worth telling apart
NEIGHBOURS = 16  # of the sample: their number in a volume tells how dense it is, to a quarter
SHIFTS = (0.0, 0.36)  # of the places of cuboids
UNIFORM = 0.9  # density that is measured if the sample is uniform
APART = 8.0  # times the density: from here on particles are of another crowd
LEAST_SHARE = 0.04  # of the particles: smaller crowds belong to the next denser one
WINDOW = 8  # nodes along an axis that a warp owns or walks over: what is denser on a smaller scale is no denser for it
COARSE = 2.0  # times what parts show: a denser crowd lies within parts
# The least particles times applications for which sampling pays; it takes some tenths of a millisecond.
WORTH, WORTH_ON_CPU = 100_000, 10_000


class Arrangement(NamedTuple):
    """The arrangement of particles; by default uniform and in random order."""

    filled: float = 1.0  # of the box
    in_order: bool = False
    occupied: float = 1.0  # of the layers of cells across an axis, relative to uniform particles; mean over axes
    # The crowds of particles, if their densities differ: the share of particles, and the fraction of the box that all
    # particles would fill as densely. Empty if all are of one crowd, which `filled` describes.
    crowds: tuple[tuple[float, float], ...] = ()


def worth(backend: Backend, particles: int, applications: int) -> bool:
    """Return whether there is enough work for sampling to pay."""
    return particles * applications >= (WORTH_ON_CPU if backend.name == "cpu" else WORTH)


def sample(backend: Backend, mesh: Mesh, x: Coordinates) -> Arrangement:
    """Return the arrangement of particles, from a sample; waits for the device."""
    box = mesh.box
    # Odd strides visit every site of a lattice's row of even length.
    strides = dict.fromkeys(int(share * x.count / SAMPLE) | 1 for share in STRIDES)
    samples = [_fractions(backend, box, x, 0, stride) for stride in strides]
    ahead = _fractions(backend, box, x, AHEAD, next(iter(strides)))
    seen = [_filled(sample, box.ndim) for sample in samples]
    filled = max(seen)
    least = min(PARTS[box.ndim] ** -box.ndim, math.prod(WINDOW / n for n in mesh.shape))
    largest = next(s for s, share in zip(samples, seen, strict=True) if COARSE * share >= filled)  # no row of a lattice
    groups = crowds(largest, least) if filled < NEARLY else ()
    if len(groups) == 1:
        filled = groups[0][1] if COARSE * groups[0][1] < filled else filled
        groups = ()
    occupied = _occupied(np.concatenate(samples), mesh.shape, filled)
    return Arrangement(filled, _in_order(box, samples[0], ahead), occupied, groups)


def crowds(fractions: np.ndarray, least: float = 0.0) -> tuple[tuple[float, float], ...]:
    """Return the crowds of a sample of positions in fractions of the box, the sparsest first.

    Parameters
    ----------
    fractions : (N, axes) float
    least : float
        Of the box, that any crowd fills.

    Returns
    -------
    tuple of (share, filled)
        The share of particles of each crowd, and the fraction of the box that all particles would fill as densely.

    Examples
    --------
    Nine tenths of the particles lie in a thousandth of the box:

    >>> x = np.random.default_rng(1).random((2000, 3))
    >>> x[:1800] *= 0.1
    >>> [(round(share, 1), round(np.log10(filled))) for share, filled in crowds(x)]
    [(0.1, 0), (0.9, -3)]
    """
    density = np.sort(_densities(fractions))
    groups: list[tuple[int, float]] = []  # particles, and the sum of their densities
    first, count = 0, len(density)
    while first < count:
        end = int(np.searchsorted(density, APART * density[first]))
        while end < count and end - first < LEAST_SHARE * count:  # too few: together with the next
            end = int(np.searchsorted(density, APART * density[end]))
        end = count if count - end < LEAST_SHARE * count else end
        number, total = end - first, float(density[first:end].sum())
        if groups and total / number < APART / 2 * groups[-1][1] / groups[-1][0]:  # one crowd, with some noise
            number, total = number + groups[-1][0], total + groups[-1][1]
            groups.pop()
        groups.append((number, total))
        first = end
    return tuple((n / count, max(least, min(1.0, UNIFORM * n / total))) for n, total in groups)


def _densities(fractions: np.ndarray) -> np.ndarray:
    """Return the density around each particle of a sample, relative to a uniform cloud's.

    In Morton's order particles with common leading bits lie in one cuboid. The smallest one that holds a particle and
    its :data:`NEIGHBOURS` next in order has as many more bits in common as it is smaller. Cuboids across the border of
    a cluster are partly empty, so that each particle has the densest of cuboids at several places.
    """
    count, ndim = fractions.shape
    each = min(NEIGHBOURS, count - 1)
    if each < 1:
        return np.ones(count)
    every = BITS[ndim] * ndim
    least = np.full(count, every)
    for shift in SHIFTS:
        code = _code(np.mod(fractions + shift, 1))
        order = code.argsort(kind="stable")
        code = code[order]
        differing = np.frexp((code[each:] ^ code[:-each]).astype(np.float64))[1]  # bits, of a group of neighbours
        groups = np.full(count + each, every)
        groups[each:-each] = differing
        held, span = groups, 1  # the least of groups that follow each other: those that hold a particle
        while span <= each:
            step = min(span, each + 1 - span)
            held, span = np.minimum(held[:-step], held[step:]), span + step
        least[order] = np.minimum(least[order], held)
    return (each + 1) / count * 2.0 ** (every - least)


def _code(fractions: np.ndarray) -> np.ndarray:
    """Return the places of particles in Morton's order."""
    ndim = fractions.shape[1]
    places = (fractions * 2 ** BITS[ndim]).astype(np.int64).clip(0, 2 ** BITS[ndim] - 1)
    if ndim == 1:
        return places[:, 0]
    spread = _spread_bits(ndim)[places]
    return np.asarray((spread << np.arange(ndim)).sum(axis=1))


@functools.cache
def _spread_bits(ndim: int) -> np.ndarray:
    """Return all places along an axis with their bits ``ndim`` apart."""
    places = np.arange(2 ** BITS[ndim])
    return np.asarray(sum((places >> bit & 1) << bit * ndim for bit in range(BITS[ndim])))


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
