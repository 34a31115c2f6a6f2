# SPDX-License-Identifier: BSD-3-Clause
"""Counting sort with several threads: the order of keys, and the place of each."""

from __future__ import annotations

import numpy as np

from particlemesh.backends.cpu import claimed, run, threads_for
from particlemesh.backends.jit import compiled
from particlemesh.sorting import Order

_SCAN = 1 << 14  # numbers of the histogram a thread scans at a time
_FEW = 1 << 15  # keys and bins that one call of one thread deals with
SHARE = 1 << 14  # items that a thread claims at a time where no item depends on another


def index_type(count: int) -> type[np.signedinteger]:
    """Return the narrowest type for indices below ``count``."""
    return np.int32 if count < 2**31 else np.int64


def shares_for(count: int, threads: int) -> int:
    """Return how many threads ``count`` independent items are worth."""
    return max(1, min(threads, count // SHARE))


def histogram_rows(count: int, bins: int, threads: int) -> int:
    """Return the number of ranges of ``count`` keys, each with its own histogram.

    Several histograms together have at most as many numbers as there are keys.
    """
    return max(1, min(threads, count // max(bins, 1)))


@compiled
def share_of(count, shares, share):
    """Return the range of one of ``shares`` equal shares of ``count`` items."""
    size = count // shares
    rest = count % shares
    begin = share * size + min(share, rest)
    return begin, begin + size + (1 if share < rest else 0)


@compiled
def count_keys(keys, histogram, counter):
    """Count the keys of each range in each bin."""
    rows = histogram.shape[0]
    for row in claimed(counter, rows):
        begin, end = share_of(keys.size, rows, row)
        counts = histogram[row]
        counts[:] = 0
        for k in range(begin, end):
            if keys[k] >= 0:
                counts[keys[k]] += 1


@compiled
def _block_totals(histogram, totals, counter):
    blocks = totals.size
    for block in claimed(counter, blocks):
        begin, end = share_of(histogram.shape[1], blocks, block)
        total = 0
        for row in range(histogram.shape[0]):
            for b in range(begin, end):
                total += histogram[row, b]
        totals[block] = total


@compiled
def _block_scan(histogram, totals, start, counter):
    blocks = totals.size
    for block in claimed(counter, blocks):
        begin, end = share_of(histogram.shape[1], blocks, block)
        total = np.int64(0)
        for before in range(block):
            total += totals[before]
        for b in range(begin, end):
            start[b] = total
            for row in range(histogram.shape[0]):
                count = histogram[row, b]
                histogram[row, b] = total
                total += count
        if end == histogram.shape[1]:
            start[end] = total


def scan(histogram: np.ndarray, start: np.ndarray, threads: int) -> None:
    """Turn counts into places, ordered by bin, then by row.

    Parameters
    ----------
    histogram : (rows, bins)
        Counts; overwritten with the place of the first key of each row and bin.
    start : (bins + 1,) int64
        Written: the place of each bin's first key, and the number of keys.
    threads
        The most threads to use.
    """
    blocks = max(1, min(4 * threads, histogram.size // _SCAN, histogram.shape[1]))
    totals = np.zeros(blocks, np.int64)
    used = min(threads, blocks)
    if blocks > 1:
        run(_block_totals, used, histogram, totals)
    run(_block_scan, used, histogram, totals, start)


@compiled
def _place_keys(keys, place, order, rank, counter):
    rows = place.shape[0]
    for row in claimed(counter, rows):
        begin, end = share_of(keys.size, rows, row)
        places = place[row]
        for k in range(begin, end):
            key = keys[k]
            if key < 0:
                rank[k] = -1
                continue
            at = places[key]
            places[key] = at + 1
            order[at] = k
            rank[k] = at


@compiled
def sort_few(keys, bins):
    """Return start, order and rank of few keys, as `counting_sort` does."""
    start, histogram = np.empty(bins + 1, np.int64), np.empty((1, bins), np.int32)
    order, rank = np.empty(keys.size, np.int32), np.empty(keys.size, np.int32)
    count_keys(keys, histogram, np.zeros(2, np.int64))
    _block_scan(histogram, np.zeros(1, np.int64), start, np.zeros(2, np.int64))
    _place_keys(keys, histogram, order, rank, np.zeros(2, np.int64))
    return start, order, rank


def counting_sort(keys: np.ndarray, bins: int, threads: int | None = None) -> Order:
    """Return the stable order of integer keys in [0, bins), the same for any number of threads; ``start`` is int64.

    Parameters
    ----------
    keys : (N,) int32 or int64
        Contiguous. Negative keys are left out.
    bins
        One more than the largest key allowed; keys are not checked.
    threads
        The most threads to use; by default as many as suit N.

    Examples
    --------
    >>> import numpy as np
    >>> counting_sort(np.array([2, 0, 2, 1]), 3).order
    array([1, 3, 0, 2], dtype=int32)
    """
    count = len(keys)
    if count + bins <= _FEW:
        return Order(*sort_few(keys, bins))
    threads = threads_for(threads, count)
    index = index_type(count)
    start = np.empty(bins + 1, np.int64)
    order = np.empty(count, index)
    rank = np.empty(count, index)
    histogram = np.empty((histogram_rows(count, bins, threads), bins), index)
    used = len(histogram)
    run(count_keys, used, keys, histogram, steps=10 * count)
    scan(histogram, start, threads)
    run(_place_keys, used, keys, histogram, order, rank, steps=20 * count)
    return Order(start, order, rank)
