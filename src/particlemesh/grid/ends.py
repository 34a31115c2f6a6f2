# SPDX-License-Identifier: BSD-3-Clause
"""How far the particles of each system reach, and the lengths of open axes that follow.

The ends are found where the positions are, and the host reads no more than them.
"""

from __future__ import annotations

from collections.abc import Callable
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

    ends: np.ndarray  # (S, 2, d): the least and the largest; infinite, and the wrong way round, without particles
    dtype: np.dtype
    columns: Callable[[], list[np.ndarray]]
    system: Callable[[], np.ndarray] | None  # of each particle, on the host; None: one

    @property
    def size(self) -> np.ndarray:
        """The largest magnitude of each coordinate (S, d)."""
        largest = np.abs(self.ends).max(1)
        return np.where(np.isfinite(largest), largest, 0.0)

    def along(self, rows: np.ndarray, origins: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the ends (S,) of ``rows[s] @ (x - origins[s])``, from the ends of x where one coordinate decides."""
        one = np.count_nonzero(rows, axis=1) == 1
        if one.all():
            s, a = np.arange(len(rows)), np.abs(rows).argmax(1)
            both = rows[s, a, None] * (self.ends[s, :, a] - origins[s, a, None])
            return both.min(1), both.max(1)
        x = self.columns()
        system = np.zeros(len(x[0]), np.int64) if self.system is None else self.system()
        fractions = sum(rows[system, a] * (column - origins[system, a]) for a, column in enumerate(x))
        low, high = ends_on_host([np.asarray(fractions)], system, len(rows))[:, :, 0].T
        return low, high


def ends_on_host(x: list[np.ndarray], system: np.ndarray | None, count: int) -> np.ndarray:
    """Return the ends (S, 2, d) of columns (N,); particles that are not finite, or of no system, do not count."""
    ends = np.full((count, 2, len(x)), np.inf)
    ends[:, 1] = -np.inf
    if not len(x[0]):
        return ends
    if system is None and np.isfinite(whole := np.array([[(c.min(), c.max()) for c in x]])).all():
        ends[:] = whole.swapaxes(1, 2)
        return ends
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
        ends[system[begins], 0, axis] = np.minimum.reduceat(column, begins)
        ends[system[begins], 1, axis] = np.maximum.reduceat(column, begins)
    return ends


def ends_on_device(x: Coordinates, backend: Backend, system: Any, count: int) -> np.ndarray | None:
    """Return the ends (S, 2, d), those of doubles rounded outwards to float32; None if float32 does not hold them.

    ``system`` is native (N,) int32, or None. The call waits for the device.
    """
    ndim = len(x.arrays)
    words = backend.empty((6 * count,), np.uint32)
    backend.clear(words)
    double = int(x.dtype.itemsize == 8)
    defines = {
        "REAL_IS_DOUBLE": double, "COORDINATE_IS_DOUBLE": double,
        "NARROW_ITEMS": int(max(x.count, *map(abs, x.strides)) < 2**31),
    }  # fmt: skip
    find = backend.kernel("grid/ends.c", "find_ends", defines)
    find(
        -(-x.count // _RUN), *x.arguments(), Unread(words) if system is None else system, words, x.count, count,
        int(system is not None), x.record(), frame_record(Box((1.0,) * ndim)),
    )  # fmt: skip
    keys = np.asarray(backend.download(words)).reshape(count, 2, 3)[:, :, 3 - ndim :]
    bits = np.where(keys >> np.uint32(31), keys ^ np.uint32(1 << 31), ~keys)
    ends = bits.astype(np.uint32).view(np.float32).astype(np.float64)
    ends[:, 0] *= -1
    ends[keys == 0] = -np.inf
    ends[:, 0][keys[:, 0] == 0] = np.inf
    return ends if np.isfinite(ends[keys != 0]).all() else None


def fit(
    origins: np.ndarray, inverse: np.ndarray, cloud: Cloud, reach: float, periodic: np.ndarray, repeats: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return what the lengths of boxes are to be multiplied by (S, d), and where they then begin (S, d).

    Both are in fractions of the given box. Open axes become as long as the particles take, and up to 7 % longer: while
    particles move a little, a length stays, and so does the memory of a grid. ``periodic`` (S, d) are those of each
    system. An axis of ``repeats`` (d,) repeats for the search. Where a system is open along it, the axis gets so much
    room that no image is within reach.
    """
    size = cloud.size + np.abs(origins)
    near = np.minimum(reach, 4 * size.sum(1))  # no particles are farther apart
    lengths, begins = np.ones(origins.shape), np.zeros(origins.shape)
    for axis in np.flatnonzero(~periodic.all(0)):
        row = inverse[:, axis]
        low, high = (np.where(np.isfinite(ends), ends, 0.0) for ends in cloud.along(row, origins))
        slack = 16 * np.finfo(cloud.dtype).eps * (np.abs(row) * size).sum(1)  # a build's fractions are rounded
        across = np.linalg.norm(row, axis=1)
        span = np.maximum.reduce([high - low + 2 * slack, near * across, np.full_like(low, _LEAST)])
        begin = (low + high - span) / 2
        step = 2.0 ** np.floor(np.log2(span / _STEPS))
        first = np.floor(begin / step) * step
        length = np.ceil((begin + span - first) / step) * step + 1.01 * reach * across * repeats[axis]
        lengths[:, axis] = np.where(periodic[:, axis], 1.0, length)
        begins[:, axis] = np.where(periodic[:, axis], 0.0, first)
    return lengths, begins
