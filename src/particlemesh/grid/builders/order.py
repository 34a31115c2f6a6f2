# SPDX-License-Identifier: BSD-3-Clause
"""From slots and lists to particles in the order of cells, on CUDA and OpenCL."""

from __future__ import annotations

from typing import Any

from particlemesh.backends.base import As
from particlemesh.grid.builders.job import I32, U32, Job
from particlemesh.grid.storage import Slots, SortedCells
from particlemesh.sorting.scan import allocate_counts, scan


def order_of_slots(job: Job, slots: Slots) -> SortedCells:
    """Return the particles of slots in the order of cells."""
    lengths, start, order = _rooms(job)
    bins = job.items.bins
    job.kernel("grid/builders/order.c", "slot_lengths", LINKS=1)(
        bins, job.status, As(lengths, U32), bins, slots.capacity
    )
    scan(job.backend, lengths, start, bins)
    kernel = job.kernel("grid/builders/order.c", "slot_order", LINKS=1)
    kernel(bins, slots.slots, start, order, bins, slots.cell_stride, slots.slot_stride)
    return SortedCells(start, order)


def order_of_lists(job: Job, links: Any, stride: int) -> SortedCells:
    """Return the particles of lists in the order of cells; ``links`` are the last of ``stride`` numbers each."""
    lengths, start, order = _rooms(job)
    bins = job.items.bins
    job.kernel("grid/builders/order.c", "list_lengths", LINKS=stride)(bins, job.status, links, As(lengths, U32), bins)
    scan(job.backend, lengths, start, bins)
    job.kernel("grid/builders/order.c", "list_order", LINKS=stride)(bins, job.status, links, start, order, bins)
    return SortedCells(start, order)


def _rooms(job: Job) -> tuple[Any, Any, Any]:
    """Return room for the lengths of cells, for where each cell starts, and for the order."""
    bins = job.items.bins
    lengths = allocate_counts(job.backend, bins, U32, job.room, "lengths")
    job.backend.clear(lengths)  # with it the books of the scan
    return lengths, job.room("start", (bins + 1,), U32), job.room("order", (job.items.count,), I32)


def with_records(job: Job, order: SortedCells) -> SortedCells:
    """Return an order of particles with their records: position and index in four reals."""
    if order.records is not None:
        return order
    items, room = job.items, job.room
    assert job.cells is not None
    records = room("records", (items.count, 4), job.cells.dtype)
    turns = room("turns", (items.count,), job.status.dtype)
    if items.count:
        gather = job.kernel("grid/builders/order.c", "gather", LINKS=1)
        gather(
            items.count, *items.arrays, job.status, order.start, As(order.order, I32), records, turns, items.count,
            items.bins, *items.records,
        )  # fmt: skip
    return order._replace(records=records)
