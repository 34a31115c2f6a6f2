# SPDX-License-Identifier: BSD-3-Clause
"""Sorting of particles by bin, shared by spreading, interpolation and grids."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from particlemesh.backends.base import Backend


class Order(NamedTuple):
    """Keys in the order of their bins; arrays of the backend.

    Attributes
    ----------
    start : (bins + 1,)
        Bin b holds ``order[start[b]:start[b + 1]]``.
    order : (N,)
        Indices of the keys, bin by bin. Negative keys are left out: ``order[start[-1]:]`` is undefined.
    rank : (N,)
        Place of each key in ``order``; -1 for a negative key.
    """

    start: Any
    order: Any
    rank: Any


def counting_sort(
    backend: Backend,
    keys: Any,
    bins: int,
    *,
    stable: bool = False,
    threads: int | None = None,
    allocate: Any = None,
) -> Order:
    """Order integer keys by counting: one atomic per key, whose return value is the key's rank in its bin.

    Parameters
    ----------
    backend : Backend
        Where the keys are.
    keys : (N,) int32 or int64
        Native array in C order. Negative keys are left out.
    bins : int
        Keys are less than this; they are not checked.
    stable : bool
        Increasing index within a bin, so the order is reproducible. On the CPU it always is.
    threads : int, optional
        Most threads on the CPU.
    allocate : callable (name, shape, dtype), optional
        Returns memory; by default new arrays.

    Returns
    -------
    Order

    Examples
    --------
    >>> import numpy as np
    >>> from particlemesh import backends, sorting
    >>> sorting.counting_sort(backends.current("cpu"), np.array([2, 0, 2, 1], np.int32), 3).order
    array([1, 3, 0, 2], dtype=int32)
    """
    if backend.name == "cpu":
        from particlemesh.sorting import cpu

        return Order(*cpu.counting_sort(keys, bins, threads))
    from particlemesh.sorting import counting

    fresh = allocate or (lambda name, shape, dtype: backend.empty(shape, dtype))
    return Order(*counting.counting_sort(backend, keys, int(keys.shape[0]), bins, stable=stable, allocate=fresh))
