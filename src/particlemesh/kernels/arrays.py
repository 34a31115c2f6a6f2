# SPDX-License-Identifier: BSD-3-Clause
"""From arrays of any library to native arrays for kernels, and back; kernels of programs."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from particlemesh import checks
from particlemesh.arrays import operands
from particlemesh.arrays.kinds import allocate
from particlemesh.backends.base import NOTHING, Backend, Kernel
from particlemesh.backends.source import Code, code_of, read

_PACKAGE = Path(__file__).parents[1]
_IS_DOUBLE = {np.dtype(np.float32): 0, np.dtype(np.float64): 1}


@dataclass(slots=True)
class Operand(operands.Operand):
    """An input that :func:`take` has checked.

    Attributes
    ----------
    native : native array
        Its numbers where the work is: an array of NumPy, CuPy or PyOpenCL.
    shape : tuple of int
        The last axes, which the kernel knows.
    batch : tuple of int
        The axes before them.
    dtype : numpy.dtype
        Real type of the work, float32 or float64.
    backend : Backend
        Where the work is.
    kind : Kind
        Library of the user's array.
    user : array
        What the user gave.
    upload : bool
        Whether arrays of the host are copied to the backend, and results back.

    Examples
    --------
    >>> from particlemesh.kernels import take
    >>> x = take(np.ones((4, 2), np.float32), (2,), "masses")
    >>> x.batch, x.shape, x.native.sum()
    ((4,), (2,), np.float32(8.0))
    """

    shape: tuple[int, ...]
    dtype: np.dtype
    backend: Backend
    upload: bool


@dataclass(slots=True)
class Output:
    """Memory for a result, from :func:`give`.

    Attributes
    ----------
    native : native array
        What the kernel writes.
    finish : callable
        Returns the result as the user's kind of array; call it after the last launch.

    Examples
    --------
    >>> from particlemesh.kernels import give, take
    >>> x = take(np.arange(3.0), (None,), "x")
    >>> result = give(None, x, (3,))
    >>> result.native[:] = 2 * x.native  # a kernel writes
    >>> result.finish()
    array([0., 2., 4.])
    """

    native: Any
    finish: Callable[[], Any]


def take(
    array: Any, shape: tuple[int | None, ...], what: str, *, like: Operand | None = None, dtype: Any = None,
    backend: Backend | None = None, upload: bool = False, batch: bool = True, real: bool = True,
    dense: bool = True,
) -> Operand:  # fmt: skip
    """Check an input, an array of any library, and return it as a native array for kernels.

    Integers become real numbers. Nothing else is cast: more digits than the work's are an error.

    Parameters
    ----------
    array : array_like
        Of NumPy, CuPy, PyOpenCL, torch or JAX, or a sequence of numbers.
    shape : tuple of int or None
        The last axes; None allows any length. Axes before them are a batch.
    what : str
        Name of the argument, for messages.
    like : Operand, optional
        Another input: this one shall have its dtype and be on its backend.
    dtype : {"float32", "float64"}, optional
        Real type of the work; by default that of ``array``, or of ``like``.
    backend : Backend, optional
        Where the work is; by default where ``array`` is, or ``like``.
    upload : bool
        Copy arrays of the host to the backend, since the user has named it.
    batch : bool
        Allow axes before the last ones.
    real : bool
        Refuse complex numbers.
    dense : bool
        Copy what is not in C order, or, with OpenCL, does not begin where its buffer begins. Then a kernel needs no
        strides.

    Returns
    -------
    Operand

    Raises
    ------
    TypeError, ValueError
        If kind, dtype, shape or device do not fit; the message says what does.

    Examples
    --------
    >>> x = take([[0, 1, 2], [3, 4, 5]], (None, 3), "positions")
    >>> x.shape, x.native.dtype, x.backend.name
    ((2, 3), dtype('float64'), 'cpu')
    >>> take(np.ones((4, 2), np.float32), (2,), "masses", like=x).batch
    (4,)
    """
    for value, name in ((upload, "upload"), (batch, "batch"), (real, "real"), (dense, "dense")):
        checks.flag(value, name)
    kind, user = operands.adopt(array, what)
    if like is not None:
        dtype, backend = like.dtype if dtype is None else dtype, like.backend if backend is None else backend
        upload = upload or like.upload
    if user is not array and not user.size and None in shape and user.ndim == 1:  # an empty list
        user = user.reshape([n or 0 for n in shape])
    core = _core(tuple(user.shape), shape, what, batch)
    number = kind.dtype(user)
    if real and number.kind == "c":
        raise TypeError(f"{what} has dtype {number}; real numbers are needed.")
    precision = operands.real_dtype(user, kind, what)
    work = precision if dtype is None else checks.real_type(dtype)
    if number.kind in "fc" and precision.itemsize > work.itemsize:
        raise TypeError(f"{what} has dtype {number}, more than {work} holds: convert it, or work in float64.")
    where = kind.backend(user) if backend is None else backend
    copies = dense or precision != work or number.kind not in "fc"  # JAX on a GPU waits at the end of its scope
    with kind.scope(user) if copies else NOTHING, where.scope(user) if copies else NOTHING:
        taken = operands.take(user, core, len(core), work, where, what, upload=upload)
        native = _dense(taken.native, where, f"a dense copy of {what}") if dense else taken.native
    return Operand(kind, user, native, taken.view, taken.batch, core, work, where, upload)


def give(
    out: Any, like: Operand, shape: tuple[int, ...], *, dtype: Any = None, dense: bool = True
) -> Output:  # fmt: skip
    """Return memory for a result: that of ``out``, or new memory.

    Parameters
    ----------
    out : array or None
        The user's array for the result.
    like : Operand
        The input whose library and device the result shall have.
    shape : tuple of int
        Of the whole result, batch axes included.
    dtype : dtype_like, optional
        By default that of the input.
    dense : bool
        The memory is in C order, whatever the strides of ``out``.

    Returns
    -------
    Output

    Raises
    ------
    TypeError, ValueError
        If ``out`` does not fit, is read-only, or shares memory with the input.

    Examples
    --------
    >>> x = take(np.arange(3.0), (None,), "x")
    >>> result = give(None, x, (3,))
    >>> np.multiply(x.native, 2, out=result.native)
    array([0., 2., 4.])
    >>> result.finish()
    array([0., 2., 4.])
    """
    checks.flag(dense, "dense")
    backend, number = like.backend, None if dtype is None else np.dtype(dtype)
    result = operands.give(
        out, like, shape, len(shape), len(shape), backend, accumulate=False, upload=like.upload,
        number=number,
    )  # fmt: skip
    native = result.native
    if dense and not _is_dense(native):
        native = allocate(backend, shape, result.native.dtype, "a dense copy of out")

    def finish() -> Any:
        if native is not result.native:
            backend.copy(result.native, native)
        backend.mark(result.native)
        return result.finish()

    return Output(native, finish)


class InOrder:
    """Calls of one program, in order: each on the stream of its arrays, after the call before.

    CUDA and OpenCL return before the work is done. Two calls may come on different streams and share the memory of
    your program, so that the second has to wait on the device. Make one for each object that owns memory.

    Examples
    --------
    >>> class Doubling:
    ...     def __init__(self):
    ...         self._in_order = InOrder()
    ...
    ...     def __call__(self, values, out=None):
    ...         x = take(values, (None,), "values")
    ...         with self._in_order(x, out):
    ...             result = give(out, x, x.shape)
    ...             x.backend.copy(result.native, x.native)  # or launch a kernel
    ...             result.native *= 2
    ...             return result.finish()
    >>> Doubling()([1, 2, 3])
    array([2., 4., 6.])
    """

    def __init__(self) -> None:
        self._token: Any = None

    @contextlib.contextmanager
    def __call__(self, first: Operand, *others: Any) -> Iterator[None]:
        """Enter the device and the stream of the first array.

        Parameters
        ----------
        first : Operand
        *others : Operand, array or None
            All other arrays that the call reads or writes.
        """
        inputs = [first, *(other for other in others if isinstance(other, Operand))]
        arrays = [other.native if isinstance(other, Operand) else other for other in (first, *others)]
        backend = first.backend
        with first.kind.scope(first.user), backend.scope(*arrays):
            self._token = backend.follow(self._token)
            yield
            backend.mark(*(one.native for one in inputs))

    @contextlib.contextmanager
    def reading(self, backend: Backend) -> Iterator[None]:
        """Enter a device, to read what the last call has written: reads come after that call.

        Parameters
        ----------
        backend : Backend
        """
        with backend.scope():
            self._token = backend.follow(self._token)
            yield


def to_host(array: Any, what: str) -> np.ndarray:
    """Return the numbers of an array of any library in the memory of the host; waits for them.

    Parameters
    ----------
    array : array_like
    what : str
        Name of the argument, for messages.

    Returns
    -------
    NumPy array
        Over the same memory, if that is the host's.

    Raises
    ------
    TypeError
        If it is no array of numbers that the library knows.

    Examples
    --------
    >>> to_host((1, 2), "sizes")
    array([1, 2])
    """
    kind, user = operands.adopt(array, what)
    native = kind.native(user)
    checks.number_type(kind.dtype(user), what)
    if kind.home == "cpu":
        return np.asarray(native)
    backend = kind.backend(user)
    with kind.scope(user), backend.scope(native):
        return np.asarray(backend.download(native))


def _core(given: tuple[int, ...], shape: tuple[int | None, ...], what: str, batch: bool) -> tuple[int, ...]:
    """Return the last axes of an array, checked."""
    last = given[len(given) - len(shape) :] if len(given) >= len(shape) else ()
    if (
        len(last) != len(shape)
        or (not batch and len(given) > len(shape))
        or any(n not in (None, size) for n, size in zip(shape, last, strict=True))
    ):
        allowed = ", ".join(("..." if batch else "", *("n" if n is None else str(n) for n in shape))).removeprefix(", ")
        raise ValueError(f"{what} has shape {given}; ({allowed}{',' * (',' not in allowed)}) is needed.")
    return last


def _is_dense(native: Any) -> bool:
    return bool(native.flags.c_contiguous) and not getattr(native, "offset", 0)


def _dense(native: Any, backend: Backend, what: str) -> Any:
    """Return an array in C order that begins where its buffer does."""
    if _is_dense(native):
        return native
    copy = allocate(backend, tuple(native.shape), native.dtype, what)
    backend.copy(copy, native)
    return copy


def compile_kernel(backend: Backend, source: str | Path, name: str, dtype: Any, **defines: int) -> Kernel:
    """Compile a kernel in the dialect that CUDA and OpenCL share.

    Compiled programs are kept, in the process and on disk. Keep one kernel for each object of yours: it holds
    the arguments of its last launch.

    Parameters
    ----------
    backend : Backend
        A GPU, or OpenCL on the CPU.
    source : str or Path
        The C code, or the file that holds it. A file may include files beside it and files of the library by their
        paths in it: ``#include "particles/coordinates.h"``. Files of yours are read at each call: edited ones, included
        ones among them, are compiled again.
    name : str
        Which of its kernels.
    dtype : {"float32", "float64"}
        What ``real`` is.
    **defines : int
        Macros that the code uses: each choice of them is compiled once.

    Returns
    -------
    Kernel
        ``kernel(items, *arguments)`` launches at least so many work-items, and does not wait. Arguments are native
        arrays, integers (``i64``) and :class:`Record`. The first launch compares them with the kernel's parameters.

    Raises
    ------
    CompilationError
        With the first error, and the line of the source.
    FileNotFoundError
        If a file, or one that it includes, is not there.
    ValueError
        If there is no kernel of this name, or includes without guards go in a circle.
    RuntimeError
        If the backend is the CPU, or the device has no float64.

    Examples
    --------
    >>> code = '''
    ... KERNEL twice(GLOBAL real* x, const i64 count)
    ... {
    ...     for (i64 i = GROUP_ID * GROUP_SIZE + LOCAL_ID; i < count; i += GROUP_COUNT * GROUP_SIZE) x[i] *= FACTOR;
    ... }
    ... '''
    >>> from particlemesh.kernels import backend
    >>> device = backend("opencl")
    >>> x = device.upload(np.arange(3.0))
    >>> twice = compile_kernel(device, code, "twice", x.dtype, FACTOR=2)
    >>> twice(x.size, x, x.size)
    >>> device.download(x)
    array([0., 2., 4.])
    """
    is_double = _IS_DOUBLE.get(dtype)
    if is_double is None:
        is_double = _IS_DOUBLE[checks.real_type(dtype)]
    file: str | Code | None
    if isinstance(source, str):
        if source.endswith((".c", ".h", ".cl")) and "\n" not in source:
            raise TypeError(f"source is the string {source!r}, which names a file; give Path({source!r}).")
        file = code_of(source)
    else:
        file = _of_package(source) or read(source)  # again, because it may have been edited
    return backend.kernel(file, name, {"REAL_IS_DOUBLE": is_double, **defines})


@functools.cache
def _of_package(path: Path) -> str | None:
    """Return the path of a file within this package, or None."""
    return path.relative_to(_PACKAGE).as_posix() if path.is_relative_to(_PACKAGE) else None
