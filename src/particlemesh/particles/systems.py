# SPDX-License-Identifier: BSD-3-Clause
"""Many systems with one mesh shape as one field: one behind the other along the first axis.

Each system has ghosts along that axis, and no stencil reaches beyond them into the next system. So methods see one mesh
that does not wrap along it, and one launch serves all systems. After spreading the ghosts are folded into the systems'
fields; before interpolating they are filled from them.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from particlemesh import checks
from particlemesh.arrays.operands import adopt, converted, to_backend
from particlemesh.arrays.positions import Coordinates
from particlemesh.arrays.views import View, view
from particlemesh.backends.base import Backend, Record
from particlemesh.box import Box
from particlemesh.mesh import Mesh
from particlemesh.particles.stencil import Axis, axes_of
from particlemesh.particles.workspace import Workspace
from particlemesh.window import Window

_FILE = "particles/systems.c"
INDEX = np.dtype(np.int32)


@dataclass(frozen=True)
class Systems:
    """``count`` systems, each on ``mesh``."""

    mesh: Mesh
    window: Window
    count: int

    @functools.cached_property
    def single(self) -> Mesh:
        """The mesh of one system, with ghosts along the first axis."""
        mesh, support = self.mesh, self.window.support
        if any(mesh.ghosts[0]):
            return mesh
        # The bounds of `axes_of` for an axis that does not wrap, spare nodes included.
        start = -_offset(mesh) - support / 2 + 1
        low, high = math.floor(start) - 1, math.floor(mesh.intervals[0] + start) + 1
        ghosts = max(0, -low), max(0, high + support - mesh.shape[0])
        return Mesh(mesh.shape, mesh.box, offset=mesh.offset, ghosts=(ghosts, *mesh.ghosts[1:]))

    @functools.cached_property
    def axes(self) -> tuple[Axis, Axis, Axis]:
        """Axes of one system, in which its particles are located."""
        return axes_of(self.single, self.window)

    @property
    def pitch(self) -> int:
        """Nodes along the first axis from one system to the next."""
        return self.single.field_shape[0]

    @property
    def kept(self) -> tuple[int, int]:
        """Range of a system's nodes along the first axis that are not dropped with its ghosts."""
        if self.mesh.periodic[0] or any(self.mesh.ghosts[0]):
            return 0, self.pitch
        lower, _ = self.single.ghosts[0]
        return lower, lower + self.mesh.shape[0]

    @functools.cached_property
    def stacked(self) -> Mesh:
        """The mesh of all systems; its spacing is that of one."""
        single, more = self.single, (self.count - 1) * self.pitch
        checks.integer(single.shape[0] + more, "nodes of all systems along axis 0", 1, checks.MAX_NODES)
        rows = np.array(single.box.matrix)
        rows[0] *= (single.intervals[0] + more) / single.intervals[0]
        shape = (single.shape[0] + more, *single.shape[1:])
        box = Box(rows, single.box.origin, single.periodic)
        return Mesh(shape, box, offset=(_offset(single), *single.offset[1:]), ghosts=single.ghosts)

    def indices(self, system: Any, count: int, backend: Backend, *, upload: bool) -> Any:
        """Return the system of each particle as int32 on the backend; those on the host are checked."""
        what = "system"
        kind, array = adopt(system, what)
        if kind.dtype(array).kind not in "iu" and array.shape != (0,):
            raise TypeError(f"system has dtype {kind.dtype(array)}; integers are needed, the index of each system.")
        if tuple(array.shape) != (count,):
            raise ValueError(f"system has shape {tuple(array.shape)}; one index per particle is needed: ({count},).")
        native = to_backend(kind, array, backend, what, upload=upload, promoted=self._checked)
        if isinstance(native, np.ndarray):
            native = self._checked(native)
        if native.strides != (native.dtype.itemsize,):  # PyOpenCL converts dense arrays only
            dense = backend.empty((count,), native.dtype)
            backend.copy(dense, native)
            native = dense
        return native if native.dtype == INDEX else converted(native, INDEX, what)

    def _checked(self, host: np.ndarray) -> np.ndarray:
        """Return a copy as int32: nobody else writes to it."""
        wrong = np.flatnonzero((host < 0) | (host >= self.count))
        if len(wrong):
            raise ValueError(
                f"system: {len(wrong)} of {len(host)} are no index of a system; the first is that of particle "
                f"{wrong[0]}, {host[wrong[0]]}. Allowed are 0 to {self.count - 1}."
            )
        return host.astype(INDEX)

    # ---- fields ---------------------------------------------------------------------------------------------

    def field(self, workspace: Workspace, like: View, dtype: np.dtype) -> View:
        """Return memory for the fields of all systems, of as many channels as ``like`` has for each."""
        channels = like.layout.channels // self.count
        array = workspace.scratch(f"systems.{dtype.char}", (channels, *self.stacked.field_shape), dtype)[:channels]
        result = view(array, self.mesh.ndim, 3)
        assert result is not None  # dense
        return result

    def fold(self, workspace: Workspace, stacked: View, fields: View) -> None:
        """Add what was spread to the fields of the systems."""
        self._move(workspace, "fold_systems", fields, stacked, fields)

    def fill(self, workspace: Workspace, fields: View, stacked: View) -> None:
        """Copy the fields of the systems to where they are interpolated."""
        self._move(workspace, "fill_systems", stacked, stacked, fields)

    def _move(self, workspace: Workspace, kernel: str, target: View, stacked: View, fields: View) -> None:
        nodes, (lower, _), axis = fields.layout.shape, self.single.ghosts[0], 4 - self.mesh.ndim
        if any(self.mesh.ghosts[0]):
            lower = 0  # they are in the systems' own fields
        period = nodes[axis] if self.mesh.periodic[0] else 0
        if workspace.backend.name == "cpu":
            _move_on_host(kernel, stacked.numpy(), fields.numpy(), axis, self.pitch, lower, period)
            return
        place = [0, axis, *(a for a in (1, 2, 3) if a != axis), 4]

        def record(array: View, shape: tuple[int, ...], channel: int) -> Record:
            strides = (channel, *array.layout.strides[1:])
            return Record("=11q", *(shape[a] for a in place), *(strides[a] for a in place), array.layout.offset)

        padded = (*nodes[:axis], self.pitch, *nodes[axis + 1 :])
        count = math.prod(nodes if target is fields else padded)
        run = workspace.backend.kernel(_FILE, kernel, {"REAL_IS_DOUBLE": int(workspace.dtype.itemsize == 8)})
        run(
            count, target.array, (stacked if target is fields else fields).array, count, lower, period,
            record(fields, nodes, fields.layout.strides[0]),
            record(stacked, padded, self.pitch * stacked.layout.strides[axis]),
        )  # fmt: skip


def belong(x: Coordinates, systems: Systems | None, system: Any, backend: Backend, *, upload: bool) -> None:
    """Say of positions to which systems they belong, if there are several.

    Raises
    ------
    TypeError, ValueError
        If the indices are missing, not wanted, no integers, too few, or on the host and out of range.
    """
    if systems is None:
        if system is not None:
            raise TypeError("system is given, but this plan has no systems: make it with systems=, their number.")
        return
    if system is None:
        raise TypeError(f"this plan has {systems.count} systems: give system=, the index of each particle's system.")
    x.systems, x.system = systems, systems.indices(system, x.count, backend, upload=upload)


def _offset(mesh: Mesh) -> float:
    """Return the offset along the first axis without whole periods, as `axes_of` takes it."""
    return math.fmod(mesh.offset[0], mesh.shape[0]) if mesh.periodic[0] else mesh.offset[0]


def _move_on_host(
    kernel: str, stacked: np.ndarray, fields: np.ndarray, axis: int, pitch: int, lower: int, period: int
) -> None:
    """Do on the CPU what the kernels of systems.c do."""
    nodes = fields.shape[axis]
    stacked = np.moveaxis(stacked.reshape(*fields.shape[:axis], pitch, *fields.shape[axis + 1 :]), axis, 0)
    fields = np.moveaxis(fields, axis, 0)
    if kernel == "fill_systems" and not period:
        stacked[...] = 0
    first = -(-lower // nodes) if period else 0
    last = -(-(pitch - lower) // nodes) if period else 1
    for image in range(-first, last):
        begin, end = max(0, lower + image * nodes), min(pitch, lower + (image + 1) * nodes)
        at = slice(begin - lower - image * nodes, end - lower - image * nodes)
        if kernel == "fill_systems":
            stacked[begin:end] = fields[at]
        else:
            fields[at] += stacked[begin:end]
