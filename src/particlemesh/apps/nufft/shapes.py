# SPDX-License-Identifier: BSD-3-Clause
"""The user's arrays at the ends of a transform, and their checks, with the messages of FINUFFT and cuFINUFFT."""

from __future__ import annotations

import math
import warnings
from typing import Any, NamedTuple

import numpy as np

from particlemesh.kernels import Kind, checks, kind_of


class ArgumentError(RuntimeError, TypeError):
    """An argument does not fit the plan: FINUFFT raises a RuntimeError for it, cuFINUFFT a TypeError."""


def kind(array: Any, name: str) -> Kind:
    """Return the kind of an array."""
    adapter = kind_of(array)
    if adapter is None:
        raise ArgumentError(
            f"Argument `{name}` is of type {type(array).__name__}; give an array of NumPy, CuPy, PyTorch, JAX or "
            "PyOpenCL."
        )
    return adapter


def check_dtype(array: Any, name: str, dtype: np.dtype) -> None:
    """Compare an array's dtype with the plan's."""
    given = kind(array, name).dtype(array)
    if given != dtype:
        raise ArgumentError(
            f"Argument `{name}` does not have the correct dtype: {given} was given, but {dtype} was expected."
        )


def dense(native: Any, name: str, backend: Any) -> Any:
    """Return a native array in C order; another order is copied, with a warning."""
    if native.flags.c_contiguous:
        return native
    warnings.warn(
        f"Argument `{name}` does not satisfy the following requirement: C. Copying array (this may reduce performance)",
        stacklevel=4,
    )
    copy = backend.empty(native.shape, native.dtype)
    backend.copy(copy, native)
    return copy


def writeable(out: Any, kind: Kind) -> Any:
    """Return the native memory of an output, which must be in C order and writeable."""
    if isinstance(out, np.ndarray) and not out.flags.writeable:
        raise ArgumentError("Argument `out` does not satisfy the following requirement: W")
    native = kind.target(out)
    if not native.flags.c_contiguous:
        raise ArgumentError("Argument `out` does not satisfy the following requirement: C")
    return native


def check_points(arrays: list[Any], names: str, ndim: int, dtype: np.dtype) -> int:
    """Check coordinates per axis; return their number."""
    for name, array in zip(names, arrays, strict=True):
        if array is not None:
            check_dtype(array, name, dtype)
    for axis, (name, array) in enumerate(zip(names, arrays, strict=True)):
        if axis >= ndim and array is not None and math.prod(array.shape):
            raise ArgumentError(f"Plan dimension is {ndim}, but `{name}` was specified")
        if axis < ndim:
            if array is None:
                raise ArgumentError(f"Plan dimension is {ndim}, but `{name}` was not specified")
            if array.ndim != 1:
                raise ArgumentError(
                    f"{name} must be a vector: Argument `{name}` must be a vector, and has shape {tuple(array.shape)}"
                )
            if array.shape != arrays[0].shape:
                raise ArgumentError(
                    f"{name} must have same length as {names[0]}: `{name}` must be of shape "
                    f"{tuple(arrays[0].shape)}, and has shape {tuple(array.shape)}"
                )
    return int(arrays[0].shape[0])


def check_values(shape: tuple[int, ...], count: int, n_trans: int, what: str = "c") -> tuple[int, ...]:
    """Check the shape of values at points, or at frequencies (``what`` is "f"); return the batch axes."""
    size, single = ("c.size must be same as x.size", "") if what == "c" else ("f.size of must be nk", " for type 3")
    full = "(n_trans, x.size)" if what == "c" else "(n_trans, nk)"
    given = f": it has shape {shape}, and there are {count} points"
    if n_trans == 1:
        if len(shape) not in (1, 2):
            raise ArgumentError(f"{what}.ndim must be 1 or 2{single} if n_trans == 1{given}")
        if shape[-1] != count or math.prod(shape) != count:
            raise ArgumentError(f"{size} if n_trans == 1{given}")
    elif len(shape) != 2:
        raise ArgumentError(f"{what}.ndim must be 2{single} if n_trans > 1{given}")
    elif shape != (n_trans, count):
        raise ArgumentError(f"{what}.shape must be {full} if n_trans > 1{given}")
    return shape[:-1]


def check_modes(shape: tuple[int, ...], modes: tuple[int, ...], n_trans: int) -> tuple[int, ...]:
    """Check the shape of modes; return the batch axes."""
    ndim, given = len(modes), f": it has shape {shape}, n_trans is {n_trans} and n_modes is {modes}"
    start = "f.ndim must be same as the problem dimension"
    if n_trans == 1:
        if len(shape) not in (ndim, ndim + 1):
            raise ArgumentError(f"{start} or the problem dimension + 1 for type 1 or 2 if n_trans == 1{given}")
        if len(shape) == ndim + 1 and shape[0] != 1:
            raise ArgumentError(f"f.shape[0] must be 1 for type 1 or 2 if n_trans == 1 and it has dim + 1 axes{given}")
    elif len(shape) != ndim + 1:
        raise ArgumentError(f"{start} + 1 for type 1 or 2 if n_trans > 1{given}")
    elif shape[0] != n_trans:
        raise ArgumentError(f"f.shape[0] must be n_trans for type 1 or 2 if n_trans > 1{given}")
    if shape[-ndim:] != modes:
        raise ArgumentError(f"f.shape is not consistent with n_modes{given}")
    return shape[:-ndim]


def modes_of(nufft_type: int, n_modes_or_dim: Any) -> tuple[tuple[int, ...], int]:
    """Return the modes and the number of axes."""
    given = np.atleast_1d(np.asarray(n_modes_or_dim))
    if nufft_type == 3:
        if np.size(n_modes_or_dim) != 1:
            raise ArgumentError(
                f"type 3 plan n_modes_or_dim must be one number, the dimension; it is {n_modes_or_dim!r}."
            )
        ndim = checks.integer(given.flat[0].item(), "the dimension", 1, 3)
        return (1,) * ndim, ndim
    if given.ndim != 1 or not 1 <= given.size <= 3:
        raise ArgumentError(f"n_modes dimension must be 1, 2, or 3; n_modes is {n_modes_or_dim!r}.")
    modes = tuple(checks.integer(n, "n_modes", 1, 2**30) for n in given.tolist())
    return modes, len(modes)


class Space(NamedTuple):
    """Arrays (n_trans, *shape) of one dtype."""

    name: str  # "points", "modes" or "frequencies"
    shape: tuple[int, ...]
    dtype: np.dtype


class Spaces:
    """Between arrays of the user's library and native arrays (n_trans, *shape).

    Parameters
    ----------
    kind : Kind
        Library of the points.
    backend : Backend
        Device of the points.
    n_trans : int
        Vectors.
    ends : Space
        What values may belong to.
    """

    def __init__(self, kind: Kind, backend: Any, n_trans: int, *ends: Space) -> None:
        self.kind, self.backend, self.n_trans = kind, backend, n_trans
        self.ends = {space.name: space for space in ends}

    def taken(self, data: Any, end: str) -> tuple[Any, tuple[int, ...]]:
        """Return data as a native array of any strides, and their batch axes."""
        batch = self._checked(data, "data", end)
        return self.kind.native(data), batch

    def dense(self, native: Any, end: str) -> Any:
        """Return a native array as a dense one (n_trans, *shape)."""
        return dense(native, "data", self.backend).reshape(self.n_trans, *self.ends[end].shape)

    def result(self, out: Any, end: str) -> Any:
        """Return the native memory of an output, or new memory."""
        space = self.ends[end]
        if out is None:
            return self.empty(end)
        self._checked(out, "out", end)
        return writeable(out, self.kind).reshape(self.n_trans, *space.shape)

    def empty(self, end: str, *more: int) -> Any:
        """Return a native array (n_trans, *shape, *more)."""
        space = self.ends[end]
        return self.backend.empty((self.n_trans, *space.shape, *more), space.dtype)

    def given(self, native: Any, batch: tuple[int, ...]) -> Any:
        """Return a native array as the user's, with the batch axes of the data."""
        return self.kind.wrap(native.reshape(batch + tuple(native.shape[1:])))

    def _checked(self, array: Any, name: str, end: str) -> tuple[int, ...]:
        given, space = kind(array, name), self.ends[end]
        check_dtype(array, name, space.dtype)
        shape = tuple(array.shape)
        if given is not self.kind or not given.on(array, self.backend):
            raise ArgumentError(
                f"Argument `{name}` is an array of {given.name}; the points are an array of {self.kind.name} on "
                f"{self.backend.name}: give arrays of one library and device."
            )
        if end == "modes":
            return check_modes(shape, space.shape, self.n_trans)
        return check_values(shape, space.shape[0], self.n_trans, "c" if end == "points" else "f")
