# SPDX-License-Identifier: BSD-3-Clause
"""Linked lists in which a particle has an entry in every cell that it touches."""

from __future__ import annotations

import numpy as np

from particlemesh.backends.cpu import ranges, run, threads_for
from particlemesh.backends.jit import compiled
from particlemesh.box import Box
from particlemesh.grid.builders.builder import Builder
from particlemesh.grid.builders.linked_list_loose import linked_lists
from particlemesh.grid.cpu.locate import CpuCells, margins
from particlemesh.grid.queries.cloud import reach_record
from particlemesh.grid.sizes import U32, U64, CpuJob, Job, Problem, cpu_bytes, histogram_bytes, order_bytes
from particlemesh.grid.storage import SortedCells, TightLists
from particlemesh.sorting import counting
from particlemesh.sorting.cpu import SHARE, shares_for

MOST = 2**29 - 1  # particles: an entry is one of eight, and is counted from 1 in 32 bits
_WIDE, _WIDEST = 6, 7  # words of the status, as the kernel has them


class LinkedListTight(Builder):
    """A particle is in up to 2**d lists; bits say in which of them a pair counts, so that each pair is found once.

    For particles with radii, none of them wider than a cell. The lists are for kernels of your own. All queries read
    the order of the particles' centres, which a counting sort makes. Overlaps from it took a seventh to a half of the
    time of following lists (a Xeon with 20,000 and 200,000 particles). On an H200 steps with lists of centres were 1.3
    to 2.1 times faster than with these (benchmarks/results/barbieri-column-nvidia-h200.csv).
    """

    name = "linked_list_tight"
    stable = False
    cite = "barbieri2013"
    one_level = True
    needs_radii = True

    @classmethod
    def declines(cls, problem: Problem) -> str | None:
        if not problem.ndim:
            return "needs positions: keys touch one bucket each"
        if not problem.extents:
            return "needs radii: without them a particle touches one cell"
        if problem.levels > 1:
            return "has one level: no particle may be wider than a cell"
        if problem.systems:
            return "lists entries in the cells of one box: it takes no systems"
        most = MOST if problem.gpu else MOST // 2
        if problem.count > most:
            return f"numbers entries with 32 bits: {most:,} particles at most"
        return super().declines(problem)

    @classmethod
    def scratch_bytes(cls, problem: Problem) -> int:
        if not problem.gpu:
            entries = problem.count << problem.ndim
            work = histogram_bytes(problem, entries, 2 * problem.cells, alone=0)
            return cpu_bytes(problem, 4 * entries + 4 * problem.cells, 4 * entries + work, order_bytes(problem))
        return problem.count * (4 * 8 + 4 * problem.dtype.itemsize) + 4 * problem.cells

    @classmethod
    def seconds(cls, problem: Problem) -> tuple[float, float]:
        if not problem.gpu:
            return 60e-9 * problem.count + 0.5e-9 * problem.cells, 10e-9 * problem.count
        return 4e-6 + 11.5e-11 * problem.count, 8e-6 + 3e-11 * problem.count + 5e-12 * problem.cells

    def build(self, job: Job) -> TightLists:
        items, room = job.items, job.room
        assert job.cells is not None
        status = job.clear_status()
        heads = room("heads", (items.bins,), U32)
        following = room("next", (8 * items.count,), U32)
        bounds = room("bounds", (items.count, 4), job.cells.dtype)
        turns = room("tight_turns", (items.count,), U64)
        job.backend.clear(heads)
        if items.count:
            insert = job.kernel("grid/builders/linked_list_tight.c", self.name)
            insert(
                items.count, *items.arrays, status, heads, following, bounds, turns, items.count, *items.records,
                reach_record(job.cells),
            )  # fmt: skip
        return TightLists(heads, following, 8, (4, 2, 1)[-len(job.cells.shape) :], bounds, turns)

    def build_cpu(self, job: CpuJob) -> TightLists:
        assert job.cells is not None and job.folded is not None and job.extents is not None
        return tight_lists(job.keys, job.folded, job.extents, job.cells, job.threads)

    def unfit(self, job: CpuJob) -> np.ndarray:
        assert job.extents is not None
        return np.flatnonzero(too_wide(job.extents, job.box, job.shape) & (job.keys >= 0))

    def note(self, job: Job, words: np.ndarray) -> str | None:
        assert job.cells is not None
        if not words[_WIDEST]:
            return None
        bits = words[_WIDEST : _WIDEST + 1]
        half = bits.view(np.float64) if job.cells.dtype.itemsize == 8 else bits.astype(np.uint32).view(np.float32)
        return f"Particle {int(~words[_WIDE])} is wider than a cell: cells of {2 * float(half[0]):g} hold all of them."

    def order(self, job: Job, storage: TightLists) -> SortedCells:
        raise RuntimeError("tight lists hold particles in no order; build with queries=True to have one.")

    def records(self, job: Job, storage: TightLists) -> SortedCells:
        # The lists hold a particle several times; queries want it once, by its centre.
        assert job.cells is not None
        count = job.items.count
        status, start, rank = counting.count_items(job.backend, job.items, job.room)
        records, turns = job.room("records", (count, 4), job.cells.dtype), job.room("turns", (count,), U64)
        counting.place_items(job.backend, job.items, status, start, rank, records=records, turns=turns)
        return SortedCells(start, None, records=records)


# ---- on the CPU: a list of every cell that a bounding box touches ---------------------------------------------------


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
    missing, inverse, origin = cells.missing, cells.inverse[0], cells.origin[0]
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
    reciprocal, margin = np.sqrt((cells.inverse[0] ** 2).sum(1)), margins(cells.origin, cells.inverse, cells.rows)[0]
    extents = half if half.ndim > 1 else half[:, None]  # of a box of one axis radius and half extent are the same
    run(_touched_cells, used, keys, folded, np.ascontiguousarray(extents), cells, reciprocal, margin, touched)
    lists = linked_lists(touched, cells.total, threads)
    return TightLists(lists.heads, lists.next, entries, tuple(1 << axis for axis in range(3 - cells.missing)))


def too_wide(half: np.ndarray, box: Box, shape: tuple[int, ...]) -> np.ndarray:
    """Return which particles (N,) of radii (N,) or half extents (N, d) touch more than two cells along an axis."""
    cells, reach = np.array(shape), half.astype(np.float64)
    boxes = reach.ndim == 2 and reach.shape[1] > 1
    along = np.abs(box.inverse) if boxes else np.linalg.norm(box.inverse, axis=1)[:, None]
    with np.errstate(invalid="ignore"):  # infinite ones, which are in no cell
        wide = 2 * (reach.reshape(len(half), along.shape[1]) @ along.T) * cells > 1 + 32 * np.finfo(half.dtype).eps
    # Along an open axis of one or two cells no particle can touch more.
    return (wide & (np.array(box.periodic) | (cells > 2))).any(axis=1)
