# SPDX-License-Identifier: BSD-3-Clause
"""Input checks. Their errors name the argument, what is allowed, and what to do."""

from __future__ import annotations

import contextlib
import math
import operator
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

MAX_AXES = 3
MAX_NODES = 2**31 - 1


def _plural(count: int, noun: str) -> str:
    if count == 1:
        return f"1 {noun}"
    return f"{count} {'axes' if noun == 'axis' else noun + 's'}"


def _listed(value: Any) -> list[Any] | None:
    """Return the entries of a sequence; None for a scalar or a zero-dimensional array."""
    scalar = not isinstance(value, Iterable) or isinstance(value, str | bytes) or getattr(value, "ndim", 1) == 0
    return None if scalar else list(value)


def _numbers(value: Any, what: str) -> NDArray[np.float64]:
    unmasked(value)
    try:
        array = np.asarray(value)
        if array.dtype.kind not in "iuf":
            raise TypeError
        array = array.astype(np.float64)
    except (TypeError, ValueError):
        raise TypeError(f"{what} is {value!r}; real numbers are needed.") from None
    if not np.isfinite(array).all():
        raise ValueError(f"{what} is {value!r}; every number must be finite.")
    return array


def integer(value: Any, what: str, low: int, high: int) -> int:
    """Return `value` as an int from `low` to `high`; NumPy integers are allowed, floats are not."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{what} is {value!r}; an integer of {low} to {high} is needed.") from None
    if not low <= number <= high:
        raise ValueError(f"{what} is {number}; {low} to {high} is allowed.")
    return number


def one_of(value: Any, what: str, choices: Sequence[Any]) -> Any:
    """Return `value` if it is among `choices`."""
    if not _among(value, choices):
        raise ValueError(f"{what} is {value!r}; choose from {', '.join(map(repr, choices))}.")
    return value


def _among(value: Any, choices: Sequence[Any]) -> bool:
    return isinstance(value, Hashable) and value in choices  # comparison with an array returns an array


def flag(value: Any, what: str) -> bool:
    """Return `value` if it is a bool."""
    if value is True or value is False:  # the common case first
        return value
    if not isinstance(value, np.bool_):
        raise TypeError(f"{what} is {value!r}; give True or False.")
    return bool(value)


def per_axis(value: Any, ndim: int, what: str) -> tuple[float, ...]:
    """Return one finite float per axis from a scalar (used for every axis) or a sequence."""
    array = _numbers(value, what)
    if array.ndim == 0:
        array = np.full(ndim, array)
    if array.shape != (ndim,):
        raise ValueError(f"{what} has shape {array.shape}; give one number or {ndim}, one for each axis of the box.")
    return tuple(array.tolist())


def flags(value: Any, ndim: int, what: str) -> tuple[bool, ...]:
    """Return one bool per axis from a bool (used for every axis) or a sequence of them."""
    values = [value] * ndim if isinstance(value, bool | np.bool_) else value
    if not isinstance(values, Iterable) or isinstance(values, str | bytes):
        raise TypeError(f"{what} is {value!r}; give True, False or one of them for each axis.")
    values = list(values)
    if not all(isinstance(flag, bool | np.bool_) for flag in values):
        raise TypeError(f"{what} is {value!r}; give True, False or one of them for each axis.")
    if len(values) != ndim:
        raise ValueError(
            f"{what} names {_plural(len(values), 'axis')}; the box has {_plural(ndim, 'axis')}: give one bool per axis."
        )
    return tuple(bool(flag) for flag in values)


def lattice(value: Any) -> NDArray[np.float64]:
    """Return the (d, d) matrix of lattice vectors (rows) from a length, d lengths or a matrix."""
    array = np.atleast_1d(_numbers(value, "box"))
    axes = array.shape[0]
    if array.ndim > 2 or not 1 <= axes <= MAX_AXES or (array.ndim == 2 and array.shape != (axes, axes)):
        raise ValueError(
            f"box has shape {array.shape}; give 1 to {MAX_AXES} lengths, or a square matrix "
            "whose rows are the lattice vectors."
        )
    diagonal = array if array.ndim == 1 else np.diagonal(array)
    matrix = np.diag(diagonal)
    if array.ndim == 2 and (array != matrix).any():
        # Scaled to unit rows: the test must not depend on the unit of length.
        norms = np.linalg.norm(array, axis=1)
        if (norms == 0).any() or abs(np.linalg.det(array / norms[:, None])) < 1e-12:
            raise ValueError(f"box is {value!r}; its lattice vectors are linearly dependent: give independent rows.")
        return array
    if (diagonal <= 0).any():
        raise ValueError(f"box has lengths {tuple(diagonal.tolist())}; every length must be positive.")
    return matrix


def mesh_shape(value: Any) -> tuple[int, ...]:
    """Return the nodes of each axis as a tuple of Python ints."""
    values = [value] if (listed := _listed(value)) is None else listed
    if not 1 <= len(values) <= MAX_AXES:
        raise ValueError(f"shape has {_plural(len(values), 'axis')}; a mesh has 1 to {MAX_AXES}.")
    return tuple(integer(nodes, f"shape[{axis}]", 1, MAX_NODES) for axis, nodes in enumerate(values))


def ghost_widths(value: Any, ndim: int) -> tuple[tuple[int, int], ...]:
    """Return (lower, upper) ghosts per axis from an int, an int per axis or a pair per axis."""
    values = [value] * ndim if (listed := _listed(value)) is None else listed
    if len(values) != ndim:
        raise ValueError(
            f"ghosts is {value!r}; this mesh has {_plural(ndim, 'axis')}: "
            "give one int, or for each axis an int or a pair (lower, upper)."
        )
    pairs = []
    for axis, width in enumerate(values):
        pair = [width, width] if (listed := _listed(width)) is None else listed
        if len(pair) != 2:
            raise ValueError(f"ghosts[{axis}] is {width!r}; give an int or a pair (lower, upper).")
        lower, upper = (integer(count, f"ghosts[{axis}]", 0, MAX_NODES) for count in pair)
        pairs.append((lower, upper))
    return tuple(pairs)


def node_range(start: Any, stop: Any, shape: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the first node of a part and its nodes per axis, from an int or an int per axis."""
    ends = []
    for what, value, least in (("start", start, 0), ("stop", stop, 1)):
        values = [value] if (listed := _listed(value)) is None else listed
        if len(values) != len(shape):
            raise ValueError(f"{what} is {value!r}; give {_plural(len(shape), 'integer')}, one for each axis.")
        ends.append([integer(n, f"{what}[{a}]", least, shape[a] - 1 + least) for a, n in enumerate(values)])
    for axis, (first, last) in enumerate(zip(*ends, strict=True)):
        if first >= last:
            raise ValueError(f"the part has nodes {first} to {last} of axis {axis}; stop must be larger than start.")
    return tuple(ends[0]), tuple(last - first for first, last in zip(*ends, strict=True))


def not_a_part(mesh: Any, what: str) -> None:
    """Check that a mesh is not a part of another."""
    if mesh.is_part:
        raise ValueError(f"{what} needs a whole mesh, and this is a part: call it on the part's attribute whole.")


def open_offset(axis: int, offset: float, nodes: int) -> None:
    """Check that an open axis has offset 0 (two or more nodes, on both faces) or 0.5 (in the cells)."""
    if offset not in (0.0, 0.5):
        raise ValueError(
            f"offset[{axis}] is {offset}; axis {axis} is open: give 0 (nodes on both faces) or 0.5 (in cells)."
        )
    if offset == 0.0 and nodes < 2:
        raise ValueError(
            f"shape[{axis}] is {nodes}; an open axis with nodes on both faces needs 2 or more: "
            "add a node or give offset 0.5."
        )


def trailing_shape(shape: Sequence[int], core: tuple[int, ...], what: str) -> None:
    """Check that the last axes of an array are `core`; any batch axes may precede them."""
    if tuple(shape)[-len(core) :] != core:
        raise ValueError(
            f"{what} has shape {tuple(shape)}; its last {_plural(len(core), 'axis')} must be "
            f"{', '.join(map(str, core))}; any batch axes may precede them."
        )


def unmasked(value: Any) -> Any:
    """Return an array or a sequence of rows, checked to be without masks."""
    rows = value if isinstance(value, list | tuple) and value and not isinstance(value[0], int | float) else ()
    if isinstance(value, np.ma.MaskedArray) or any(isinstance(row, np.ma.MaskedArray) for row in rows):
        raise TypeError("masked arrays are not supported: the mask would be lost. Index the array, or fill in zeros.")
    return value


def number_array(value: Any, what: str) -> NDArray[Any]:
    """Return a sequence of numbers as a NumPy array, real or complex."""
    unmasked(value)
    try:
        array = np.asarray(value)
    except (TypeError, ValueError):  # for example rows of different lengths
        array = None
    if array is None or array.dtype.kind not in "biufc":
        raise TypeError(
            f"{what} is a {type(value).__name__} that makes no array of numbers; give an array, or rows of numbers of "
            "equal length."
        )
    number_type(array.dtype, what)
    return array


def number_type(dtype: np.dtype[Any], what: str) -> None:
    """Check that the library computes with a dtype, or promotes it (integers and booleans)."""
    if dtype.kind not in "biu" and dtype.char not in "fdFD":
        raise unsupported_type(dtype, what)


def unsupported_type(dtype: Any, what: str) -> TypeError:
    """Return the error for a dtype that the library does not support."""
    return TypeError(
        f"{what}: dtype is {dtype}; float32, float64, complex64, complex128 and integers are allowed, without "
        "implicit casts: convert the numbers yourself."
    )


def has_zeros(namespace: Any, array: Any, what: str) -> None:
    """Check that the module of an array has ``zeros``, as NumPy and CuPy do."""
    if not hasattr(namespace, "zeros"):
        kind = type(array)
        raise TypeError(
            f"{what} is a {kind.__module__}.{kind.__qualname__}; arrays of NumPy, CuPy and torch and sequences of "
            "numbers are allowed: convert it first, a PyOpenCL array by its get()."
        )


def real_positions(positions: Any, ndim: int) -> NDArray[np.floating]:
    """Return positions as a real floating NumPy array whose last axis has `ndim` entries."""
    array = np.asarray(positions) if isinstance(positions, np.ndarray) else number_array(positions, "positions")
    unmasked(positions)
    if array.dtype.kind not in "iuf":
        raise TypeError(f"positions have dtype {array.dtype}; real numbers are needed.")
    number_type(array.dtype, "positions")
    if array.dtype.kind != "f":
        array = array.astype(np.float64)
    if ndim > 1 and (array.ndim == 0 or array.shape[-1] != ndim):
        raise ValueError(f"positions has shape {array.shape}; this box has {ndim} axes, so (..., {ndim}) is needed.")
    if ndim == 1 and array.ndim > 1 and array.shape[-1] != 1:
        raise ValueError(f"positions has shape {array.shape}; this box has 1 axis, so (n,) or (..., 1) is needed.")
    return array


def volume(matrix: NDArray[np.float64]) -> float:
    """Return |det matrix|, checked for overflow and underflow of float64."""
    result = (
        abs(float(math.prod(np.diagonal(matrix).tolist()))) if _diagonal(matrix) else abs(float(np.linalg.det(matrix)))
    )
    if not 0 < result < math.inf:
        raise ValueError(f"the box's volume is {result} in float64; choose a unit of length nearer to its lengths.")
    return result


def _diagonal(matrix: NDArray[np.float64]) -> bool:
    return bool((matrix == np.diag(np.diagonal(matrix))).all())


def real_type(value: Any) -> np.dtype[Any]:
    """Return float32 or float64 from its name or type object."""
    allowed = "give 'float32' or 'float64' (complex values have the real type of their parts)."
    try:
        dtype = np.dtype(value)
    except (TypeError, ValueError):
        raise TypeError(f"dtype is {value!r}; {allowed}") from None
    if dtype not in (np.dtype(np.float32), np.dtype(np.float64)):
        raise TypeError(f"dtype is {dtype}; {allowed}")
    return dtype


def method_name(value: Any, methods: Sequence[Any], what: str, others: Sequence[str] = ("auto",)) -> None:
    """Check that `value` names a method, or is among ``others``."""
    names = [m.name for m in methods]
    if not _among(value, (*others, *names)):
        automatic = ", ".join(repr(name) for name in others)
        raise ValueError(f"{what} is {value!r}; choose {automatic} or one of {', '.join(names)}.")


def _row(array: Any, index: int) -> Any:
    rows: Any = array.iloc if hasattr(array, "iloc") else array  # else pandas looks for a label
    return rows[index]


def bad_positions(
    status: Any, positions: Any, mesh: Any, *, unchecked: bool | None = False, systems: int | None = None
) -> ValueError:
    """Return the error for positions that are not finite or off an open axis; it names the first one.

    ``unchecked``: the plan holds these particles, with zero weight; None without a plan.
    """
    where = ("the part" if mesh.is_part else "an open axis") + ("" if systems is None else " or of no system")
    counts = []
    if status.not_finite:
        counts.append(f"{status.not_finite} not finite")
    if status.outside:
        counts.append(f"{status.outside} outside {where}")
    coordinates = ""
    with contextlib.suppress(Exception):
        if isinstance(positions, tuple):
            point = [float(_row(x, status.first_bad)) for x in positions]
        else:
            point = [float(x) for x in np.atleast_1d(_row(positions, status.first_bad))]
        coordinates = f" at ({', '.join(f'{x:.17g}' for x in point)})"
    allowed, open_axes = "finite numbers", [a for a in range(mesh.ndim) if not mesh.periodic[a]]
    if open_axes and mesh.box.orthorhombic:
        low = mesh.box.origin
        high = low + mesh.box.lengths
        allowed += f", and within {', '.join(f'axis {a}: [{low[a]:g}, {high[a]:g}]' for a in open_axes)}"
    elif open_axes:
        vectors = f"lattice vector{'s'[: len(open_axes) - 1]} {', '.join(map(str, open_axes))}"
        allowed += f" whose fractions along {vectors}, from the origin on, are within [0, 1]"
    if systems is not None:
        allowed += f", and systems 0 to {systems - 1}"
    if mesh.is_part:
        allowed += ", with stencils that end within the part's ghosts or, without these, reach one of its nodes"
    outcome = "The plan is unchanged; check=False gives such particles zero weight."
    if unchecked is None:
        outcome = "check=False marks such particles."
    elif unchecked:
        outcome = "In the plan such particles have zero weight."
    return ValueError(
        f"positions: {' and '.join(counts)} of {status.count}; the first is particle {status.first_bad}{coordinates}. "
        f"Allowed are {allowed}. {outcome}"
    )


def positive(value: Any, what: str) -> float:
    """Return `value` as a positive, finite float."""
    number = _numbers(value, what)
    if number.ndim or number <= 0:
        raise ValueError(f"{what} is {value!r}; one positive number is needed.")
    return float(number)


def at_least_zero(value: Any, what: str) -> float:
    """Return `value` as a finite float that is not negative."""
    number = _numbers(value, what)
    if number.ndim or number < 0:
        raise ValueError(f"{what} is {value!r}; one number of at least 0 is needed.")
    return float(number)


def not_beside_a_box(**arguments: Any) -> None:
    """Check that arguments of a Box are not given beside one."""
    for name, value in arguments.items():
        if value is not None:
            raise ValueError(f"{name} is {value!r} beside a Box, which has its own {name}: give it to the Box.")


def same_axes(shape: tuple[int, ...], ndim: int) -> None:
    """Check that a mesh has as many axes as its box."""
    if len(shape) != ndim:
        raise ValueError(
            f"shape {shape} has {_plural(len(shape), 'axis')} and the box has {_plural(ndim, 'axis')}: "
            "give one number of nodes and one length per axis."
        )


def tile_count(possible: bool, sizes: Sequence[int], tiles: int, most: int) -> None:
    """Check that a field has no more tiles than the CPU supports."""
    if not possible:
        nodes = math.prod(sizes)
        raise MemoryError(
            f"a field of {nodes:,} nodes takes {4 * nodes:,} bytes in float32 and {tiles:,} tiles; the CPU supports up "
            f"to {most:,} tiles: give a mesh of fewer nodes."
        )


def all_periodic(periodic: tuple[bool, ...]) -> None:
    """Check that every axis is periodic, so that it has Fourier modes."""
    if not all(periodic):
        raise ValueError(f"axis {periodic.index(False)} is open; wavenumbers need every axis periodic.")


def open_shift(axis: int, offset: float, shift: float) -> None:
    """Check that a shift moves the nodes of an open axis between its faces and its cells, or not at all."""
    allowed = 0.5 if offset == 0 else -0.5
    if shift not in (0.0, allowed):
        raise ValueError(
            f"offsets[{axis}] is {shift}; axis {axis} is open with offset {offset}: give 0, or {allowed} for "
            f"nodes {'in the cells' if offset == 0 else 'on the faces'}."
        )
