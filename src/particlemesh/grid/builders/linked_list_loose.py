# SPDX-License-Identifier: BSD-3-Clause
"""A linked list for each cell: one atomic exchange a particle, in a single pass."""

from __future__ import annotations

import numpy as np

from particlemesh.backends.cpu import claimed, ranges, run, threads_for
from particlemesh.backends.jit import compiled
from particlemesh.grid.builders.builder import Builder, order_of_lists
from particlemesh.grid.sizes import U32, CpuJob, Job, Problem, cpu_bytes, histogram_bytes, order_bytes
from particlemesh.grid.storage import LinkedLists, SortedCells
from particlemesh.sorting.cpu import SHARE, histogram_rows, share_of, shares_for


class LinkedListLoose(Builder):
    """Each particle becomes the head of its cell's list and points at the head before."""

    name = "linked_list_loose"
    stable = False
    cite = "barbieri2013"

    @classmethod
    def scratch_bytes(cls, problem: Problem) -> int:
        links = 4 * problem.count
        return links + 4 * problem.cells if problem.gpu else cls.list_bytes(problem, links, problem.count)

    @classmethod
    def list_bytes(cls, problem: Problem, links: int, entries: int) -> int:
        """Return the bytes of a build on the CPU whose links take ``links``."""
        work = histogram_bytes(problem, entries, 2 * problem.cells, alone=0)  # heads and tails of each thread's lists
        return cpu_bytes(problem, links + 4 * problem.cells, work, order_bytes(problem))

    @classmethod
    def seconds(cls, problem: Problem) -> tuple[float, float]:
        if not problem.gpu:
            return 8e-9 * problem.count + 0.5e-9 * problem.cells, 10e-9 * problem.count
        return 3e-6 + 1.6e-11 * problem.count, 12e-6 + 15e-11 * problem.count + 2e-11 * problem.cells

    def build(self, job: Job) -> LinkedLists:
        items = job.items
        work = job.work()
        following = job.room("next", (items.count,), U32)
        if items.count:
            insert = job.kernel("grid/builders/linked_list_loose.c", self.name)
            insert(items.count, *items.arrays, work, following, items.count, items.bins, *items.records)
        return LinkedLists(work, following)

    def build_cpu(self, job: CpuJob) -> LinkedLists:
        return linked_lists(job.keys, job.bins, job.threads)

    def order(self, job: Job, storage: LinkedLists) -> SortedCells:
        return order_of_lists(job, storage.next, 1)


# ---- on the CPU: a list for each cell -------------------------------------------------------------------------------


@compiled
def _link(keys, head, tail, following, counter):
    """Put the particles of each range in front of the range's own lists."""
    rows = head.shape[0]
    for row in claimed(counter, rows):
        first, last = head[row], tail[row]
        first[:] = 0
        begin, end = share_of(keys.size, rows, row)
        for k in range(begin, end):
            key = keys[k]
            if key < 0:
                following[k] = 0
                continue
            before = first[key]
            following[k] = before
            first[key] = k + 1
            if before == 0 and row > 0:  # nothing is put behind the lists of the first range
                last[key] = k


@compiled
def _join_lists(head, tail, following, joined, counter):
    """Put the lists of later ranges in front of those of earlier ones."""
    cells = joined.size
    for begin, end in ranges(counter, cells, SHARE):
        for c in range(begin, end):  # slices of two arrays would take seconds to compile
            joined[c] = head[0, c]
        for row in range(1, head.shape[0]):
            for c in range(begin, end):
                if head[row, c] != 0:
                    following[tail[row, c]] = joined[c]
                    joined[c] = head[row, c]


def lists_of(keys: np.ndarray, cells: int, following: np.ndarray, threads: int | None) -> np.ndarray:
    """Write what follows each entry, and return the heads."""
    threads = threads_for(threads, len(keys))
    # Two histograms' worth of memory each, so half as many as a counting sort has.
    rows = histogram_rows(len(keys), 2 * cells, threads)
    head = np.empty((rows, cells), np.int32)
    tail = np.empty((rows, cells if rows > 1 else 0), np.int32)
    run(_link, rows, keys, head, tail, following)
    if rows == 1:
        return head[0]
    joined = np.empty(cells, np.int32)
    run(_join_lists, shares_for(cells, threads), head, tail, following, joined)
    return joined


def linked_lists(keys: np.ndarray, cells: int, threads: int | None = None) -> LinkedLists:
    """Return a list of particles for each cell, the last particle first, from the cell of each particle (N,)."""
    following = np.empty(len(keys), np.int32)
    return LinkedLists(lists_of(keys, cells, following, threads), following)
