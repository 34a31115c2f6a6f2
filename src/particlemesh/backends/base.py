# SPDX-License-Identifier: BSD-3-Clause
"""The interface of a backend, and what all backends share.

Arrays here are native: NumPy on ``cpu``, CuPy on ``cuda``, PyOpenCL on ``opencl``. Kernel arguments are
arrays, Python integers (``i64`` in the kernel) and ``Record`` (a C struct by value); nothing else. An array has the
element type of its parameter, unless :class:`As` names another or :class:`Unread` says that the kernel does not use it.
"""

from __future__ import annotations

import contextlib
import re
import struct
import time
from collections.abc import Callable
from typing import Any, Protocol, cast

import numpy as np

from particlemesh.backends.source import File, Texts
from particlemesh.backends.tapes import Posted

NOTHING: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()  # a scope without a stream to enter


class Record(bytes):
    """A kernel argument: a C struct by value.

    Parameters
    ----------
    layout : str
        Letters of Python's ``struct``, with ``=``: nothing is padded, so the layout has the padding of C. Put the
        widest members first.
    *members : numbers
        One for each letter.

    Attributes
    ----------
    alignment : int
        That of the widest member.

    Examples
    --------
    ``typedef struct { real step, mass; } Motion;`` with float32:

    >>> motion = Record("=2f", 0.01, 1.5)
    >>> len(motion), motion.alignment
    (8, 4)
    """

    alignment: int

    def __new__(cls, layout: str, *members: Any) -> Record:
        record = super().__new__(cls, struct.pack(layout, *members))
        record.alignment = max(struct.calcsize(c) for c in layout if c.isalpha())
        return record


class As:
    """A kernel argument: an array whose memory the kernel deliberately reads as elements of another type.

    Parameters
    ----------
    array : native array
    dtype : dtype_like
        Type of the kernel's parameter.

    Examples
    --------
    >>> As(np.zeros(4, np.int32), "uint32").dtype
    'uint32'
    """

    __slots__ = ("array", "dtype")

    def __init__(self, array: Any, dtype: Any) -> None:
        self.array, self.dtype = array, dtype  # not converted to np.dtype: each launch makes a new object

    @property
    def base_data(self) -> Any:
        """The buffer, for OpenCL's launch."""
        return self.array.base_data

    def __index__(self) -> int:
        """Return the address, for CUDA's launch."""
        return int(self.array.data.ptr)


class Unread(As):
    """A kernel argument: any array, for a parameter that this kernel or this call does not use.

    Parameters
    ----------
    array : native array
        Of any type: a launch needs some memory.

    Examples
    --------
    >>> Unread(np.zeros(1)).dtype
    dtype('float64')
    """

    __slots__ = ()

    def __init__(self, array: Any) -> None:
        self.array, self.dtype = array, array.dtype


class CompilationError(RuntimeError):
    """A kernel did not compile.

    For a kernel of the library the message holds the numbered source and the compiler's log. For the user's C code it
    holds the compiler's first error and the line it refers to.

    Attributes
    ----------
    source, log : str
        The complete source, and the compiler's complete log.

    Examples
    --------
    >>> print(CompilationError("kernel none", "error: expected ';' after return statement", "void none() { return 1 }"))
    kernel none did not compile.
        1  void none() { return 1 }
    error: expected ';' after return statement
    """

    def __init__(self, what: str, log: str, source: str, texts: Texts | None = None) -> None:
        self.what, self.log, self.source, self.texts = what, log, source, dict(texts or {})
        if texts:
            super().__init__(f"{_first_error(log, source, self.texts)}\n({what}; the error has source and log)")
            return
        lines = "\n".join(f"{n:5d}  {line}" for n, line in enumerate(source.splitlines(), 1))
        super().__init__(f"{what} did not compile.\n{lines}\n{log}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.what, self.log, self.source, self.texts)


def _first_error(log: str, source: str, texts: dict[str, str]) -> str:
    """Return the compiler's first error in the user's C code, and the line it refers to."""
    # Some compilers (NVIDIA's for OpenCL) number the lines of the whole program, under a name of their own.
    log = re.sub(r"(?m)^<kernel>:(\d+)", lambda place: "{}:{}".format(*_place_of(source, int(place[1]))), log)
    errors = [line.strip() for line in log.splitlines() if "error" in line and re.search(r"\d", line)]
    for name, text in texts.items():
        for error in errors:
            position = re.search(rf"{re.escape(name)}\W{{1,2}}(\d+)", error)
            lines = text.splitlines()
            if position and 0 < int(position[1]) <= len(lines):
                return f"{error}\n    {lines[int(position[1]) - 1].strip()}"
    # Elsewhere in the program; some compilers print the line itself.
    whole = log.splitlines()
    first = next((n for n, line in enumerate(whole) if errors and line.strip() == errors[0]), 0)
    return "\n".join(line[:200] for line in whole[first : first + 4]) or "the compiler's log is empty."


def _place_of(source: str, number: int) -> tuple[str, int]:
    """Return the file and the line that ``#line`` gives to a line of a program, counted from 1."""
    name, first, began = "<kernel>", 1, 0
    for at, line in enumerate(source.splitlines()[: number - 1], 1):
        if given := re.match(r'#line (\d+) "(.*)"', line):
            name, first, began = given[2], int(given[1]), at
    return name, first + number - began - 1


class Kernel(Protocol):
    """A compiled kernel; a call launches at least ``items`` work-items, or nothing if there are none."""

    def __call__(self, items: int, *arguments: Any, local_bytes: int = 0) -> None: ...


class Backend(Protocol):
    """A device that computes. GPU backends are one object per device (CUDA) or context (OpenCL).

    Attributes
    ----------
    name : {"cpu", "cuda", "opencl"}
    device : str
        The driver's name for it.
    group_size : int
        Work-items per group, unless a kernel is compiled with another ``GROUP_SIZE``.
    local_bytes : int
        The most local memory of a group.
    units : int
        Multiprocessors, or cores.

    Examples
    --------
    >>> from particlemesh.kernels import backend
    >>> cpu = backend("cpu")
    >>> numbers = cpu.empty((2, 3), "float64")
    >>> cpu.clear(numbers)
    >>> cpu.download(numbers).sum()
    np.float64(0.0)
    """

    name: str
    device: str  # the driver's name for it
    group_size: int  # work-items per group, unless a kernel's facts have another GROUP_SIZE
    local_bytes: int  # the most local memory of a group
    units: int  # multiprocessors, or cores

    def facts(self) -> dict[str, int]:
        """Return the device's capabilities, as defines for kernels (``HAS_...``)."""
        ...

    def scope(self, *arrays: Any) -> contextlib.AbstractContextManager[Any]:
        """Return a context in which work goes to the device, stream or queue of ``arrays``."""
        ...

    def follow(self, token: Any) -> Any:
        """Order later work after the stream of ``token``; return the token of the current stream."""
        ...

    def mark(self, *arrays: Any) -> None:
        """Record the submitted work on arrays that track the work on them."""
        ...

    def signature(self, what: Any, *arrays: Any, same: bool = False) -> Any:
        """Return a key of a call: the form of its arrays and how they overlap. With ``same``, also where they are.

        None where such calls cannot be recorded and replayed (``Taping``).
        """
        ...

    @property
    def tape(self) -> Any:
        """The tape that records the present call, if any."""
        ...

    def submit_call(self, call: Callable[..., None], *arrays: Any, on_device: bool = False) -> None:
        """Call ``call(*arrays)``, by which a library submits work on native arrays; a replay calls it again."""

    def untaped(self) -> None:
        """Report that something was submitted that cannot be replayed."""
        ...

    def returns(self, array: Any) -> None:
        """Report a new array that a call returns: a replay of the call makes another."""

    def same_memory(self, native: Any, array: Any) -> bool:
        """Return whether a native array is a user's array, or a view of all its memory."""

    def kernel(self, file: File, name: str, defines: dict[str, Any], texts: Texts | None = None) -> Kernel:
        """Compile ``name`` of the package's kernel ``file``; compiled kernels are cached.

        ``texts`` maps the names that the file includes in ``<>`` to C code.
        """
        ...

    def empty(self, shape: tuple[int, ...] | int, dtype: Any) -> Any:
        """Allocate an array in C order."""
        ...

    def clear(self, array: Any) -> None:
        """Set every element to zero, whatever its strides."""
        ...

    def copy(self, target: Any, source: Any) -> None:
        """Copy between two native arrays of one shape, any strides."""
        ...

    def upload(self, array: np.ndarray) -> Any:
        """Copy a host array of any strides to the device, in C order."""
        ...

    def download(self, array: Any) -> np.ndarray:
        """Copy a native array to the host; waits for it."""
        ...

    def read(self, *arrays: Any) -> list[np.ndarray]:
        """Copy native arrays to the host with one wait."""
        ...

    def post(self, *arrays: Any) -> Posted:
        """Copy arrays to the host, behind all that was submitted; ``read`` of the result waits. Replays copy again."""
        ...

    def free_bytes(self) -> int:
        """Return the device memory that can still be allocated."""
        ...

    def capturing(self) -> int:
        """Return the number of the capture in progress, during which nothing may wait; 0 if there is none.

        ``UNKNOWN`` where captures cannot be distinguished.
        """
        ...

    def seconds(self, call: Callable[[], Any]) -> float:
        """Return the device time of a call that was made before; repeats it, and waits."""
        ...

    def synchronize(self) -> None:
        """Wait for all work submitted so far."""
        ...


UNKNOWN = -1  # a capture without a number
LONG = 5e-3  # seconds: longer calls are timed one by one
BATCH = 1e-3  # seconds of calls timed together


def gapless(array: Any) -> bool:
    """Return whether the elements of a native array fill one piece of memory, in any order of axes."""
    step = array.dtype.itemsize
    for stride, size in sorted(zip(array.strides, array.shape, strict=True)):
        if size != 1 and stride != step:
            return array.size == 0
        step *= size
    return True


def batch_of(seconds: float) -> int:
    """Return how many calls of this duration to time together."""
    return max(1, min(50, int(BATCH / max(seconds, 1e-9))))


def seconds_by_host(call: Callable[[], Any], wait: Callable[[], None]) -> float:
    """Return the seconds of a call by the host's clock: the minimum over some batches.

    Other work on the host can only make a batch longer.
    """

    def batch(calls: int) -> float:
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        wait()
        return (time.perf_counter() - begin) / calls

    wait()
    once = batch(1)
    if once > LONG:
        return min(once, *(batch(1) for _ in range(1 + (once < 10 * LONG))))
    calls = batch_of(once)
    return min(batch(calls) for _ in range(5))


class _Kept:
    def __init__(self, backend: Backend, kernels: dict[Any, Kernel]) -> None:
        self._backend, self._kernels = backend, kernels

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._backend, name)
        if isinstance(value, (int, str)) and not isinstance(getattr(type(self._backend), name, None), property):
            self.__dict__[name] = value  # a constant: the next look-up does not come here
        return value

    def __eq__(self, other: object) -> bool:
        return (other._backend if isinstance(other, _Kept) else other) is self._backend

    def __hash__(self) -> int:
        return hash(self._backend)

    def kernel(self, file: File, name: str, defines: dict[str, Any], texts: Texts | None = None) -> Kernel:
        key = (file, name, *defines.items(), *(texts or {}).items())
        kernel = self._kernels.get(key)
        if kernel is None:
            create = self._backend.kernel
            kernel = create(file, name, defines) if texts is None else create(file, name, defines, texts)
            self._kernels[key] = kernel
        return kernel


def kept(backend: Backend, kernels: dict[Any, Kernel] | None = None) -> Backend:
    """Return a backend that keeps the kernels of its one owner: creating one takes longer than a launch.

    A kernel holds the arguments of its last launch, so two programs that run at once must not share it. The backend
    returned has all methods of the given one, and belongs to one object of yours.

    Parameters
    ----------
    backend : Backend
        Where the owner works.
    kernels : dict, optional
        Where to keep them.

    Examples
    --------
    >>> from particlemesh.backends import cpu
    >>> kernels = {}
    >>> device = kept(cpu.current(), kernels)
    >>> device.name, len(kernels)
    ('cpu', 0)
    """
    return cast("Backend", _Kept(backend, {} if kernels is None else kernels))
