# SPDX-License-Identifier: BSD-3-Clause
"""What a build leaves: the same members on GPUs and on the CPU."""

from __future__ import annotations

from typing import Any

from particlemesh.backends.base import Backend
from particlemesh.grid.builders.builder import Builder
from particlemesh.grid.builders.job import Problem
from particlemesh.grid.checks import GridStatus
from particlemesh.grid.storage import Storage

NO_POSITIONS = "this grid keeps no positions: they need build, not build_keys, and queries=True."


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

    def status(self) -> GridStatus:
        """Return what was wrong; waits for the device."""
        raise NotImplementedError

    def check_queries(self) -> None:
        """Raise the errors that unchecked queries recorded."""

    def cell_start(self) -> Any:
        """Return where each cell starts, (cells + 1,) int32."""
        raise NotImplementedError

    def order(self) -> Any:
        """Return the particle at each place, (n,) int32; waits for the device."""
        raise NotImplementedError

    def rank(self) -> Any:
        """Return the place of each particle, (count,) int32, -1 for one that was left out; waits for the device."""
        raise NotImplementedError

    def positions(self) -> Any:
        """Return the folded positions in the order of cells, (n, d); waits for the device."""
        raise NotImplementedError

    def public_storage(self) -> Storage:
        """Return the part of the storage that is in use."""
        return self.storage
