# SPDX-License-Identifier: BSD-3-Clause
"""Input checks. Their errors name the argument, what is allowed, and what to do."""

from __future__ import annotations

import contextlib
import functools
import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from particlemesh.arguments import among as among
from particlemesh.arguments import at_least_zero as at_least_zero
from particlemesh.arguments import flag as flag
from particlemesh.arguments import flags as flags
from particlemesh.arguments import integer as integer
from particlemesh.arguments import number_array as number_array
from particlemesh.arguments import number_type as number_type
from particlemesh.arguments import numbers as numbers
from particlemesh.arguments import one_of as one_of
from particlemesh.arguments import per_axis as per_axis
from particlemesh.arguments import plural as plural
from particlemesh.arguments import positive as positive
from particlemesh.arguments import real_type as real_type
from particlemesh.arguments import unmasked as unmasked
from particlemesh.arguments import unsupported_type as unsupported_type

MAX_AXES = 3
MAX_NODES = 2**31 - 1


class Fixed:
    """Base of classes whose public attributes are set by their constructor, and by nobody after it.

    A property with a setter is obeyed; every other public name is refused, unknown ones too. Arrays of NumPy are
    kept as read-only views. State that changes is in names with an underscore. A user's subclass may have attributes of
    its own that change, under names that the library does not use. An object with a lock named ``busy``
    (:func:`particlemesh.kernels.alone`) is not copied or pickled, unless its class says how (``__reduce__``).

    Raises
    ------
    AttributeError
        If a public attribute is set that has no setter; the message names those that have one.
    TypeError
        If an object with a lock is copied or pickled.

    Examples
    --------
    >>> class Scale(Fixed):
    ...     def __init__(self, factor):
    ...         self.factor = factor
    >>> Scale(2.0).factor = 3.0
    Traceback (most recent call last):
        ...
    AttributeError: Scale.factor is read-only: make a new Scale with factor=.
    """

    _made: frozenset[str]  # what an object had when its constructor ended

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "__init__" in vars(cls):
            cls.__init__ = _ending_construction(cls.__init__)  # type: ignore[method-assign]

    def __setattr__(self, name: str, value: Any) -> None:
        if name[0] != "_":
            if getattr(getattr(type(self), name, None), "fset", None) is None:
                self._refuse(name)
            value = kept(value)
        object.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        if name[0] != "_":
            self._refuse(name)
        object.__delattr__(self, name)

    def _refuse(self, name: str) -> None:
        if "_made" not in self.__dict__:
            return
        ours = _ours(type(self))
        if ours is type(self) or name in self._made or hasattr(ours, name):
            raise _read_only(type(self), name, hasattr(type(self), name) or name in self.__dict__)

    def __getstate__(self) -> dict[str, Any]:
        if "busy" in self.__dict__:
            what = type(self).__name__
            raise TypeError(f"a {what} cannot be copied or pickled, since it owns memory: make another {what}.")
        return self.__dict__

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        # Pickles and deep copies of arrays lose their read-only flag.
        self.__dict__.update({name: value if name[0] == "_" else kept(value) for name, value in state.items()})


def _ending_construction(construct: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(construct)
    def init(self: Any, /, *arguments: Any, **options: Any) -> None:
        construct(self, *arguments, **options)
        if _ours(type(self)).__init__ is init:  # type: ignore[misc]  # not that of a base class
            self._made = frozenset(self.__dict__)

    return init


def _ours(cls: type) -> type:
    """Return a class, or of a user's subclass the class of the library that it extends."""
    bases = (c for c in cls.__mro__ if c.__module__.partition(".")[0] == "particlemesh" and issubclass(c, Fixed))
    ours = next(bases)
    return cls if ours is Fixed else ours


def kept(value: Any) -> Any:
    """Return a read-only view of a NumPy array, and any other value as it is."""
    if isinstance(value, np.ndarray) and value.flags.writeable:
        value = value.view()
        value.flags.writeable = False
    return value


def _read_only(cls: type, name: str, known: bool) -> AttributeError:
    settable = [n for n, member in inspect.getmembers(cls) if getattr(member, "fset", None) and n[0] != "_"]
    if name in inspect.signature(cls).parameters:
        text = f"{cls.__name__}.{name} is read-only: make a new {cls.__name__} with {name}=."
    else:
        text = f"{cls.__name__}.{name} is read-only." if known else f"a {cls.__name__} has no attribute {name!r}."
    return AttributeError(text + (f" You can set {', '.join(settable)}." if settable else ""))


def _listed(value: Any) -> list[Any] | None:
    """Return the entries of a sequence; None for a scalar or a zero-dimensional array."""
    scalar = not isinstance(value, Iterable) or isinstance(value, str | bytes) or getattr(value, "ndim", 1) == 0
    return None if scalar else list(value)


def lattice(value: Any) -> NDArray[np.float64]:
    """Return the (d, d) matrix of lattice vectors (rows) from a length, d lengths or a matrix."""
    array = np.atleast_1d(numbers(value, "box"))
    axes = array.shape[0]
    if array.ndim > 2 or not 1 <= axes <= MAX_AXES or (array.ndim == 2 and array.shape != (axes, axes)):
        raise ValueError(
            f"box has shape {array.shape}; give 1 to {MAX_AXES} lengths, or a square matrix "
            "whose rows are the lattice vectors."
        )
    diagonal = array if array.ndim == 1 else np.diagonal(array)
    matrix = np.diag(diagonal)
    if array.ndim == 2 and (array != matrix).any():
        # Scaled to unit rows: the test must not depend on the unit of length. Squares of lengths may overflow.
        largest = abs(array).max(axis=1, keepdims=True)
        rows = array / np.where(largest, largest, 1)
        rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1)
        if abs(np.linalg.det(rows)) < 1e-12:
            raise ValueError(f"box is {value!r}; its lattice vectors are linearly dependent: give independent rows.")
        return array
    if (diagonal <= 0).any():
        raise ValueError(f"box has lengths {tuple(diagonal.tolist())}; every length must be positive.")
    return matrix


def mesh_shape(value: Any) -> tuple[int, ...]:
    """Return the nodes of each axis as a tuple of Python ints."""
    values = [value] if (listed := _listed(value)) is None else listed
    if not 1 <= len(values) <= MAX_AXES:
        raise ValueError(f"shape has {plural(len(values), 'axis')}; a mesh has 1 to {MAX_AXES}.")
    return tuple(integer(nodes, f"shape[{axis}]", 1, MAX_NODES) for axis, nodes in enumerate(values))


def ghost_widths(value: Any, shape: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """Return (lower, upper) ghosts per axis from an int, an int per axis or a pair per axis."""
    ndim = len(shape)
    values = [value] * ndim if (listed := _listed(value)) is None else listed
    if len(values) != ndim:
        raise ValueError(
            f"ghosts is {value!r}; this mesh has {plural(ndim, 'axis')}: "
            "give one int, or for each axis an int or a pair (lower, upper)."
        )
    pairs = []
    for axis, width in enumerate(values):
        pair = [width, width] if (listed := _listed(width)) is None else listed
        if len(pair) != 2:
            raise ValueError(f"ghosts[{axis}] is {width!r}; give an int or a pair (lower, upper).")
        lower, upper = (integer(count, f"ghosts[{axis}]", 0, MAX_NODES) for count in pair)
        if lower + shape[axis] + upper > MAX_NODES:
            raise ValueError(
                f"ghosts[{axis}] is {(lower, upper)}: with {plural(shape[axis], 'node')} the axis has "
                f"{lower + shape[axis] + upper}; at most {MAX_NODES} are allowed. Give fewer ghosts."
            )
        pairs.append((lower, upper))
    return tuple(pairs)


def node_range(start: Any, stop: Any, shape: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the first node of a part and its nodes per axis, from an int or an int per axis."""
    ends = []
    for what, value, least in (("start", start, 0), ("stop", stop, 1)):
        values = [value] if (listed := _listed(value)) is None else listed
        if len(values) != len(shape):
            raise ValueError(f"{what} is {value!r}; give {plural(len(shape), 'integer')}, one for each axis.")
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
            f"{what} has shape {tuple(shape)}; its last {plural(len(core), 'axis')} must be "
            f"{', '.join(map(str, core))}; any batch axes may precede them."
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
    with np.errstate(over="ignore", under="ignore"):
        result = math.prod(np.diagonal(matrix).tolist()) if _diagonal(matrix) else abs(float(np.linalg.det(matrix)))
    if not np.finfo(np.float64).tiny <= result < math.inf:
        raise ValueError(f"the box's volume is {result} in float64; choose a unit of length nearer to its lengths.")
    return result


def _diagonal(matrix: NDArray[np.float64]) -> bool:
    return bool((matrix == np.diag(np.diagonal(matrix))).all())


def method_name(value: Any, methods: Sequence[Any], what: str, others: Sequence[str] = ("auto",)) -> None:
    """Check that `value` names a method, or is among ``others``."""
    names = [m.name for m in methods]
    if not among(value, (*others, *names)):
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


def not_beside_a_box(**arguments: Any) -> None:
    """Check that arguments of a Box are not given beside one."""
    for name, value in arguments.items():
        if value is not None:
            raise ValueError(f"{name} is {value!r} beside a Box, which has its own {name}: give it to the Box.")


def same_axes(shape: tuple[int, ...], ndim: int) -> None:
    """Check that a mesh has as many axes as its box."""
    if len(shape) != ndim:
        raise ValueError(
            f"shape {shape} has {plural(len(shape), 'axis')} and the box has {plural(ndim, 'axis')}: "
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
