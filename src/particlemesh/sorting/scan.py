# SPDX-License-Identifier: BSD-3-Clause
"""Exclusive sums of counts on CUDA and OpenCL, in one pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from particlemesh.backends.base import As, Backend

PER_ITEM = 16  # counts per work-item: ROWS * 4 in scan.c

Allocate = Callable[[str, tuple[int, ...], Any], Any]


def allocate_counts(
    backend: Backend, bins: int, dtype: Any, allocate: Allocate, name: str = "counts", skip: int = 0
) -> Any:
    """Return memory for counts that a kernel makes, and for the control of their :func:`scan`.

    One ``backend.clear`` serves all of it: on a GPU a clear costs as much as the scan of a small grid.

    Parameters
    ----------
    backend : Backend
        CUDA or OpenCL.
    bins : int
        How many counts.
    dtype : {"uint32", "uint64"}
    allocate : callable
        ``allocate(name, shape, dtype)`` returns a native array.
    name : str
        Passed to ``allocate``.
    skip : int
        Words of 64 bits before the counts.

    Returns
    -------
    native array of uint64
        A kernel counts in it as :class:`particlemesh.kernels.As` of ``dtype``.

    Examples
    --------
    Three counts of 32 bits fill two words; two further words are for the scan. See :func:`scan`.

    >>> from particlemesh.kernels import backend as backend_of
    >>> device = backend_of("opencl")
    >>> allocate_counts(device, 3, "uint32", lambda name, shape, dtype: device.empty(shape, dtype)).shape
    (4,)
    """
    size = np.dtype(dtype).itemsize
    return allocate(name, (skip + _behind(bins, size) + _words(backend, bins),), np.dtype(np.uint64))


def allocate_control(backend: Backend, bins: int, allocate: Allocate, name: str = "scan") -> Any:
    """Return the control memory of scans of up to ``bins`` counts: a ticket, and a word per tile."""
    return allocate(name, (_words(backend, bins),), np.dtype(np.uint64))


def scan(backend: Backend, counts: Any, start: Any, bins: int, control: Any = None, skip: int = 0) -> None:
    """Write the exclusive sums of ``counts[:bins]`` to ``start[:bins + 1]``; the last is the total.

    Parameters
    ----------
    backend : Backend
        CUDA or OpenCL.
    counts, start : uint32 or uint64
        Native arrays in C order that begin at multiples of 16 bytes; counts have the size of ``start``.
    bins : int
        How many counts.
    control : uint64, optional
        From ``allocate_control``; cleared here. By default ``counts`` is from :func:`allocate_counts` with
        the same ``bins``, and was cleared before counting.
    skip : int
        Words of 64 bits before the counts; even, for wide reads.

    Examples
    --------
    Cells with 2, 0 and 3 particles begin at the places 0, 2 and 2:

    >>> from particlemesh.kernels import backend as backend_of
    >>> device = backend_of("opencl")
    >>> counts = allocate_counts(device, 3, "uint32", lambda name, shape, dtype: device.empty(shape, dtype))
    >>> device.clear(counts)
    >>> device.copy(counts[:2].view(np.uint32)[:3], device.upload(np.array([2, 0, 3], np.uint32)))  # a kernel counts
    >>> start = device.empty(4, np.uint32)
    >>> scan(device, counts, start, 3)
    >>> device.download(start)
    array([0, 2, 2, 5], dtype=uint32)
    """
    size = start.dtype.itemsize
    words, sums = As(counts, np.uint64), As(start, f"u{size}")  # starts may be signed, and counts have 32 bits
    tiles = _words(backend, bins) - 1
    run = backend.kernel("sorting/scan.c", "scan_counts", {"REAL_IS_DOUBLE": 0, "COUNT_IS_64": size // 8})
    if control is None:
        run(tiles * backend.group_size, words, sums, words, bins, tiles, skip, skip + _behind(bins, size))
    else:
        backend.clear(control)
        run(tiles * backend.group_size, words, sums, control, bins, tiles, skip, 0)


def _words(backend: Backend, bins: int) -> int:
    return 1 + max(1, -(-bins // (PER_ITEM * backend.group_size)))


def _behind(bins: int, size: int) -> int:
    """Return the first 64-bit word behind ``bins`` counts of ``size`` bytes."""
    return -(-bins * size // 8)
