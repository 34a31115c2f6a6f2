# SPDX-License-Identifier: BSD-3-Clause
"""One build on a GPU: arrays in, particles by cell out, and what is told of them."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from particlemesh.arrays import operands
from particlemesh.arrays.kinds import Kind, kind_of
from particlemesh.arrays.positions import Coordinates
from particlemesh.backends.base import Backend
from particlemesh.grid import checks, tight
from particlemesh.grid.cloud import Cloud
from particlemesh.grid.device_queries import DeviceQueries
from particlemesh.grid.method import I32, U64, Builder, Job, Problem, Room
from particlemesh.grid.storage import (
    LinkedLists,
    PackedLists,
    Slots,
    SortedCells,
    Storage,
    TightLists,
    ordered,
    with_records,
)
from particlemesh.sorting import counting
from particlemesh.sorting.keys import (
    BAD_RADIUS,
    FIRST,
    FULLEST,
    NOT_FINITE,
    OUTSIDE,
    STATUS_WORDS,
    Cells,
    Keys,
    array_keys,
)

if TYPE_CHECKING:
    from particlemesh.grid.construction import Construction


_numbers = itertools.count()


class Build:
    """What a build left on a GPU."""

    def __init__(self, job: Job, method: Builder, problem: Problem, storage: Storage) -> None:
        self.job, self.method, self.problem, self.storage = job, method, problem, storage
        self.backend = job.backend
        self.count, self.bins = job.items.count, job.items.bins
        self.keyed = job.cells is None
        self.capacity = storage.capacity if isinstance(storage, Slots) else 0
        self.nbytes = 0  # all lies in the room
        self.number = next(_numbers)  # no other build has it, whatever its address
        self.queries: DeviceQueries | None = None
        self._sorted: SortedCells | None = storage if isinstance(storage, SortedCells) else None
        self.cloud: Cloud | None = None
        if job.queries and job.cells is not None:
            self._sorted = self._queried()
            self.cloud = Cloud(
                job.backend, job.cells, self.count, self._sorted.records, self._sorted.start, self._sorted.ends,
                job.room("turns", (self.count,), U64), job.status, job.extents, job.extent_axes,
            )  # fmt: skip
            self.queries = DeviceQueries(self.cloud, self.storage, job.searcher, job.scratch)
        job.items = replace(job.items, arrays=())  # the caller's arrays may go

    def _queried(self) -> SortedCells:
        job = self.job
        if not isinstance(self.storage, TightLists):
            return with_records(job, ordered(job, self.storage))
        # The lists hold a particle several times; queries other than for overlaps want it once, by its centre.
        assert job.cells is not None
        again, start, rank = counting.count_items(job.backend, job.items, job.room)
        records = job.room("records", (self.count, 4), job.cells.dtype)
        turns = job.room("turns", (self.count,), U64)
        counting.place_items(job.backend, job.items, again, start, rank, records=records, turns=turns)
        return SortedCells(start, None, records=records)

    def check_queries(self) -> None:
        """Raise what queries that nobody waited for found wrong."""
        if self.queries is not None:
            self.queries.check()

    def status(self) -> checks.GridStatus:
        """Read what was wrong; waits for the device."""
        words = self.backend.download(self.job.status[:STATUS_WORDS])
        not_finite, outside, bad_radius = (int(words[w]) for w in (NOT_FINITE, OUTSIDE, BAD_RADIUS))
        first = int(~words[FIRST]) if not_finite + outside + bad_radius else -1
        fullest, cell = int(words[FULLEST] >> np.uint64(32)), int(words[FULLEST] & np.uint64(0xFFFFFFFF))
        return checks.GridStatus(self.count, not_finite, outside, bad_radius, first, fullest, cell if fullest else -1)

    def _order(self) -> SortedCells:
        """Return the order of cells, made from the storage where the build made none."""
        if self._sorted is not None:
            return self._sorted
        if isinstance(self.storage, TightLists):
            raise RuntimeError("tight lists hold particles in no order; build with queries=True to have one.")
        return ordered(self.job, self.storage)  # not kept: a graph may build again without telling

    def _held(self) -> int:
        """Return how many particles take part; waits for the device."""
        start = self._order().start
        return int(self.backend.download(start[self.bins : self.bins + 1])[0])

    def cell_start(self) -> Any:
        return self._order().start[: self.bins + 1].view(I32)

    def order(self) -> Any:
        found, job = self._order(), self.job
        order = found.order
        if order is None:
            order = job.room("public_order", (self.count,), I32)
            read = job.kernel("grid/convert.c", "order_of_records", LINKS=1)
            read(max(self.count, 1), found.records, order, self.count)
        return order[: self._held()].view(I32)

    def rank(self) -> Any:
        order, job = self.order(), self.job
        rank = job.room("public_rank", (self.count,), I32)
        job.kernel("grid/convert.c", "no_ranks", LINKS=1)(max(self.count, 1), rank, self.count)
        held = int(order.shape[0])
        job.kernel("grid/convert.c", "ranks_of_order", LINKS=1)(max(held, 1), order, rank, held)
        return rank[: self.count]

    def positions(self) -> Any:
        if self.cloud is None:
            raise RuntimeError("this grid keeps no positions: they need build, not build_keys, and queries=True.")
        return self.cloud.records[: self._held(), 3 - self.problem.ndim : 3]

    def public_storage(self) -> tuple[Any, ...]:
        """Return the storage as long as it is in use, and heads and counts without what lies before them."""
        first, *rest = self.storage
        if isinstance(self.storage, (Slots, LinkedLists, PackedLists)):
            first = first.view(np.uint32)[2 * STATUS_WORDS : 2 * STATUS_WORDS + self.bins]
            used = self.bins * self.capacity if isinstance(self.storage, Slots) else self.count
            return (first, rest[0][:used], *rest[1:])
        if isinstance(self.storage, TightLists):
            lists = self.storage
            return (
                first[: self.bins], lists.next[: self.count * lists.entries], lists.entries, lists.bits,
                lists.bounds[: self.count], lists.turns[: self.count],
            )  # fmt: skip
        lengths = (self.bins + 1, self.count, self.bins, self.count)  # start, order, ends, records
        return tuple(a if a is None else a[:n] for a, n in zip(self.storage, lengths, strict=True))


def build_arrays(
    grid: Construction, backend: Backend, kind: Kind, given: Any, x: Coordinates | None, radii: Any, buckets: int,
    dtype: Any, check: bool,
) -> Any:  # fmt: skip
    """Build a grid; raise, with the grid as it was, if ``check`` and anything is wrong."""
    if backend.name == "cpu":
        from particlemesh.grid.cpu.build import build_arrays as build_on_cpu

        return build_on_cpu(grid, kind, given, x, radii, buckets, dtype, check)
    rooms = grid.rooms(backend)
    room: Room = rooms[1 if check else 0]
    upload, cells = grid.uploads, None
    extents, extent_axes = None, 0
    if x is None:
        items = array_keys(_keys(kind, given, backend, upload), int(given.shape[0]), buckets)
    else:
        if radii is not None:
            extents, extent_axes = _extents(radii, kind, backend, room, x.count, grid.box.ndim, dtype, upload)
        cells = grid.geometry(dtype)
        items = cells.keys(x, extents, extent_axes)
    problem = grid.problem(items.count, backend, dtype, extent_axes, x is None, items.bins)
    builder = grid.builder(problem)
    before = getattr(builder, "capacity", None)
    try:
        return _checked_build(grid, builder, problem, items, cells, rooms, extents, extent_axes, given, radii, check)
    except BaseException:
        if before is not None:  # room that could not be had is not asked for again
            builder.capacity = before  # type: ignore[attr-defined]  # of `fixed`
        raise


def _checked_build(
    grid: Construction, builder: Builder, problem: Problem, items: Keys, cells: Cells | None, rooms: list[Room],
    extents: Any, extent_axes: int, given: Any, radii: Any, check: bool,
) -> Build:  # fmt: skip
    backend, room = problem.backend, rooms[1 if check else 0]
    while True:
        job = Job(
            backend, items, cells, room, problem.queries, extents, extent_axes, problem.deterministic, check,
            grid.searcher(backend), grid.scratch,
        )  # fmt: skip
        built = Build(job, builder, problem, builder.build(job))
        if not check:
            return built
        status = built.status()
        if status.bad:
            error = checks.bad_particles(status, given, radii, None if cells is None else grid.box)
            words = backend.download(job.status[:STATUS_WORDS])
            wide = tight.too_wide(words, cells.dtype) if isinstance(built.storage, TightLists) and cells else None
            if wide is not None:
                error.add_note(f"Particle {wide[0]} is wider than a cell: cells of {2 * wide[1]:g} hold all of them.")
            raise error
        if status.fullest:
            if builder.make_room(status.fullest):
                continue
            raise checks.overflow(status, built.capacity)
        rooms.reverse()  # the room that was spare holds the grid now
        grid.forget_tapes()
        return built


def _keys(kind: Kind, given: Any, backend: Backend, upload: bool) -> Any:
    native = operands.to_backend(kind, given, backend, "keys", upload=upload)
    if native.dtype == np.uint64:
        raise TypeError("keys have dtype uint64; int32 or int64 are needed.")
    wanted = np.dtype(np.int32 if native.dtype.itemsize < 4 or native.dtype == np.int32 else np.int64)
    if native.dtype != wanted:
        return native.astype(wanted)
    if not native.flags.c_contiguous or int(getattr(native, "offset", 0)) > 0:
        dense = backend.empty(native.shape, wanted)
        backend.copy(dense, native)
        return dense
    return native


def _extents(
    radii: Any, kind: Kind, backend: Backend, room: Room, count: int, ndim: int, dtype: np.dtype, upload: bool
) -> tuple[Any, int]:
    """Return the grid's own copy of radii (N,) or of half edges (N, 3), missing axes first."""
    if np.isscalar(radii) or (kind_of(radii) is not None and not radii.shape):
        value = checks.radius(radii)
        return room.constant("one_radius", count, value, dtype), 1
    own, array = operands.adopt(radii, "radii")
    axes = checks.radii_shape(tuple(array.shape), count, ndim)
    native = operands.to_backend(own, array, backend, "radii", upload=upload or own.home != kind.home)
    checks.narrow_enough(native.dtype, dtype, listed=array is not radii)
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
