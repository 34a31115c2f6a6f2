# SPDX-License-Identifier: BSD-3-Clause
"""One build on the CPU: arrays in, particles by cell out, and what was wrong with them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from particlemesh.backends import cpu
from particlemesh.grid import checks
from particlemesh.grid.builders.builder import NO_POSITIONS, Builder, Built
from particlemesh.grid.cpu.builders import by_cell
from particlemesh.grid.cpu.locate import CpuBoxes, cpu_boxes, known_cells, locate
from particlemesh.grid.cpu.queries import CpuQueries, cloud_of
from particlemesh.grid.sizes import CpuJob, Input, Problem, Sizes
from particlemesh.grid.storage import SortedCells, Storage


class CpuBuild(Built):
    """What a build left on the CPU; the members of a build on a GPU."""

    def __init__(
        self, job: CpuJob, method: Builder, problem: Problem, storage: Storage, status: checks.GridStatus,
        turns: np.ndarray | None, systems: CpuBoxes | None,
    ) -> None:  # fmt: skip
        super().__init__(method, problem, storage)
        self.job, self._status, self.turns = job, status, turns
        if problem.queries and job.cells is not None and job.folded is not None:
            order = self._order
            scattered = order.ends is not None
            if scattered:  # searches go along the numbers of cells
                order = by_cell(job.keys, job.bins, job.threads)
            cloud = cloud_of(job.cells, job.folded, turns, order.start, order.order, job.extents, job.threads, systems)
            self.queries = CpuQueries(cloud, job.threads, scattered=scattered)

    @property
    def nbytes(self) -> int:  # type: ignore[override]  # computed on demand
        """Bytes of memory held."""
        job = self.job
        order = self.__dict__.get("_order", ())
        arrays = [job.keys, job.folded, self.turns, job.extents, *self.storage, *order]
        arrays += [] if self.queries is None else self.queries.cloud
        return sum({a.ctypes.data: a.nbytes for a in arrays if isinstance(a, np.ndarray)}.values())

    @functools.cached_property
    def _order(self) -> SortedCells:
        return self.method.order_cpu(self.job, self.storage)

    def status(self) -> checks.GridStatus:
        return self._status

    def cell_start(self) -> np.ndarray:
        return np.asarray(self._order.start).astype(np.int32)

    def order(self) -> np.ndarray:
        return np.asarray(self._order.order).astype(np.int32)

    def rank(self) -> np.ndarray:
        order = self.order()
        rank = np.full(self.count, -1, np.int32)
        rank[order] = np.arange(len(order), dtype=np.int32)
        return rank

    def positions(self) -> np.ndarray:
        if self.job.folded is None or not self.problem.queries:
            raise RuntimeError(NO_POSITIONS)
        return self.job.folded[self.order(), 3 - self.problem.ndim :]

    def public_storage(self) -> Any:
        """Return the storage, read-only: searches use its numbers unchecked as indices."""
        shown = [a.view() if isinstance(a, np.ndarray) else a for a in self.storage]
        for array in shown:
            if isinstance(array, np.ndarray):
                array.setflags(write=False)
        kind: Any = type(self.storage)
        return kind(*shown)


def build_on_cpu(sizes: Sizes, given: Input, choose: Callable[[Problem], Builder]) -> CpuBuild:
    """Build a grid with the builder that ``choose`` returns for a problem.

    If ``given.check`` and anything is wrong, raise and leave the grid as it was.
    """
    backend: Any = cpu.current()
    folded = turns = extents = cells = systems = None
    extent_axes, alike = 0, False
    if given.radii is not None and given.x is not None:
        extents, extent_axes, alike = _extents(given, given.x.count, sizes.box.ndim, backend)
    sizes = sizes.fitted(None if alike else extents)
    count = int(given.array.shape[0]) if given.x is None else given.x.count
    problem = sizes.problem(backend, count, given.dtype, extent_axes, given.buckets)
    builder = choose(problem)  # raises if the memory does not suffice, before any of it is taken
    if given.x is None:
        keys = _keys(given)
        outside = np.flatnonzero(keys >= given.buckets)
        status = checks.GridStatus(len(keys), 0, len(outside), 0, int(outside[0]) if len(outside) else -1)
        keys, bins = np.where((keys >= 0) & (keys < given.buckets), keys, -1).astype(np.int32), given.buckets
    else:
        cells = known_cells(sizes.box, sizes.shape, sizes.levels, given.dtype)
        systems = None if given.boxes is None else cpu_boxes(given.boxes, given.dtype)
        keys, folded, turns, status = locate(given.x.arrays, extents, cells, sizes.threads, systems, given.system)
        bins = sizes.cells
    box = None if given.x is None else sizes.box
    if given.check and status.bad:
        raise checks.bad_particles(status, given.array, given.radii, box, systems=sizes.systems)
    job = CpuJob(sizes.box, sizes.shape, keys, bins, cells, folded, extents, sizes.threads)
    unfit = builder.unfit(job)
    if unfit is not None and len(unfit):
        keys[unfit] = -1
        first = int(unfit[0]) if status.first_bad < 0 else min(int(unfit[0]), status.first_bad)
        status = status._replace(bad_radius=status.bad_radius + len(unfit), first_bad=first)
        if given.check:
            raise checks.bad_particles(status, given.array, given.radii, box, systems=sizes.systems)
    capacity = builder.capacity
    try:
        storage = builder.build_cpu(job)
        while job.overflow is not None:
            cell, fullest = job.overflow
            if not given.check:
                status = status._replace(cell=cell, fullest=fullest)
                break
            if not builder.make_room(fullest):
                status = status._replace(cell=cell, fullest=fullest)
                raise checks.overflow(status, builder.capacity, builder.remedy(fullest))
            job.overflow = None
            storage = builder.build_cpu(job)
        return CpuBuild(job, builder, problem, storage, status, turns, systems)
    except BaseException:
        builder.capacity = capacity  # memory that could not be allocated is not requested again
        raise


def _keys(given: Input) -> np.ndarray:
    keys = np.ascontiguousarray(given.kind.native(given.array))
    return keys.astype(np.int64, copy=False)


def _extents(given: Input, count: int, ndim: int, backend: Any) -> tuple[np.ndarray, int, bool]:
    """Return a copy of radii (N,) or half edges (N, d), how many a particle has, and whether one number is for all."""
    native, axes = given.extents(ndim, backend)
    if isinstance(native, float):
        return np.full(count, native, given.dtype), 1, True
    return native.astype(given.dtype), 3 if axes > 1 else 1, False
