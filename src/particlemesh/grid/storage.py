# SPDX-License-Identifier: BSD-3-Clause
"""What builders leave behind, for kernels of one's own to walk, and how it becomes an order of particles."""

from __future__ import annotations

from typing import Any, NamedTuple

from particlemesh.grid.method import I32, U32, Job
from particlemesh.sorting.scan import allocate_counts, scan


class SortedCells(NamedTuple):
    """Particles in the order of their cells.

    Attributes
    ----------
    start : (cells + 1,)
        Cell c holds the places ``start[c]`` to ``start[c + 1]`` (excluded), or to ``ends[c]``.
    order : (N,) or None
        The particle at each place; None where ``records`` tell it.
    ends : (cells,) or None
        Where each cell ends, if cells do not lie in the order of their numbers (Morton order).
    records : (N, 4) or None
        Folded coordinates of the particle at each place, missing axes first, and its index as the bits of a real.
    """

    start: Any
    order: Any
    ends: Any = None
    records: Any = None


class Slots(NamedTuple):
    """Room for ``capacity`` particles in every cell.

    Attributes
    ----------
    counts : (cells,)
        Particles of each cell.
    slots : (cells * capacity,)
        Slot k of cell c is ``slots[c * cell_stride + k * slot_stride]``.
    capacity, cell_stride, slot_stride : int
    """

    counts: Any
    slots: Any
    capacity: int
    cell_stride: int
    slot_stride: int


class LinkedLists(NamedTuple):
    """A list of particles for each cell; 0 ends a list, other numbers are a particle's index + 1.

    Attributes
    ----------
    heads : (cells,)
        The first particle of each cell.
    next : (N,)
        The particle after each particle.
    """

    heads: Any
    next: Any


class PackedLists(NamedTuple):
    """Lists whose links lie beside the positions.

    Attributes
    ----------
    heads : (cells,)
        Index + 1 of the first particle of each cell; 0: none.
    nodes : (N, 4)
        Folded coordinates of each particle, missing axes first, and the index + 1 of the next one as the bits
        of a real.
    """

    heads: Any
    nodes: Any


class TightLists(NamedTuple):
    """Lists of entries: a particle has one in every cell that its bounding box touches [barbieri2013]_.

    Attributes
    ----------
    heads : (cells,)
        Entry + 1 that comes first in each cell; 0: none.
    next : (N * entries,)
        Entry + 1 that comes after each entry.
    entries : int
        Entry ``i * entries + mask`` is of particle i.
    bits : tuple of d int
        The bit of the mask, for each axis, that is set where the particle is in the cell before, too. Two particles
        that are together in several cells have masks without a common bit in one of them only.
    bounds : (N, 4) or None
        Folded coordinates and radius of each particle.
    turns : (N,) or None
        Turns that folding took off, packed.
    """

    heads: Any
    next: Any
    entries: int
    bits: tuple[int, ...]
    bounds: Any = None
    turns: Any = None


Storage = SortedCells | Slots | LinkedLists | PackedLists | TightLists


def ordered(job: Job, storage: Storage) -> SortedCells:
    """Return particles in the order of cells, whatever they were stored in, on a GPU."""
    backend, room, items = job.backend, job.room, job.items
    if isinstance(storage, SortedCells):
        return storage
    if isinstance(storage, TightLists):
        raise TypeError("tight lists hold particles more than once and are in no order.")
    bins = items.bins
    lengths = allocate_counts(backend, bins, U32, room, "lengths")
    backend.clear(lengths)  # with it the books of the scan
    start, order = room("start", (bins + 1,), U32), room("order", (items.count,), I32)
    packed = isinstance(storage, PackedLists)
    links = {"LINKS": 4 if packed else 1}
    if isinstance(storage, Slots):
        kernel = job.kernel("grid/convert.c", "slot_lengths", **links)
        kernel(bins, job.status, lengths, bins, storage.capacity)
        scan(backend, lengths, start, bins)
        kernel = job.kernel("grid/convert.c", "slot_order", **links)
        kernel(bins, storage.slots, start, order, bins, storage.cell_stride, storage.slot_stride)
    else:
        chain = storage.nodes if isinstance(storage, PackedLists) else storage.next
        job.kernel("grid/convert.c", "list_lengths", **links)(bins, job.status, chain, lengths, bins)
        scan(backend, lengths, start, bins)
        job.kernel("grid/convert.c", "list_order", **links)(bins, job.status, chain, start, order, bins)
    return SortedCells(start, order)


def with_records(job: Job, found: SortedCells) -> SortedCells:
    """Return the same with the particles' records, on a GPU."""
    if found.records is not None:
        return found
    items, room = job.items, job.room
    assert job.cells is not None
    records = room("records", (items.count, 4), job.cells.dtype)
    turns = room("turns", (items.count,), job.status.dtype)
    if items.count:
        gather = job.kernel("grid/convert.c", "gather", LINKS=1)
        gather(
            items.count, *items.arrays, job.status, found.start, found.order, records, turns, items.count, items.bins,
            *items.records,
        )  # fmt: skip
    return found._replace(records=records)
