# SPDX-License-Identifier: BSD-3-Clause
"""Linked lists in which a particle has an entry in every cell that it touches."""

from __future__ import annotations

import numpy as np

from particlemesh.grid.cloud import reach_record
from particlemesh.grid.method import (
    ATOMICS_ORDER,
    U32,
    U64,
    Builder,
    CpuJob,
    Job,
    Problem,
    cpu_bytes,
    histogram_bytes,
)
from particlemesh.grid.storage import TightLists
from particlemesh.grid.tight import MOST


class LinkedListTight(Builder):
    """A particle is in up to 2**d lists; bits tell in which of them a pair counts, so that each pair comes once.

    For particles with radii, none of them wider than a cell. Overlaps are searched in the lists themselves; other
    queries take the order of the particles' centres, by the counting sort of ``scan``.
    """

    name = "linked_list_tight"
    cite = "barbieri2013"

    @classmethod
    def declines(cls, problem: Problem) -> str | None:
        if not problem.ndim:
            return "needs positions: keys touch one bucket each"
        if not problem.extents:
            return "needs radii: without them a particle touches one cell"
        if problem.levels > 1:
            return "has one level: no particle may be wider than a cell"
        most = MOST if problem.gpu else MOST // 2
        if problem.count > most:
            return f"numbers entries with 32 bits: {most:,} particles at most"
        return ATOMICS_ORDER if problem.deterministic and problem.gpu else None

    @classmethod
    def scratch_bytes(cls, problem: Problem) -> int:
        if not problem.gpu:
            entries = problem.count << problem.ndim
            order = 8 * problem.count + 8 * problem.cells + histogram_bytes(problem, problem.count, problem.cells)
            work = histogram_bytes(problem, entries, 2 * problem.cells, alone=0)
            return cpu_bytes(problem, 4 * entries + 4 * problem.cells, 4 * entries + work, order)
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
            insert = job.kernel("grid/linked_list_tight.c", self.name)
            insert(
                items.count, *items.arrays, status, heads, following, bounds, turns, items.count, *items.records,
                reach_record(job.cells),
            )  # fmt: skip
        return TightLists(heads, following, 8, (4, 2, 1)[-len(job.cells.shape) :], bounds, turns)

    def build_cpu(self, job: CpuJob) -> TightLists:
        from particlemesh.grid.cpu.builders import linked_list_tight

        assert job.cells is not None and job.folded is not None and job.extents is not None
        found = linked_list_tight(job.keys, job.folded, job.extents, job.cells, job.threads)
        ndim = 3 - job.cells.missing
        return TightLists(found.head, found.next, 1 << ndim, tuple(int(b) for b in 1 << np.arange(ndim)))
