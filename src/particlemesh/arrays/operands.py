# SPDX-License-Identifier: BSD-3-Clause
"""Inputs and outputs of methods, from and to users' arrays.

`take` checks an input, `give` makes an output. Methods see both as a `View`: reals, with one stride per axis.
"""

from __future__ import annotations

import functools
import itertools
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from particlemesh import checks
from particlemesh.arrays.kinds import KINDS, NUMPY, Kind, allocate, foreign, kind_of
from particlemesh.backends.base import Backend

REALS = {"f": 4, "d": 8, "F": 4, "D": 8}  # bytes of a real, by dtype character
COMPLEX: dict[Any, Any] = {np.dtype(np.float32): np.dtype(np.complex64), np.dtype(np.float64): np.dtype(np.complex128)}
_WORK = 10**6  # limit of NumPy's search for a shared element, which is exponential
_BASE = 1 << 40  # NumPy rejects address zero, and subtracts from it where strides are negative


@dataclass(slots=True)
class Operand:
    """An input: the user's array, its kind, and its view for methods."""

    kind: Kind
    user: Any
    native: Any
    view: View
    batch: tuple[int, ...]


@dataclass(slots=True)
class Result:
    """An output: the array for methods, and a function that returns the user's result."""

    native: Any
    core: int  # axes, as for :func:`view`
    axes: int
    finish: Callable[[], Any]

    @property
    def view(self) -> View:
        """The array's view for methods."""
        values = view(self.native, self.core, self.axes)
        assert values is not None  # dense arrays always have one
        return values


def adopt(array: Any, what: str) -> tuple[Kind, Any]:
    """Return the kind of an array, and the array; sequences, numbers and arrays without a kind become natives.

    Parameters
    ----------
    array : array_like
    what : str
        Name of the argument, for the message.

    Returns
    -------
    kind : Kind
    array : array

    Raises
    ------
    TypeError
        If the library does not know this kind.

    Examples
    --------
    >>> kind, array = adopt([1.0, 2.0], "masses")
    >>> kind.name, array
    ('NumPy', array([1., 2.]))
    """
    kind = kind_of(array)
    if kind is not None:
        return kind, array
    if isinstance(array, (list, tuple, int, float, complex, np.generic)):
        return NUMPY, checks.number_array(array, what)
    exchanged = foreign(array, what)
    if exchanged is not None:
        return exchanged
    names = ", ".join(k.name for k in KINDS)
    raise TypeError(
        f"{what} is of type {type(array).__name__}; give an array of one of these kinds: {names}, pandas, or any with "
        "__dlpack__."
    )


def to_backend(
    kind: Kind, array: Any, backend: Backend, what: str, *, upload: bool,
    promoted: Callable[[np.ndarray], np.ndarray] = lambda host: host,
) -> Any:  # fmt: skip
    """Return the native array on ``backend``. Host arrays are copied there only if the user named the backend.

    They are ``promoted`` first, because the host can check their values and has dtypes that devices lack.
    """
    native = kind.native(array)
    if kind.home == backend.name:
        if not kind.on(array, backend):
            source = kind.backend(array)
            raise ValueError(
                f"{what} is on {source.device} ({source}), the work on {backend.device} ({backend}): "
                "copy it there, or use one plan or grid per device."
            )
        return native
    if kind.home == "cpu" and upload:
        return backend.upload(promoted(native))
    raise TypeError(
        f"{what} is a {kind.name} array and the work is on {backend.name!r}: pass arrays of that backend, "
        f"or give backend={backend.name!r} to the plan, grid or program, which copies host arrays both ways."
    )


def converted(native: Any, dtype: np.dtype, what: str) -> Any:
    """Return ``native`` as ``dtype``; devices do not support all dtypes."""
    try:
        return native.astype(dtype)
    except ValueError as error:  # PyOpenCL's
        raise TypeError(
            f"{what} has dtype {native.dtype}, which the device cannot convert: convert it yourself."
        ) from error


def in_precision(native: Any, dtype: np.dtype, what: str) -> Any:
    """Return ``native`` in the plan's precision, real or complex; raise an error if digits would be lost."""
    given = np.dtype(native.dtype)
    checks.number_type(given, what)
    target = COMPLEX[dtype] if given.kind == "c" else dtype
    if given == target:
        return native
    if given.kind in "fc" and given.itemsize > target.itemsize:
        raise TypeError(
            f"{what} has dtype {given}, more than this plan's {dtype.name} holds: "
            f"use Plan(..., dtype='float64') or convert it yourself."
        )
    promoted = converted(native, target, what)
    exact = given.kind not in "iu" or given.itemsize <= 2 or target.itemsize == 8  # as NumPy promotes
    # Values on a device are not checked, because reading them waits for the device.
    with np.errstate(invalid="ignore"):  # numbers that round to one beyond the largest integer
        if not exact and (not isinstance(native, np.ndarray) or (promoted.astype(given) != native).any()):
            raise TypeError(
                f"{what} has dtype {given}, and {dtype.name} does not hold all such integers: "
                f"give dtype='float64' or convert it yourself."
            )
    return promoted


def take(
    array: Any, core: tuple[int, ...], axes: int, dtype: np.dtype, backend: Backend, what: str, *, upload: bool,
    channels: int = 0,
) -> Operand:  # fmt: skip
    """Check an input of shape ``(..., *core)`` and return it on the backend; ``axes`` as for :func:`view`.

    The first ``channels`` axes of the core are channels for methods.
    """
    kind = kind_of(array)
    if kind is None:
        kind, array = adopt(array, what)
    shape = array.shape if array.shape.__class__ is tuple else tuple(array.shape)
    batch = len(shape) - len(core)
    if batch < 0 or shape[batch:] != core:
        checks.trailing_shape(shape, core, what)
    native = to_backend(kind, array, backend, what, upload=upload, promoted=lambda a: in_precision(a, dtype, what))
    if native.dtype is not dtype and native.dtype is not COMPLEX[dtype]:  # NumPy's native types are singletons
        native = in_precision(native, dtype, what)
        backend.untaped()  # a replay would not copy again
    values = view(native, len(core) - channels, axes)
    if values is None:
        dense = allocate(backend, shape, native.dtype, f"a dense copy of {what}")
        backend.copy(dense, native)
        native = dense
        values = view(native, len(core) - channels, axes)
    assert values is not None  # dense arrays always have a view
    return Operand(kind, array, native, values, shape[:batch])


def give(
    out: Any, like: Operand, shape: tuple[int, ...], core: int, axes: int, backend: Backend, *,
    accumulate: bool, upload: bool, number: np.dtype | None = None,
) -> Result:  # fmt: skip
    """Return the output for a result of ``shape``: ``out``, or a new array of the input's kind.

    Its dtype is ``number``, or that of the input.
    """
    inner = like.native.dtype if number is None else number  # of the plan's precision
    given = like.kind.dtype(like.user) if number is None else number
    dtype = inner if given is inner or given.char not in REALS else given.newbyteorder("=")  # of the user's result
    if out is None:
        native = allocate(backend, shape, inner, "the result")
        backend.returns(native)
        wrap, home = like.kind.wrap, like.kind.home == backend.name
        if inner != dtype:
            backend.untaped()

        def hand_over() -> Any:
            result = native if inner == dtype else native.astype(dtype)
            return wrap(result) if home else wrap(backend.download(result))

        return Result(native, core, axes, hand_over)
    kind, target = _target(out, like, shape, dtype, backend, upload)
    values = view(target, core, axes)
    if overlaps_itself(target) if values is None else values.layout.overlaps:
        raise ValueError("out has elements that share memory (a broadcast array?); give an array without overlap.")
    if kind.home == backend.name:
        if values is not None and inner == dtype:
            return Result(target, core, axes, lambda: out)
        native = allocate(backend, shape, inner, "a dense copy of out")
        if accumulate:
            backend.copy(native, target if inner == dtype else target.astype(inner))

        def finish() -> Any:
            backend.copy(target, native if inner == dtype else native.astype(dtype))
            return out

        backend.untaped()
        return Result(native, core, axes, finish)
    if accumulate:
        native = backend.upload(np.ascontiguousarray(target, inner))
    else:
        native = allocate(backend, shape, inner, "out")

    def send_back() -> Any:
        target[...] = backend.download(native)
        return out

    return Result(native, core, axes, send_back)


def _target(
    out: Any, like: Operand, shape: tuple[int, ...], dtype: np.dtype, backend: Backend, upload: bool
) -> tuple[Kind, Any]:
    """Return the kind of an output and the native array over its memory, both checked."""
    kind = kind_of(out)
    if kind is None:
        if hasattr(out, "__dlpack__"):
            raise TypeError(
                f"out is a {type(out).__name__}; arrays that DLPack reaches are not written: leave out= out."
            )
        raise TypeError(f"out is of type {type(out).__name__}; give an array of the input's kind.")
    if out.shape != shape and tuple(out.shape) != shape:
        raise ValueError(f"out has shape {tuple(out.shape)}; this call writes {shape}: give an array of this shape.")
    if out.dtype is not dtype and kind.dtype(out) != dtype:
        raise TypeError(f"out has dtype {kind.dtype(out)}; this call writes {dtype}: give an array of this dtype.")
    if not (kind.on(out, backend) if kind.home == backend.name else kind.home == "cpu" and upload):
        to_backend(kind, out, backend, "out", upload=False)  # raises
    target = kind.target(out)
    if like.kind.home == kind.home and overlap(target, like.kind.native(like.user)):
        raise ValueError("out shares memory with the input; give a separate array.")
    return kind, target


def check_apart(*outs: Any) -> None:
    """Check that no two outputs share memory.

    Parameters
    ----------
    *outs : arrays
        The user's, of any kind.

    Raises
    ------
    ValueError
        If two of them do.

    Examples
    --------
    >>> x = np.zeros((4, 2))
    >>> check_apart(x[0], x[1])
    >>> check_apart(x[0], x[:, 1])
    Traceback (most recent call last):
        ...
    ValueError: two arrays of out share memory; give separate arrays.
    """
    known = [(k, a) for a in outs if (k := kind_of(a)) is not None]
    for (kind, first), (other, second) in itertools.combinations(known, 2):
        if kind.home == other.home and overlap(kind.target(first), other.target(second)):
            raise ValueError("two arrays of out share memory; give separate arrays.")


def real_dtype(array: Any, kind: Kind, what: str) -> np.dtype:
    """Return the real dtype that holds an array's numbers: float32 or float64."""
    dtype = kind.dtype(array)
    checks.number_type(dtype, what)
    if dtype.char in REALS:
        return np.dtype(f"f{REALS[dtype.char]}")
    return np.dtype(np.float64 if dtype.itemsize > 2 else np.float32)  # of integers, as NumPy promotes them


# ---- reals, with one stride per axis --------------------------------------------------------------------------------


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


# ---- whether two native arrays of one backend share memory ----------------------------------------------------------


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


def _span(native: Any, start: int) -> tuple[int, int]:
    """Return the first address and the one past the last."""
    steps = [(n - 1) * s for n, s in zip(native.shape, native.strides, strict=True)]
    return start + sum(s for s in steps if s < 0), start + sum(s for s in steps if s > 0) + native.dtype.itemsize
