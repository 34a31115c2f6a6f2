# SPDX-License-Identifier: BSD-3-Clause
"""How far the particles of each system reach, and the lengths of open axes that follow.

The ends are found where the positions are, and the host reads no more than them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from particlemesh.arrays.positions import Coordinates, frame_record
from particlemesh.backends.base import Backend, Unread
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

    @property
    def size(self) -> np.ndarray:
        """The largest magnitude of each coordinate (d, S)."""
        return np.maximum(np.maximum(-self.ends[0], self.ends[1]), 0.0)


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
    def deciding(self) -> list[int | None]:
        """The one coordinate that decides the fraction along each axis; None where several do."""
        used = (self.inverse != 0).any(2)
        return [int(axis.argmax()) if axis.sum() == 1 else None for axis in used]

    def along(self, axis: int, cloud: Cloud) -> np.ndarray:
        """Return the ends (2, S) of the fractions along an axis; 0 of systems without particles."""
        row, b = self.inverse[axis], self.deciding[axis]
        if b is not None:
            low, high = row[b] * (cloud.ends[:, b] - self.origins[b])
            low, high = np.minimum(low, high), np.maximum(low, high)
        else:
            x = cloud.columns()
            system = np.zeros(len(x[0]), np.int64) if cloud.system is None else cloud.system()
            terms = (r[system] * (column - o[system]) for r, column, o in zip(row, x, self.origins, strict=True))
            with np.errstate(invalid="ignore"):  # of infinite places, which do not count
                fractions = sum(terms)
            low, high = ends_on_host([np.asarray(fractions)], system, row.shape[1])[:, 0]
        return np.where(np.isfinite(both := np.stack([low, high])), both, 0.0)

    def fit(self, cloud: Cloud, reach: float, periodic: np.ndarray, repeats: np.ndarray) -> np.ndarray:
        """Return the lengths of fitted boxes, and where they begin, both in fractions of these, (2, d, S).

        Open axes become as long as the particles take, and up to 7 % longer. So a length stays while particles move a
        little, and the memory of a grid stays with it. ``periodic`` (d, S) are those of each system. An axis of
        ``repeats`` (d,) repeats for the search. Where a system is open along it, the axis gets so much room that no
        image is within reach.
        """
        size = cloud.size + np.abs(self.origins)
        near = np.minimum(reach, 4 * size.sum(0))  # no particles are farther apart
        result = np.zeros((2, *self.origins.shape))
        result[0] = 1
        axes = np.flatnonzero(~periodic.all(1))
        low, high = np.stack([self.along(int(axis), cloud) for axis in axes], 1)
        across = self.across[axes]
        # A build's fractions are rounded.
        slack = 16 * np.finfo(cloud.dtype).eps * (np.abs(self.inverse[axes]) * size).sum(1)
        span = np.maximum(np.maximum(high - low + 2 * slack, near * across), _LEAST)
        begin = (low + high - span) / 2
        step = np.exp2(np.floor(np.log2(span / _STEPS)))
        first = np.floor(begin / step) * step
        length = np.ceil((begin + span - first) / step) * step + 1.01 * reach * across * repeats[axes, None]
        result[:, axes] = np.where(periodic[axes], result[:, axes], np.stack([length, first]))
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
    ndim = len(x.arrays)
    words = backend.empty((6 * count,), np.uint32)
    backend.clear(words)
    defines = {
        "REAL_IS_DOUBLE": 0, "COORDINATE_IS_DOUBLE": int(x.dtype.itemsize == 8),
        "NARROW_ITEMS": int(max(x.count, *map(abs, x.strides)) < 2**31),
    }  # fmt: skip
    find = backend.kernel("grid/ends.c", "find_ends", defines)
    find(
        -(-x.count // _RUN), *x.arguments(), Unread(words) if system is None else system, words, x.count, count,
        int(system is not None), x.record(), frame_record(Box((1.0,) * ndim)),
    )  # fmt: skip
    keys = np.asarray(backend.download(words)).reshape(2, 3, count)[:, 3 - ndim :]
    bits = np.where(keys >> np.uint32(31), keys ^ np.uint32(1 << 31), ~keys)
    ends = np.where(keys, bits.astype(np.uint32).view(np.float32).astype(np.float64), -np.inf)
    beyond = keys.any() and not np.isfinite(ends[keys != 0]).all()
    ends[0] *= -1
    return None if beyond else ends
