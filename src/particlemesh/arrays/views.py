# SPDX-License-Identifier: BSD-3-Clause
"""The form of arrays for methods: reals, with one stride per axis."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np

REALS = {"f": 4, "d": 8, "F": 4, "D": 8}  # bytes of a real, by dtype character
COMPLEX: dict[Any, Any] = {np.dtype(np.float32): np.dtype(np.complex64), np.dtype(np.float64): np.dtype(np.complex128)}


class Layout:
    """Shape and strides of an array's reals; the parts of a number are the last axis.

    Layouts are cached and compared by identity, so that look-ups by layout are cheap.
    """

    __slots__ = ("alignment", "offset", "overlaps", "shape", "strides")

    def __init__(self, offset: int, shape: tuple[int, ...], strides: tuple[int, ...], alignment: int) -> None:
        self.offset = offset  # of the first real, from the start of the kernel's pointer
        self.shape = shape
        self.strides = strides
        self.alignment = alignment  # of the first real's address, in bytes, up to 16
        self.overlaps = _overlaps(shape, strides)

    @property
    def parts(self) -> int:
        return self.shape[-1]

    @property
    def channels(self) -> int:
        return self.shape[0]


def _overlaps(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Return whether elements may share memory: an axis steps by less than the span of those with smaller strides."""
    if 0 in shape:  # nothing is shared, whatever the strides
        return False
    span = 1
    for stride, size in sorted((abs(s), n) for n, s in zip(shape, strides, strict=True) if n > 1):
        if stride < span:
            return True
        span = stride * (size - 1) + span
    return False


def overlaps_itself(array: Any) -> bool:
    """Return whether elements of a native array may share memory, even if it has no view."""
    return _overlaps((*array.shape, array.dtype.itemsize), (*array.strides, 1))  # in bytes


@dataclass(slots=True)
class View:
    """An array as reals of shape (channels, ..., parts)."""

    array: Any  # native; keeps the memory alive
    layout: Layout

    def numpy(self) -> np.ndarray:
        """Return the strided NumPy array (native arrays of the CPU only)."""
        real = self.array.real
        if self.array.flags.c_contiguous:  # faster than `as_strided`
            return self.array.reshape(-1).view(real.dtype).reshape(self.layout.shape)
        strides = tuple(s * real.dtype.itemsize for s in self.layout.strides)
        return np.lib.stride_tricks.as_strided(real, self.layout.shape, strides, writeable=real.flags.writeable)


def view(array: Any, core: int, axes: int) -> View | None:
    """Return a view with the last ``core`` axes and the batch axes merged to one, or None.

    There is none if the batch axes have no common stride, or a stride is not a whole number of reals.
    ``axes`` is the number of axes of the view's core: missing ones come first, one element thick.
    """
    offset = address = 0  # in bytes; CPU methods use neither
    if hasattr(array, "base_data"):  # PyOpenCL: an offset into a buffer that starts aligned
        offset = address = array.offset
    elif not isinstance(array, np.ndarray):  # CuPy: a pointer to the first element
        address = array.data.ptr
    layout = _layout(array.shape, array.strides, array.dtype.char, core, axes, offset, address & 15)
    return None if layout is None else View(array, layout)


def integer_view(array: Any, core: int, axes: int, parts: int) -> View | None:
    """Return a view of 64-bit integers (..., [parts,] *core) whose parts are neighbours in memory, or None."""
    if parts == 1:
        return view(array, core, axes)
    last = array.ndim - core - 1
    turned = array.transpose((*range(last), *range(last + 1, array.ndim), last))
    beside = view(turned, core + 1, axes + 1)
    if beside is None or beside.layout.strides[-2] != 1:
        return None
    layout = beside.layout
    return View(turned, _known(layout.offset, layout.shape[:-1], layout.strides[:-1], layout.alignment))


@functools.lru_cache(maxsize=4096)
def _known(offset: int, shape: tuple[int, ...], strides: tuple[int, ...], alignment: int) -> Layout:
    return Layout(offset, shape, strides, alignment)


@functools.lru_cache(maxsize=4096)
def _layout(
    shape: tuple[int, ...], strides: tuple[int, ...], char: str, core: int, axes: int, offset: int, low_bits: int
) -> Layout | None:
    bytes_of_real, parts = REALS.get(char) or np.dtype(char).itemsize, 2 if char in "FD" else 1
    batch = len(shape) - core
    channels, step = 1, 0
    empty = 0 in shape[:batch]  # whatever its strides
    for size, stride in zip(reversed(shape[:batch]), reversed(strides[:batch]), strict=True):
        if size == 1 or empty:
            continue
        if channels == 1:
            channels, step = size, stride
        elif stride == step * channels:
            channels *= size
        else:
            return None
    if empty:
        channels = 0
    missing = axes - core
    strides = (step, *(0,) * missing, *strides[batch:])
    if any(s % bytes_of_real for s in strides):
        return None
    shape = (channels, *(1,) * missing, *shape[batch:], parts)
    alignment = low_bits & -low_bits or 16
    return Layout(offset // bytes_of_real, shape, (*(s // bytes_of_real for s in strides), 1), alignment)
