# SPDX-License-Identifier: BSD-3-Clause
"""What builders store on the CPU: sorted particles, slots, lists, and lists of every cell that a sphere touches."""

from __future__ import annotations

import numpy as np

from particlemesh.backends.cpu import claimed, ranges, run, threads_for
from particlemesh.backends.jit import compiled
from particlemesh.box import Box
from particlemesh.grid.cpu.locate import CpuCells, margins
from particlemesh.grid.storage import LinkedLists, PackedLists, Slots, SortedCells, TightLists
from particlemesh.sorting.cpu import SHARE, count_keys, counting_sort, histogram_rows, share_of, shares_for

# ---- sorted by cell, along a line or a Morton curve -------------------------------------------------------


def by_cell(keys: np.ndarray, cells: int, threads: int | None = None) -> SortedCells:
    """Return particles sorted by the number of their cell, with the library's counting sort."""
    counted = counting_sort(keys, cells, threads)
    return SortedCells(counted.start, counted.order[: counted.start[-1]])


@compiled
def spread_bits(number, axes):
    """Return the bits of a number with ``axes - 1`` zeros between them."""
    spread = 0
    for bit in range(21):
        spread |= (number >> bit & 1) << bit * axes
    return spread


@compiled
def _morton_keys(keys, n0, n1, n2, axes, curve):
    """Write the place of each cell along a Morton curve, -1 for particles left out; one level only."""
    for k in range(keys.size):
        key = keys[k]
        if key < 0:
            curve[k] = -1
            continue
        c0, c1, c2 = key // n2 // n1, key // n2 % n1, key % n2
        code = spread_bits(c2, axes)
        shift = 1
        if n1 > 1:
            code |= spread_bits(c1, axes) << shift
            shift += 1
        if n0 > 1:
            code |= spread_bits(c0, axes) << shift
        curve[k] = code


@compiled
def _bounds(keys, order, start, ends):
    """Write where the particles of each cell begin and end."""
    for k in range(order.size):
        key = keys[order[k]]
        if k == 0 or keys[order[k - 1]] != key:
            start[key] = k
        ends[key] = k + 1


def along_curve(keys: np.ndarray, shape: tuple[int, int, int], cells: int, curve: str = "linear") -> SortedCells:
    """Return particles sorted by cell with NumPy's stable sort.

    Along a Morton curve (``"morton"``, one level), cells keep their linear numbers in ``start`` and ``ends``.
    """
    along: np.ndarray = keys
    if curve == "morton":
        along = np.empty(len(keys), np.int64)
        n0, n1, n2 = shape
        _morton_keys(keys, n0, n1, n2, max(1, sum(n > 1 for n in shape)), along)
    largest = int(along.max(initial=0)) + 1
    left_out = along < 0
    # The narrowest unsigned type: NumPy sorts 16 bits by radix.
    unsigned = np.where(left_out, largest, along).astype(np.min_scalar_type(largest))
    kept = len(keys) - int(np.count_nonzero(left_out))
    order = np.argsort(unsigned, kind="stable")[:kept].astype(np.int32)
    if curve == "linear":
        counts = np.bincount(keys[~left_out] if kept < len(keys) else keys, minlength=cells)
        return SortedCells(np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)]), order)
    start, ends = np.zeros(cells + 1, np.int64), np.zeros(cells, np.int64)
    _bounds(keys, order, start, ends)
    start[-1] = len(order)
    return SortedCells(start, order, ends)


# ---- a fixed number of slots in every cell ----------------------------------------------------------------


@compiled
def _first_slots(histogram, count, counter):
    """Turn the counts of ranges into each range's first slot, and write the sums."""
    cells = count.size
    for begin, end in ranges(counter, cells, SHARE):
        count[begin:end] = 0
        for row in range(histogram.shape[0]):
            for c in range(begin, end):
                here = histogram[row, c]
                histogram[row, c] = count[c]
                count[c] += here


@compiled
def _fill_slots(keys, place, capacity, along_cell, along_slot, slots, counter):
    """Write the particles of each range to their slots; leaves in ``place`` how many slots the cells need."""
    rows = place.shape[0]
    for row in claimed(counter, rows):
        places = place[row]
        begin, end = share_of(keys.size, rows, row)
        for k in range(begin, end):
            key = keys[k]
            if key >= 0:
                slot = np.int64(places[key])
                places[key] += np.int32(1)
                if slot < capacity:
                    slots[key * along_cell + slot * along_slot] = k


def slots_of(
    keys: np.ndarray, cells: int, capacity: int, strides: tuple[int, int], threads: int | None = None
) -> tuple[Slots, tuple[int, int]]:
    """Return particles in slots, ascending in each cell, and the first of the fullest cells with its particles.

    Particles beyond the ``capacity`` of a cell are only counted. ``strides`` are those of cells and of slots.
    """
    threads = threads_for(threads, len(keys))
    slots = np.empty(capacity * cells, np.int32)
    rows = histogram_rows(len(keys), cells, threads)
    count = np.zeros(cells, np.int32)
    place = count.reshape(1, cells)
    if rows > 1:
        place = np.empty((rows, cells), np.int32)
        run(count_keys, rows, keys, place)
        run(_first_slots, shares_for(cells, threads), place, count)
    run(_fill_slots, rows, keys, place, capacity, *strides, slots)
    cell = int(count.argmax()) if cells else 0
    return Slots(count, slots, capacity, *strides), (cell, int(count[cell]) if cells else 0)


# ---- a list for each cell ---------------------------------------------------------------------------------


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
        joined[begin:end] = head[0, begin:end]
        for row in range(1, head.shape[0]):
            for c in range(begin, end):
                if head[row, c] != 0:
                    following[tail[row, c]] = joined[c]
                    joined[c] = head[row, c]


def _lists(keys: np.ndarray, cells: int, following: np.ndarray, threads: int | None) -> np.ndarray:
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
    return LinkedLists(_lists(keys, cells, following, threads), following)


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
    return PackedLists(_lists(keys, cells, links, threads), records)


# ---- a list of every cell that a bounding box touches -----------------------------------------------------


@compiled
def sizes_of(cells):
    """Return cells along each axis and which axes are periodic as arrays: tuples are slow to index."""
    size, periodic = np.empty(3, np.int64), np.empty(3, np.int64)
    size[0], size[1], size[2] = cells.shape
    periodic[0], periodic[1], periodic[2] = cells.periodic
    return size, periodic


@compiled
def tight_range(s, reach, margin, size, periodic):
    """Return the first and last cell along an axis that a bounding box touches: one or two of them.

    Cells of a periodic axis are not folded. Only the upper side has a margin for rounding. Two boxes that
    touch then share a cell, since each begins no later than the other ends. Numbers only: handing arrays to a function
    counts their references, which takes longer than all of this.
    """
    low = np.int64(np.floor((s - reach) * size))
    high = np.int64(np.floor((s + reach + margin) * size))
    # A diameter of exactly one cell, and the margin: the box begins on the face of the second of three cells.
    low = max(low, high - 1)
    if not periodic:
        last = np.int64(size) - 1
        low, high = min(max(low, 0), last), min(max(high, 0), last)
    return low, high


@compiled
def _touched_cells(keys, folded, half, cells, reciprocal, margin, touched, counter):
    """Write the cell of each entry of shares of particles, -1 where there is none."""
    real = folded.dtype.type
    missing, inverse, origin = cells.missing, cells.inverse, cells.origin
    entries = 1 << (3 - missing)
    size, periodic = sizes_of(cells)
    cell = np.empty(entries, np.int32)
    for begin, end in ranges(counter, keys.size, SHARE):
        for i in range(begin, end):
            if keys[i] < 0:
                touched[i * entries : (i + 1) * entries] = -1
                continue
            cell[0] = 0
            made = 1
            for a in range(missing, 3):
                s, reach = real(0), half[i, 0] * reciprocal[a]
                for b in range(missing, 3):
                    s += inverse[a, b] * (folded[i, b] - origin[b])
                if half.shape[1] > 1:
                    reach = real(0)
                    for b in range(missing, 3):
                        reach += abs(inverse[a, b]) * half[i, b - missing]
                low, high = tight_range(s, reach, margin[a], real(size[a]), periodic[a])
                first = low if 0 <= low < size[a] else low % size[a]
                second = high if 0 <= high < size[a] else high % size[a]
                for mask in range(made):
                    row = cell[mask] * size[a]
                    cell[mask + made] = row + second if cell[mask] >= 0 and high > low else -1
                    cell[mask] = row + first if cell[mask] >= 0 else -1
                made *= 2
            for mask in range(entries):
                touched[i * entries + mask] = cell[mask]


def tight_lists(
    keys: np.ndarray, folded: np.ndarray, half: np.ndarray, cells: CpuCells, threads: int | None = None
) -> TightLists:
    """Return a list of entries for each cell of one level: ``entry = particle * 2**d + mask``.

    Bit a of the mask is set if the particle is also in the previous cell along the box's axis a. Two particles meet in
    the one cell where the masks of their entries have no common bit. ``half`` are radii (N,) or half extents (N, d), at
    most half a cell.
    """
    count = len(keys)
    entries = 1 << (3 - cells.missing)
    touched = np.empty(count * entries, np.int32)
    used = shares_for(count, threads_for(threads, count))
    reciprocal, margin = np.sqrt((cells.inverse**2).sum(1)), margins(cells)
    extents = half if half.ndim > 1 else half[:, None]  # of a box of one axis radius and half extent are the same
    run(_touched_cells, used, keys, folded, np.ascontiguousarray(extents), cells, reciprocal, margin, touched)
    lists = linked_lists(touched, cells.total, threads)
    return TightLists(lists.heads, lists.next, entries, tuple(1 << axis for axis in range(3 - cells.missing)))


def too_wide(half: np.ndarray, box: Box, shape: tuple[int, ...]) -> np.ndarray:
    """Return which particles (N,) of radii (N,) or half extents (N, d) touch more than two cells along an axis."""
    cells, reach = np.array(shape), half.astype(np.float64)
    boxes = reach.ndim == 2 and reach.shape[1] > 1
    along = np.abs(box.inverse) if boxes else np.linalg.norm(box.inverse, axis=1)[:, None]
    wide = 2 * (reach.reshape(len(half), along.shape[1]) @ along.T) * cells > 1 + 32 * np.finfo(half.dtype).eps
    # Along an open axis of one or two cells no particle can touch more.
    return (wide & (np.array(box.periodic) | (cells > 2))).any(axis=1)
