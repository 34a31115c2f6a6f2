# SPDX-License-Identifier: BSD-3-Clause
"""One build on the CPU: arrays in, particles by cell out, and what is told of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from particlemesh.arrays import operands
from particlemesh.arrays.kinds import Kind
from particlemesh.arrays.positions import Coordinates
from particlemesh.backends import cpu
from particlemesh.binning.cpu import counting_sort
from particlemesh.grid import checks
from particlemesh.grid.cpu.builders import FixedCells, order_of_lists, order_of_slots
from particlemesh.grid.cpu.cells import cells_of, locate
from particlemesh.grid.cpu.cloud import cloud_of
from particlemesh.grid.cpu.queries import CpuQueries
from particlemesh.grid.method import Builder, CpuJob, Problem
from particlemesh.grid.storage import LinkedLists, PackedLists, Slots, SortedCells, Storage, TightLists

if TYPE_CHECKING:
    from particlemesh.grid.construction import Construction


class CpuBuild:
    """What a build left on the CPU."""

    def __init__(
        self, job: CpuJob, method: Builder, problem: Problem, storage: Storage, status: checks.GridStatus,
        turns: np.ndarray | None, extents: np.ndarray | None,
    ) -> None:  # fmt: skip
        self.job, self.method, self.problem, self.storage = job, method, problem, storage
        self.backend: Any = cpu.current()
        self.count, self.bins, self.number = len(job.keys), job.bins, 0
        self.keyed = job.cells is None
        self.capacity = storage.capacity if isinstance(storage, Slots) else 0
        self._status, self.turns, self.extents = status, turns, extents
        self._sorted: SortedCells | None = storage if isinstance(storage, SortedCells) else None
        self.queries: CpuQueries | None = None
        if problem.queries and job.cells is not None and job.folded is not None:
            found = self.sorted_cells()
            scattered = found.ends is not None
            if scattered:
                found = SortedCells(*counting_sort(job.keys, job.bins, job.threads)[:2])
            cloud = cloud_of(job.cells, job.folded, turns, found.start, found.order, extents, job.threads)
            self.queries = CpuQueries(cloud, storage, job.cells, job.folded, extents, job.threads, scattered=scattered)

    @property
    def nbytes(self) -> int:
        """Bytes of memory held."""
        job, order = self.job, self._sorted
        held = [job.keys, job.folded, self.turns, self.extents, *self.storage, *(order or ())]
        return sum({id(a): a.nbytes for a in held if isinstance(a, np.ndarray)}.values())

    def check_queries(self) -> None:
        """Searches wait and have raised what was wrong."""

    def status(self) -> checks.GridStatus:
        """Return what was wrong."""
        return self._status

    def sorted_cells(self) -> SortedCells:
        """Return the order of cells, made from the storage when it is first asked for."""
        if self._sorted is None:
            self._sorted = self._ordered()
        return self._sorted

    def _ordered(self) -> SortedCells:
        job, storage = self.job, self.storage
        if isinstance(storage, Slots):
            layout = "column" if storage.cell_stride == 1 else "row"
            found = FixedCells(storage.counts, storage.slots, (0, 0))
            start, order = order_of_slots(found, layout, job.threads)
        elif isinstance(storage, LinkedLists):
            start, order = order_of_lists(storage.heads, storage.next, job.threads)
        elif isinstance(storage, PackedLists):
            links = storage.nodes.view(np.int32 if storage.nodes.itemsize == 4 else np.int64)[:, 3]
            start, order = order_of_lists(storage.heads, links, job.threads)
        else:  # tight lists hold a particle several times: queries other than for overlaps want it once, by its centre
            assert isinstance(storage, TightLists)
            by_centre = counting_sort(job.keys, job.bins, job.threads)
            start, order = by_centre.start, by_centre.order[: by_centre.start[-1]]
        return SortedCells(start, order)

    def cell_start(self) -> np.ndarray:
        return np.asarray(self.sorted_cells().start).astype(np.int32)

    def order(self) -> np.ndarray:
        return np.asarray(self.sorted_cells().order).astype(np.int32)

    def rank(self) -> np.ndarray:
        order = self.order()
        rank = np.full(self.count, -1, np.int32)
        rank[order] = np.arange(len(order), dtype=np.int32)
        return rank

    def positions(self) -> np.ndarray:
        if self.job.folded is None or not self.problem.queries:
            raise RuntimeError("this grid keeps no positions: they need build, not build_keys, and queries=True.")
        return self.job.folded[self.order(), 3 - self.problem.ndim :]

    def public_storage(self) -> tuple[Any, ...]:
        """Return the storage; searches trust its numbers, so that nobody else may write them."""
        shown = [a.view() if isinstance(a, np.ndarray) else a for a in self.storage]
        for array in shown:
            if isinstance(array, np.ndarray):
                array.setflags(write=False)
        return tuple(shown)


def build_arrays(
    grid: Construction, kind: Kind, given: Any, x: Coordinates | None, radii: Any, buckets: int, dtype: Any,
    check: bool,
) -> CpuBuild:  # fmt: skip
    """Build a grid; raise, with the grid as it was, if ``check`` and anything is wrong."""
    backend: Any = cpu.current()
    folded = turns = extents = cells = None
    extent_axes = 0
    if x is None:
        keys = _keys(kind, given)
        outside = np.flatnonzero(keys >= buckets)
        status = checks.GridStatus(len(keys), 0, len(outside), 0, int(outside[0]) if len(outside) else -1)
        keys, bins = np.where((keys >= 0) & (keys < buckets), keys, -1).astype(np.int32), buckets
    else:
        if radii is not None:
            extents, extent_axes = _extents(radii, x.count, grid.box.ndim, dtype)
        cells = cells_of(grid.box, grid.shape, grid.levels, dtype)
        keys, folded, turns, found = locate(x.arrays, extents, cells, grid.threads)
        status = checks.GridStatus(x.count, found.not_finite, found.outside, found.bad_radius, found.first)
        bins = cells.total
    if check and status.bad:
        raise checks.bad_particles(status, given, radii, None if x is None else grid.box)
    problem = grid.problem(len(keys), backend, dtype, extent_axes, x is None, bins)
    builder = grid.builder(problem)
    if builder.name == "linked_list_tight":
        wide = np.flatnonzero(_too_wide(grid, extents, len(keys)) & (keys >= 0))
        if len(wide):
            keys[wide] = -1
            first = int(wide[0]) if status.first_bad < 0 else min(int(wide[0]), status.first_bad)
            status = status._replace(bad_radius=status.bad_radius + len(wide), first_bad=first)
            if check:
                raise checks.bad_particles(status, given, radii, grid.box)
    before = getattr(builder, "capacity", None)
    try:
        return _built(grid, builder, problem, status, check, keys, bins, cells, folded, extents, turns)
    except BaseException:
        if before is not None:  # room that could not be had is not asked for again
            builder.capacity = before  # type: ignore[attr-defined]  # of `fixed`
        raise


def _built(
    grid: Construction, builder: Builder, problem: Problem, status: checks.GridStatus, check: bool, keys: np.ndarray,
    bins: int, cells: Any, folded: Any, extents: Any, turns: Any,
) -> CpuBuild:  # fmt: skip
    while True:
        job = CpuJob(keys, bins, cells, folded, extents, grid.threads)
        storage = builder.build_cpu(job)
        if job.overflow is None:
            break
        cell, fullest = job.overflow
        status = status._replace(cell=cell, fullest=fullest)
        if not check:
            break
        if not builder.make_room(fullest):
            raise checks.overflow(status, builder.capacity)  # type: ignore[attr-defined]  # of `fixed`
        status = status._replace(cell=-1, fullest=0)
    return CpuBuild(job, builder, problem, storage, status, turns, extents)


def _too_wide(grid: Construction, extents: np.ndarray | None, count: int) -> np.ndarray:
    """Return which particles would touch more than two cells along an axis of a tight grid."""
    assert extents is not None
    box, shape = grid.box, np.array(grid.shape)
    half = extents.astype(np.float64)
    along = (
        np.abs(box.inverse) if half.ndim == 2 and half.shape[1] > 1 else np.linalg.norm(box.inverse, axis=1)[:, None]
    )
    wide = 2 * (half.reshape(count, along.shape[1]) @ along.T) * shape > 1 + 32 * np.finfo(extents.dtype).eps
    # Along an open axis of one or two cells nobody can touch more.
    return (wide & (np.array(box.periodic) | (shape > 2))).any(axis=1)


def _keys(kind: Kind, given: Any) -> np.ndarray:
    keys = np.ascontiguousarray(kind.native(given))
    if keys.dtype == np.uint64:
        raise TypeError("keys have dtype uint64; int32 or int64 are needed.")
    return keys.astype(np.int64, copy=False)


def _extents(radii: Any, count: int, ndim: int, dtype: np.dtype) -> tuple[np.ndarray, int]:
    """Return the grid's own copy of radii (N,) or of half edges (N, d), and how many a particle has."""
    if np.isscalar(radii):
        return np.full(count, checks.radius(radii), dtype), 1
    own, array = operands.adopt(radii, "radii")
    native = own.native(array)
    if not native.shape:
        return np.full(count, checks.radius(native), dtype), 1
    axes = checks.radii_shape(native.shape, count, ndim)
    checks.narrow_enough(native.dtype, dtype, listed=array is not radii)
    if native.ndim == 1:
        return native.astype(dtype), 1
    return native.astype(dtype), 3 if axes > 1 else 1
