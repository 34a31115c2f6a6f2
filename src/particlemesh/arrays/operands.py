# SPDX-License-Identifier: BSD-3-Clause
"""Users' arrays on their way into a method and out of it again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from particlemesh import checks
from particlemesh.arrays.kinds import KINDS, NUMPY, Kind, kind_of
from particlemesh.arrays.memory import overlap
from particlemesh.arrays.views import COMPLEX, REALS, View, overlaps_itself, view
from particlemesh.backends.base import Backend, allocate


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
    """Return the kind of an array; sequences and numbers become NumPy arrays."""
    kind = kind_of(array)
    if kind is not None:
        return kind, array
    if isinstance(array, (list, tuple, int, float, complex, np.generic)):
        return NUMPY, checks.number_array(array, what)
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


def converted(native: Any, dtype: np.dtype, what: str) -> Any:
    """Return ``native`` as ``dtype``; devices do not know all types."""
    try:
        return native.astype(dtype)
    except ValueError as error:  # PyOpenCL's
        raise TypeError(f"{what} has dtype {native.dtype}, which the device cannot convert: do it yourself.") from error


def _promoted(native: Any, dtype: np.dtype, what: str) -> Any:
    """Return ``native`` in the plan's precision, real or complex; refuse what would lose digits."""
    came = np.dtype(native.dtype)
    checks.number_type(came, what)
    wanted = COMPLEX[dtype] if came.kind == "c" else dtype
    if came == wanted:
        return native
    if came.kind in "fc" and came.itemsize > wanted.itemsize:
        raise TypeError(
            f"{what} has dtype {came}, more than this plan's {dtype.name} holds: "
            f"use Plan(..., dtype='float64') or convert it yourself."
        )
    promoted = converted(native, wanted, what)
    exact = came.kind not in "iu" or came.itemsize <= 2 or wanted.itemsize == 8  # as NumPy promotes
    # On a device the numbers cannot be looked at without waiting for it.
    with np.errstate(invalid="ignore"):  # what rounds to a number past the largest integer
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
    dtype = inner if came is inner or came.char not in REALS else came.newbyteorder("=")  # of the input's
    if out is None:
        native = allocate(backend, shape, inner, "the result")
        wrap, home = like.kind.wrap, like.kind.home == backend.name

        def hand_over() -> Any:
            result = native if inner == dtype else native.astype(dtype)
            return wrap(result) if home else wrap(backend.download(result))

        return _result(native, core, axes, hand_over)
    kind, target = _target(out, like, shape, dtype, backend, upload)
    seen = view(target, core, axes)
    if overlaps_itself(target) if seen is None else seen.layout.overlaps:
        raise ValueError("out has elements that share memory (a broadcast array?); give one of its own.")
    if kind.home == backend.name:
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


def _target(
    out: Any, like: Operand, shape: tuple[int, ...], dtype: np.dtype, backend: Backend, upload: bool
) -> tuple[Kind, Any]:
    """Return the kind of an output and the native array over its memory, both checked."""
    kind = kind_of(out)
    if kind is None:
        raise TypeError(f"out is of type {type(out).__name__}; give an array of the kind of the input.")
    if out.shape != shape and tuple(out.shape) != shape:
        raise ValueError(f"out has shape {tuple(out.shape)}; this call writes {shape}.")
    if out.dtype is not dtype and kind.dtype(out) != dtype:
        raise TypeError(f"out has dtype {kind.dtype(out)}; this call writes {dtype}: nothing is cast silently.")
    if not (kind.on(out, backend) if kind.home == backend.name else kind.home == "cpu" and upload):
        to_backend(kind, out, backend, "out", upload=False)  # raises
    target = kind.target(out)
    if like.kind.home == kind.home and overlap(target, like.kind.native(like.user)):
        raise ValueError("out shares memory with the input; give an array of its own.")
    return kind, target


def check_apart(*outs: Any) -> None:
    """Refuse two outputs that share memory."""
    kinds = [kind_of(a) for a in outs]
    if len(outs) == 2 and kinds[0] is not None and kinds[1] is not None and kinds[0].home == kinds[1].home:
        first, second = (k.target(a) for k, a in zip(kinds, outs, strict=True) if k is not None)
        if overlap(first, second):
            raise ValueError("the two arrays of out share memory; give each its own.")


def real_dtype(array: Any, kind: Kind, what: str) -> np.dtype:
    """Return the real type that holds an array's numbers: float32 or float64."""
    dtype = kind.dtype(array)
    checks.number_type(dtype, what)
    if dtype.char in REALS:
        return np.dtype(f"f{REALS[dtype.char]}")
    return np.dtype(np.float64 if dtype.itemsize > 2 else np.float32)  # of integers, as NumPy promotes them
