# SPDX-License-Identifier: BSD-3-Clause
"""Whether two native arrays of one backend share memory."""

from __future__ import annotations

from typing import Any

import numpy as np

_WORK = 10**6  # of NumPy's search for a shared element, which may take for ever


def overlap(a: Any, b: Any) -> bool:
    """Return whether an element of ``a`` shares memory with one of ``b``."""
    if not isinstance(a, np.ndarray):
        if not (a.size and b.size) or _buffer(a) != _buffer(b):
            return False
        (low_a, high_a), (low_b, high_b) = _span(a), _span(b)
        if high_a <= low_b or high_b <= low_a:
            return False
        a, b = np.asarray(_Memory(a)), np.asarray(_Memory(b))
    elif not np.may_share_memory(a, b):  # a look at the bounds alone
        return False
    try:
        return bool(np.shares_memory(a, b, max_work=_WORK))  # type: ignore[arg-type]  # any limit is allowed
    except np.exceptions.TooHardError:
        return True


class _Memory:
    """Where an array lies, without the array: NumPy compares the addresses and never looks behind them."""

    def __init__(self, native: Any) -> None:
        self.__array_interface__ = {
            "version": 3, "data": (_start(native), True), "shape": tuple(native.shape),
            "strides": tuple(native.strides), "typestr": np.dtype(native.dtype).str,
        }  # fmt: skip


def _buffer(native: Any) -> int:
    """Return which memory an array's addresses are of: an OpenCL buffer, or all that CUDA has."""
    return int(native.base_data.int_ptr) if hasattr(native, "base_data") else 0


def _start(native: Any) -> int:
    """Return the address of the first element; in an OpenCL buffer some address stands for the buffer's own."""
    return _BASE + int(native.offset) if hasattr(native, "base_data") else int(native.data.ptr)


_BASE = 1 << 40  # NumPy takes no address of zero, and subtracts from it where strides are negative


def _span(native: Any) -> tuple[int, int]:
    """Return the first address and the one past the last."""
    start = _start(native)
    steps = [(n - 1) * s for n, s in zip(native.shape, native.strides, strict=True)]
    return start + sum(s for s in steps if s < 0), start + sum(s for s in steps if s > 0) + native.dtype.itemsize
