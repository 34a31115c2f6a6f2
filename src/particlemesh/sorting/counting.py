# SPDX-License-Identifier: BSD-3-Clause
"""Counting sort on CUDA and OpenCL: one atomic per key, a scan, a scatter."""

from __future__ import annotations

from typing import Any

import numpy as np

from particlemesh.backends.base import Backend, Kernel, Unread
from particlemesh.sorting import Order, radix
from particlemesh.sorting.keys import STATUS_WORDS, Keys, array_keys
from particlemesh.sorting.scan import Allocate, allocate_counts, scan

_FILE = "sorting/counting.c"
_NOTHING = {"WANT_RANK": 0, "WANT_ORDER": 0, "WANT_RECORDS": 0}


def _kernel(backend: Backend, name: str, items: Keys, **wants: int) -> Kernel:
    defines = {**items.defines, "COUNT_IS_64": int(items.count >= 2**31), **_NOTHING, **wants}
    return backend.kernel(_FILE, name, defines)


def reserve(backend: Backend, count: int, bins: int, allocate: Allocate) -> None:
    """Allocate the memory of an unstable :func:`counting_sort` of ``count`` keys."""
    _counts(backend, count, bins, allocate)
    allocate("order", (max(count, 1),), _index_type(count))
    allocate("rank", (max(count, 1),), _index_type(count))


def _index_type(count: int) -> np.dtype:
    return np.dtype(np.int64 if count >= 2**31 else np.int32)


def _counts(backend: Backend, count: int, bins: int, allocate: Allocate) -> tuple[Any, Any]:
    """Return arrays for the status with a count per bin, and for the start of each bin."""
    counter = np.dtype(np.uint64 if count >= 2**31 else np.uint32)
    work = allocate_counts(backend, bins, counter, allocate, "work", STATUS_WORDS)
    return work, allocate("start", (bins + 1,), counter)


def count_items(backend: Backend, items: Keys, allocate: Allocate) -> tuple[Any, Any, Any]:
    """Count the items of every bin.

    Returns
    -------
    work
        Its first words are the status: the faults of the items.
    start : (bins + 1,)
        Where each bin starts.
    rank : (count,)
        Rank of each item in its bin.
    """
    count, bins = items.count, items.bins
    work, start = _counts(backend, count, bins, allocate)
    rank = allocate("rank", (max(count, 1),), _index_type(count))
    backend.clear(work)
    if count:
        _kernel(backend, "count_keys", items)(count, *items.arrays, work, rank, count, bins, *items.records)
    scan(backend, work, start, bins, skip=STATUS_WORDS)
    return work, start, rank


def place_items(
    backend: Backend, items: Keys, status: Any, start: Any, rank: Any, *, keep_rank: bool = False, order: Any = None,
    records: Any = None, turns: Any = None,
) -> None:  # fmt: skip
    """Write the given outputs: indices in bin order, records of positions, and places instead of ranks."""
    if not items.count:
        return
    wants = {
        "WANT_RANK": int(keep_rank), "WANT_ORDER": int(order is not None), "WANT_RECORDS": int(records is not None),
    }  # fmt: skip
    place = _kernel(backend, "place_keys", items, **wants)
    nothing = Unread(status)
    order, records, turns = (nothing if a is None else a for a in (order, records, turns))
    place(
        items.count, *items.arrays, status, start, rank, order, records, turns, items.count, items.bins, *items.records,
    )  # fmt: skip


def counting_sort(backend: Backend, keys: Any, count: int, bins: int, *, stable: bool, allocate: Allocate) -> Order:
    """Return the order of ``keys[:count]``, integers below ``bins``; ``stable``: by increasing index within a bin."""
    items = array_keys(keys, count, bins)
    order = allocate("order", (max(count, 1),), _index_type(count))
    if stable and count:
        if count >= 2**31 or bins >= 2**32 - 1:
            raise ValueError(
                f"{count:,} keys in {bins:,} bins; a stable order takes < 2**31 keys and < 2**32 - 1 bins."
            )
        work, start = _counts(backend, count, bins, allocate)
        rank = allocate("rank", (count,), _index_type(count))
        backend.clear(work)
        sortable = allocate("sortable", (count,), np.dtype(np.uint32))
        _kernel(backend, "sortable_keys", items)(count, keys, sortable, count, bins)
        sorted_keys, _ = radix.sort(backend, sortable, count, max(1, bins.bit_length()), allocate, into=order)
        _kernel(backend, "invert_order", items)(count, sorted_keys, order, work, rank, count, bins)
        scan(backend, work, start, bins, skip=STATUS_WORDS)
        return Order(start, order, rank)
    work, start, rank = count_items(backend, items, allocate)
    place_items(backend, items, work, start, rank, keep_rank=True, order=order)
    return Order(start, order, rank)
