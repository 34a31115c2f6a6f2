# SPDX-License-Identifier: BSD-3-Clause
"""Cells with a fixed number of slots each."""

from __future__ import annotations

import numpy as np

from particlemesh.backends.cpu import claimed, ranges, run, threads_for
from particlemesh.backends.jit import compiled
from particlemesh.grid.cpu.shares import SHARE, shares_for
from particlemesh.grid.storage import Slots, SortedCells
from particlemesh.sorting.cpu import count_keys, histogram_rows, scan, share_of


@compiled
def _first_slots(histogram, count, counter):
    """Turn the counts of ranges into each range's first slot, and write the sums."""
    cells = count.size
    for begin, end in ranges(counter, cells, SHARE):
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
    for row in claimed(counter, rows):
        places = place[row]
        begin, end = share_of(keys.size, rows, row)
        for k in range(begin, end):
            key = keys[k]
            if key >= 0:
                slot = np.int64(places[key])
                places[key] += np.int32(1)
                if slot < capacity:
                    slots[key * along_cell + slot * along_slot] = k


def slots_of(
    keys: np.ndarray, cells: int, capacity: int, strides: tuple[int, int], threads: int | None = None
) -> tuple[Slots, tuple[int, int]]:
    """Return particles in slots, ascending in each cell, and the first of the fullest cells with its particles.

    Particles beyond the ``capacity`` of a cell are only counted. ``strides`` are those of cells and of slots.
    """
    threads = threads_for(threads, len(keys))
    slots = np.empty(capacity * cells, np.int32)
    rows = histogram_rows(len(keys), cells, threads)
    count = np.zeros(cells, np.int32)
    place = count.reshape(1, cells)
    if rows > 1:
        place = np.empty((rows, cells), np.int32)
        run(count_keys, rows, keys, place)
        run(_first_slots, shares_for(cells, threads), place, count)
    run(_fill_slots, rows, keys, place, capacity, *strides, slots)
    cell = int(count.argmax()) if cells else 0
    return Slots(count, slots, capacity, *strides), (cell, int(count[cell]) if cells else 0)


@compiled
def _order_of_slots(slots, along_cell, along_slot, start, order, counter):
    """Copy the slots of shares of cells to the cells' places in the order."""
    cells = start.size - 1
    for begin, end in ranges(counter, cells, SHARE):
        for c in range(begin, end):
            first = start[c]
            for slot in range(start[c + 1] - first):
                order[first + slot] = slots[c * along_cell + slot * along_slot]


def order_of_slots(storage: Slots, threads: int | None = None) -> SortedCells:
    """Return the particles of slots in the order of cells; those beyond the capacity have no slot."""
    cells = len(storage.counts)
    start = np.empty(cells + 1, np.int64)
    kept = np.minimum(storage.counts, storage.capacity).reshape(1, cells)
    used = threads_for(threads, cells)
    scan(kept, start, used)
    order = np.empty(int(start[-1]), np.int32)
    run(_order_of_slots, shares_for(cells, used), storage.slots, storage.cell_stride, storage.slot_stride, start, order)
    return SortedCells(start, order)
