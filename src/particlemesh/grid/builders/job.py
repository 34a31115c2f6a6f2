# SPDX-License-Identifier: BSD-3-Clause
"""What a builder reads: the problem before anything is allocated, then one build on a GPU or on the CPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from particlemesh.backends.base import Backend, Kernel
from particlemesh.backends.cpu import default_threads
from particlemesh.box import Box
from particlemesh.grid.cpu.locate import CpuCells
from particlemesh.grid.room import Room
from particlemesh.sorting.cpu import histogram_rows
from particlemesh.sorting.keys import STATUS_WORDS, Cells, Keys

U32, I32, U64 = np.dtype(np.uint32), np.dtype(np.int32), np.dtype(np.uint64)


@dataclass(frozen=True)
class Problem:
    """What a builder decides on before anything is allocated."""

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
    systems: int = 0  # 0: one box
    in_parts: ClassVar[bool] = False  # grids have no parts

    @property
    def gpu(self) -> bool:
        """Whether kernels do the work."""
        return self.backend.name != "cpu"


def cpu_bytes(problem: Problem, stored: int, scratch: int, order: int) -> int:
    """Return the peak bytes of a build on the CPU where periodic axes fold some of the particles.

    The builder leaves ``stored`` bytes and takes ``scratch`` bytes meanwhile. Queries need ``order`` bytes more.
    """
    n, real = problem.count, problem.dtype.itemsize
    if not problem.ndim:
        return 8 * n + max(16 * n, 4 * n + stored + scratch)  # of keys: copies of 64 and 32 bits
    cloud = (3 + problem.extents) * real * n + order if problem.queries else 0
    return n * (4 + 12 + (3 + problem.extents) * real) + stored + max(scratch, cloud)


def histogram_bytes(problem: Problem, entries: int, bins: int, *, alone: int = 1) -> int:
    """Return the bytes of the histograms of all threads on the CPU; of one thread ``alone`` times as many."""
    rows = histogram_rows(entries, bins, default_threads(problem.count))
    return 4 * bins * (rows if rows > 1 else alone)


def order_bytes(problem: Problem) -> int:
    """Return the bytes of sorting the particles by cell on the CPU."""
    return 8 * problem.count + 8 * problem.cells + histogram_bytes(problem, problem.count, problem.cells)


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
    checked: bool = False  # bad items are an error, so their results are never read
    status: Any = None  # the words of sorting/cells.h come first in it
    systems: tuple[Any, ...] = ()  # as in Cloud

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

    box: Box
    shape: tuple[int, ...]  # cells of the finest level
    keys: np.ndarray  # (N,) int32, negative: left out
    bins: int
    cells: CpuCells | None
    folded: np.ndarray | None  # (N, 3)
    extents: np.ndarray | None
    threads: int | None
    overflow: tuple[int, int] | None = None  # the fullest cell and its count, if that exceeds the capacity
