# SPDX-License-Identifier: BSD-3-Clause
"""Users' positions as kernel arguments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from particlemesh.arrays.kinds import NUMPY, Kind
from particlemesh.arrays.operands import adopt, converted, real_dtype, to_backend
from particlemesh.backends.base import Backend, Record


@dataclass
class Coordinates:
    """Positions as kernel arguments: one native array per axis, of one dtype, with any strides.

    Attributes
    ----------
    arrays : tuple of native arrays
        One for each axis. On the CPU they are columns (N,); elsewhere a table (N, d) stands once for each axis.
    offsets, strides : tuple of int
        For each axis, of the first coordinate from the kernel's pointer, and between coordinates; in numbers.
    dtype : numpy.dtype
    count : int
        Particles.
    user : array
        The first of the user's arrays. It determines the device and the stream.
    """

    arrays: tuple[Any, ...]
    offsets: tuple[int, ...]  # of the first coordinate, in coordinates, from the kernel's pointer
    strides: tuple[int, ...]
    dtype: np.dtype
    count: int
    user: Any = None  # the first of the user's arrays; it determines the device and the stream
    system: Any = None  # int32 (N,): that of each particle, if there are several
    systems: Any = None  # particles.systems.Systems

    def arguments(self) -> tuple[Any, ...]:
        """Return the kernel arguments ``x0, x1, x2``; a missing axis comes first and repeats one that is there."""
        return (self.arrays[0],) * (3 - len(self.arrays)) + self.arrays

    def record(self) -> Record:
        """Return the kernel argument ``typedef struct { i64 offset[3], stride[3]; } Strides;``."""
        pad = (0,) * (3 - len(self.arrays))
        return Record("=6q", *pad, *self.offsets, *pad, *self.strides)


def coordinates(
    positions: Any, ndim: int, backend: Backend | None, *, upload: bool, least: np.dtype | None = None
) -> tuple[Kind, Any, Coordinates]:
    """Check positions, one array (N, d) or one per axis, and return them as kernel arguments without copying.

    Kernels then read any strides. Where a copy does no harm, :func:`particlemesh.kernels.take` is simpler.

    Parameters
    ----------
    positions : array (N, d), or tuple of d arrays (N,)
        Of any kind; for one axis also (N,).
    ndim : int
        Number d of axes.
    backend : Backend or None
        Where the work is; None: where the positions are.
    upload : bool
        Copy arrays of the host to the backend, since the user has named it.
    least : numpy.dtype, optional
        Convert numbers of a narrower type to this one.

    Returns
    -------
    kind : Kind
    backend : Backend
    coordinates : Coordinates

    Raises
    ------
    TypeError, ValueError
        If kind, dtype, shape or device do not fit.

    Examples
    --------
    >>> kind, backend, x = coordinates(np.zeros((5, 2), np.float32), 2, None, upload=False)
    >>> kind.name, backend.name, x.count, x.strides
    ('NumPy', 'cpu', 5, (2, 2))
    """
    columns = _columns(positions, ndim)
    kind, user = columns[0]
    arrays = {id(array): array for _, array in columns}  # one, of a table
    types = [real_dtype(array, kind, "positions") for array in arrays.values()]
    for array in arrays.values():
        if kind.dtype(array).kind == "c":
            raise TypeError(f"positions have dtype {kind.dtype(array)}; real numbers are needed.")
    wide = max(types if least is None else [*types, least], key=lambda t: t.itemsize)
    if user is not positions and not len(user):  # an empty sequence has no dtype
        wide = least or wide
    if backend is None:
        backend = kind.backend(user)
    natives = {key: _native(kind, array, wide, backend, upload) for key, array in arrays.items()}
    return kind, backend, of_natives([natives[id(array)] for _, array in columns], wide, backend, user)


def _columns(positions: Any, ndim: int) -> list[tuple[Kind, Any]]:
    """Return kind and array per axis: one array (N, d) for all, or one (N,) each."""
    by_axis = isinstance(positions, tuple) and len(positions) > 0
    if by_axis and ndim == 1:  # a tuple of numbers is a sequence
        by_axis = any(hasattr(x, "__len__") for x in positions)
    if by_axis:
        return _by_axis(positions, ndim)
    kind, array = adopt(positions, "positions")
    if kind is NUMPY and array.size == 0 and array.ndim == 1:
        array = array.reshape(0, ndim)  # an empty sequence has no particles
    shape = tuple(array.shape)
    if ndim == 1 and len(shape) == 1:
        return [(kind, array)]
    if len(shape) == 2 and shape[1] == ndim:
        return [(kind, array)] * ndim
    also = " or (n,)" if ndim == 1 else ""
    raise ValueError(
        f"positions has shape {shape}; there are {ndim} axes, so (n, {ndim}){also} or a tuple of {ndim} arrays (n,) "
        "is needed."
    )


def _by_axis(positions: tuple[Any, ...], ndim: int) -> list[tuple[Kind, Any]]:
    """Return kind and array per axis of a tuple with one sequence per axis."""
    if len(positions) != ndim:
        raise ValueError(
            f"positions is a tuple of {len(positions)}; a tuple has one array or list (n,) per axis, {ndim} here: "
            f"give points as an array (n, {ndim}) or as a list."
        )
    columns = [adopt(x, "positions") for x in positions]
    shapes = [tuple(array.shape) for _, array in columns]
    if len(set(shapes)) > 1 or len(shapes[0]) != 1:
        listed = ", ".join(map(str, shapes))
        raise ValueError(f"positions are arrays of shapes {listed}; one length is needed: (n,) for each axis.")
    if len({kind.name for kind, _ in columns}) > 1:
        names = ", ".join(kind.name for kind, _ in columns)
        raise TypeError(f"positions are of several kinds: {names}; give arrays of one kind.")
    return columns


def _native(kind: Kind, array: Any, dtype: np.dtype, backend: Backend, upload: bool) -> Any:
    """Return the native array on the backend, with strides that are multiples of the item size."""
    native = to_backend(
        kind, array, backend, "positions", upload=upload, promoted=lambda host: host.astype(dtype, copy=False)
    )
    if native.dtype != dtype:
        native = converted(native, dtype, "positions")
        backend.untaped()  # a replay would not copy again
    if any(s % dtype.itemsize for s in native.strides):
        dense = backend.empty(native.shape, dtype)
        backend.copy(dense, native)
        native = dense
    return native


def of_natives(natives: list[Any], dtype: np.dtype, backend: Backend, user: Any) -> Coordinates:
    """Return coordinates from native arrays, one per axis: a column (N,) each, or d times one table (N, d)."""
    count, step = int(natives[0].shape[0]), dtype.itemsize
    columns = [0 if x.ndim == 1 else axis * (x.strides[1] // step) for axis, x in enumerate(natives)]
    if backend.name == "cpu":  # separate columns; other backends use an offset
        natives = [x if x.ndim == 1 else x[:, axis] for axis, x in enumerate(natives)]
        columns = [0] * len(natives)
    offsets = tuple(getattr(x, "offset", 0) // step + c for x, c in zip(natives, columns, strict=True))
    strides = tuple(x.strides[0] // step for x in natives)
    return Coordinates(tuple(natives), offsets, strides, dtype, count, user)
