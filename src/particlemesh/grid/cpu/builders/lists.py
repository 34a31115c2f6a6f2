# SPDX-License-Identifier: BSD-3-Clause
"""Linked lists, one for each cell."""

from __future__ import annotations

import numpy as np

from particlemesh.backends.cpu import claimed, ranges, run, threads_for
from particlemesh.backends.jit import compiled
from particlemesh.grid.cpu.shares import SHARE, shares_for
from particlemesh.grid.storage import LinkedLists, PackedLists, SortedCells
from particlemesh.sorting.cpu import histogram_rows, scan, share_of


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


def links_of(nodes: np.ndarray) -> np.ndarray:
    """Return the links of packed lists: the last number of each record, as an integer."""
    return nodes.view(np.int32 if nodes.itemsize == 4 else np.int64)[:, 3]


def packed_lists(keys: np.ndarray, folded: np.ndarray, cells: int, threads: int | None = None) -> PackedLists:
    """Return lists of particles by cell whose links are the fourth number of each particle's record."""
    records = np.empty((len(keys), 4), folded.dtype)
    used = shares_for(len(keys), threads_for(threads, len(keys)))
    run(_copy_positions, used, folded, records)
    return PackedLists(_lists(keys, cells, links_of(records), threads), records)


@compiled
def _lengths(head, following, length, counter):
    """Count the entries of shares of lists."""
    cells = head.size
    for begin, end in ranges(counter, cells, SHARE):
        for c in range(begin, end):
            entry = np.int64(head[c])
            count = 0
            while entry != 0:
                count += 1
                entry = np.int64(following[entry - 1])
            length[c] = count


@compiled
def _order_of_lists(head, following, start, order, counter):
    """Write the entries of shares of lists, the last one first: ascending if later ones were put in front."""
    cells = head.size
    for begin, end in ranges(counter, cells, SHARE):
        for c in range(begin, end):
            entry = np.int64(head[c])
            at = start[c + 1]
            while entry != 0:
                at -= 1
                order[at] = entry - 1
                entry = np.int64(following[entry - 1])


def order_of_lists(heads: np.ndarray, following: np.ndarray, threads: int | None = None) -> SortedCells:
    """Return the entries of lists in the order of cells, ascending in each; ``following`` may have any stride."""
    cells = len(heads)
    used = threads_for(threads, len(following))
    length, start = np.empty((1, cells), np.int32), np.empty(cells + 1, np.int64)
    run(_lengths, shares_for(cells, used), heads, following, length[0])
    scan(length, start, used)
    order = np.empty(int(start[-1]), np.int32)
    run(_order_of_lists, shares_for(cells, used), heads, following, start, order)
    return SortedCells(start, order)
