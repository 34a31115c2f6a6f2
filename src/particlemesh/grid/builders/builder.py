# SPDX-License-Identifier: BSD-3-Clause
"""The contract of a builder, one way to put particles into cells; the choice among builders; a build with one.

A builder is one Python file, one kernel file of the same stem beside it, its name in ``METHODS`` and its citation.
Tests, benchmarks, ``explain()``, the documentation's table and the automatic choice read that tuple.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from particlemesh.arrays import operands
from particlemesh.backends import cpu
from particlemesh.backends.base import As, Backend
from particlemesh.backends.memory import check_room
from particlemesh.choosing import candidates
from particlemesh.grid import checks
from particlemesh.grid.cpu.locate import cells_of, known_cells, locate
from particlemesh.grid.cpu.queries import CpuQueries, cloud_of
from particlemesh.grid.queries.cloud import Cloud
from particlemesh.grid.queries.device_queries import DeviceQueries
from particlemesh.grid.queries.search import Search
from particlemesh.grid.room import Room, Rooms
from particlemesh.grid.sizes import I32, U32, U64, CpuJob, Input, Job, Problem, Sizes
from particlemesh.grid.storage import Slots, SortedCells, Storage
from particlemesh.sorting.cpu import counting_sort
from particlemesh.sorting.keys import BAD_RADIUS, FIRST, FOLDED, FULLEST, NOT_FINITE, OUTSIDE, STATUS_WORDS, array_keys
from particlemesh.sorting.scan import allocate_counts, scan

_numbers = itertools.count(1)  # of builds
_SMALL = 10**6  # particles and cells that memory is not in doubt for
NO_POSITIONS = "this grid keeps no positions: they need build, not build_keys, and queries=True."
ALL_BACKENDS = frozenset({"cpu", "cuda", "opencl"})


def by_cell(keys: np.ndarray, cells: int, threads: int | None = None) -> SortedCells:
    """Return particles sorted by the number of their cell, with the library's counting sort."""
    counted = counting_sort(keys, cells, threads)
    return SortedCells(counted.start, counted.order[: counted.start[-1]])


class Builder:
    """One way to put particles into cells. An instance belongs to one grid and holds the options given to it."""

    name: ClassVar[str]
    cite: ClassVar[str] = ""  # key into reference.bib
    backends: ClassVar[frozenset[str]] = ALL_BACKENDS
    deterministic: ClassVar[bool] = True  # on some backend: see ``stable``
    options: ClassVar[dict[str, Any]] = {}  # what the constructor takes, and the defaults
    stable: ClassVar[bool] = True  # False: on GPUs atomics leave the order within a cell to chance
    kernels: ClassVar[bool] = True  # has a kernel file of its own; False: all its kernels are the library's
    needs_radii: ClassVar[bool] = False  # puts spheres, not centres, into cells

    one_level: bool = False  # declines several levels of cells, whatever the problem
    capacity: int = 0  # places of a cell; 0: as many as there are particles

    def __init__(self, **options: Any) -> None:
        self.chosen = {**self.options, **options}

    # ---- the choice ---------------------------------------------------------------------------------------

    @classmethod
    def declines(cls, problem: Problem) -> str | None:
        """Return why this builder cannot serve ``problem``, or None."""
        chance = problem.deterministic and problem.gpu and not cls.stable
        return "atomics leave the order within a cell to chance" if chance else None

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

    # ---- a build ------------------------------------------------------------------------------------------

    def build(self, job: Job) -> Storage:
        """Put the items of ``job`` into cells on a GPU. Never waits."""
        raise NotImplementedError

    def build_cpu(self, job: CpuJob) -> Storage:
        """Put the items of ``job`` into cells on the CPU."""
        raise NotImplementedError

    def unfit(self, job: CpuJob) -> np.ndarray | None:
        """Return the located particles (n,) that this builder cannot hold, if any; on GPUs the status counts them."""
        return None

    def note(self, job: Job, words: np.ndarray) -> str | None:
        """Return what to add to the error about bad particles; ``words`` are the status of a build on a GPU."""
        return None

    # ---- a limit of particles in a cell -------------------------------------------------------------------

    def make_room(self, needed: int) -> bool:
        """Provide ``needed`` places in a cell, if that is allowed; return whether the build can be repeated."""
        return False

    def remedy(self, needed: int) -> str:
        """Return what a user can do if a cell has ``needed`` particles and fewer places."""
        return "take another method"

    # ---- from the storage to what queries read ------------------------------------------------------------

    def order(self, job: Job, storage: Any) -> SortedCells:
        """Return the particles in the order of cells, from what :meth:`build` returned."""
        return storage

    def records(self, job: Job, storage: Any) -> SortedCells:
        """Return the particles in the order of cells with their records, from what :meth:`build` returned."""
        return with_records(job, self.order(job, storage))

    def order_cpu(self, job: CpuJob, storage: Any) -> SortedCells:
        """Return the particles in the order of cells; ``storage`` is what :meth:`build_cpu` returned."""
        return by_cell(job.keys, job.bins, job.threads)


class BuilderChoice:
    """The choice of one grid among builders, by name or "auto".

    Attributes
    ----------
    capacity : int
        Particles that memory is reserved for: as many have the builder of before.
    """

    def __init__(self, methods: tuple[type[Builder], ...], name: str, options: Mapping[str, Any]) -> None:
        self._methods: Any = methods  # candidates are written for another Problem
        self.name, self._options = name, options
        self.capacity = 0
        self._builder: Builder | None = None
        self._problem: Problem | None = None  # that it was chosen for

    def choose(self, problem: Problem) -> Builder:
        """Return the builder that serves ``problem``: the one before, if nothing has changed by much."""
        self._check_memory(problem)
        known, before = self._builder, self._problem
        if known is not None and problem == before:
            return known
        alike = before is not None and replace(problem, count=before.count) == before
        reserved = problem.count <= self.capacity
        near = before is not None and before.count / 2 <= problem.count <= before.count * 2
        if known is not None and alike and (near or reserved):
            return known
        chosen: Any = candidates.choose(self._methods, problem, self.name)  # type: ignore[arg-type]  # the same interface
        self._builder = known if type(known) is chosen else chosen(**self._options)
        self._problem = problem
        return self._builder  # type: ignore[return-value]  # just made

    def explain(self, built: Built) -> str:
        """Return each builder's estimate for a build, or why it declines."""
        problem: Any = built.problem
        table = [candidates.ask(builder, problem) for builder in self._methods]
        method: Any = type(built.method)
        return candidates.table("grid", table, problem, method, ("build", "for queries"))

    def forget(self) -> None:
        """Drop the builder, and what it has learned."""
        self._builder = None

    def _check_memory(self, problem: Problem) -> None:
        """Raise a MemoryError if no builder that can serve has the memory on the CPU."""
        if problem.gpu or problem.count + problem.cells < _SMALL:
            return
        serving = [m for m in self._methods if self.name in ("auto", m.name) and m.declines(problem) is None]
        if serving:
            least = min(m.scratch_bytes(problem) for m in serving)
            check_room(least, f"a grid of {problem.cells:,} cells and {problem.count:,} particles")


# ---- from slots and lists to particles in the order of cells, on CUDA and OpenCL ------------------------------------


def order_of_slots(job: Job, slots: Slots) -> SortedCells:
    """Return the particles of slots in the order of cells."""
    lengths, start, order = _rooms(job)
    bins = job.items.bins
    job.kernel("grid/builders/order.c", "slot_lengths", LINKS=1)(
        bins, job.status, As(lengths, U32), bins, slots.capacity
    )
    scan(job.backend, lengths, start, bins)
    kernel = job.kernel("grid/builders/order.c", "slot_order", LINKS=1)
    kernel(bins, slots.slots, start, order, bins, slots.cell_stride, slots.slot_stride)
    return SortedCells(start, order)


def order_of_lists(job: Job, links: Any, stride: int) -> SortedCells:
    """Return the particles of lists in the order of cells; ``links`` are the last of ``stride`` numbers each."""
    lengths, start, order = _rooms(job)
    bins = job.items.bins
    job.kernel("grid/builders/order.c", "list_lengths", LINKS=stride)(bins, job.status, links, As(lengths, U32), bins)
    scan(job.backend, lengths, start, bins)
    job.kernel("grid/builders/order.c", "list_order", LINKS=stride)(bins, job.status, links, start, order, bins)
    return SortedCells(start, order)


def _rooms(job: Job) -> tuple[Any, Any, Any]:
    """Return room for the lengths of cells, for where each cell starts, and for the order."""
    bins = job.items.bins
    lengths = allocate_counts(job.backend, bins, U32, job.room, "lengths")
    job.backend.clear(lengths)  # with it the books of the scan
    return lengths, job.room("start", (bins + 1,), U32), job.room("order", (job.items.count,), I32)


def with_records(job: Job, order: SortedCells) -> SortedCells:
    """Return an order of particles with their records: position and index in four reals."""
    if order.records is not None:
        return order
    items, room = job.items, job.room
    assert job.cells is not None
    records = room("records", (items.count, 4), job.cells.dtype)
    turns = room("turns", (items.count,), job.status.dtype)
    if items.count:
        gather = job.kernel("grid/builders/order.c", "gather", LINKS=1)
        gather(
            items.count, *items.arrays, job.status, order.start, As(order.order, I32), records, turns, items.count,
            items.bins, *items.records,
        )  # fmt: skip
    return order._replace(records=records)


# ---- one build: arrays in, particles by cell out, and what was wrong with them ---------------------------------------


class Built:
    """Particles by cell, as a builder left them. Arrays are native ones of the backend."""

    nbytes: int = 0  # beyond what lies in rooms
    queries: Any = None  # DeviceQueries, CpuQueries, or None: this grid answers none

    def __init__(self, method: Builder, problem: Problem, storage: Storage) -> None:
        self.method, self.problem, self.storage = method, problem, storage
        self.backend: Backend = problem.backend
        self.count, self.bins = problem.count, problem.cells
        self.keyed = not problem.ndim
        self.capacity = method.capacity
        self.number = 0  # differs between builds whose memory does

    def check_queries(self) -> None:
        """Raise the errors that unchecked queries recorded."""


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
                systems=job.systems, number=self.number,
            )  # fmt: skip
            self.queries = DeviceQueries(self.cloud, search)
        job.items = replace(job.items, arrays=())  # the caller's arrays may go

    def check_queries(self) -> None:
        if self.queries is not None:
            self.queries.check()

    @property
    def words(self) -> Any:
        """What `status` reads, on the device: zeros if nothing was wrong."""
        return self.job.status[:FOLDED]

    def status(self) -> checks.GridStatus:
        """Return what was wrong; waits for the device."""
        return self.status_of(self.backend.download(self.words))

    def status_of(self, words: np.ndarray) -> checks.GridStatus:
        """Return what was wrong, from the words on the host."""
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
            systems = room("systems", (given.x.count,), I32), given.boxes.on(room, given.dtype)
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

    if again is None:
        backend.untaped()  # a replay would read copies of now
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
