# SPDX-License-Identifier: BSD-3-Clause
"""The tight grid: a particle is listed in every cell that its bounding box touches."""

from __future__ import annotations

import numpy as np

from particlemesh.backends.cpu import run, threads_for
from particlemesh.backends.jit import compiled
from particlemesh.backends.simd import fetch_add
from particlemesh.grid.cpu.cells import Cells, margins
from particlemesh.grid.cpu.lists import Lists, linked_list
from particlemesh.grid.cpu.slots import SHARE, shares_for


@compiled
def half_fraction(half, i, a, cells, reciprocal):
    """Return how far a sphere (one number a particle) or a box (one an axis) reaches along an axis, in fractions."""
    if half.shape[1] == 1:
        return half[i, 0] * reciprocal[a]
    total = half.dtype.type(0)
    for b in range(half.shape[1]):
        total += abs(cells.inverse[a, cells.missing + b]) * half[i, b]
    return total


@compiled
def tight_range(x, i, half, a, cells, reciprocal, margin):
    """Return the first and last cell along an axis that the bounding box touches: one or two of them.

    Cells of a periodic axis are not folded. Only the upper side has a margin for rounding: then two boxes that
    touch share a cell, since each begins no later than the other ends.
    """
    real = x.dtype.type
    size = cells.shape[a]
    s = real(0)
    for b in range(cells.missing, 3):
        s += cells.inverse[a, b] * (x[i, b] - cells.origin[b])
    reach = half_fraction(half, i, a, cells, reciprocal)
    low = int(np.floor((s - reach) * real(size)))
    high = int(np.floor((s + reach + margin[a]) * real(size)))
    # A diameter of exactly one cell, and the margin: the box begins on the face of the second of three cells.
    low = max(low, high - 1)
    if not cells.periodic[a]:
        low, high = min(max(low, 0), size - 1), min(max(high, 0), size - 1)
    return low, high


@compiled
def _touched_cells(keys, folded, half, cells, reciprocal, margin, touched, counter):
    """Write the cell of each entry of shares of particles, -1 where there is none."""
    axes = 3 - cells.missing
    entries = 1 << axes
    low, high = np.zeros(3, np.int64), np.zeros(3, np.int64)
    while True:
        begin = fetch_add(counter, 0, 1) * SHARE
        if begin >= keys.size:
            return
        for i in range(begin, min(begin + SHARE, keys.size)):
            for a in range(cells.missing, 3):
                if keys[i] >= 0:
                    low[a], high[a] = tight_range(folded, i, half, a, cells, reciprocal, margin)
            for mask in range(entries):
                cell = 0 if keys[i] >= 0 else -1
                for a in range(cells.missing, 3):
                    second = mask >> (a - cells.missing) & 1
                    if second == 1 and high[a] == low[a]:
                        cell = -1
                    if cell >= 0:
                        cell = cell * cells.shape[a] + (low[a] + second) % cells.shape[a]
                touched[i * entries + mask] = cell


def extents(half: np.ndarray, count: int, cells: Cells) -> np.ndarray:
    """Return radii as (N, 1) and half extents as (N, d), contiguous in the type of the positions."""
    given = np.asarray(half, cells.dtype)
    if given.ndim < 2:
        given = np.broadcast_to(given, (count,)).reshape(count, 1)
    return np.ascontiguousarray(given)


def linked_list_tight(
    keys: np.ndarray,
    folded: np.ndarray,
    half: np.ndarray,
    cells: Cells,
    threads: int | None = None,
    turns: int = 0,
    out: np.ndarray | None = None,
) -> Lists:
    """Return a list of entries for each cell: ``entry = particle * 2**d + mask``.

    Bit a of the mask is set if the particle is also in the previous cell along the box's axis a. Two entries of a
    cell whose masks have no bit in common are the one place where their particles meet.

    Parameters
    ----------
    keys : (N,) int32
        Cell of each particle: only its sign matters.
    folded : (N, 3)
        Positions inside the box.
    half : number, (N,) or (N, d)
        Radii of spheres or half extents of boxes. No diameter is beyond the thickness of a cell.
    cells
        A grid of one level.
    threads
        The most threads to use.
    turns
        The most turns that were taken off, as `locate` found.
    out : (2**d N,) int32
        Memory for what follows each entry.
    """
    count = len(keys)
    entries = 1 << (3 - cells.missing)
    touched = np.empty(count * entries, np.int32)
    used = shares_for(count, threads_for(threads, count))
    reciprocal, margin = np.sqrt((cells.inverse**2).sum(1)), margins(cells, turns)
    run(
        _touched_cells, used, keys, folded, extents(half, count, cells), cells, reciprocal, margin, touched,
        np.zeros(1, np.int64),
    )  # fmt: skip
    return linked_list(touched, cells.total, threads, out)
