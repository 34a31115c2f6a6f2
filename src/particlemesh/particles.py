# SPDX-License-Identifier: BSD-3-Clause
"""The particles of a plan: where each one's stencil starts, and its fraction there."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from particlemesh.backends.base import Backend, Record, allocate
from particlemesh.geometry import Coordinates, frame_record, geometry_record
from particlemesh.mesh import Mesh
from particlemesh.stencil import Axis


class Status(NamedTuple):
    """What the last ``set_positions`` found.

    Attributes
    ----------
    count : int
        Particles.
    not_finite, outside : int
        Particles with a NaN or an infinity, and particles outside an open axis: all without weight.
    first_bad : int
        Index of the first such particle, -1 if there is none.
    non_finite_values : int
        Calls whose values were not all finite, seen by methods that must know (``fixed_point``).
    """

    count: int  # type: ignore[assignment]  # a tuple's method of that name is not missed
    not_finite: int
    outside: int
    first_bad: int
    non_finite_values: int = 0


class Particles:
    """Stencils of all particles: ``node`` (3, rows) int32 and ``fraction`` (3, rows), missing axes first.

    ``rows`` is the room; the first ``count`` of each row are in use. A particle that must not take part
    has ``node == -2**31``.
    """

    def __init__(self, backend: Backend, dtype: np.dtype, rows: int) -> None:
        self.rows = rows
        self.count = 0
        self.node = allocate(backend, (3, rows), np.dtype(np.int32), f"the nodes of {rows:,} particles")
        self.fraction = allocate(backend, (3, rows), dtype, f"the fractions of {rows:,} particles")
        self.status = backend.upload(np.zeros(3, np.uint64))  # not finite, outside, ~first bad

    @property
    def nbytes(self) -> int:
        return int(self.node.nbytes + self.fraction.nbytes)

    def take_over(self, backend: Backend, other: Particles) -> None:
        """Copy the particles of ``other``, which has less room."""
        self.count, used = other.count, min(other.rows, self.rows)
        if used:
            backend.copy(self.node[:, :used], other.node[:, :used])
            backend.copy(self.fraction[:, :used], other.fraction[:, :used])
        self.status = other.status

    def locate(self, backend: Backend, mesh: Mesh, axes: tuple[Axis, Axis, Axis], x: Coordinates, threads: Any) -> None:
        """Fill in node and fraction; what is wrong goes to ``status``."""
        self.count = x.count
        if backend.name == "cpu":
            self._locate_cpu(mesh, axes, x, threads)
            return
        backend.clear(self.status)
        if x.count == 0:
            return
        defines = {
            "REAL_IS_DOUBLE": int(self.fraction.dtype.itemsize == 8),
            "COORDINATE_IS_DOUBLE": int(x.dtype.itemsize == 8),
        }
        kernel = backend.kernel("locate.c", "locate", defines)
        shifts, scales = (a.shift for a in axes), (a.scale for a in axes)
        nodes = Record(f"=6{x.dtype.char}", *scales, *shifts)
        kernel(
            x.count, *x.arguments(), self.node, self.fraction, self.status, x.count, self.rows, x.record(),
            geometry_record(mesh.box, x.dtype), frame_record(mesh.box), nodes, axes_record(axes),
        )  # fmt: skip

    def _locate_cpu(self, mesh: Mesh, axes: tuple[Axis, Axis, Axis], x: Coordinates, threads: Any) -> None:
        from particlemesh.locate import locate_cpu

        found = locate_cpu(
            x.arrays, axes, mesh.box.origin, mesh.box.inverse, mesh.periodic,
            mesh.box.lengths if mesh.box.orthorhombic else None,
            self.node[:, : x.count], self.fraction[:, : x.count], threads,
        )  # fmt: skip
        first = ~np.uint64(found.first) if found.first >= 0 else 0
        self.status[:] = (found.not_finite, found.outside, first)

    def read_status(self, backend: Backend) -> Status:
        """Read the status record; waits for the device."""
        not_finite, outside, first = (int(n) for n in backend.download(self.status))
        bad = not_finite + outside
        return Status(self.count, not_finite, outside, int(~np.uint64(first)) if bad else -1)


def axes_record(axes: tuple[Axis, Axis, Axis]) -> Record:
    """Return ``Axes`` of locate.c."""
    return Record(
        "=9i", *(a.size for a in axes), *(a.support for a in axes), *(int(a.wraps) for a in axes)
    )  # fmt: skip
