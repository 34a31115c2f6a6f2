# SPDX-License-Identifier: BSD-3-Clause
"""What builders store, for users' kernels to read."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from particlemesh.sorting.keys import STATUS_WORDS


class SortedCells(NamedTuple):
    """Particles in the order of their cells.

    Attributes
    ----------
    start : (cells + 1,)
        Cell c holds the places ``start[c]`` to ``start[c + 1]`` (excluded), or to ``ends[c]``.
    order : (N,) or None
        The particle at each place; None where ``records`` hold it.
    ends : (cells,) or None
        Where each cell ends, if cells do not lie in the order of their numbers (Morton order).
    records : (N, 4) or None
        Folded coordinates of the particle at each place, missing axes first, and its index as the bits of a real.
    """

    start: Any
    order: Any
    ends: Any = None
    records: Any = None

    def trimmed(self, count: int, bins: int) -> SortedCells:
        """Return the part of the arrays of a GPU that is in use."""
        lengths = (bins + 1, count, bins, count)
        return SortedCells(*(a if a is None else a[:n] for a, n in zip(self, lengths, strict=True)))


class Slots(NamedTuple):
    """A fixed number of places in every cell: ``capacity``.

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

    def trimmed(self, count: int, bins: int) -> Slots:
        """Return the part of the arrays of a GPU that is in use."""
        return self._replace(counts=_behind_status(self.counts, bins), slots=self.slots[: bins * self.capacity])


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

    def trimmed(self, count: int, bins: int) -> LinkedLists:
        """Return the part of the arrays of a GPU that is in use."""
        return LinkedLists(_behind_status(self.heads, bins), self.next[:count])


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

    def trimmed(self, count: int, bins: int) -> PackedLists:
        """Return the part of the arrays of a GPU that is in use."""
        return PackedLists(_behind_status(self.heads, bins), self.nodes[:count])


class TightLists(NamedTuple):
    """Lists of entries: a particle has one in every cell that its bounding box touches [barbieri2013]_.

    Attributes
    ----------
    heads : (cells,)
        First entry of each cell, + 1; 0: none.
    next : (N * entries,)
        The entry after each entry, + 1; 0: none.
    entries : int
        Entry ``i * entries + mask`` is of particle i.
    bits : tuple of d int
        For each axis, the bit of the mask that is set if the particle is also in the previous cell. Two particles that
        share several cells have masks without a common bit in exactly one of them.
    bounds : (N, 4) or None
        Folded coordinates and radius of each particle.
    turns : (N,) or None
        Whole turns that folding subtracted, packed.
    """

    heads: Any
    next: Any
    entries: int
    bits: tuple[int, ...]
    bounds: Any = None
    turns: Any = None

    def trimmed(self, count: int, bins: int) -> TightLists:
        """Return the part of the arrays of a GPU that is in use."""
        return self._replace(
            heads=self.heads[:bins], next=self.next[: count * self.entries], bounds=self.bounds[:count],
            turns=self.turns[:count],
        )  # fmt: skip


def _behind_status(work: Any, bins: int) -> Any:
    """Return the words of 32 bits for each cell from an array that begins with the status of a build."""
    return work.view(np.uint32)[2 * STATUS_WORDS : 2 * STATUS_WORDS + bins]


Storage = SortedCells | Slots | LinkedLists | PackedLists | TightLists
