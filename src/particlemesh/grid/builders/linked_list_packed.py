# SPDX-License-Identifier: BSD-3-Clause
"""Linked lists whose links lie beside the positions: one read of four reals gets both."""

from __future__ import annotations

from particlemesh.grid.builders.builder import order_of_lists
from particlemesh.grid.builders.linked_list_loose import LinkedListLoose
from particlemesh.grid.cpu.builders import packed_lists
from particlemesh.grid.sizes import CpuJob, Job, Problem
from particlemesh.grid.storage import PackedLists, SortedCells


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
