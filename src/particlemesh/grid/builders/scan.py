# SPDX-License-Identifier: BSD-3-Clause
"""Count, prefix sum, place: the library's counting sort, one atomic a particle."""

from __future__ import annotations

from typing import Any

from particlemesh.backends.base import Backend, Unread
from particlemesh.grid.builders.builder import Builder, by_cell
from particlemesh.grid.sizes import I32, U32, U64, CpuJob, Job, Problem, cpu_bytes, histogram_bytes
from particlemesh.grid.storage import SortedCells
from particlemesh.sorting import counting
from particlemesh.sorting.keys import Keys
from particlemesh.sorting.scan import Allocate

_GROUPS = 512  # that sort crowded bins
CROWDED = 64  # as in settle.c


class Scan(Builder):
    """Particles are counted, counts are summed, particles are placed; the count's atomic returns the rank.

    On GPUs the order within a cell is that of the atomics, unless ``deterministic`` asks for a further pass.
    """

    name = "scan"
    cite = "barbieri2013"
    kernels = False

    @classmethod
    def scratch_bytes(cls, problem: Problem) -> int:
        if not problem.gpu:
            work = histogram_bytes(problem, problem.count, problem.cells)
            return cpu_bytes(problem, 8 * problem.count + 8 * problem.cells + work, 0, 0)
        records = 4 * problem.dtype.itemsize + 8 if problem.queries and problem.ndim else 4
        return problem.count * (4 + records) + 8 * problem.cells

    @classmethod
    def seconds(cls, problem: Problem) -> tuple[float, float]:
        if not problem.gpu:
            return 6e-9 * problem.count + 1e-9 * problem.cells, 4e-9 * problem.count
        settling = 2e-6 + 1.5e-11 * problem.count if problem.deterministic else 0.0
        return 7e-6 + 3.0e-11 * problem.count + 5e-12 * problem.cells + settling, 0.3e-11 * problem.count

    def build(self, job: Job) -> SortedCells:
        backend, items, room = job.backend, job.items, job.room
        status, start, rank = counting.count_items(backend, items, room)
        job.status = status
        count = items.count
        if job.queries and job.cells is not None:
            records, turns = room("records", (count, 4), job.cells.dtype), room("turns", (count,), U64)
            loose = room("loose_records", (count, 4), job.cells.dtype) if job.deterministic else records
            counting.place_items(backend, items, status, start, rank, records=loose, turns=turns)
            if job.deterministic:
                settle_items(backend, items, loose, status, start, room, records=records)
            return SortedCells(start, None, records=records)
        order = room("order", (count,), I32)
        loose = room("loose_order", (count,), I32) if job.deterministic else order
        counting.place_items(backend, items, status, start, rank, order=loose)
        if job.deterministic:
            settle_items(backend, items, loose, status, start, room, order=order)
        return SortedCells(start, order)

    def build_cpu(self, job: CpuJob) -> SortedCells:
        return by_cell(job.keys, job.bins, job.threads)

    def order_cpu(self, job: CpuJob, storage: SortedCells) -> SortedCells:
        return storage


def settle_items(
    backend: Backend, items: Keys, loose: Any, status: Any, start: Any, allocate: Allocate, *,
    order: Any = None, records: Any = None,
) -> None:  # fmt: skip
    """Write the given outputs by increasing index within every bin.

    Parameters
    ----------
    backend, items, status, start
        From ``counting.count_items``.
    loose : (count,) int32, or (count, 4) if there are ``records`` to write
        The order, or the records, from ``counting.place_items``.
    allocate : callable (name, shape, dtype)
        Returns memory.
    order, records
        The outputs.
    """
    if not items.count:
        return
    count, bins = items.count, items.bins
    defines = {
        **items.defines, "COUNT_IS_64": 0, "WANT_ORDER": int(order is not None),
        "WANT_RECORDS": int(records is not None),
    }  # fmt: skip
    queue = allocate("crowded", (count // CROWDED + 1,), U32)
    indices = allocate("crowded_indices", (count,), I32)
    spare = allocate("crowded_spare", (count,), I32)
    outputs = (Unread(status) if order is None else order, Unread(status) if records is None else records)
    run = backend.kernel("sorting/settle.c", "settle", defines)
    run(count, *items.arrays, loose, status, start, queue, *outputs, count, bins, *items.records)
    bits = max(1, (count - 1).bit_length())
    run = backend.kernel("sorting/settle.c", "settle_crowded", defines)
    run(
        _GROUPS * backend.group_size, *items.arrays, loose, status, start, indices, spare, queue, *outputs,
        count, bins, bits, *items.records,
    )  # fmt: skip
