# SPDX-License-Identifier: BSD-3-Clause
"""Particles of one axis on the CPU: they stay in the caller's order (``orders/cpu/lines.py``)."""

from __future__ import annotations

from typing import Any

import numpy as np

from particlemesh.arrays.positions import Coordinates
from particlemesh.backends.base import Backend, allocate
from particlemesh.mesh import Mesh
from particlemesh.orders.cpu.lines import Line, locate_line, tiles_of_line
from particlemesh.orders.cpu.tiles import TileOrdering
from particlemesh.particles.locate import SKIP
from particlemesh.particles.located import HostParticles, Status, room_for_records
from particlemesh.particles.stencil import Axis
from particlemesh.particles.workspace import Workspace


class UnsortedHostParticles(HostParticles):
    """Particles in the caller's order, in memory for two configurations: ``locate`` does not touch the present one.

    The order of tiles is made once a method reads it.
    """

    def __init__(
        self, backend: Backend, dtype: np.dtype, rows: int, before: UnsortedHostParticles | None = None
    ) -> None:
        self.count = 0
        self.dtype = dtype
        self._backend = backend
        self._status = Status(0, 0, 0, -1)
        self._axes: tuple[Axis, Axis, Axis] | None = None
        self._threads: int | None = None
        self._ordering: TileOrdering | None = None
        self._line: Line
        self._other: Line  # until `place` that of the plan's present particles
        self._sorted: np.ndarray | None = None  # memory of the order of tiles
        if before is not None and before.rows >= rows:
            self.rows, self._line, self._other = before.rows, before._other, before._line
            self._sorted = before._sorted
            return
        self.rows = rows
        self._line, self._other = (
            Line(
                allocate(backend, (rows,), np.dtype(np.int32), f"the nodes of {rows:,} particles"),
                allocate(backend, (rows,), dtype, f"the fractions of {rows:,} particles"),
            )
            for _ in range(2)
        )

    @property
    def nbytes(self) -> int:
        held = (*self._line, *self._other, *(() if self._sorted is None else (self._sorted,)))
        return sum(int(array.nbytes) for array in held)

    @property
    def line(self) -> Line:  # type: ignore[override]
        """First nodes and fractions (count,) of stencils."""
        return Line(self._line.node[: self.count], self._line.fraction[: self.count])

    @property
    def ordering(self) -> TileOrdering:
        if self._ordering is None:
            if self._axes is None:
                raise RuntimeError("these particles have no positions yet: call set_positions first.")
            if self._sorted is None:
                self._sorted = room_for_records(self._backend, self.dtype, self.rows)
            self._ordering = tiles_of_line(self.line, self._axes, self._sorted[: 4 * self.count], self._threads)
        return self._ordering

    @property
    def node(self) -> np.ndarray:
        """First nodes (3, count) in the caller's order, computed in each call."""
        node = np.zeros((3, self.count), np.int32)
        node[2] = self.line.node
        node[:2, node[2] == SKIP] = SKIP
        return node

    @property
    def fraction(self) -> np.ndarray:
        """Fractions (3, count) in the caller's order, computed in each call."""
        fraction = np.zeros((3, self.count), self.dtype)
        fraction[2] = self.line.fraction
        return fraction

    def take_over(self, backend: Backend, other: HostParticles) -> None:
        assert isinstance(other, UnsortedHostParticles)
        self.count, self._status = other.count, other._status
        self._axes, self._threads = other._axes, other._threads
        for mine, theirs in zip(self.line, other.line, strict=True):
            backend.copy(mine, theirs)

    def locate(
        self, backend: Backend, mesh: Mesh, axes: tuple[Axis, Axis, Axis], x: Coordinates, threads: Any, **_: Any
    ) -> None:
        """Locate particles in memory that the plan's present ones do not use."""
        self.count, all_of = x.count, x.systems
        self._axes, self._threads, self._ordering = axes, threads, None
        several = {} if all_of is None else {"system": x.system, "pitch": all_of.pitch}
        of_one = axes if all_of is None else all_of.axes
        bad = locate_line(x.arrays, of_one, mesh.box, self.line, threads, **several)
        self._status = Status(x.count, bad.not_finite, bad.outside, bad.first)

    def place(self, workspace: Workspace) -> None:
        """Do nothing: the particles are in place."""


def host_kind(mesh: Mesh) -> type[HostParticles]:
    """Return the kind of a plan's particles on the CPU."""
    return UnsortedHostParticles if mesh.ndim == 1 else HostParticles
