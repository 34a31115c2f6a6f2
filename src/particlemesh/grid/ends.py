# SPDX-License-Identifier: BSD-3-Clause
"""How far the particles of each system reach, and the lengths of open axes that follow.

The ends are found where the positions are, and the host reads no more than them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from particlemesh.arrays.positions import Coordinates, frame_record
from particlemesh.backends.base import Backend, Record, Unread
from particlemesh.backends.jit import compiled
from particlemesh.box import Box

_RUN = 32  # particles of a thread, as ends.c has it
_STEPS = 32  # lengths are multiples of a power of two, this part of them or less: that of a step before mostly serves
_LEAST = 1e-6  # of the given length: particles in a plane need some room across the plane


class Cloud(NamedTuple):
    """Particles of one system or several: their ends, and on request their coordinates on the host."""

    ends: np.ndarray  # (2, d, S): the least and the largest; infinite, and the wrong way round, without particles
    dtype: np.dtype
    columns: Callable[[], list[np.ndarray]]
    system: Callable[[], np.ndarray] | None  # of each particle, on the host; None: one


@dataclass(frozen=True)
class Lattice:
    """Boxes of S systems as a fit needs them, with the systems last."""

    origins: np.ndarray  # (d, S)
    inverse: np.ndarray  # (d, d, S): fractions are the sum over b of inverse[a, b] * (x[b] - origins[b])

    @functools.cached_property
    def across(self) -> np.ndarray:
        """Fractions along each axis that a distance of one spans across its faces, (d, S)."""
        return np.sqrt((self.inverse**2).sum(1))

    @functools.cached_property
    def deciding(self) -> np.ndarray:
        """The one coordinate that decides the fraction along each axis (d,); -1 where several do."""
        used = (self.inverse != 0).any(2)
        return np.where(used.sum(1) == 1, used.argmax(1), -1)

    @functools.cached_property
    def leaning(self) -> list[int]:
        """The axes along which several coordinates decide the fraction."""
        return [*map(int, np.flatnonzero(self.deciding < 0))]

    def fit(self, cloud: Cloud, reach: float, periodic: np.ndarray, repeats: np.ndarray) -> np.ndarray:
        """Return the lengths of fitted boxes, and where they begin, both in fractions of these, (2, d, S).

        Open axes become as long as the particles take, and up to 7 % longer. So a length stays while particles move a
        little, and the memory of a grid stays with it. ``periodic`` (d, S) are those of each system. An axis of
        ``repeats`` (d,) repeats for the search. Where a system is open along it, the axis gets so much room that no
        image is within reach.
        """
        along = np.zeros((2, *self.origins.shape))
        for axis in self.leaning:
            if not periodic[axis].all():
                along[:, axis] = self._along(axis, cloud)
        eps = float(np.finfo(cloud.dtype).eps)
        numbers = self.inverse, self.across, self.origins, self.deciding
        return np.asarray(_fit(cloud.ends, along, *numbers, periodic, repeats, float(reach), eps))

    def _along(self, axis: int, cloud: Cloud) -> np.ndarray:
        """Return the ends (2, S) of the fractions along an axis that several coordinates decide."""
        x, row = cloud.columns(), self.inverse[axis]
        system = np.zeros(len(x[0]), np.int64) if cloud.system is None else cloud.system()
        terms = (r[system] * (column - o[system]) for r, column, o in zip(row, x, self.origins, strict=True))
        with np.errstate(invalid="ignore"):  # of infinite places, which do not count
            fractions = sum(terms)
        return ends_on_host([np.asarray(fractions)], system, row.shape[1])[:, 0]


@compiled
def _fit(ends, along, inverse, across, origins, deciding, periodic, repeats, reach, eps):
    """Return the lengths and begins (2, d, S) of `Lattice.fit`; ``along`` are ends of axes that no coordinate decides.

    NumPy would take twenty calls for it: longer than the list of a molecule.
    """
    axes, systems = origins.shape
    result = np.zeros((2, axes, systems))
    result[0] = 1
    size = np.zeros(axes)
    for s in range(systems):
        for b in range(axes):
            size[b] = max(-ends[0, b, s], ends[1, b, s], 0.0) + abs(origins[b, s])
        near = min(reach, 4 * size.sum())  # no particles are farther apart
        for a in range(axes):
            if periodic[a, s]:
                continue
            b, low, high, rounding = deciding[a], along[0, a, s], along[1, a, s], 0.0
            if b >= 0:
                low = inverse[a, b, s] * (ends[0, b, s] - origins[b, s])
                high = inverse[a, b, s] * (ends[1, b, s] - origins[b, s])
                low, high = min(low, high), max(low, high)
            low, high = low if np.isfinite(low) else 0.0, high if np.isfinite(high) else 0.0
            for c in range(axes):
                rounding += 16 * eps * abs(inverse[a, c, s]) * size[c]  # of a build's fractions
            span = max(high - low + 2 * rounding, near * across[a, s], _LEAST)
            begin = (low + high - span) / 2
            step = math.ldexp(1.0, math.frexp(span / _STEPS)[1] - 1)
            first = np.floor(begin / step) * step
            length = np.ceil((begin + span - first) / step) * step
            result[0, a, s] = length + 1.01 * reach * across[a, s] * repeats[a]
            result[1, a, s] = first
    return result


def ends_on_host(x: list[np.ndarray], system: np.ndarray | None, count: int) -> np.ndarray:
    """Return the ends (2, d, S) of columns (N,); particles that are not finite, or of no system, do not count."""
    ends = np.full((2, len(x), count), np.inf)
    ends[1] = -np.inf
    if not len(x[0]):
        return ends
    if system is None and np.isfinite(whole := np.array([[c.min() for c in x], [c.max() for c in x]])).all():
        return whole[:, :, None].astype(np.float64)
    good = np.logical_and.reduce([np.isfinite(column) for column in x])
    if system is None:
        system = np.zeros(len(good), np.int8)
    good &= (system >= 0) & (system < count)
    if not good.all():
        system, x = system[good], [column[good] for column in x]
    if (system[1:] < system[:-1]).any():
        order = np.argsort(system, kind="stable")
        system, x = system[order], [column[order] for column in x]
    begins = np.flatnonzero(np.diff(system, prepend=-1))
    for axis, column in enumerate(x if len(begins) else ()):
        ends[0, axis, system[begins]] = np.minimum.reduceat(column, begins)
        ends[1, axis, system[begins]] = np.maximum.reduceat(column, begins)
    return ends


def ends_on_device(x: Coordinates, backend: Backend, system: Any, count: int) -> np.ndarray | None:
    """Return the ends (2, d, S), those of doubles rounded outwards to float32; None if float32 does not hold them.

    ``system`` is native (N,) int32, or None. The call waits for the device.
    """
    ndim, narrow = len(x.arrays), max(x.count, *map(abs, x.strides)) < 2**31
    words = backend.empty((6 * count,), np.uint32)
    backend.clear(words)
    defines = {
        "REAL_IS_DOUBLE": 0, "COORDINATE_IS_DOUBLE": int(x.dtype.itemsize == 8), "NARROW_ITEMS": int(narrow)
    }  # fmt: skip
    find = backend.kernel("grid/ends.c", "find_ends", defines)
    find(
        -(-x.count // _RUN), *x.arguments(), Unread(words) if system is None else system, words, x.count, count,
        int(system is not None), x.record(), _frame(ndim),
    )  # fmt: skip
    ends, beyond = _decoded(np.asarray(backend.download(words)).reshape(2, 3, count), ndim, x.dtype.itemsize == 8)
    return None if beyond else ends


@compiled
def _decoded(keys, axes, doubles):
    """Return the ends (2, d, S) of the keys of ends.c, and whether one is beyond float32.

    Doubles near zero count as beyond: as numbers of float32 they would be far from the particles.
    """
    ends, beyond = np.empty((2, axes, keys.shape[2])), False
    bits = np.empty(1, np.uint32)
    for side in range(2):
        for a in range(axes):
            for s in range(keys.shape[2]):
                key = keys[side, 3 - axes + a, s]
                bits[0] = key ^ np.uint32(0x80000000) if key >> np.uint32(31) else ~key
                end = np.float64(bits.view(np.float32)[0])
                beyond |= key != 0 and not (np.isfinite(end) and (not doubles or end == 0 or abs(end) > 1e-30))
                end = end if key else -np.inf
                ends[side, a, s] = end if side else -end
    return ends, beyond


@functools.cache
def _frame(ndim: int) -> Record:
    """Return a frame that leaves positions as they are."""
    return frame_record(Box((1.0,) * ndim))
