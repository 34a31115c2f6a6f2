# SPDX-License-Identifier: BSD-3-Clause
"""The tight grid: a particle is listed in every cell that its bounding box touches."""

from __future__ import annotations

import numpy as np

from particlemesh.backends.cpu import ranges, run, threads_for
from particlemesh.backends.jit import compiled
from particlemesh.box import Box
from particlemesh.grid.cpu.builders.lists import linked_lists
from particlemesh.grid.cpu.locate import CpuCells, margins
from particlemesh.grid.cpu.shares import SHARE, shares_for
from particlemesh.grid.storage import TightLists


@compiled
def sizes_of(cells):
    """Return cells along each axis and which axes are periodic as arrays: tuples are slow to index."""
    size, periodic = np.empty(3, np.int64), np.empty(3, np.int64)
    size[0], size[1], size[2] = cells.shape
    periodic[0], periodic[1], periodic[2] = cells.periodic
    return size, periodic


@compiled
def tight_range(s, reach, margin, size, periodic):
    """Return the first and last cell along an axis that a bounding box touches: one or two of them.

    Cells of a periodic axis are not folded. Only the upper side has a margin for rounding. Two boxes that
    touch then share a cell, since each begins no later than the other ends. Numbers only: handing arrays to a function
    counts their references, which takes longer than all of this.
    """
    low = np.int64(np.floor((s - reach) * size))
    high = np.int64(np.floor((s + reach + margin) * size))
    # A diameter of exactly one cell, and the margin: the box begins on the face of the second of three cells.
    low = max(low, high - 1)
    if not periodic:
        last = np.int64(size) - 1
        low, high = min(max(low, 0), last), min(max(high, 0), last)
    return low, high


@compiled
def _touched_cells(keys, folded, half, cells, reciprocal, margin, touched, counter):
    """Write the cell of each entry of shares of particles, -1 where there is none."""
    real = folded.dtype.type
    missing, inverse, origin = cells.missing, cells.inverse, cells.origin
    entries = 1 << (3 - missing)
    size, periodic = sizes_of(cells)
    cell = np.empty(entries, np.int32)
    for begin, end in ranges(counter, keys.size, SHARE):
        for i in range(begin, end):
            if keys[i] < 0:
                touched[i * entries : (i + 1) * entries] = -1
                continue
            cell[0] = 0
            made = 1
            for a in range(missing, 3):
                s, reach = real(0), half[i, 0] * reciprocal[a]
                for b in range(missing, 3):
                    s += inverse[a, b] * (folded[i, b] - origin[b])
                if half.shape[1] > 1:
                    reach = real(0)
                    for b in range(missing, 3):
                        reach += abs(inverse[a, b]) * half[i, b - missing]
                low, high = tight_range(s, reach, margin[a], real(size[a]), periodic[a])
                first = low if 0 <= low < size[a] else low % size[a]
                second = high if 0 <= high < size[a] else high % size[a]
                for mask in range(made):
                    row = cell[mask] * size[a]
                    cell[mask + made] = row + second if cell[mask] >= 0 and high > low else -1
                    cell[mask] = row + first if cell[mask] >= 0 else -1
                made *= 2
            for mask in range(entries):
                touched[i * entries + mask] = cell[mask]


def extents(half: np.ndarray, count: int, cells: CpuCells) -> np.ndarray:
    """Return radii as (N, 1) and half extents as (N, d), contiguous in the type of the positions."""
    given = np.asarray(half, cells.dtype)
    if given.ndim < 2:  # also of a box of one axis: radius and half extent are the same there
        given = np.broadcast_to(given, (count,)).reshape(count, 1)
    return np.ascontiguousarray(given)


def tight_lists(
    keys: np.ndarray, folded: np.ndarray, half: np.ndarray, cells: CpuCells, threads: int | None = None
) -> TightLists:
    """Return a list of entries for each cell of one level: ``entry = particle * 2**d + mask``.

    Bit a of the mask is set if the particle is also in the previous cell along the box's axis a. Two particles meet in
    the one cell where the masks of their entries have no common bit. ``half`` are radii (N,) or half extents (N, d), at
    most half a cell.
    """
    count = len(keys)
    entries = 1 << (3 - cells.missing)
    touched = np.empty(count * entries, np.int32)
    used = shares_for(count, threads_for(threads, count))
    reciprocal, margin = np.sqrt((cells.inverse**2).sum(1)), margins(cells)
    run(_touched_cells, used, keys, folded, extents(half, count, cells), cells, reciprocal, margin, touched)
    lists = linked_lists(touched, cells.total, threads)
    return TightLists(lists.heads, lists.next, entries, tuple(1 << axis for axis in range(3 - cells.missing)))


def too_wide(half: np.ndarray, box: Box, shape: tuple[int, ...]) -> np.ndarray:
    """Return which particles (N,) of radii (N,) or half extents (N, d) touch more than two cells along an axis."""
    cells, reach = np.array(shape), half.astype(np.float64)
    boxes = reach.ndim == 2 and reach.shape[1] > 1
    along = np.abs(box.inverse) if boxes else np.linalg.norm(box.inverse, axis=1)[:, None]
    wide = 2 * (reach.reshape(len(half), along.shape[1]) @ along.T) * cells > 1 + 32 * np.finfo(half.dtype).eps
    # Along an open axis of one or two cells no particle can touch more.
    return (wide & (np.array(box.periodic) | (cells > 2))).any(axis=1)
