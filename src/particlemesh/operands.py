# SPDX-License-Identifier: BSD-3-Clause
"""Users' arrays on their way into a method and out of it again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from particlemesh import checks
from particlemesh.arrays import KINDS, NUMPY, REALS, Kind, View, kind_of, view
from particlemesh.arrays.geometry import Coordinates
from particlemesh.backends.base import Backend, allocate

# The complex type of each precision.
COMPLEX: dict[Any, Any] = {np.dtype(np.float32): np.dtype(np.complex64), np.dtype(np.float64): np.dtype(np.complex128)}


@dataclass(slots=True)
class Operand:
    """An input: the user's array, its kind, and the view that methods read."""

    kind: Kind
    user: Any
    native: Any
    view: View
    batch: tuple[int, ...]


@dataclass(slots=True)
class Result:
    """An output: where methods write, and what turns it into what the user gets."""

    native: Any
    view: View
    finish: Callable[[], Any]


def adopt(array: Any, what: str) -> tuple[Kind, Any]:
    """Return the kind of an array; sequences and scalars become NumPy arrays."""
    kind = kind_of(array)
    if kind is not None:
        return kind, array
    if isinstance(array, (list, tuple, int, float, complex, np.generic)):
        return NUMPY, np.asarray(array)
    names = ", ".join(k.name for k in KINDS)
    raise TypeError(f"{what} is of type {type(array).__name__}; arrays of these kinds are taken: {names}.")


def to_backend(
    kind: Kind, array: Any, backend: Backend, what: str, *, upload: bool,
    promoted: Callable[[np.ndarray], np.ndarray] = lambda host: host,
) -> Any:  # fmt: skip
    """Return the native array on ``backend``. Host arrays are sent only where the user named the backend.

    They are ``promoted`` before that: the host can look at them, and has types that devices lack.
    """
    native = kind.native(array)
    if kind.home == backend.name:
        if not kind.on(array, backend):
            where = kind.backend(array)
            raise ValueError(
                f"{what} is on {where.device} ({where}), the work on {backend.device} ({backend}): "
                "copy it there, or use one plan or grid a device."
            )
        return native
    if kind.home == "cpu" and upload:
        return backend.upload(promoted(native))
    raise TypeError(
        f"{what} is a {kind.name} array and the work is on {backend.name!r}: pass arrays of that backend, "
        f"or name it, backend={backend.name!r}, to the plan or grid, to have host arrays copied both ways."
    )


def _converted(native: Any, dtype: np.dtype, what: str) -> Any:
    """Return ``native`` as ``dtype``; devices do not know all types."""
    try:
        return native.astype(dtype)
    except ValueError as error:  # PyOpenCL's
        raise TypeError(f"{what} has dtype {native.dtype}, which the device cannot convert: do it yourself.") from error


def _promoted(native: Any, dtype: np.dtype, what: str) -> Any:
    """Return ``native`` in the plan's precision, real or complex; refuse what would lose digits."""
    came = np.dtype(native.dtype)
    if came.kind not in "biufc":
        raise TypeError(f"{what} has dtype {came}; numbers are needed.")
    wanted = COMPLEX[dtype] if came.kind == "c" else dtype
    if came == wanted:
        return native
    if came.kind in "fc" and came.itemsize > wanted.itemsize:
        raise TypeError(
            f"{what} has dtype {came}, more than this plan's {dtype.name} holds: "
            f"use Plan(..., dtype='float64') or convert it yourself."
        )
    promoted = _converted(native, wanted, what)
    exact = came.kind not in "iu" or came.itemsize <= 2 or wanted.itemsize == 8  # as NumPy promotes
    # On a device the numbers cannot be looked at without waiting for it.
    if not exact and (not isinstance(native, np.ndarray) or (promoted.astype(came) != native).any()):
        raise TypeError(
            f"{what} has dtype {came}, and {dtype.name} does not hold all such integers: "
            f"use Plan(..., dtype='float64') or convert it yourself."
        )
    return promoted


def take(
    array: Any, core: tuple[int, ...], axes: int, dtype: np.dtype, backend: Backend, what: str, *, upload: bool
) -> Operand:
    """Check an input of shape ``(..., *core)`` and bring it to the backend; ``axes`` as for :func:`view`."""
    kind = kind_of(array)
    if kind is None:
        kind, array = adopt(array, what)
    shape = array.shape if array.shape.__class__ is tuple else tuple(array.shape)
    batch = len(shape) - len(core)
    if batch < 0 or shape[batch:] != core:
        checks.trailing_shape(shape, core, what)
    native = to_backend(kind, array, backend, what, upload=upload, promoted=lambda a: _promoted(a, dtype, what))
    if native.dtype is not dtype and native.dtype is not COMPLEX[dtype]:  # NumPy's native types are singletons
        native = _promoted(native, dtype, what)
        backend.untaped()  # the copy will not be made again
    seen = view(native, len(core), axes)
    if seen is None:
        dense = allocate(backend, shape, native.dtype, f"a dense copy of {what}")
        backend.copy(dense, native)
        native = dense
        seen = view(native, len(core), axes)
    assert seen is not None  # dense arrays always have a view
    return Operand(kind, array, native, seen, shape[:batch])


def give(
    out: Any, like: Operand, shape: tuple[int, ...], core: int, axes: int, backend: Backend, *,
    accumulate: bool, upload: bool,
) -> Result:  # fmt: skip
    """Return where to write a result of ``shape``: into ``out``, or into a new array of the input's kind."""
    inner = like.native.dtype  # of the plan's precision
    came = like.kind.dtype(like.user)
    dtype = came.newbyteorder("=") if came.char in REALS else inner  # of the input's
    if out is None:
        native = allocate(backend, shape, inner, "the result")
        wrap, home = like.kind.wrap, like.kind.home == backend.name

        def hand_over() -> Any:
            result = native if inner == dtype else native.astype(dtype)
            return wrap(result) if home else wrap(backend.download(result))

        return _result(native, core, axes, hand_over)
    kind = _checked_out(out, like, shape, dtype)
    target = kind.native(out)
    if kind.home == backend.name:
        if not kind.on(out, backend):
            to_backend(kind, out, backend, "out", upload=False)  # raises
        if _overlap(target, like.native):
            raise ValueError("out shares memory with the input; give an array of its own.")
        seen = view(target, core, axes)
        if seen is not None and seen.layout.overlaps:
            raise ValueError("out has elements that share memory (a broadcast array?); give one of its own.")
        if seen is not None and inner == dtype:
            return Result(target, seen, lambda: out)
        native = allocate(backend, shape, inner, "a dense copy of out")
        if accumulate:
            backend.copy(native, target if inner == dtype else target.astype(inner))

        def finish() -> Any:
            backend.copy(target, native if inner == dtype else native.astype(dtype))
            return out

        backend.untaped()
        return _result(native, core, axes, finish)
    if kind.home != "cpu" or not upload:
        to_backend(kind, out, backend, "out", upload=False)  # raises
    if accumulate:
        native = backend.upload(np.ascontiguousarray(target, inner))
    else:
        native = allocate(backend, shape, inner, "out")

    def send_back() -> Any:
        target[...] = backend.download(native)
        return out

    return _result(native, core, axes, send_back)


def _result(native: Any, core: int, axes: int, finish: Callable[[], Any]) -> Result:
    seen = view(native, core, axes)
    assert seen is not None  # dense arrays always have a view
    return Result(native, seen, finish)


def _checked_out(out: Any, like: Operand, shape: tuple[int, ...], dtype: np.dtype) -> Kind:
    """Check kind, shape, type and memory of an output."""
    kind = kind_of(out)
    if kind is None:
        raise TypeError(f"out is of type {type(out).__name__}; give an array of the kind of the input.")
    if out.shape != shape and tuple(out.shape) != shape:
        raise ValueError(f"out has shape {tuple(out.shape)}; this call writes {shape}.")
    if out.dtype is not dtype and kind.dtype(out) != dtype:
        raise TypeError(f"out has dtype {kind.dtype(out)}; this call writes {dtype}: nothing is cast silently.")
    if kind.home == "cpu":
        host = kind.native(out)
        if not host.flags.writeable:
            raise ValueError("out is read-only; give a writeable array.")
        if kind.module == "numpy" and host is not out:
            raise TypeError("out has foreign byte order or is misaligned; give a native array.")
        if like.kind.home == "cpu" and _overlap(host, like.kind.native(like.user)):
            raise ValueError("out shares memory with the input; give an array of its own.")
    return kind


class _Memory:
    """Where an array lies, without the array: NumPy compares the addresses and never looks behind them."""

    def __init__(self, native: Any) -> None:
        start = _start(native)
        self.__array_interface__ = {
            "version": 3, "data": (start, True), "shape": tuple(native.shape), "strides": tuple(native.strides),
            "typestr": np.dtype(native.dtype).str,
        }  # fmt: skip


def _start(native: Any) -> int:
    if isinstance(native, np.ndarray):
        return int(native.ctypes.data)
    if hasattr(native, "base_data"):  # PyOpenCL: offsets within a buffer, buffers told apart by their handles
        return int(native.base_data.int_ptr) + int(native.offset) if native.size else 0
    return int(native.data.ptr)


def _span(native: Any) -> tuple[int, int]:
    """Return the first address and the one past the last."""
    start = _start(native)
    steps = [(n - 1) * s for n, s in zip(native.shape, native.strides, strict=True)]
    return start + sum(s for s in steps if s < 0), start + sum(s for s in steps if s > 0) + native.dtype.itemsize


def _overlap(a: Any, b: Any) -> bool:
    """Return whether two native arrays of one backend share memory."""
    if hasattr(a, "base_data") != hasattr(b, "base_data") or 0 in a.shape or 0 in b.shape:
        return False
    if hasattr(a, "base_data") and a.base_data.int_ptr != b.base_data.int_ptr:
        return False
    (low_a, high_a), (low_b, high_b) = _span(a), _span(b)
    if high_a <= low_b or high_b <= low_a:
        return False
    try:
        return bool(np.shares_memory(np.asarray(_Memory(a)), np.asarray(_Memory(b)), max_work=10**6))  # type: ignore[arg-type]  # any limit is allowed
    except np.exceptions.TooHardError:
        return True


def check_apart(*outs: Any) -> None:
    """Refuse two outputs that share memory."""
    kinds = [kind_of(a) for a in outs]
    if len(outs) == 2 and kinds[0] is not None and kinds[1] is not None and kinds[0].home == kinds[1].home:
        first, second = (k.native(a) for k, a in zip(kinds, outs, strict=True) if k is not None)
        if _overlap(first, second):
            raise ValueError("the two arrays of out share memory; give each its own.")


def real_dtype(array: Any, kind: Kind) -> np.dtype:
    """Return the real type that holds an array's numbers: float32 or float64."""
    dtype = kind.dtype(array)
    if dtype.char in REALS:
        return np.dtype(f"f{REALS[dtype.char]}")
    if dtype.kind in "biu":
        return np.dtype(np.float64 if dtype.itemsize > 2 else np.float32)
    if dtype == np.float16:
        return np.dtype(np.float32)
    raise TypeError(f"dtype {dtype} is not supported; use float32, float64, complex64 or complex128.")


def coordinates(
    positions: Any, ndim: int, backend: Backend | None, *, upload: bool, least: np.dtype | None = None
) -> tuple[Any, ...]:
    """Check positions: ``(N, d)``, a tuple of d arrays, or ``(N,)`` in 1-D; make them of type ``least`` or wider.

    Returns the kind, the backend, and the :class:`Coordinates`.
    """
    by_axis = isinstance(positions, tuple) and len(positions) == ndim
    if by_axis and all(kind_of(x) is not None and x.ndim == 1 for x in positions):
        pairs = [adopt(x, "positions") for x in positions]
        if len({tuple(a.shape) for _, a in pairs}) > 1:
            shapes = ", ".join(str(tuple(a.shape)) for _, a in pairs)
            raise ValueError(f"positions are arrays of shapes {shapes}; one length is needed.")
        if len({k.name for k, _ in pairs}) > 1:
            raise TypeError(f"positions are of several kinds: {', '.join(k.name for k, _ in pairs)}; use one.")
    else:
        kind, array = adopt(positions, "positions")
        if kind is NUMPY and array.size == 0 and array.ndim == 1:
            array = array.reshape(0, ndim)  # an empty sequence has no particles
        shape = tuple(array.shape)
        if ndim == 1 and len(shape) == 1:
            pairs = [(kind, array)]
        elif len(shape) == 2 and shape[1] == ndim:
            pairs = [(kind, array)] * ndim
        else:
            also = " or (n,)" if ndim == 1 else ""
            raise ValueError(
                f"positions has shape {shape}; there are {ndim} axes, so (n, {ndim}){also} "
                f"or a tuple of {ndim} arrays (n,) is needed."
            )
    kind = pairs[0][0]
    types = [real_dtype(a, k) for k, a in pairs]
    wide = max(types if least is None else [*types, least], key=lambda t: t.itemsize)
    for k, a in pairs:
        if k.dtype(a).kind == "c":
            raise TypeError(f"positions have dtype {k.dtype(a)}; real numbers are needed.")
    if backend is None:
        backend = kind.backend(pairs[0][1])
    cache: dict[int, Any] = {}
    natives = []
    for k, a in pairs:
        if id(a) not in cache:
            native = to_backend(
                k, a, backend, "positions", upload=upload, promoted=lambda host: host.astype(wide, copy=False)
            )
            if native.dtype != wide:
                native = _converted(native, wide, "positions")
                backend.untaped()  # the copy will not be made again
            if any(s % wide.itemsize for s in native.strides):
                dense = backend.empty(native.shape, wide)
                backend.copy(dense, native)
                native = dense
            cache[id(a)] = native
        natives.append(cache[id(a)])
    count = int(natives[0].shape[0])
    step = wide.itemsize
    columns = [0] * ndim if natives[0].ndim == 1 else [a * (natives[a].strides[1] // step) for a in range(ndim)]
    if backend.name == "cpu":  # a column of its own; other backends take an offset
        natives = [x if x.ndim == 1 else x[:, a] for a, x in enumerate(natives)]
        columns = [0] * ndim
    offsets = tuple(getattr(x, "offset", 0) // step + c for x, c in zip(natives, columns, strict=True))
    strides = tuple(x.strides[0] // step for x in natives)
    return kind, backend, Coordinates(tuple(natives), offsets, strides, wide, count)
