# SPDX-License-Identifier: BSD-3-Clause
"""Whether two native arrays of one backend share memory."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

_WORK = 10**6  # limit of NumPy's search for a shared element, which is exponential


def overlap(a: Any, b: Any) -> bool:
    """Return whether an element of one array shares memory with one of another.

    Parameters
    ----------
    a, b : native arrays
        Of one backend, with any strides.

    Returns
    -------
    bool
        True also where the search, which takes long for some strides, was given up.

    Examples
    --------
    >>> x = np.zeros((4, 2))
    >>> overlap(x[:, 0], x[1]), overlap(x[:, 0], x[:, 1])
    (True, False)
    """
    if not isinstance(a, np.ndarray):
        if not (a.size and b.size):
            return False
        (memory_a, start_a), (memory_b, start_b) = _place(a), _place(b)
        if memory_a != memory_b:
            return False
        (low_a, high_a), (low_b, high_b) = _span(a, start_a), _span(b, start_b)
        if high_a <= low_b or high_b <= low_a:
            return False
        a, b = np.asarray(_Memory(a, start_a)), np.asarray(_Memory(b, start_b))
    elif not np.may_share_memory(a, b):  # compares bounds only
        return False
    try:
        return bool(np.shares_memory(a, b, max_work=_WORK))  # type: ignore[arg-type]  # any limit is allowed
    except np.exceptions.TooHardError:
        return True


class _Memory:
    """The addresses of an array, for NumPy's comparison, which does not read the memory."""

    def __init__(self, native: Any, start: int) -> None:
        self.__array_interface__ = {
            "version": 3, "data": (start, True), "shape": tuple(native.shape),
            "strides": tuple(native.strides), "typestr": np.dtype(native.dtype).str,
        }  # fmt: skip


def _place(native: Any) -> tuple[int, int]:
    """Return a key of an array's memory, and the address of its first element there.

    CUDA has one memory. In OpenCL each buffer is one, and a sub-buffer is part of its parent; addresses in it are
    fictitious.
    """
    if not hasattr(native, "base_data"):
        return 0, int(native.data.ptr)
    buffer, start = native.base_data, _BASE + int(native.offset)
    info = sys.modules["pyopencl"].mem_info
    parent = buffer.get_info(info.ASSOCIATED_MEMOBJECT)
    if parent is None:
        return int(buffer.int_ptr), start
    return int(parent.int_ptr), start + int(buffer.get_info(info.OFFSET))


_BASE = 1 << 40  # NumPy rejects address zero, and subtracts from it where strides are negative


def _span(native: Any, start: int) -> tuple[int, int]:
    """Return the first address and the one past the last."""
    steps = [(n - 1) * s for n, s in zip(native.shape, native.strides, strict=True)]
    return start + sum(s for s in steps if s < 0), start + sum(s for s in steps if s > 0) + native.dtype.itemsize
