# SPDX-License-Identifier: BSD-3-Clause
"""What the library asks of a place to compute: some fifteen verbs.

Arrays here are native: NumPy on ``cpu``, CuPy on ``cuda``, PyOpenCL on ``opencl``. Kernel arguments are
arrays, Python integers (``i64`` in the kernel) and ``Record`` (a C struct by value); nothing else. The element type
of an array is that of the parameter: :class:`As` says otherwise, and :class:`Unread` that the kernel does not use it.
"""

from __future__ import annotations

import contextlib
import math
import re
import struct
import sys
import time
from collections.abc import Callable
from typing import Any, Protocol, cast

import numpy as np

from particlemesh.backends.source import Texts

NOTHING: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()  # where there is no stream to enter


class Record(bytes):
    """A C struct, packed; ``alignment`` is that of its widest member."""

    alignment: int

    def __new__(cls, layout: str, *members: Any) -> Record:
        record = super().__new__(cls, struct.pack(layout, *members))
        record.alignment = max(struct.calcsize(c) for c in layout if c.isalpha())
        return record


class As:
    """A kernel argument: an array whose memory the kernel reads on purpose as elements of ``dtype``."""

    __slots__ = ("array", "dtype")

    def __init__(self, array: Any, dtype: Any) -> None:
        self.array, self.dtype = array, dtype  # anything that NumPy takes for one: it is made at each launch

    @property
    def base_data(self) -> Any:
        """The memory, as OpenCL's launch asks for it."""
        return self.array.base_data

    def __index__(self) -> int:
        """Return the address, as CUDA's launch packs it."""
        return int(self.array.data.ptr)


class Unread(As):
    """A kernel argument: any array, for a parameter that the kernel, as it is compiled or called, does not use."""

    __slots__ = ()

    def __init__(self, array: Any) -> None:
        super().__init__(array, array.dtype)


class CompilationError(RuntimeError):
    """A kernel did not compile.

    The message of a kernel of the library holds the numbered source and the compiler's log. For a text of the user it
    holds the compiler's first error and the user's line.

    Attributes
    ----------
    source, log : str
        The whole source, and all that the compiler wrote.
    """

    def __init__(self, what: str, log: str, source: str, texts: Texts | None = None) -> None:
        self.what, self.log, self.source, self.texts = what, log, source, dict(texts or {})
        if texts:
            super().__init__(f"{_first_error(log, self.texts)}\n({what}; this error's source and log have the rest)")
            return
        lines = "\n".join(f"{n:5d}  {line}" for n, line in enumerate(source.splitlines(), 1))
        super().__init__(f"{what} did not compile.\n{lines}\n{log}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.what, self.log, self.source, self.texts)


def _first_error(log: str, texts: dict[str, str]) -> str:
    """Return the compiler's first error in a user's text, and the line that it is about."""
    errors = [line.strip() for line in log.splitlines() if "error" in line and re.search(r"\d", line)]
    for name, text in texts.items():
        for error in errors:
            found = re.search(rf"{re.escape(name)}\W{{1,2}}(\d+)", error)
            lines = text.splitlines()
            if found and 0 < int(found[1]) <= len(lines):
                return f"{error}\n    {lines[int(found[1]) - 1].strip()}"
    # Some compilers count lines of the whole program, and show the line itself.
    whole = log.splitlines()
    first = next((n for n, line in enumerate(whole) if errors and line.strip() == errors[0]), 0)
    return "\n".join(line[:200] for line in whole[first : first + 4]) or "the compiler wrote nothing."


class Kernel(Protocol):
    """A compiled kernel, ready to be launched over at least ``items`` work-items."""

    def __call__(self, items: int, *arguments: Any, local_bytes: int = 0) -> None: ...


class Backend(Protocol):
    """A place to compute. GPU backends are one object a device (CUDA) or context (OpenCL)."""

    name: str
    device: str  # as the driver calls it
    group_size: int  # work-items of a group
    units: int  # multiprocessors, or cores

    def facts(self) -> dict[str, int]:
        """Return what the chip has, as the defines that kernels see (``HAS_...``)."""
        ...

    def scope(self, *arrays: Any) -> contextlib.AbstractContextManager[Any]:
        """Work inside on the device, stream or queue of ``arrays``."""
        ...

    def follow(self, token: Any) -> Any:
        """Order what comes after what ``token`` stands for; return the token of the current stream."""
        ...

    def mark(self, *arrays: Any) -> None:
        """Tell arrays that keep track of their users that work on them was submitted."""
        ...

    def signature(self, what: Any, *arrays: Any) -> Any:
        """Return what tells one call from another where calls can be taped and played again (``Taping``), else None."""
        ...

    def untaped(self) -> None:
        """Say that something was submitted which cannot be played again."""
        ...

    def kernel(self, file: str, name: str, defines: dict[str, Any], texts: Texts | None = None) -> Kernel:
        """Compile ``name`` of the package's kernel ``file``; compiled kernels are cached.

        ``texts`` are what the file leaves to others: C by the name under which it is included.
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
        """Copy a host array to the device."""
        ...

    def download(self, array: Any) -> np.ndarray:
        """Copy a native array to the host; waits for it."""
        ...

    def free_bytes(self) -> int:
        """Return the device memory that can still be allocated."""
        ...

    def capturing(self) -> int:
        """Return the number of the capture that records work now, so that nothing may wait for it; 0 if none does.

        ``UNKNOWN`` where captures cannot be told from each other.
        """
        ...

    def seconds(self, call: Callable[[], Any]) -> float:
        """Return how long the device works on a call that was made before; makes it several times, and waits."""
        ...

    def synchronize(self) -> None:
        """Wait for all work submitted so far."""
        ...


UNKNOWN = -1  # a capture without a number
LONG = 5e-3  # seconds: of such a call one look at the clock is enough
BATCH = 1e-3  # seconds of calls between two looks at the clock


def gapless(array: Any) -> bool:
    """Return whether the elements of a native array fill one piece of memory, in whatever order of axes."""
    step = array.dtype.itemsize
    for stride, size in sorted(zip(array.strides, array.shape, strict=True)):
        if size != 1 and stride != step:
            return array.size == 0
        step *= size
    return True


def batch_of(seconds: float) -> int:
    """Return how many calls of so many seconds to make between two looks at the clock."""
    return max(1, min(50, int(BATCH / max(seconds, 1e-9))))


def seconds_by_host(call: Callable[[], Any], wait: Callable[[], None]) -> float:
    """Return the seconds of a call by the host's clock: the least of some batches between waits.

    Whatever else runs there only makes it longer.
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
        return getattr(self._backend, name)

    def kernel(self, file: str, name: str, defines: dict[str, Any], texts: Texts | None = None) -> Kernel:
        key = (file, name, *defines.items(), *(texts or {}).items())
        found = self._kernels.get(key)
        if found is None:
            made = self._backend.kernel
            found = made(file, name, defines) if texts is None else made(file, name, defines, texts)
            self._kernels[key] = found
        return found


def kept(backend: Backend, kernels: dict[Any, Kernel]) -> Backend:
    """Return a backend that keeps the kernels its one owner has asked for: to make one takes longer than a launch."""
    return cast("Backend", _Kept(backend, kernels))


def allocate(backend: Backend, shape: tuple[int, ...] | int, dtype: Any, what: str, less: str = "") -> Any:
    """Allocate on a backend; if there is no memory, say how much was wanted, for what, and what needs ``less``."""
    wanted = math.prod((shape,) if isinstance(shape, int) else shape) * np.dtype(dtype).itemsize
    try:
        if wanted > sys.maxsize:  # libraries of arrays would not even count it
            raise MemoryError
        return backend.empty(shape, dtype)
    except MemoryError as error:
        raise MemoryError(
            f"{wanted:,} bytes for {what} are not to be had on {backend.device} "
            f"({backend.free_bytes():,} are free){less}."
        ) from error
