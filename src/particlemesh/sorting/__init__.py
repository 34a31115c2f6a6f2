# SPDX-License-Identifier: BSD-3-Clause
"""Orderings: particles by bin. The one service under spreading, interpolation and grids."""

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
        Indices of the keys, bin by bin; those of negative keys are missing, ``order[start[-1]:]`` is void.
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
    """Order integer keys by counting: one atomic a key, whose return value is the key's rank in its bin.

    Parameters
    ----------
    backend : Backend
        Where the keys are.
    keys : (N,) int32 or int64
        Native array in C order. A negative key takes no part.
    bins : int
        Keys lie below it; they are not checked.
    stable : bool
        Increasing index within a bin, so the same bits every time. The CPU's order always is.
    threads : int, optional
        Most threads on the CPU.
    allocate : callable (name, shape, dtype), optional
        Where memory comes from; by default it is new.

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
