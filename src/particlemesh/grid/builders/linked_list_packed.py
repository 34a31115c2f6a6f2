# SPDX-License-Identifier: BSD-3-Clause
"""Linked lists whose links lie beside the positions: one read of four reals gets both."""

from __future__ import annotations

import numpy as np

from particlemesh.backends.cpu import ranges, run, threads_for
from particlemesh.backends.jit import compiled
from particlemesh.grid.builders.builder import order_of_lists
from particlemesh.grid.builders.linked_list_loose import LinkedListLoose, lists_of
from particlemesh.grid.sizes import CpuJob, Job, Problem
from particlemesh.grid.storage import PackedLists, SortedCells
from particlemesh.sorting.cpu import SHARE, shares_for


class LinkedListPacked(LinkedListLoose):
    """Each particle becomes the head of its cell's list; its link is the fourth number beside its position."""

    name = "linked_list_packed"

    @classmethod
    def declines(cls, problem: Problem) -> str | None:
        return "needs positions to lay the links beside" if not problem.ndim else super().declines(problem)

    @classmethod
    def scratch_bytes(cls, problem: Problem) -> int:
        nodes = 4 * problem.count * problem.dtype.itemsize
        return nodes + 4 * problem.cells if problem.gpu else cls.list_bytes(problem, nodes, problem.count)

    @classmethod
    def seconds(cls, problem: Problem) -> tuple[float, float]:
        build, queries = super().seconds(problem)
        return build + (0.3e-11 if problem.gpu else 2e-9) * problem.count, queries

    def build(self, job: Job) -> PackedLists:  # type: ignore[override]  # other lists
        items = job.items
        work = job.work()
        assert job.cells is not None
        nodes = job.room("nodes", (items.count, 4), job.cells.dtype)
        if items.count:
            insert = job.kernel("grid/builders/linked_list_packed.c", self.name)
            insert(items.count, *items.arrays, work, nodes, items.count, items.bins, *items.records)
        return PackedLists(work, nodes)

    def build_cpu(self, job: CpuJob) -> PackedLists:  # type: ignore[override]  # other lists
        assert job.folded is not None
        return packed_lists(job.keys, job.folded, job.bins, job.threads)

    def order(self, job: Job, storage: PackedLists) -> SortedCells:  # type: ignore[override]  # other lists
        return order_of_lists(job, storage.nodes, 4)


# ---- on the CPU: links beside positions -----------------------------------------------------------------------------


@compiled
def _copy_positions(folded, records, counter):
    """Copy shares of positions into records until none is left."""
    for begin, end in ranges(counter, folded.shape[0], SHARE):
        for k in range(begin, end):
            for a in range(3):
                records[k, a] = folded[k, a]


def packed_lists(keys: np.ndarray, folded: np.ndarray, cells: int, threads: int | None = None) -> PackedLists:
    """Return lists of particles by cell whose links are the fourth number of each particle's record."""
    records = np.empty((len(keys), 4), folded.dtype)
    used = shares_for(len(keys), threads_for(threads, len(keys)))
    run(_copy_positions, used, folded, records)
    links = records.view(np.int32 if records.itemsize == 4 else np.int64)[:, 3]
    return PackedLists(lists_of(keys, cells, links, threads), records)
