# SPDX-License-Identifier: BSD-3-Clause
"""Checks of arguments and of objects. Errors name the argument, what was given, what is allowed, and what to do.

First come checks of single arguments, then `Fixed`, whose attributes nobody sets, and `alone`, which refuses a second
thread. Checks of boxes, meshes and positions follow.

Also locks in processes that fork. A child has the thread that forked and no other, so it must find no lock that another
thread held.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import itertools
import math
import operator
import os
import sys
import threading
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence, Set
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

_P = ParamSpec("_P")
_R = TypeVar("_R")
_S = TypeVar("_S")
_L = TypeVar("_L", bound=Any)

MAX_AXES = 3
MAX_NODES = 2**31 - 1
_DEPTH = 8  # of lists in lists that are looked through


def plural(count: int, noun: str) -> str:
    """Return a number and its noun, for messages."""
    return f"1 {noun}" if count == 1 else f"{count} {'axes' if noun == 'axis' else noun + 's'}"


def numbers(value: Any, what: str) -> NDArray[np.float64]:
    """Return finite real numbers as a float64 array."""
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
    """Return an argument as an int within bounds; NumPy's integers are allowed, floats are not.

    Parameters
    ----------
    value : int
        What the user gave.
    what : str
        Name of the argument, for the message.
    low, high : int
        The least and the largest number allowed.

    Raises
    ------
    TypeError, ValueError
        If it is no integer, or out of bounds.

    Examples
    --------
    >>> integer(np.int32(3), "count", 0, 10)
    3
    >>> integer(11, "count", 0, 10)
    Traceback (most recent call last):
        ...
    ValueError: count is 11; 0 to 10 is allowed.
    """
    try:
        number = operator.index(value if type(value) is int else unmasked(value))
    except TypeError:
        raise TypeError(f"{what} is {value!r}; an integer of {low} to {high} is needed.") from None
    if not low <= number <= high:
        raise ValueError(f"{what} is {number}; {low} to {high} is allowed.")
    return number


def positive(value: Any, what: str) -> float:
    """Return an argument as a positive, finite float.

    Parameters
    ----------
    value : float
        What the user gave.
    what : str
        Name of the argument, for the message.

    Raises
    ------
    TypeError, ValueError
        If it is not one real number above 0.

    Examples
    --------
    >>> positive(2, "radius")
    2.0
    >>> positive(-1.0, "radius")
    Traceback (most recent call last):
        ...
    ValueError: radius is -1.0; one positive number is needed.
    """
    number = numbers(value, what)
    if number.ndim or number <= 0:
        raise ValueError(f"{what} is {value!r}; one positive number is needed.")
    return float(number)


def at_least_zero(value: Any, what: str) -> float:
    """Return an argument as a finite float that is not negative; otherwise as :func:`positive`.

    Parameters
    ----------
    value : float
        What the user gave.
    what : str
        Name of the argument, for the message.

    Raises
    ------
    TypeError, ValueError
        If it is not one real number of at least 0.

    Examples
    --------
    >>> at_least_zero(0, "friction")
    0.0
    """
    number = numbers(value, what)
    if number.ndim or number < 0:
        raise ValueError(f"{what} is {value!r}; one number of at least 0 is needed.")
    return float(number)


def one_of(value: Any, what: str, choices: Sequence[Any]) -> Any:
    """Return an argument if it is among the choices.

    Parameters
    ----------
    value : object
        What the user gave.
    what : str
        Name of the argument, for the message.
    choices : sequence
        What is allowed.

    Raises
    ------
    ValueError
        If it is not among them; the message lists them.

    Examples
    --------
    >>> one_of("cubic", "method", ("linear", "spline"))
    Traceback (most recent call last):
        ...
    ValueError: method is 'cubic'; choose from 'linear', 'spline'.
    """
    if not (isinstance(value, Hashable) and value in choices):  # comparison with an array returns an array
        raise ValueError(f"{what} is {value!r}; choose from {', '.join(map(repr, choices))}.")
    return value


def among(value: Any, choices: Sequence[Any]) -> bool:
    """Return whether a value is one of the choices; arrays are not."""
    return isinstance(value, Hashable) and value in choices  # comparison with an array returns an array


def flag(value: Any, what: str) -> bool:
    """Return an argument if it is a bool; numbers are not taken for one.

    Parameters
    ----------
    value : bool
        What the user gave.
    what : str
        Name of the argument, for the message.

    Raises
    ------
    TypeError
        If it is neither True nor False.

    Examples
    --------
    >>> flag(1, "check")
    Traceback (most recent call last):
        ...
    TypeError: check is 1; give True or False.
    """
    if value is True or value is False:  # the common case first
        return value
    if not isinstance(value, np.bool_):
        raise TypeError(f"{what} is {value!r}; give True or False.")
    return bool(value)


def flags(value: Any, ndim: int, what: str) -> tuple[bool, ...]:
    """Return one bool for each axis.

    Parameters
    ----------
    value : bool or sequence of bool
        What the user gave; one bool serves every axis.
    ndim : int
        Number of axes.
    what : str
        Name of the argument, for the message.

    Raises
    ------
    TypeError, ValueError
        If these are not bools, or not as many as axes.

    Examples
    --------
    >>> flags(True, 3, "periodic")
    (True, True, True)
    """
    unmasked(value)
    values = [value] * ndim if isinstance(value, bool | np.bool_) else value
    unordered = isinstance(values, str | bytes | Mapping | Set)
    if unordered or not isinstance(values, Iterable) or getattr(values, "shape", None) == ():
        raise TypeError(f"{what} is {value!r}; give True, False or one of them for each axis.")
    values = list(values)
    if not all(isinstance(flag, bool | np.bool_) for flag in values):
        raise TypeError(f"{what} is {value!r}; give True, False or one of them for each axis.")
    if len(values) != ndim:
        raise ValueError(
            f"{what} names {plural(len(values), 'axis')}; the box has {plural(ndim, 'axis')}: give one bool per axis."
        )
    return tuple(bool(flag) for flag in values)


def per_axis(value: Any, ndim: int, what: str) -> tuple[float, ...]:
    """Return one finite float for each axis.

    Parameters
    ----------
    value : float or sequence of float
        What the user gave; one number serves every axis.
    ndim : int
        Number of axes.
    what : str
        Name of the argument, for the message.

    Raises
    ------
    TypeError, ValueError
        If these are not finite real numbers, or not as many as axes.

    Examples
    --------
    >>> per_axis(2, 3, "spacing")
    (2.0, 2.0, 2.0)
    """
    array = numbers(value, what)
    if array.ndim == 0:
        array = np.full(ndim, array)
    if array.shape != (ndim,):
        raise ValueError(f"{what} has shape {array.shape}; give one number or {ndim}, one for each axis of the box.")
    return tuple(array.tolist())


def threads(value: Any, backend: str | None) -> int | None:
    """Return the number of CPU threads that a user gave, or None.

    Parameters
    ----------
    value : int or None
        What the user gave.
    backend : str or None
        The backend that the user named.

    Raises
    ------
    TypeError, ValueError
        If it is no number from 1 to 4096, or stands beside the name of a GPU's backend, which would ignore it.

    Examples
    --------
    >>> threads(2, "cuda")
    Traceback (most recent call last):
        ...
    ValueError: threads is 2 and backend is 'cuda': threads are those of the CPU. Leave one of them out.
    """
    if value is None:
        return None
    if backend not in (None, "cpu"):
        raise ValueError(
            f"threads is {value!r} and backend is {backend!r}: threads are those of the CPU. Leave one of them out."
        )
    return integer(value, "threads", 1, 4096)


def real_type(value: Any) -> np.dtype[Any]:
    """Return float32 or float64 from its name or type.

    Parameters
    ----------
    value : dtype_like
        What the user gave as ``dtype``.

    Raises
    ------
    TypeError
        If it is another type.

    Examples
    --------
    >>> real_type("float32")
    dtype('float32')
    """
    allowed = "give 'float32' or 'float64' (complex values have the real type of their parts)."
    try:
        dtype = np.dtype(value)
    except (TypeError, ValueError):
        raise TypeError(f"dtype is {value!r}; {allowed}") from None
    if dtype not in (np.dtype(np.float32), np.dtype(np.float64)):
        raise TypeError(f"dtype is {dtype}; {allowed}")
    return dtype


def number_array(value: Any, what: str, *, real: bool = False) -> NDArray[Any]:
    """Return numbers of the host as a NumPy array.

    Parameters
    ----------
    value : array_like
        What the user gave: numbers, or rows of numbers.
    what : str
        Name of the argument, for the message.
    real : bool
        Whether complex numbers are refused.

    Returns
    -------
    NumPy array
        Of integers, or of real or complex numbers of 32 or 64 bits.

    Raises
    ------
    TypeError
        If it makes no such array, or has a mask.

    Examples
    --------
    >>> number_array([(0, 1), (2, 3)], "pairs").shape
    (2, 2)
    """
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
    if real and array.dtype.kind == "c":
        raise TypeError(f"{what} has dtype {array.dtype}; real numbers are needed.")
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


def unmasked(value: Any) -> Any:
    """Return an array or a sequence of rows, checked to be without masks at any depth."""
    if type(value) is np.ndarray:  # the common case first
        return value
    level: Iterable[Any] = (value,)
    for _ in range(_DEPTH):
        kinds = set(map(type, level))
        if any(issubclass(kind, np.ma.MaskedArray) for kind in kinds):
            raise TypeError(
                "masked arrays are not supported: the mask would be lost. Index the array, or fill in zeros."
            )
        if not any(issubclass(kind, list | tuple) for kind in kinds):
            break
        level = list(itertools.chain.from_iterable(row for row in level if isinstance(row, list | tuple)))
    return value


# ---- objects: attributes that nobody sets -------------------------------------------------------------------------


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
    >>> scale = Scale(2.0)
    >>> scale.factor = 3.0
    Traceback (most recent call last):
        ...
    AttributeError: Scale.factor is read-only: make a new Scale with factor=.
    >>> scale.factor
    2.0
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


# ---- one thread at a time, and locks in processes that fork -------------------------------------------------------


def in_use(owner: object) -> RuntimeError:
    """Return the error for an object that another thread is using."""
    what = type(owner).__name__
    return RuntimeError(
        f"another thread is using this {what}: make a {what} for each thread, or hold a lock around its calls."
    )


def alone(method: Callable[Concatenate[_S, _P], _R]) -> Callable[Concatenate[_S, _P], _R]:
    """Decorate a method of an object that only one thread may use at a time.

    The object has a ``threading.RLock`` named ``busy``, so methods may call each other. No call waits for the lock.
    The decorator adds 0.3 us to a call. Methods that take few microseconds repeat its four lines instead, for 0.1 us.

    Parameters
    ----------
    method : function
        A method of the object.

    Raises
    ------
    RuntimeError
        If another thread is inside a method of the same object.

    Examples
    --------
    >>> import threading
    >>> class Counter:
    ...     def __init__(self):
    ...         self.busy, self.count = threading.RLock(), 0
    ...     @alone
    ...     def add(self):
    ...         self.count += 1
    >>> counter = Counter()
    >>> counter.add(), counter.count
    (None, 1)
    """

    @functools.wraps(method)
    def call(self: Any, /, *arguments: _P.args, **options: _P.kwargs) -> _R:
        if not self.busy.acquire(False):
            raise in_use(self)
        try:
            return method(self, *arguments, **options)
        finally:
            self.busy.release()

    return call


def through_forks(lock: _L) -> _L:
    """Return a lock for which a fork waits, so that no child finds it held by a thread of the parent.

    Locks that a thread takes while it holds another have to be given first.

    Examples
    --------
    >>> import threading
    >>> lock, found = through_forks(threading.Lock()), {}
    >>> with lock:
    ...     found["sum"] = 1 + 1
    >>> found["sum"]
    2
    """
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)
    return lock


def _renew_properties() -> None:
    """Renew the locks of cached properties, which threads of the parent may have held."""
    modules = [module for name, module in list(sys.modules.items()) if name.partition(".")[0] == "particlemesh"]
    for kind in {kind for module in modules for kind in vars(module).values() if isinstance(kind, type)}:
        for member in vars(kind).values():
            if isinstance(member, functools.cached_property):
                member.lock = threading.RLock()  # type: ignore[attr-defined]


if hasattr(os, "register_at_fork") and sys.version_info < (3, 12):  # later versions have no such locks
    os.register_at_fork(after_in_child=_renew_properties)


# ---- boxes, meshes and positions ----------------------------------------------------------------------------------


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


def systems_given(of: str, systems: int | None, system: Any, boxes: Any) -> None:
    """Raise a TypeError if a plan or a grid has systems and positions come without, or the other way round."""
    if systems is None and (system is not None or boxes is not None):
        raise TypeError(f"system or boxes is given, but this {of} has no systems: make it with systems=.")
    if systems is not None and system is None:
        raise TypeError(f"this {of} has {systems} systems: give system=, the index of each particle's system.")


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
        raise ValueError(f"positions have shape {array.shape}; in {ndim}-D (..., {ndim}) is needed.")
    if ndim == 1 and array.ndim > 1 and array.shape[-1] != 1:
        raise ValueError(f"positions have shape {array.shape}; in 1-D (n,) or (..., 1) is needed.")
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
        raise ValueError(
            f"axis {periodic.index(False)} is open; wavenumbers need every axis periodic: give a box with "
            "periodic=True."
        )


def open_shift(axis: int, offset: float, shift: float) -> None:
    """Check that a shift moves the nodes of an open axis between its faces and its cells, or not at all."""
    allowed = 0.5 if offset == 0 else -0.5
    if shift not in (0.0, allowed):
        raise ValueError(
            f"offsets[{axis}] is {shift}; axis {axis} is open with offset {offset}: give 0, or {allowed} for "
            f"nodes {'in the cells' if offset == 0 else 'on the faces'}."
        )
