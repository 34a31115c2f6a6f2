# SPDX-License-Identifier: BSD-3-Clause
"""Users' positions, the systems they belong to, and their box, as kernel arguments (particles/coordinates.h).

A box has three axes in kernels, missing ones first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from particlemesh import checks
from particlemesh.arrays.kinds import NUMPY, Kind
from particlemesh.arrays.operands import adopt, converted, real_dtype, to_backend
from particlemesh.backends.base import Backend, Record
from particlemesh.box import Box, faces

INDEX = np.dtype(np.int32)


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

    Examples
    --------
    >>> from particlemesh.kernels import coordinates
    >>> _, _, x = coordinates(np.arange(6.0).reshape(3, 2), 2, None, upload=False)
    >>> x.count, x.strides, x.arrays[1]
    (3, (2, 2), array([1., 3., 5.]))
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
    kind, arrays = _columns(positions, ndim)
    user, wide = arrays[0], least
    for array in arrays:
        dtype = real_dtype(array, kind, "positions")
        if kind.dtype(array).kind == "c":
            raise TypeError(f"positions have dtype {kind.dtype(array)}; real numbers are needed.")
        wide = dtype if wide is None or dtype.itemsize > wide.itemsize else wide
    assert wide is not None
    if user is not positions and not len(user):  # an empty sequence has no dtype
        wide = least or wide
    if backend is None:
        backend = kind.backend(user)
    natives = [_native(kind, array, wide, backend, upload) for array in arrays]
    if len(natives) < ndim:  # a table
        natives *= ndim
    return kind, backend, of_natives(natives, wide, backend, user)


def arrays_given(positions: Any) -> tuple[Any, ...]:
    """Return the arrays of positions: one of all axes, or one of each."""
    return positions if isinstance(positions, tuple) else (positions,)


def _columns(positions: Any, ndim: int) -> tuple[Kind, list[Any]]:
    """Return kind and arrays: one (N, d) for all axes, or one (N,) for each."""
    by_axis = isinstance(positions, tuple) and len(positions) > 0
    if by_axis and ndim == 1:  # a tuple of numbers is a sequence
        by_axis = any(hasattr(x, "__len__") for x in positions)
    if by_axis:
        return _by_axis(positions, ndim)
    kind, array = adopt(positions, "positions")
    if kind is NUMPY and array.size == 0 and array.ndim == 1:
        array = array.reshape(0, ndim)  # an empty sequence has no particles
    shape = tuple(array.shape)
    if (len(shape) == 2 and shape[1] == ndim) or (ndim == 1 and len(shape) == 1):
        return kind, [array]
    also = " or (n,)" if ndim == 1 else ""
    raise ValueError(
        f"positions have shape {shape}; in {ndim}-D (n, {ndim}){also} or a tuple of {ndim} arrays (n,) is needed."
    )


def _by_axis(positions: tuple[Any, ...], ndim: int) -> tuple[Kind, list[Any]]:
    """Return kind and arrays of a tuple with one sequence per axis."""
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
    return columns[0][0], [array for _, array in columns]


def _native(kind: Kind, array: Any, dtype: np.dtype, backend: Backend, upload: bool) -> Any:
    """Return the native array on the backend, with strides that are multiples of the item size."""
    native = to_backend(
        kind, array, backend, "positions", upload=upload, promoted=lambda host: host.astype(dtype, copy=False)
    )
    if native.dtype != dtype:
        native = converted(native, dtype, "positions")
        backend.untaped()  # a replay would not copy again
    size = dtype.itemsize
    if [s for s in native.strides if s % size]:
        dense = backend.empty(native.shape, dtype)
        backend.copy(dense, native)
        native = dense
    return native


def of_natives(natives: list[Any], dtype: np.dtype, backend: Backend, user: Any) -> Coordinates:
    """Return coordinates from native arrays, one per axis: a column (N,) each, or d times one table (N, d)."""
    count, step = int(natives[0].shape[0]), dtype.itemsize
    if backend.name == "cpu":  # separate columns; other backends use an offset
        natives = [x if x.ndim == 1 else x[:, axis] for axis, x in enumerate(natives)]
        strides = tuple([x.strides[0] // step for x in natives])
        return Coordinates(tuple(natives), (0,) * len(natives), strides, dtype, count, user)
    columns = [0 if x.ndim == 1 else axis * (x.strides[1] // step) for axis, x in enumerate(natives)]
    offsets = tuple(getattr(x, "offset", 0) // step + c for x, c in zip(natives, columns, strict=True))
    strides = tuple(x.strides[0] // step for x in natives)
    return Coordinates(tuple(natives), offsets, strides, dtype, count, user)


# ---- systems: to which one each particle belongs, and the box of each -----------------------------------------------


def indices(system: Any, count: int, systems: int, backend: Backend, *, upload: bool, what: str = "particle") -> Any:
    """Return the system of each of ``count`` particles as int32 on the backend; those on the host are checked.

    Parameters
    ----------
    system : int array (N,)
        Of any library. Arrays of int32 on the backend are returned as they are.
    count, systems : int
    backend : Backend
    upload : bool
        Whether arrays of the host are copied there.
    what : str
        Whose systems they are, for messages.

    Raises
    ------
    TypeError, ValueError
        If they are no integers, too few, or on the host and out of range; the first wrong one is named.

    Examples
    --------
    >>> from particlemesh.kernels import backend
    >>> indices([0, 2, 1], 3, 3, backend("cpu"), upload=False)
    array([0, 2, 1], dtype=int32)
    """

    def checked(host: np.ndarray) -> np.ndarray:
        """Return a copy as int32, to which no caller writes."""
        wrong = np.flatnonzero((host < 0) | (host >= systems))
        if len(wrong):
            raise ValueError(
                f"system: {len(wrong)} of {len(host)} are no index of a system; the first is that of {what} "
                f"{wrong[0]}, {host[wrong[0]]}. Allowed are 0 to {systems - 1}."
            )
        return host.astype(INDEX)

    kind, array = adopt(system, "system")
    if kind.dtype(array).kind not in "iu" and array.shape != (0,):
        raise TypeError(f"system has dtype {kind.dtype(array)}; integers are needed, the index of each system.")
    if tuple(array.shape) != (count,):
        raise ValueError(f"system has shape {tuple(array.shape)}; one index per {what} is needed: ({count},).")
    native = to_backend(kind, array, backend, "system", upload=upload, promoted=checked)
    if isinstance(native, np.ndarray):
        native = checked(native)
    if native.strides != (native.dtype.itemsize,):  # PyOpenCL converts dense arrays only
        dense = backend.empty((count,), native.dtype)
        backend.copy(dense, native)
        native = dense
    return native if native.dtype == INDEX else converted(native, INDEX, "system")


def lattices(boxes: Any, count: int, d: int) -> np.ndarray:
    """Return lattice vectors of several boxes, on the host and in double precision.

    Parameters
    ----------
    boxes : array (B, d) or (B, d, d)
        Lengths, or lattice vectors as rows.
    count : int
        Number B of boxes.
    d : int
        Axes.

    Returns
    -------
    NumPy array (B, d, d)

    Raises
    ------
    ValueError, TypeError
        If they are no boxes, or of another number; the first wrong one is named.

    Examples
    --------
    >>> lattices([[1.0, 2.0], [3.0, 3.0]], 2, 2)[0]
    array([[1., 0.],
           [0., 2.]])
    """
    kind, array = adopt(boxes, "boxes")
    native = kind.native(array)
    host = native if isinstance(native, np.ndarray) else kind.backend(array).download(native)
    checks.number_type(np.dtype(host.dtype), "boxes")
    given = host.shape
    if host.dtype.kind == "c" or given not in ((count, d), (count, d, d)):
        raise ValueError(
            f"boxes has shape {given} and dtype {host.dtype}; real lengths ({count}, {d}) or lattice vectors as rows "
            f"({count}, {d}, {d}) are needed."
        )
    host = host.astype(np.float64)
    rows = host if host.ndim == 3 else np.where(np.eye(d, dtype=bool), host[:, :, None], 0.0)
    with np.errstate(all="ignore"):
        norms = np.linalg.norm(rows, axis=2)
        flat = np.abs(np.linalg.det(np.where(norms[..., None] > 0, rows / norms[..., None], 0)))
    good = np.isfinite(rows).all((1, 2)) & (flat > 1e-12) & ((host > 0).all(1) if host.ndim == 2 else True)
    if not good.all():
        wrong = int(np.flatnonzero(~good)[0])
        raise ValueError(
            f"boxes[{wrong}] is {host[wrong].tolist()}; positive finite lengths or independent lattice vectors are "
            "needed."
        )
    return rows


# ---- the box --------------------------------------------------------------------------------------------------------


def open_bounds(
    origin: np.ndarray, inverse: np.ndarray, lengths: np.ndarray | None, orthorhombic: bool, dtype: np.dtype
) -> tuple[np.ndarray, np.ndarray]:
    """Return the bounds of positions on open axes: coordinates, or fractions of a triclinic box.

    Coordinates are exact. Fractions are rounded, so their bounds allow for the rounding.
    """
    if orthorhombic and lengths is not None:
        return origin, origin + lengths
    reach = np.abs(np.linalg.inv(inverse)).sum(1) + 2 * np.abs(origin)  # of |x| + |origin|, by coordinate
    slack = 4 * np.finfo(dtype).eps * (np.abs(inverse) @ reach)
    return -slack, 1 + slack


def bounds_of(box: Box, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    """Return the bounds of positions: those of open axes, and the first and last numbers inside periodic ones.

    They are coordinates, or fractions of a triclinic box.
    """
    open_ones = open_bounds(box.origin, box.inverse, box.lengths, box.orthorhombic, dtype)
    unit = np.zeros(box.ndim), np.ones(box.ndim)
    inside = faces(box.origin, box.lengths, dtype) if box.orthorhombic else faces(*unit, dtype)
    lower, upper = (np.where(box.periodic, a, b) for a, b in zip(inside, open_ones, strict=True))
    return lower, upper


def tails_of(numbers: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return the rounding errors of float64 numbers in a dtype."""
    return np.asarray(numbers - numbers.astype(dtype).astype(np.float64))


def check_range(box: Box, dtype: np.dtype) -> None:
    """Check that a dtype holds a box: its lattice vectors, and their inverse.

    Raises
    ------
    ValueError
        If numbers overflow or underflow.
    """
    largest = max(float(np.abs(a).max()) for a in (box.matrix, box.inverse, box.origin))
    if largest > float(np.finfo(dtype).max) / 16:
        raise ValueError(
            f"{box!r} is beyond the range of {dtype.name}: lengths, origin and 1 / length must be below "
            f"{float(np.finfo(dtype).max) / 16:.2g}. Use another unit of length{', or float64' * (dtype.itemsize < 8)}."
        )


def check_size(sizes: np.ndarray | float, dtype: np.dtype, what: str) -> None:
    """Check that a dtype holds numbers of these sizes to rounding, and sums of them; 0, NaN and infinity are no sizes.

    Raises
    ------
    ValueError
        If the largest is near either end of the dtype's range.
    """
    size, info = float(np.max(np.abs(sizes), initial=0.0)), np.finfo(dtype)
    least, most = float(info.tiny) * 2**16, float(info.max) / 2**16
    if 0 < size < np.inf and not least <= size <= most:
        raise ValueError(
            f"{what} are of size {size:.2g}; {dtype.name} holds sizes from {least:.2g} to {most:.2g}. "
            f"Use another unit of length{', or float64' * (dtype.itemsize < 8)}."
        )


def geometry(box: Box, dtype: np.dtype) -> tuple[np.ndarray, ...]:
    """Return the numbers of a box, missing axes first, in double precision.

    Origin (3,), inverse (3, 3), lattice vectors (3, 3), and what rounding to a dtype takes off these (3, 3). Then the
    lower and upper bounds (3,) of positions: see :func:`bounds_of`.

    Raises
    ------
    ValueError
        If the dtype does not hold them.
    """
    check_range(box, dtype)
    missing = 3 - box.ndim
    vectors, matrices = np.zeros((3, 3)), np.zeros((2, 3, 3))
    vectors[:, missing:] = box.origin, *bounds_of(box, dtype)
    matrices[:, missing:, missing:] = box.inverse, box.matrix
    return vectors[0], *matrices, tails_of(matrices[1], dtype), *vectors[1:]


def geometry_record(box: Box, dtype: np.dtype) -> Record:
    """Return ``Geometry`` in the coordinates' dtype."""
    return Record(f"=37{dtype.char}", *np.concatenate([array.ravel() for array in geometry(box, dtype)]), 1.0)


def frame_record(box: Box) -> Record:
    """Return ``Frame``."""
    missing = 3 - box.ndim
    return Record("=5i", *[0] * missing, *(int(p) for p in box.periodic), int(box.orthorhombic), missing)
