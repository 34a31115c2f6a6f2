# SPDX-License-Identifier: BSD-3-Clause
"""A linked list for each cell: one atomic exchange a particle, in a single pass."""

from __future__ import annotations

from particlemesh.grid.builders.builder import Builder, order_of_lists
from particlemesh.grid.cpu.builders import linked_lists
from particlemesh.grid.sizes import U32, CpuJob, Job, Problem, cpu_bytes, histogram_bytes, order_bytes
from particlemesh.grid.storage import LinkedLists, SortedCells


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
