# SPDX-License-Identifier: BSD-3-Clause
"""The same room in every cell: one atomic a particle, no second pass, and a limit."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from particlemesh import checks
from particlemesh.backends.cpu import claimed, ranges, run, threads_for
from particlemesh.backends.jit import compiled
from particlemesh.grid.builders.builder import Builder, order_of_slots
from particlemesh.grid.sizes import U32, CpuJob, Job, Problem, cpu_bytes, histogram_bytes, order_bytes
from particlemesh.grid.storage import Slots, SortedCells
from particlemesh.sorting.cpu import SHARE, count_keys, histogram_rows, share_of, shares_for


def usual_capacity(count: int, cells: int) -> int:
    """Return room for as many particles as a cell gets with evenly spread ones, and some."""
    mean = count / max(cells, 1)
    return max(4, math.ceil(mean + 5 * math.sqrt(mean) + 2))


class FixedSlots(Builder):
    """Every cell has room for ``capacity`` particles; an atomic gives each its slot.

    The default of the option ``capacity`` follows from the mean, and then it grows. With ``grow`` an overflow builds
    again with the missing room, instead of an error. ``layout`` is ``"column"`` (slot by slot, all cells of a slot side
    by side) or ``"row"`` (cell by cell).
    """

    name = "fixed"
    stable = False
    cite = "green2008"
    options = {"capacity": None, "grow": False, "layout": "column"}  # noqa: RUF012 - never written

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        given = self.chosen["capacity"]
        self.capacity = 0 if given is None else checks.integer(given, "capacity", 1, 2**31 - 1)
        self.grows = checks.flag(self.chosen["grow"], "grow") or given is None
        checks.one_of(self.chosen["layout"], "layout", ("column", "row"))

    @classmethod
    def scratch_bytes(cls, problem: Problem) -> int:
        capacity = problem.options.get("capacity") or usual_capacity(problem.count, problem.cells)
        slots = 4 * problem.cells * (capacity + 1)
        if problem.gpu:
            return slots
        work = histogram_bytes(problem, problem.count, problem.cells, alone=0)
        return cpu_bytes(problem, slots, work, order_bytes(problem))

    @classmethod
    def seconds(cls, problem: Problem) -> tuple[float, float]:
        if not problem.gpu:
            return 8e-9 * problem.count + 1e-9 * problem.cells, 8e-9 * problem.count
        return 3e-6 + 2.7e-11 * problem.count, 12e-6 + 12e-11 * problem.count + 1e-11 * problem.cells

    def make_room(self, needed: int) -> bool:
        if self.grows:
            self.capacity = max(needed, self.capacity)
        return self.grows

    def remedy(self, needed: int) -> str:
        return f"give capacity={needed} or more, grow=True, or another method"

    def _expect(self, count: int, bins: int) -> None:
        if self.chosen["capacity"] is None:
            self.capacity = max(self.capacity, usual_capacity(count, bins))

    def _strides(self, bins: int) -> tuple[int, int]:
        return (1, bins) if self.chosen["layout"] == "column" else (self.capacity, 1)

    def build(self, job: Job) -> Slots:
        items = job.items
        self._expect(items.count, items.bins)
        work = job.work()
        slots = job.room("slots", (items.bins * self.capacity,), U32)
        strides = self._strides(items.bins)
        if items.count:
            insert = job.kernel("grid/builders/fixed.c", "fixed")
            insert(
                items.count, *items.arrays, work, slots, items.count, items.bins, self.capacity, *strides,
                *items.records,
            )  # fmt: skip
        return Slots(work, slots, self.capacity, *strides)

    def build_cpu(self, job: CpuJob) -> Slots:
        self._expect(len(job.keys), job.bins)
        slots, fullest = slots_of(job.keys, job.bins, self.capacity, self._strides(job.bins), job.threads)
        if fullest[1] > self.capacity:
            job.overflow = fullest
        return slots

    def order(self, job: Job, storage: Slots) -> SortedCells:
        return order_of_slots(job, storage)

    def order_cpu(self, job: CpuJob, storage: Slots) -> SortedCells:
        order = super().order_cpu(job, storage)
        if job.overflow is None:
            return order
        lengths = np.diff(order.start)  # particles beyond the capacity have no slot
        slotted = np.arange(len(order.order)) - np.repeat(order.start[:-1], lengths) < storage.capacity
        start = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.minimum(lengths, storage.capacity))])
        return SortedCells(start, order.order[slotted])


# ---- on the CPU: a fixed number of slots in every cell --------------------------------------------------------------


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
