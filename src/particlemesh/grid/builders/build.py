# SPDX-License-Identifier: BSD-3-Clause
"""One build, on a GPU or on the CPU: arrays in, particles by cell out, and what was wrong with them."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from particlemesh.arrays import operands
from particlemesh.backends import cpu
from particlemesh.backends.base import Backend
from particlemesh.grid import checks
from particlemesh.grid.builders.builder import NO_POSITIONS, Builder, Built, by_cell
from particlemesh.grid.cpu.locate import cells_of, known_cells, locate
from particlemesh.grid.cpu.queries import CpuQueries, cloud_of
from particlemesh.grid.queries.cloud import Cloud
from particlemesh.grid.queries.device_queries import DeviceQueries
from particlemesh.grid.queries.search import Search
from particlemesh.grid.room import Room, Rooms
from particlemesh.grid.sizes import I32, U64, CpuJob, Input, Job, Problem, Sizes
from particlemesh.grid.storage import SortedCells, Storage
from particlemesh.sorting.keys import BAD_RADIUS, FIRST, FULLEST, NOT_FINITE, OUTSIDE, STATUS_WORDS, array_keys

_numbers = itertools.count()


class Build(Built):
    """What a build left on a GPU."""

    def __init__(self, job: Job, method: Builder, problem: Problem, storage: Storage, search: Search) -> None:
        super().__init__(method, problem, storage)
        self.job = job
        self.number = next(_numbers)  # no other build has it, whatever its address
        self._records: SortedCells | None = None
        self.cloud: Cloud | None = None
        if problem.queries and job.cells is not None:
            order = self._records = method.records(job, storage)
            self.cloud = Cloud(
                job.backend, job.cells, self.count, order.records, order.start, order.ends,
                job.room("turns", (self.count,), U64), job.status, job.extents, job.extent_axes,
                systems=job.systems,
            )  # fmt: skip
            self.queries = DeviceQueries(self.cloud, search)
        job.items = replace(job.items, arrays=())  # the caller's arrays may go

    def check_queries(self) -> None:
        if self.queries is not None:
            self.queries.check()

    @property
    def words(self) -> Any:
        """What `status` reads, on the device: zeros if nothing was wrong."""
        return self.job.status[:STATUS_WORDS]

    def status(self) -> checks.GridStatus:
        """Return what was wrong; waits for the device."""
        words = self.backend.download(self.words)
        not_finite, outside, bad_radius = (int(words[w]) for w in (NOT_FINITE, OUTSIDE, BAD_RADIUS))
        first = int(~words[FIRST]) if not_finite + outside + bad_radius else -1
        fullest, cell = int(words[FULLEST] >> np.uint64(32)), int(words[FULLEST] & np.uint64(0xFFFFFFFF))
        return checks.GridStatus(self.count, not_finite, outside, bad_radius, first, fullest, cell if fullest else -1)

    def _order(self) -> SortedCells:
        """Return the order of cells. Only that of the build is kept: a graph may repeat the build."""
        return self.method.order(self.job, self.storage) if self._records is None else self._records

    def _held(self) -> int:
        """Return how many particles take part; waits for the device."""
        start = self._order().start
        return int(self.backend.download(start[self.bins : self.bins + 1])[0])

    def cell_start(self) -> Any:
        """Return where each cell starts, (cells + 1,) int32."""
        return self._order().start[: self.bins + 1].view(I32)

    def order(self) -> Any:
        """Return the particle at each place, (n,) int32; waits for the device."""
        cells, job = self._order(), self.job
        order = cells.order
        if order is None:
            order = job.room("public_order", (self.count,), I32)
            read = job.kernel("grid/builders/order.c", "order_of_records", LINKS=1)
            read(max(self.count, 1), cells.records, order, self.count)
        return order[: self._held()].view(I32)

    def rank(self) -> Any:
        """Return the place of each particle, (count,) int32, -1 for one that was left out; waits for the device."""
        order, job = self.order(), self.job
        rank = job.room("public_rank", (self.count,), I32)
        job.kernel("grid/builders/order.c", "no_ranks", LINKS=1)(max(self.count, 1), rank, self.count)
        held = int(order.shape[0])
        job.kernel("grid/builders/order.c", "ranks_of_order", LINKS=1)(max(held, 1), order, rank, held)
        return rank[: self.count]

    def positions(self) -> Any:
        """Return the folded positions in the order of cells, (n, d); waits for the device."""
        if self.cloud is None:
            raise RuntimeError(NO_POSITIONS)
        return self.cloud.records[: self._held(), 3 - self.problem.ndim : 3]

    def public_storage(self) -> Storage:
        """Return the part of the storage that is in use."""
        return self.storage.trimmed(self.count, self.bins)


def build_on_gpu(
    sizes: Sizes, given: Input, rooms: Rooms, search: Search, choose: Callable[[Problem], Builder],
    again: Callable[[Callable[[], Build]], Build] | None,
) -> Build:  # fmt: skip
    """Build a grid in ``rooms`` with the builder that ``choose`` returns for a problem.

    ``again`` makes a call that was made before. If ``given.check`` and anything is wrong, raise and leave the
    grid as it was.
    """
    backend, cells, extents, extent_axes = rooms.backend, None, None, 0
    systems: tuple[Any, ...] = ()
    room = rooms.target(given.check)
    if given.x is None:
        items = array_keys(_keys(given, backend), int(given.array.shape[0]), given.buckets)
    else:
        if given.radii is not None:
            extents, extent_axes = _extents(given, given.x.count, sizes.box.ndim, backend, room)
        cells = sizes.geometry(given.dtype, given.boxes)
        if given.boxes is not None:
            systems = room("systems", (given.x.count,), I32), room.table("boxes", given.boxes.table(given.dtype))
        items = cells.keys(given.x, extents, extent_axes, systems)
    problem = sizes.problem(backend, items.count, given.dtype, extent_axes, given.buckets)
    builder = choose(problem)
    capacity = builder.capacity

    def launch() -> Build:
        if systems and items.count:
            backend.copy(systems[0][: items.count], given.system)
        job = Job(
            backend, items, cells, room, problem.queries, extents, extent_axes, problem.deterministic, given.check,
            systems=systems,
        )  # fmt: skip
        return Build(job, builder, problem, builder.build(job), search)

    try:
        built = launch() if again is None else again(launch)
        while given.check and not accepted(built, sizes, given.array, given.radii):
            built = launch()  # with more room
    except BaseException:
        builder.capacity = capacity  # memory that could not be allocated is not requested again
        raise
    if given.check:
        rooms.swap()
    return built


def accepted(built: Build, sizes: Sizes, array: Any, radii: Any) -> bool:
    """Return whether a build succeeded, or is to be repeated with more room; raise what was wrong."""
    status, job, builder = built.status(), built.job, built.method
    if status.bad:
        box = None if built.keyed else sizes.box
        error = checks.bad_particles(status, array, radii, box, systems=sizes.systems)
        note = builder.note(job, job.backend.download(job.status[:STATUS_WORDS]))
        if note is not None:
            error.add_note(note)
        raise error
    if status.fullest and not builder.make_room(status.fullest):
        raise checks.overflow(status, built.capacity, builder.remedy(status.fullest))
    return not status.fullest


def _keys(given: Input, backend: Backend) -> Any:
    native = operands.to_backend(given.kind, given.array, backend, "keys", upload=given.upload)
    dtype = np.dtype(np.int32 if native.dtype.itemsize < 4 or native.dtype == np.int32 else np.int64)
    if native.dtype != dtype:
        return native.astype(dtype)
    if not native.flags.c_contiguous or int(getattr(native, "offset", 0)) > 0:
        dense = backend.empty(native.shape, dtype)
        backend.copy(dense, native)
        return dense
    return native


def _extents(given: Input, count: int, ndim: int, backend: Backend, room: Room) -> tuple[Any, int]:
    """Return a copy of radii (N,) or of half edges (N, 3), missing axes first."""
    dtype = given.dtype
    native, axes = given.extents(ndim, backend)
    if isinstance(native, float):
        return room.constant("one_radius", count, native, dtype), 1
    if native.dtype != dtype:
        native = native.astype(dtype)
    if axes == 1:
        extents = room("radii", (count,), dtype)
        if count:
            backend.copy(extents[:count], native.reshape(count))
        return extents, 1
    extents = room("half_edges", (count, 3), dtype)
    if axes < 3:
        backend.clear(extents)
    if count:
        backend.copy(extents[:count, 3 - axes :], native)
    return extents, 3


# ---- on the CPU -----------------------------------------------------------------------------------------------------


class CpuBuild(Built):
    """What a build left on the CPU; the members of a build on a GPU."""

    def __init__(
        self, job: CpuJob, method: Builder, problem: Problem, storage: Storage, status: checks.GridStatus,
        turns: np.ndarray | None,
    ) -> None:  # fmt: skip
        super().__init__(method, problem, storage)
        self.job, self._status, self.turns = job, status, turns
        if problem.queries and job.cells is not None and job.folded is not None:
            order = self._order
            scattered = order.ends is not None
            if scattered:  # searches go along the numbers of cells
                order = by_cell(job.keys, job.bins, job.threads)
            cloud = cloud_of(job.cells, job.folded, turns, order.start, order.order, job.extents, job.threads)
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
    folded = turns = extents = cells = None
    extent_axes, alike = 0, False
    if given.radii is not None and given.x is not None:
        extents, extent_axes, alike = _host_extents(given, given.x.count, sizes.box.ndim, backend)
    sizes = sizes.fitted(None if alike else extents)
    count = int(given.array.shape[0]) if given.x is None else given.x.count
    problem = sizes.problem(backend, count, given.dtype, extent_axes, given.buckets)
    builder = choose(problem)  # raises if the memory does not suffice, before any of it is taken
    if given.x is None:
        keys = _host_keys(given)
        outside = np.flatnonzero(keys >= given.buckets)
        status = checks.GridStatus(len(keys), 0, len(outside), 0, int(outside[0]) if len(outside) else -1)
        keys, bins = np.where((keys >= 0) & (keys < given.buckets), keys, -1).astype(np.int32), given.buckets
    else:
        whole = sizes.box, sizes.shape, sizes.levels, given.dtype
        cells = known_cells(*whole) if given.boxes is None else cells_of(*whole, given.boxes)
        keys, folded, turns, status = locate(given.x.arrays, extents, cells, sizes.threads, given.system)
        bins = sizes.cells
    job = CpuJob(sizes.box, sizes.shape, keys, bins, cells, folded, extents, sizes.threads)
    unfit = builder.unfit(job)
    if unfit is not None and len(unfit):
        keys[unfit] = -1
        first = int(unfit[0]) if status.first_bad < 0 else min(int(unfit[0]), status.first_bad)
        status = status._replace(bad_radius=status.bad_radius + len(unfit), first_bad=first)
    if given.check and status.bad:
        box = None if given.x is None else sizes.box
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
        return CpuBuild(job, builder, problem, storage, status, turns)
    except BaseException:
        builder.capacity = capacity  # memory that could not be allocated is not requested again
        raise


def _host_keys(given: Input) -> np.ndarray:
    keys = np.ascontiguousarray(given.kind.native(given.array))
    return keys.astype(np.int64, copy=False)


def _host_extents(given: Input, count: int, ndim: int, backend: Any) -> tuple[np.ndarray, int, bool]:
    """Return a copy of radii (N,) or half edges (N, d), how many a particle has, and whether one number is for all."""
    native, axes = given.extents(ndim, backend)
    if isinstance(native, float):
        return np.full(count, native, given.dtype), 1, True
    return native.astype(given.dtype), 3 if axes > 1 else 1, False
