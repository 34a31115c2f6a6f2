# SPDX-License-Identifier: BSD-3-Clause
"""Cells with so many slots each."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from particlemesh.backends.cpu import run, threads_for
from particlemesh.backends.jit import compiled
from particlemesh.backends.simd import fetch_add
from particlemesh.sorting.cpu import histogram_rows, scan, share_of

SHARE = 1 << 14  # cells or particles at a time where one does not depend on another


class FixedCells(NamedTuple):
    """So many slots for each cell."""

    counts: np.ndarray  # (cells,) int32: particles of each cell, also those that found no slot
    slots: np.ndarray  # (capacity * cells,) int32: void from a cell's count on
    fullest: tuple[int, int]  # the first cell with most particles, and how many


def shares_for(count: int, threads: int) -> int:
    """Return how many threads ``count`` independent things are worth."""
    return max(1, min(threads, count // SHARE))


@compiled
def _count_cells(keys, histogram, counter):
    """Count the particles of each range in each cell."""
    rows = histogram.shape[0]
    while True:
        row = fetch_add(counter, 0, 1)
        if row >= rows:
            return
        counts = histogram[row]
        counts[:] = 0
        begin, end = share_of(keys.size, rows, row)
        for k in range(begin, end):
            if keys[k] >= 0:
                counts[keys[k]] += np.int32(1)


@compiled
def _first_slots(histogram, count, counter):
    """Turn the counts of ranges into each range's first slot, and write the sums."""
    cells = count.size
    while True:
        begin = fetch_add(counter, 0, 1) * SHARE
        if begin >= cells:
            return
        end = min(begin + SHARE, cells)
        count[begin:end] = 0
        for row in range(histogram.shape[0]):
            for c in range(begin, end):
                here = histogram[row, c]
                histogram[row, c] = count[c]
                count[c] += here


@compiled
def _fill_slots(keys, place, capacity, along_cell, along_slot, slots, counter):
    """Write the particles of each range to their slots; leaves in ``place`` how many slots the cells need."""
    rows = place.shape[0]
    while True:
        row = fetch_add(counter, 0, 1)
        if row >= rows:
            return
        places = place[row]
        begin, end = share_of(keys.size, rows, row)
        for k in range(begin, end):
            key = keys[k]
            if key >= 0:
                slot = np.int64(places[key])
                places[key] += np.int32(1)
                if slot < capacity:
                    slots[key * along_cell + slot * along_slot] = k


def fixed(
    keys: np.ndarray,
    cells: int,
    capacity: int,
    layout: str = "column",
    threads: int | None = None,
    out: np.ndarray | None = None,
) -> FixedCells:
    """Return particles in slots, ascending in each cell.

    Parameters
    ----------
    keys : (N,) int32
        Cell of each particle.
    cells
        How many cells there are.
    capacity
        Slots of a cell. Particles beyond are counted only.
    layout
        ``"row"``: slot s of cell c is ``slots[c * capacity + s]``; ``"column"``: ``slots[s * cells + c]``.
    threads
        The most threads to use.
    out : (capacity * cells,) int32
        Memory for the slots.
    """
    if layout not in {"row", "column"}:
        raise ValueError(f"layout={layout!r} is neither 'row' nor 'column'.")
    threads = threads_for(threads, len(keys))
    slots = np.empty(capacity * cells, np.int32) if out is None else out
    along = (capacity, 1) if layout == "row" else (1, cells)
    rows = histogram_rows(len(keys), cells, threads)
    count = np.zeros(cells, np.int32)
    place = count.reshape(1, cells)
    if rows > 1:
        place = np.empty((rows, cells), np.int32)
        run(_count_cells, rows, keys, place, np.zeros(1, np.int64))
        run(_first_slots, shares_for(cells, threads), place, count, np.zeros(1, np.int64))
    run(_fill_slots, rows, keys, place, capacity, *along, slots, np.zeros(1, np.int64))
    cell = int(count.argmax()) if cells else 0
    return FixedCells(count, slots, (cell, int(count[cell]) if cells else 0))


@compiled
def _order_of_slots(slots, capacity, along_cell, along_slot, start, order, counter):
    """Copy the slots of shares of cells to the cells' places in the order."""
    cells = start.size - 1
    while True:
        begin = fetch_add(counter, 0, 1) * SHARE
        if begin >= cells:
            return
        for c in range(begin, min(begin + SHARE, cells)):
            first = start[c]
            for slot in range(start[c + 1] - first):
                order[first + slot] = slots[c * along_cell + slot * along_slot]


def order_of_slots(
    grid: FixedCells, layout: str = "column", threads: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the places of cells and the particles in their order: those that have a slot.

    Parameters
    ----------
    grid
        What `fixed` returned.
    layout
        The one that it was given.
    threads
        The most threads to use.

    Returns
    -------
    start : (cells + 1,) int64
    order : (n,) int32
    """
    cells = len(grid.counts)
    capacity = len(grid.slots) // max(cells, 1)
    start = np.empty(cells + 1, np.int64)
    kept = np.minimum(grid.counts, capacity).reshape(1, cells)
    used = threads_for(threads, cells)
    scan(kept, start, used)
    order = np.empty(int(start[-1]), np.int32)
    along = (capacity, 1) if layout == "row" else (1, cells)
    run(
        _order_of_slots, shares_for(cells, used), grid.slots, capacity, *along, start, order, np.zeros(1, np.int64)
    )  # fmt: skip
    return start, order
