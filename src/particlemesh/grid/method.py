# SPDX-License-Identifier: BSD-3-Clause
"""The contract of a builder: one way to put particles into cells.

A builder is one Python file, one kernel file of the same stem beside it (``scan`` has none: it is the library's
counting sort), its name in ``grid.METHODS`` and its citation. Tests, benchmarks, ``explain()``, the documentation's
table and the automatic choice read that tuple.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from particlemesh.backends.base import Backend, Kernel, allocate
from particlemesh.backends.tapes import Tapes
from particlemesh.sorting.keys import STATUS_WORDS, Cells, Keys

if TYPE_CHECKING:
    from particlemesh.grid.cpu.cells import Cells as CpuCells
    from particlemesh.grid.storage import Storage

U32, I32, U64 = np.dtype(np.uint32), np.dtype(np.int32), np.dtype(np.uint64)
ALL_BACKENDS = frozenset({"cpu", "cuda", "opencl"})


@dataclass(frozen=True)
class Problem:
    """What a builder is asked about before anything is allocated."""

    backend: Backend
    cells: int
    ndim: int  # 0 for keys
    count: int
    dtype: np.dtype  # of the positions
    queries: bool
    deterministic: bool
    extents: int  # 0: none, 1: radii, 3: half edges
    levels: int
    shape: tuple[int, ...]  # cells of the finest level
    options: dict[str, Any]
    applications: int = 1

    @property
    def gpu(self) -> bool:
        """Whether kernels do the work."""
        return self.backend.name != "cpu"


class Room:
    """Memory of one build, by name. What was asked for before is given again, if it is large enough."""

    def __init__(self, backend: Backend, tapes: Tapes) -> None:
        self.backend, self._tapes = backend, tapes
        self._held: dict[str, Any] = {}
        self._values: dict[str, float] = {}

    def __call__(self, name: str, shape: tuple[int, ...], dtype: Any) -> Any:
        held = self._held.get(name)
        if held is None or held.dtype != dtype or held.shape[1:] != shape[1:] or held.shape[0] < shape[0]:
            self._forget(name)
            room = (max(shape[0], 1), *shape[1:])
            held = self._held[name] = allocate(self.backend, room, dtype, f"{name} of a grid")
        return held

    def forget_tapes(self) -> None:
        """Say that this memory is used otherwise from now on."""
        self._tapes.clear()

    def _forget(self, name: str) -> None:
        if self._held.pop(name, None) is not None:
            self.forget_tapes()  # they hold the old memory's address

    def constant(self, name: str, count: int, value: float, dtype: np.dtype) -> Any:
        """Return ``count`` times the same number; it is sent to the device only when it changes."""
        held = self._held.get(name)
        if held is None or held.dtype != dtype or held.shape[0] < count or self._values.get(name) != value:
            self._forget(name)
            held = self._held[name] = self.backend.upload(np.full(max(count, 1), value, dtype))
            self._values[name] = value
        return held

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return sum(int(array.nbytes) for array in self._held.values())


@dataclass
class Job:
    """One build on a GPU."""

    backend: Backend
    items: Keys
    cells: Cells | None  # None for keys
    room: Room
    queries: bool
    extents: Any = None
    extent_axes: int = 0
    deterministic: bool = False
    checked: bool = False  # bad items are an error: nobody will look at what becomes of them
    searcher: Any = None  # of queries
    scratch: Any = None  # their memory
    status: Any = None  # the words of sorting/cells.h come first in it

    def kernel(self, file: str, name: str, **defines: Any) -> Kernel:
        """Return a kernel over the items."""
        return self.backend.kernel(file, name, {**self.items.defines, "COUNT_IS_64": 0, **defines})

    def work(self) -> Any:
        """Return the status and a word of 32 bits for each cell, all zero: one clearing serves both."""
        self.status = self.room("work", (STATUS_WORDS + (self.items.bins + 1) // 2,), U64)
        self.backend.clear(self.status)
        return self.status

    def clear_status(self) -> Any:
        """Return a status alone, all zero."""
        self.status = self.room("status", (STATUS_WORDS,), U64)
        self.backend.clear(self.status)
        return self.status


@dataclass
class CpuJob:
    """One build on the CPU: the particles are located, and none of them is bad."""

    keys: np.ndarray  # (N,) int32, negative: left out
    bins: int
    cells: CpuCells | None
    folded: np.ndarray | None  # (N, 3)
    extents: np.ndarray | None
    threads: int | None
    overflow: tuple[int, int] | None = None  # the fullest cell and its count, where it has not the room


class Builder:
    """One way to put particles into cells. An instance belongs to one grid and holds the options given to it."""

    name: ClassVar[str]
    cite: ClassVar[str] = ""  # key into reference.bib
    backends: ClassVar[frozenset[str]] = ALL_BACKENDS
    deterministic: ClassVar[bool] = True  # can keep the order of the particles within each cell: see declines
    options: ClassVar[dict[str, Any]] = {}  # what the constructor takes, and what is taken if nothing is given

    def __init__(self, **options: Any) -> None:
        self.chosen = {**self.options, **options}

    @classmethod
    def declines(cls, problem: Problem) -> str | None:
        """Return why this builder cannot serve ``problem``, or None."""
        return None

    @classmethod
    def scratch_bytes(cls, problem: Problem) -> int:
        """Return the bytes of memory it takes."""
        raise NotImplementedError

    @classmethod
    def seconds(cls, problem: Problem) -> tuple[float, float]:
        """Return the predicted seconds of a build, and of what queries take beyond it."""
        raise NotImplementedError

    @classmethod
    def cost(cls, problem: Problem) -> tuple[float, float]:
        """Return the predicted seconds of a build, and of what the queries of this grid take beyond it."""
        build, queries = cls.seconds(problem)
        return build, queries if problem.queries else 0.0

    def build(self, job: Job) -> Storage:
        """Put the items of ``job`` into cells on a GPU. Never waits."""
        raise NotImplementedError

    def build_cpu(self, job: CpuJob) -> Storage:
        """Put the items of ``job`` into cells on the CPU."""
        raise NotImplementedError

    def make_room(self, needed: int) -> bool:
        """Provide ``needed`` places in a cell, if that is allowed; return whether the build can be repeated."""
        return False


def cpu_bytes(problem: Problem, stored: int, scratch: int, order: int) -> int:
    """Return the bytes of a build on the CPU at its peak, where periodic axes fold some of the particles.

    Parameters
    ----------
    problem
        What is built.
    stored, scratch
        Bytes that the builder leaves, and what it takes beyond that while it works.
    order
        Bytes of an order of particles that queries need beyond what is stored.
    """
    n, real = problem.count, problem.dtype.itemsize
    if not problem.ndim:
        return 8 * n + max(16 * n, 4 * n + stored + scratch)  # of keys: copies of 64 and 32 bits
    cloud = (3 + problem.extents) * real * n + order if problem.queries else 0
    return n * (4 + 12 + (3 + problem.extents) * real) + stored + max(scratch, cloud)


def histogram_bytes(problem: Problem, entries: int, bins: int, *, alone: int = 1) -> int:
    """Return the bytes of the histograms of all threads on the CPU; of one thread ``alone`` times as many."""
    from particlemesh.backends.cpu import default_threads
    from particlemesh.sorting.cpu import histogram_rows

    rows = histogram_rows(entries, bins, default_threads(problem.count))
    return 4 * bins * (rows if rows > 1 else alone)


ATOMICS_ORDER = "atomics leave the order within a cell to chance; 'scan' and 'sort' have one"
