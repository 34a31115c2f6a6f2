# SPDX-License-Identifier: BSD-3-Clause
"""The sizes of a grid, the input of a build, and what a builder reads of both.

That is the problem before anything is allocated, then one build on a GPU or on the CPU.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from particlemesh.arrays import operands
from particlemesh.arrays.kinds import Kind, kind_of
from particlemesh.arrays.positions import Coordinates
from particlemesh.backends.base import Backend, Kernel
from particlemesh.backends.cpu import default_threads
from particlemesh.box import Box
from particlemesh.grid import checks
from particlemesh.grid.checks import levels_of
from particlemesh.grid.cpu.locate import CpuCells
from particlemesh.grid.room import Room
from particlemesh.grid.systems import SystemBoxes
from particlemesh.sorting.cpu import histogram_rows
from particlemesh.sorting.keys import STATUS_WORDS, Cells, Keys, cells_in

U32, I32, U64 = np.dtype(np.uint32), np.dtype(np.int32), np.dtype(np.uint64)


@dataclass(frozen=True)
class Sizes:
    """A box cut into cells, and how a grid is built: all that is known before particles come."""

    box: Box
    shape: tuple[int, ...]  # cells of the finest level
    levels: int
    follows_radii: bool  # each build on the CPU makes the levels that its radii take
    deterministic: bool
    queries: bool
    threads: int | None  # on the CPU
    options: dict[str, Any]  # of the builder
    systems: int | None = None

    @functools.cached_property
    def cells(self) -> int:
        """Cells of all levels and systems."""
        return cells_in(self.shape, self.levels) * (self.systems or 1)

    @functools.cached_property
    def edge(self) -> float:
        """What level 0 is for: no wider than its cells, across their faces."""
        return float((1 / np.linalg.norm(self.box.inverse, axis=1) / np.array(self.shape)).min())

    @functools.cached_property
    def _geometries(self) -> dict[np.dtype, Cells]:
        types = (np.dtype(np.float32), np.dtype(np.float64))
        return {t: Cells(self.box, self.shape, self.levels, self.edge, t) for t in types}

    def geometry(self, dtype: np.dtype, boxes: SystemBoxes | None = None) -> Cells:
        """Return the cells for positions of one type; without systems the same object every time."""
        cells = self._geometries[dtype]
        return cells if boxes is None else replace(cells, systems=boxes.count, most_per=boxes.per)

    def fitted(self, radii: np.ndarray | None) -> Sizes:
        """Return sizes with cells for the largest of radii (N,) or half edges (N, d) on the last level, if it follows.

        None stands for no radii, or one number for all: these take one level.
        """
        if not self.follows_radii:
            return self
        largest = 0.0 if radii is None else 2 * float(radii.max(initial=0))
        return self.on_levels(levels_of(self.shape, self.edge, largest, self.systems or 1))

    def on_levels(self, levels: int) -> Sizes:
        """Return the sizes with another number of levels; the same object if there are as many already."""
        return self if levels == self.levels else replace(self, levels=levels)

    def problem(self, backend: Backend, count: int, dtype: Any, extents: int, buckets: int) -> Problem:
        """Return the problem that builders decide on; with ``buckets`` the items are keys without positions."""
        return Problem(
            backend, buckets or self.cells, 0 if buckets else self.box.ndim, count,
            np.dtype(np.float32) if dtype is None else dtype, self.queries and not buckets, self.deterministic, extents,
            self.levels, self.shape, self.options, systems=self.systems or 0,
        )  # fmt: skip


class Input(NamedTuple):
    """What a user gives to a build: positions and radii, or keys of buckets."""

    kind: Kind  # of the first array
    array: Any  # positions as they were given, or keys
    x: Coordinates | None  # None for keys
    radii: Any
    buckets: int  # 0 for positions
    upload: bool  # host arrays are copied to the backend
    check: bool
    boxes: SystemBoxes | None = None  # of systems
    system: Any = None  # of each particle, native

    @property
    def dtype(self) -> Any:
        """Type of the positions, None for keys."""
        return None if self.x is None else self.x.dtype

    def extents(self, ndim: int, backend: Backend) -> tuple[Any, int]:
        """Return the radii: a number for all or a native array in a type that holds them, and how many each has.

        Raises
        ------
        ValueError, TypeError
            If they are not one number, (N,) or (N, d), or have more precision than the positions.
        """
        assert self.x is not None
        radii = self.radii
        if np.isscalar(radii) or (kind_of(radii) is not None and not radii.shape):
            return checks.radius(radii), 1
        kind, array = operands.adopt(radii, "radii")
        axes = checks.radii_shape(tuple(array.shape), self.x.count, ndim)
        upload = self.upload or kind.home != self.kind.home
        native = operands.to_backend(kind, array, backend, "radii", upload=upload)
        checks.narrow_enough(native.dtype, self.x.dtype, listed=array is not radii)
        return native, axes


def spread_evenly(box: Box, count: int) -> np.ndarray:
    """Return positions (count, d) that are spread evenly over a box."""
    fractions = np.arange(count)[:, None] * np.array((0.618033988749895, 0.754877666246693, 0.8191725133961645))
    return (fractions % 1)[:, : box.ndim] @ box.matrix + box.origin


# ---- what a builder reads -------------------------------------------------------------------------------------------


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
