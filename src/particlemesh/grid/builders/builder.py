# SPDX-License-Identifier: BSD-3-Clause
"""The contract of a builder, one way to put particles into cells; the choice among builders; what a build leaves.

A builder is one Python file, one kernel file of the same stem beside it, its name in ``METHODS`` and its citation.
Tests, benchmarks, ``explain()``, the documentation's table and the automatic choice read that tuple.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from particlemesh.backends.base import As, Backend
from particlemesh.backends.memory import check_room
from particlemesh.choosing import candidates
from particlemesh.grid.sizes import I32, U32, CpuJob, Job, Problem
from particlemesh.grid.storage import Slots, SortedCells, Storage
from particlemesh.sorting.cpu import counting_sort
from particlemesh.sorting.scan import allocate_counts, scan

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
