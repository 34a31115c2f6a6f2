# SPDX-License-Identifier: BSD-3-Clause
"""The cell of each particle, and its position inside the box.

Everything is computed in the type of the positions, with the formulas that the kernels of GPUs use. Axes that the
box does not have come first and are one cell thick. What differs between systems has an axis for them, of length 1
without systems.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from particlemesh.arrays.positions import geometry
from particlemesh.backends.cpu import claimed, run, shares_of, threads_for
from particlemesh.backends.jit import compiled
from particlemesh.backends.simd import fuse, fused, peek
from particlemesh.box import Box
from particlemesh.grid.checks import GridStatus
from particlemesh.grid.systems import FLAG, SystemBoxes
from particlemesh.particles.locate import columns_of
from particlemesh.sorting.cpu import counting_sort
from particlemesh.sorting.keys import cells_in

MOST_TURNS = 2**20  # around a periodic axis: beyond, a position's digits do not determine a place
NOT_FINITE, OUTSIDE, BAD_RADIUS = 1, 2, 3
_BLOCK = 1024  # particles at a time: what is known of them stays in the first cache
SHARE = 8 * _BLOCK
_PARTS = (0, 3), (3, 9), (12, 9), (21, 9), (30, 3), (33, 3)  # first and number of a system's (grid/systems.py)


class CpuCells(NamedTuple):
    """The cells of S systems and their boxes, real numbers in the type of the positions; one box is one system.

    From ``system_in`` those of one system, without the axis of systems.
    """

    shape: tuple[int, int, int]  # cells of the finest level along each axis
    levels: int  # level l has max(1, shape >> l) cells along an axis
    edge: Any  # level l is for diameters up to edge * 2**l: the least thickness of a cell of the finest level
    periodic: tuple[int, int, int]
    missing: int  # axes that the box does not have
    origin: np.ndarray  # (S, 3)
    inverse: np.ndarray  # (S, 3, 3): fractions are inverse (x - origin)
    rows: np.ndarray  # (S, 3, 3): lattice vectors
    tails: np.ndarray  # (S, 3, 3): what rounding took off them
    lower: np.ndarray  # (S, 3): bounds of x where the box is orthorhombic, else of fractions along open axes
    upper: np.ndarray  # (S, 3)
    orthorhombic: np.ndarray  # (S,) int64

    @property
    def total(self) -> int:
        """Number of cells of all levels of one system."""
        return cells_in(self.shape, self.levels)

    @property
    def dtype(self) -> np.dtype:
        """Type of the positions."""
        return self.origin.dtype


def cells_of(box: Box, shape: Sequence[int], levels: int, dtype: Any, boxes: SystemBoxes | None = None) -> CpuCells:
    """Return a box, or those of systems, and the cells of each; ``shape`` (d or 3 integers) is of level 0."""
    real = np.dtype(dtype)
    missing = 3 - box.ndim
    used = [int(size) for size in shape][-box.ndim :]
    numbers: tuple[Any, ...]
    if boxes is None:
        numbers = tuple([array[None] for array in geometry(box, real)])
        straight = np.array([box.orthorhombic], np.int64)
    else:
        table = boxes.table(real)
        numbers = tuple(table[:, first : first + size].reshape(-1, *(3,) * (1 + size // 9)) for first, size in _PARTS)
        straight = table[:, FLAG].astype(np.int64)
    origin, inverse, rows, tails, lower, upper = (np.ascontiguousarray(array, real) for array in numbers)
    thickness = 1 / np.linalg.norm(box.inverse, axis=1) / used
    sizes: Any = tuple([1] * missing + used)
    flags: Any = tuple([0] * missing + [int(p) for p in box.periodic])
    return CpuCells(
        sizes, int(levels), real.type(thickness.min()), flags, missing, origin, inverse, rows, tails, lower, upper,
        straight,
    )  # fmt: skip


known_cells = functools.lru_cache(maxsize=64)(cells_of)  # for tuples of cells; the arrays are never written


@compiled
def system_in(cells, s):
    """Return the cells of one system."""
    return CpuCells(
        cells.shape, cells.levels, cells.edge, cells.periodic, cells.missing, cells.origin[s], cells.inverse[s],
        cells.rows[s], cells.tails[s], cells.lower[s], cells.upper[s], cells.orthorhombic[s],
    )  # fmt: skip


def margins(origin: np.ndarray, inverse: np.ndarray, rows: np.ndarray, images: Any = 1) -> np.ndarray:
    """Return a bound (..., 3) on the rounding error of fractions, for images up to ``images`` (...) boxes away."""
    size = np.abs(origin.astype(float)) + (2 + np.asarray(images))[..., None] * np.abs(rows.astype(float)).sum(-2)
    return (8 * np.finfo(origin.dtype).eps * (np.abs(inverse.astype(float)) @ size[..., None])[..., 0]).astype(
        origin.dtype
    )


@compiled
def level_cells(cells, level):
    """Return the first cell of a level, and its cells along each axis."""
    first = 0
    n0, n1, n2 = cells.shape
    for _ in range(level):
        first += n0 * n1 * n2
        n0, n1, n2 = max(1, n0 >> 1), max(1, n1 >> 1), max(1, n2 >> 1)
    return first, n0, n1, n2


@compiled
def _read(address, stride, begin, length, missing, x, bad):
    """Copy coordinates of particles from ``begin`` on and mark those that are not finite."""
    one = x.dtype.type(1)
    for b in range(address.size):
        column, first, step = x[missing + b], address[b] + begin * stride[b], stride[b]
        for k in range(length):
            column[k] = peek(first + k * step, one)
        for k in range(length):  # x - x is zero for finite numbers only
            bad[k] |= np.int32(0) if column[k] - column[k] == 0 else np.int32(NOT_FINITE)


@compiled
def _confine(s, tested, length, lower, upper, below, bad):
    """Mark particles off an open axis, and bring their fractions into [0, 1)."""
    zero = s.dtype.type(0)
    for k in range(length):
        inside = tested[k] >= lower and tested[k] <= upper
        bad[k] |= np.int32(0) if inside or bad[k] != 0 else np.int32(OUTSIDE)
        t = s[k] if s[k] >= zero else zero  # noqa: FURB136 - NaN becomes zero
        s[k] = t if t < below else below  # noqa: FURB136


@compiled
def _turn(s, turn, length, below, bad):
    """Take whole periods off fractions; return the most that were taken off."""
    zero, one, most = s.dtype.type(0), s.dtype.type(1), s.dtype.type(MOST_TURNS)
    far = np.int32(0)
    for k in range(length):
        whole = np.floor(s[k])
        near = whole > one - most and whole < most - one
        bad[k] |= np.int32(0) if near or bad[k] != 0 else np.int32(OUTSIDE)
        whole = whole if near and bad[k] == 0 else zero
        turns = np.int32(whole)
        turn[k] = turns
        far = max(far, abs(turns))
        t = s[k] - whole
        t = t if t >= zero else zero  # noqa: FURB136 - NaN becomes zero
        s[k] = t if t < below else below  # noqa: FURB136
    return far


@compiled
def _fractions(x, length, cells, s):
    """Write the fractions of a block of positions."""
    for a in range(cells.missing, 3):
        s[a, :length] = 0
        for b in range(cells.missing, 3):
            factor, corner = cells.inverse[a, b], cells.origin[b]
            if factor != 0:
                for k in range(length):
                    s[a, k] = fuse(factor, x[b, k] - corner, s[a, k])


@compiled
def _fold(x, length, cells, turn, low):
    """Take turns off positions, rounded when all are; those without turns stay as they are, to the last bit.

    As kernels on GPUs do: ``low`` is for what rounding takes off.
    """
    real = x.dtype.type
    for b in range(cells.missing, 3):
        low[:length] = 0
        for a in range(cells.missing, 3):
            row, tail = cells.rows[a, b], cells.tails[a, b]
            if cells.periodic[a] and row != 0:
                for k in range(length):
                    turns, high = real(turn[a, k]), x[b, k]
                    off = turns * row
                    total = high - off
                    step = total - high
                    lost = low[k] + ((high - (total - step)) - (off + step))  # of the sum
                    lost -= fused(turns, row, -off)  # of the product
                    low[k] = fused(-turns, tail, lost)
                    x[b, k] = total
        for k in range(length):
            x[b, k] = x[b, k] + low[k] if low[k] != 0 else x[b, k]


@compiled
def _fold_again(x, s, length, cells, turn, more, low, below, bad):
    """Fold positions by turns, and once more: the fraction of a far position is rounded by as much as it is far."""
    _fold(x, length, cells, turn, low)
    _fractions(x, length, cells, s)
    far = np.int32(0)
    for a in range(cells.missing, 3):
        if cells.periodic[a]:
            far = max(far, _turn(s[a], more[a], length, below, bad))
    if far > 0:
        _fold(x, length, cells, more, low)
    for a in range(3):
        for k in range(length):
            turn[a, k] += more[a, k]
            s[a, k] = min(max(s[a, k], s.dtype.type(0)), below)


@compiled
def _beyond(x, length, lower, upper):
    """Return whether a coordinate is not between the first and the last one inside."""
    beyond = np.int32(0)
    for k in range(length):
        beyond |= np.int32(0) if x[k] >= lower and x[k] <= upper else np.int32(1)
    return beyond


@compiled
def _settle(x, s, turn, length, row, lower, upper):
    """Move coordinates that rounding left on the upper face or beyond to the lower one; return whether any was."""
    zero, moved = x.dtype.type(0), np.int32(0)
    for k in range(length):
        up = x[k] > upper
        t = x[k] - row if up else x[k]
        t = t if t >= lower else lower  # noqa: FURB136 - loops with max are slower
        x[k] = t if t <= upper else upper  # noqa: FURB136
        s[k] = zero if up else s[k]
        turn[k] += np.int32(up)
        moved |= np.int32(up)
    return moved


@compiled
def _level_of(radius, length, cells, level, bad):
    """Write the level of each radius and mark radii that are negative or not finite."""
    two = radius.dtype.type(2)
    for k in range(length):
        r = radius[k]
        good = r >= 0 and r - r == 0
        bad[k] |= np.int32(0) if good or bad[k] != 0 else np.int32(BAD_RADIUS)
        thickness = cells.edge
        here = 0
        while here < cells.levels - 1 and two * r > thickness:
            here += 1
            thickness *= two
        level[k] = here


@compiled
def _cell_of(s, length, cells, level, key, bad):
    """Write the cell of each particle, -1 for bad ones."""
    real = s.dtype.type
    if cells.levels == 1:
        m0, m1, m2 = np.int32(cells.shape[0]), np.int32(cells.shape[1]), np.int32(cells.shape[2])
        f0, f1, f2 = real(m0), real(m1), real(m2)
        one = np.int32(1)
        for k in range(length):
            c0 = min(np.int32(s[0, k] * f0), m0 - one)
            c1 = min(np.int32(s[1, k] * f1), m1 - one)
            c2 = min(np.int32(s[2, k] * f2), m2 - one)
            key[k] = np.int32((c0 * m1 + c1) * m2 + c2) if bad[k] == 0 else np.int32(-1)
        return
    for k in range(length):
        first, n0, n1, n2 = level_cells(cells, level[k])
        c0 = min(int(s[0, k] * real(n0)), n0 - 1)
        c1 = min(int(s[1, k] * real(n1)), n1 - 1)
        c2 = min(int(s[2, k] * real(n2)), n2 - 1)
        key[k] = first + (c0 * n1 + c1) * n2 + c2 if bad[k] == 0 else -1


@compiled
def locate_shares(address, stride, shares, radii, systems, keys, folded, turns, status, counter):
    """Locate shares of particles until none is left; the cells of a system come after those of the systems before."""
    real = folded.dtype.type
    missing, each = systems.missing, level_cells(systems, systems.levels)[0]
    below = np.nextafter(real(1), real(0))
    most = min(_BLOCK, keys.size)
    x, s = np.zeros((3, most), folded.dtype), np.zeros((3, most), folded.dtype)
    turn, more = np.zeros((3, most), np.int32), np.zeros((3, most), np.int32)
    bad, level, low = np.empty(most, np.int32), np.zeros(most, np.int32), np.empty(most, folded.dtype)
    for share in claimed(counter, shares.shape[0]):
        faults, system = status[share], shares[share, 2]
        cells = system_in(systems, system)
        for begin in range(shares[share, 0], shares[share, 1], _BLOCK):
            length = min(_BLOCK, shares[share, 1] - begin)
            bad[:length] = 0
            _read(address, stride, begin, length, missing, x, bad)
            _fractions(x, length, cells, s)
            far = beyond = np.int32(0)
            for a in range(missing, 3):
                if cells.periodic[a]:
                    far = max(far, _turn(s[a], turn[a], length, below, bad))
                    if cells.orthorhombic:
                        beyond |= _beyond(x[a], length, cells.lower[a], cells.upper[a])
                else:
                    tested = x[a] if cells.orthorhombic else s[a]
                    _confine(s[a], tested, length, cells.lower[a], cells.upper[a], below, bad)
            if far > 0:
                _fold_again(x, s, length, cells, turn, more, low, below, bad)
            if beyond != 0:
                for a in range(missing, 3):
                    if cells.periodic[a]:
                        at = _settle(x[a], s[a], turn[a], length, cells.rows[a, a], cells.lower[a], cells.upper[a])
                        far = max(far, at)
            if far > 0:
                faults[4] = max(faults[4], far)
                for k in range(length):
                    for a in range(3):
                        turns[begin + k, a] = turn[a, k]
            if radii.size > 0:
                _level_of(radii[begin : begin + length], length, cells, level, bad)
            _cell_of(s, length, cells, level, keys[begin : begin + length], bad)
            if system > 0:
                for k in range(begin, begin + length):
                    keys[k] += np.int32(system * each) if keys[k] >= 0 else np.int32(0)
            for k in range(length):
                for b in range(3):
                    folded[begin + k, b] = x[b, k]
            for k in range(length):
                if bad[k] != 0:
                    faults[bad[k] - 1] += 1
                    if faults[3] < 0:
                        faults[3] = begin + k


def largest_extents(radii: ArrayLike | None, count: int, real: np.dtype) -> np.ndarray:
    """Return the radius of each particle, or the largest half extent of each box; empty for None."""
    if radii is None:
        return np.empty(0, real)
    given = np.asarray(radii, real)
    if given.ndim == 2:  # one negative extent makes the box bad, and so does a NaN
        given = np.where((given < 0).any(1), real.type(-1), given.max(1, initial=0))
    return np.ascontiguousarray(np.broadcast_to(given, (count,)))


def locate(
    x: Sequence[np.ndarray], radii: ArrayLike | None, cells: CpuCells, threads: int | None = None,
    system: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None, GridStatus]:  # fmt: skip
    """Return the cell of each particle, its position inside the box, the periods taken off, and what is wrong.

    ``x`` holds d arrays (N,) of any stride. ``radii`` are a number, (N,) or (N, d) half extents; they choose the level.
    With ``system`` (N,) particles are in the box of their system, else in the only one.

    Returns
    -------
    keys : (N,) int32
        -1 for a bad particle.
    folded : (N, 3)
        The position itself where no turn was taken off; zero along missing axes.
    turns : (N, 3) int32 or None
        None where all are zero.
    status : GridStatus
    """
    real, count, placed = cells.dtype, len(x[0]), None
    if system is not None and (np.diff(system) < 0).any():  # particles of one system have to follow each other
        placed = counting_sort(system, len(cells.origin), threads)
        x, system = [np.ascontiguousarray(column[placed.order], real) for column in x], system[placed.order]
    x, address, stride = columns_of(tuple([column.astype(real, copy=False) for column in x]))
    sizes = largest_extents(radii, count, real)
    sizes = sizes if placed is None or not len(sizes) else sizes[placed.order]
    keys, folded = np.empty(count, np.int32), np.empty((count, 3), real)
    turns = np.zeros((count, 3), np.int32)  # of memory that nothing touches where all are zero
    begins = [0, count] if system is None else np.searchsorted(system, np.arange(len(cells.origin) + 1))
    shares = shares_of(np.asarray(begins), SHARE)
    faults = np.zeros((len(shares), 5), np.int64)
    faults[:, 3] = -1
    used = min(threads_for(threads, count), max(1, len(shares)))
    run(locate_shares, used, address, stride, shares, sizes, cells, keys, folded, turns, faults, steps=20 * count)
    not_finite, outside, bad_radius, _, far = (faults[0] if len(faults) == 1 else faults.sum(0)).tolist()
    first = -1
    if not_finite or outside or bad_radius:
        bad = faults[faults[:, 3] >= 0, 3]
        # Particles of a system are in the caller's order, so the first bad one of a piece is the caller's first of it.
        first = int((bad if placed is None else placed.order[bad]).min())
    if placed is not None:
        keys, folded, turns = keys[placed.rank], folded[placed.rank], turns[placed.rank]
    return keys, folded, turns if far else None, GridStatus(count, not_finite, outside, bad_radius, first)
