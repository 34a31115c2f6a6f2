# SPDX-License-Identifier: BSD-3-Clause
"""Linked lists in which a particle has an entry in every cell that it touches."""

from __future__ import annotations

import numpy as np

from particlemesh.grid.builders.builder import Builder
from particlemesh.grid.cpu import builders as cpu
from particlemesh.grid.queries.cloud import reach_record
from particlemesh.grid.sizes import U32, U64, CpuJob, Job, Problem, cpu_bytes, histogram_bytes, order_bytes
from particlemesh.grid.storage import SortedCells, TightLists
from particlemesh.sorting import counting

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
        return cpu.tight_lists(job.keys, job.folded, job.extents, job.cells, job.threads)

    def unfit(self, job: CpuJob) -> np.ndarray:
        assert job.extents is not None
        return np.flatnonzero(cpu.too_wide(job.extents, job.box, job.shape) & (job.keys >= 0))

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
