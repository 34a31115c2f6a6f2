# SPDX-License-Identifier: BSD-3-Clause
"""Particles sorted by cell, along a line or a Morton curve."""

from __future__ import annotations

import numpy as np

from particlemesh.backends.jit import compiled
from particlemesh.grid.storage import SortedCells
from particlemesh.sorting.cpu import counting_sort


def by_cell(keys: np.ndarray, cells: int, threads: int | None = None) -> SortedCells:
    """Return particles sorted by the number of their cell, with the library's counting sort."""
    counted = counting_sort(keys, cells, threads)
    return SortedCells(counted.start, counted.order[: counted.start[-1]])


@compiled
def spread_bits(number, axes):
    """Return the bits of a number with ``axes - 1`` zeros between them."""
    spread = 0
    for bit in range(21):
        spread |= (number >> bit & 1) << bit * axes
    return spread


@compiled
def _morton_keys(keys, n0, n1, n2, axes, curve):
    """Write the place of each cell along a Morton curve, -1 for particles left out; one level only."""
    for k in range(keys.size):
        key = keys[k]
        if key < 0:
            curve[k] = -1
            continue
        c0, c1, c2 = key // n2 // n1, key // n2 % n1, key % n2
        code = spread_bits(c2, axes)
        shift = 1
        if n1 > 1:
            code |= spread_bits(c1, axes) << shift
            shift += 1
        if n0 > 1:
            code |= spread_bits(c0, axes) << shift
        curve[k] = code


def narrowest(largest: int) -> np.dtype:
    """Return the narrowest unsigned type that holds a number: NumPy sorts 16 bits by radix."""
    return np.min_scalar_type(largest)


@compiled
def _bounds(keys, order, start, ends):
    """Write where the particles of each cell begin and end."""
    for k in range(order.size):
        key = keys[order[k]]
        if k == 0 or keys[order[k - 1]] != key:
            start[key] = k
        ends[key] = k + 1


def along_curve(keys: np.ndarray, shape: tuple[int, int, int], cells: int, curve: str = "linear") -> SortedCells:
    """Return particles sorted by cell with NumPy's stable sort.

    Along a Morton curve (``"morton"``, one level), cells keep their linear numbers in ``start`` and ``ends``.
    """
    if curve not in {"linear", "morton"}:
        raise ValueError(f"curve={curve!r} is neither 'linear' nor 'morton'.")
    along: np.ndarray = keys
    if curve == "morton":
        along = np.empty(len(keys), np.int64)
        n0, n1, n2 = shape
        _morton_keys(keys, n0, n1, n2, max(1, sum(n > 1 for n in shape)), along)
    largest = int(along.max(initial=0)) + 1
    left_out = along < 0
    unsigned = np.where(left_out, largest, along).astype(narrowest(largest))
    kept = len(keys) - int(np.count_nonzero(left_out))
    order = np.argsort(unsigned, kind="stable")[:kept].astype(np.int32)
    if curve == "linear":
        counts = np.bincount(keys[~left_out] if kept < len(keys) else keys, minlength=cells)
        return SortedCells(np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)]), order)
    start, ends = np.zeros(cells + 1, np.int64), np.zeros(cells, np.int64)
    _bounds(keys, order, start, ends)
    start[-1] = len(order)
    return SortedCells(start, order, ends)
