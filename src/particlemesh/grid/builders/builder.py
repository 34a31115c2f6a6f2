# SPDX-License-Identifier: BSD-3-Clause
"""The contract of a builder, one way to put particles into cells, and what a build leaves.

A builder is one Python file, one kernel file of the same stem beside it, its name in ``METHODS`` and its citation.
Tests, benchmarks, ``explain()``, the documentation's table and the automatic choice read that tuple.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from particlemesh.backends.base import Backend
from particlemesh.grid.builders.job import CpuJob, Job, Problem
from particlemesh.grid.builders.order import with_records
from particlemesh.grid.cpu.builders import by_cell
from particlemesh.grid.storage import SortedCells, Storage

NO_POSITIONS = "this grid keeps no positions: they need build, not build_keys, and queries=True."
ALL_BACKENDS = frozenset({"cpu", "cuda", "opencl"})


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
