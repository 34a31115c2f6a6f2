# SPDX-License-Identifier: BSD-3-Clause
"""Counting sort on CUDA and OpenCL: one atomic a key, a scan, a scatter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from particlemesh.backends.base import Backend, Kernel

_FILE = "binning/counting.c"
_PER_ITEM = 16  # as in counting.c
_SELF_SUMMED = 1024  # tiles whose groups add up the totals before them themselves

Allocate = Callable[[str, tuple[int, ...], Any], Any]


def _kernel(backend: Backend, name: str, wide_counts: bool, wide_keys: bool = False) -> Kernel:
    defines = {"REAL_IS_DOUBLE": 0, "COUNT_IS_64": int(wide_counts), "KEY_IS_64": int(wide_keys)}
    return backend.kernel(_FILE, name, defines)


def scan(backend: Backend, counts: Any, start: Any, bins: int, allocate: Allocate, depth: int = 0) -> None:
    """Write the exclusive sums of ``counts[:bins]`` to ``start[:bins + 1]``, the last one being the total."""
    wide = counts.dtype.itemsize == 8
    tile = backend.group_size * _PER_ITEM
    tiles = max(1, -(-bins // tile))
    totals = allocate(f"totals{depth}", (tiles + 1,), counts.dtype)
    items = tiles * backend.group_size
    _kernel(backend, "tile_totals", wide)(items, counts, totals, bins, tiles)
    bases, scanned = totals, 0
    if tiles > _SELF_SUMMED:
        bases, scanned = allocate(f"bases{depth}", (tiles + 1,), counts.dtype), 1
        scan(backend, totals, bases, tiles, allocate, depth + 1)
    _kernel(backend, "scan_tiles", wide)(items, counts, bases, start, bins, tiles, scanned)


def reserve(backend: Backend, count: int, bins: int, allocate: Allocate) -> None:
    """Allocate what an unstable :func:`counting_sort` of ``count`` keys takes."""
    _arrays(count, bins, allocate)
    tile, depth = backend.group_size * _PER_ITEM, 0
    kind = np.dtype(np.uint64 if count >= 2**31 else np.uint32)
    while True:
        tiles = max(1, -(-bins // tile))
        allocate(f"totals{depth}", (tiles + 1,), kind)
        if tiles <= _SELF_SUMMED:
            return
        allocate(f"bases{depth}", (tiles + 1,), kind)
        bins, depth = tiles, depth + 1


def _arrays(count: int, bins: int, allocate: Allocate) -> tuple[Any, Any, Any, Any]:
    wide = count >= 2**31
    counter, index = np.dtype(np.uint64 if wide else np.uint32), np.dtype(np.int64 if wide else np.int32)
    counts = allocate("counts", (max(bins, 1),), counter)
    start = allocate("start", (bins + 1,), counter)
    return counts, start, allocate("order", (max(count, 1),), index), allocate("rank", (max(count, 1),), index)


def counting_sort(
    backend: Backend, keys: Any, count: int, bins: int, *, stable: bool, allocate: Allocate
) -> tuple[Any, Any, Any]:
    """Return start (bins + 1), order and rank of ``keys[:count]``; negative keys take no part."""
    wide, wide_keys = count >= 2**31, keys.dtype.itemsize == 8
    counts, start, order, rank = _arrays(count, bins, allocate)
    backend.clear(counts)
    if stable and count:
        if wide or bins >= 2**32 - 1:
            raise ValueError(f"{count:,} keys in {bins:,} bins: the stable order takes fewer than 2**31 keys.")
        sortable = allocate("sortable", (count,), np.dtype(np.uint32))
        _kernel(backend, "sortable_keys", wide, wide_keys)(count, keys, sortable, count, bins)
        found = backend.stable_order(sortable, count, bins + 1).astype(np.uint32)
        _kernel(backend, "invert_order", wide, wide_keys)(count, found, keys, counts, rank, order, count)
        scan(backend, counts, start, bins, allocate)
        return start, order, rank
    if count:
        _kernel(backend, "count_keys", wide, wide_keys)(count, keys, counts, rank, count)
    scan(backend, counts, start, bins, allocate)
    if count:
        _kernel(backend, "place_keys", wide, wide_keys)(count, keys, start, rank, order, count)
    return start, order, rank
