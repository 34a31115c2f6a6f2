# SPDX-License-Identifier: BSD-3-Clause
"""Count, prefix sum, place: the library's counting sort, one atomic a particle."""

from __future__ import annotations

from particlemesh.binning import device
from particlemesh.grid.method import ATOMICS_ORDER, I32, U64, Builder, CpuJob, Job, Problem
from particlemesh.grid.storage import SortedCells


class Scan(Builder):
    """Particles are counted, counts are summed, particles are placed; the count's atomic returns the rank.

    On the CPU the order within a cell is that of the particles, on GPUs that of the atomics.
    """

    name = "scan"
    cite = "barbieri2013"

    @classmethod
    def declines(cls, problem: Problem) -> str | None:
        return ATOMICS_ORDER if problem.deterministic and problem.gpu else None

    @classmethod
    def scratch_bytes(cls, problem: Problem) -> int:
        records = 4 * problem.dtype.itemsize + 8 if problem.queries and problem.ndim else 4
        return problem.count * (4 + records) + 8 * problem.cells

    @classmethod
    def cost(cls, problem: Problem) -> tuple[float, float]:
        if not problem.gpu:
            return 6e-9 * problem.count + 1e-9 * problem.cells, 4e-9 * problem.count
        return 7e-6 + 3.0e-11 * problem.count + 5e-12 * problem.cells, 0.3e-11 * problem.count

    def build(self, job: Job) -> SortedCells:
        backend, items, room = job.backend, job.items, job.room
        status = job.clear_status()
        start, rank = device.count_items(backend, items, status, room)
        if job.queries and job.cells is not None:
            records = room("records", (items.count, 4), job.cells.dtype)
            turns = room("turns", (items.count,), U64)
            device.place_items(backend, items, status, start, rank, records=records, turns=turns)
            return SortedCells(start, None, records=records)
        order = room("order", (items.count,), I32)
        device.place_items(backend, items, status, start, rank, order=order)
        return SortedCells(start, order)

    def build_cpu(self, job: CpuJob) -> SortedCells:
        from particlemesh.binning.cpu import counting_sort

        found = counting_sort(job.keys, job.bins, job.threads)
        return SortedCells(found.start, found.order[: found.start[-1]])
