# SPDX-License-Identifier: BSD-3-Clause
"""The particles of a plan: where each one's stencil starts, and its fraction there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from particlemesh.backends.base import Backend, Record
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


@dataclass
class Coordinates:
    """Positions along each axis of the mesh: native 1-D arrays of one type, any stride."""

    arrays: tuple[Any, ...]
    offsets: tuple[int, ...]  # of the first coordinate, in coordinates, from the kernel's pointer
    strides: tuple[int, ...]
    dtype: np.dtype
    count: int


class Particles:
    """Stencils of all particles: ``node`` (3, rows) int32 and ``fraction`` (3, rows), missing axes first.

    ``rows`` is the room; the first ``count`` of each row are in use. A particle that must not take part
    has ``node == -2**31``.
    """

    def __init__(self, backend: Backend, dtype: np.dtype, rows: int) -> None:
        self.rows = rows
        self.count = 0
        self.node = backend.empty((3, rows), np.dtype(np.int32))
        self.fraction = backend.empty((3, rows), dtype)
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
        missing = 3 - mesh.ndim
        pad = (0,) * missing
        strides = Record("=6q", *pad, *x.offsets, *pad, *x.strides)
        kernel = backend.kernel("locate.c", "locate", defines)
        arrays = (x.arrays[0],) * missing + x.arrays
        kernel(
            x.count, *arrays, self.node, self.fraction, self.status, x.count, self.rows,
            strides, geometry_record(mesh, axes, x.dtype), axes_record(mesh, axes),
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


def geometry_record(mesh: Mesh, axes: tuple[Axis, Axis, Axis], dtype: np.dtype) -> Record:
    """Return ``Geometry`` of locate.c in the coordinates' type."""
    d, missing = mesh.ndim, 3 - mesh.ndim
    box = mesh.box
    origin, lower, upper = np.zeros(3), np.zeros(3), np.zeros(3)
    inverse = np.zeros((3, 3))
    origin[missing:] = box.origin
    inverse[missing:, missing:] = box.inverse
    lower[missing:] = box.origin if box.orthorhombic else 0
    upper[missing:] = box.origin + box.lengths if box.orthorhombic else np.ones(d)
    shift = [a.shift for a in axes]
    scale = [a.scale for a in axes]
    return Record(f"=24{dtype.char}", *origin, *inverse.ravel(), *lower, *upper, *shift, *scale)


def axes_record(mesh: Mesh, axes: tuple[Axis, Axis, Axis]) -> Record:
    """Return ``Axes`` of locate.c."""
    missing = 3 - mesh.ndim
    periodic = [0] * missing + [int(p) for p in mesh.periodic]
    return Record(
        "=14i", *(a.size for a in axes), *(a.support for a in axes), *(int(a.wraps) for a in axes), *periodic,
        int(mesh.box.orthorhombic), missing,
    )  # fmt: skip
