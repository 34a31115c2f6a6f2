# SPDX-License-Identifier: BSD-3-Clause
"""Many systems with one mesh shape as one field: one behind the other along the first axis.

Each system has ghosts along that axis, and no stencil reaches beyond them into the next system. So methods see one mesh
that does not wrap along it, and one launch serves all systems. After spreading the ghosts are folded into the systems'
fields; before interpolating they are filled from them.
"""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from particlemesh import checks
from particlemesh.arrays.lattices import DeviceBoxes
from particlemesh.arrays.operands import View, view
from particlemesh.arrays.positions import Coordinates, frame_record, indices, lattices, of_natives
from particlemesh.backends.base import Record, Unread
from particlemesh.box import Box
from particlemesh.mesh import Mesh
from particlemesh.particles.stencil import Axis, axes_of
from particlemesh.particles.workspace import Workspace
from particlemesh.window import Window

_FILE = "particles/systems.c"


@dataclass(frozen=True)
class Systems:
    """``count`` systems, each on ``mesh``."""

    mesh: Mesh
    window: Window
    count: int

    @functools.cached_property
    def single(self) -> Mesh:
        """The mesh of one system, with ghosts along the first axis for every stencil: the user's may be fewer."""
        mesh, support = self.mesh, self.window.support
        # The bounds of `axes_of` for an axis that does not wrap, spare nodes included.
        start = -_offset(mesh) - support / 2 + 1
        low, high = math.floor(start) - 1, math.floor(mesh.intervals[0] + start) + 1
        lower, upper = mesh.ghosts[0]
        ghosts = max(lower, -low), max(upper, high + support - mesh.shape[0])
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
        if self._folds:
            return 0, self.pitch
        return self._before, self._before + self.mesh.field_shape[0]

    @property
    def _folds(self) -> bool:
        """Whether nodes beyond a system's field are images of its nodes; else they are dropped."""
        return self.mesh.periodic[0] and not any(self.mesh.ghosts[0])

    @property
    def _before(self) -> int:
        """Nodes along the first axis before those of a system's field."""
        return self.single.ghosts[0][0] - self.mesh.ghosts[0][0]

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
        nodes, lower, axis = fields.layout.shape, self._before, 4 - self.mesh.ndim
        period = nodes[axis] if self._folds else 0
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


@dataclass(frozen=True)
class Boxes:
    """The maps between the boxes of systems and the mesh's box, in which particles are located.

    A position x becomes ``(x - origin) @ maps[system] + origin``.
    """

    maps: Any  # native (systems, d, d), in the type of the values
    system: Any  # native int32 (N,)
    count: int  # systems
    rows: Any  # (systems, d, d): lattice vectors of the host, or DeviceBoxes
    wide: Any  # the maps in double precision

    @property
    def lengths(self) -> tuple[Any, Any]:
        """The shortest and the longest lattice vectors of each axis."""
        if isinstance(self.rows, DeviceBoxes):
            return self.rows.bounds.shortest, self.rows.bounds.longest
        lengths = np.linalg.norm(self.rows, axis=2)
        return lengths.min(0), lengths.max(0)

    def to_mesh(self, workspace: Workspace, vectors: View, order: Any) -> View:
        """Return vectors or tensors per length of their boxes as those per length of the mesh's."""
        number = np.dtype(vectors.array.dtype)
        shape = (vectors.layout.channels, workspace.count, *vectors.layout.shape[2:-1])
        name = f"systems.vectors.{len(shape)}.{number.char}"
        memory = workspace.scratch(name, (math.prod(shape),), number)[: math.prod(shape)].reshape(shape)
        result = view(memory, len(shape) - 1, len(shape) - 1)
        assert result is not None  # dense
        self._turn(workspace, result, vectors, order, back=False)
        return result

    def from_mesh(self, workspace: Workspace, results: View, order: Any) -> None:
        """Turn gradients or second derivatives per length of the mesh's box to those of their boxes, in place."""
        self._turn(workspace, results, results, order, back=True)

    def _turn(self, workspace: Workspace, target: View, source: View, order: Any, *, back: bool) -> None:
        tensors = len(target.layout.shape) == 5
        if workspace.backend.name == "cpu":
            maps = self.maps[self.system if order is None else self.system[order]]
            maps = maps.swapaxes(1, 2) if back else maps
            turned = np.einsum("cnb...p,nbk->cnk...p", source.numpy(), maps)
            if tensors:
                turned = np.einsum("cnkfp,nfe->cnkep", turned, maps)
            if tensors and back:  # to rounding they are symmetric
                for b, c in itertools.combinations(range(workspace.mesh.ndim), 2):
                    turned[:, :, c, b] = turned[:, :, b, c]
            target.numpy()[...] = turned
            return

        def record(v: View) -> Record:
            (*shape, parts), (*strides, part) = v.layout.shape, v.layout.strides
            one, none = ((), ()) if tensors else ((1,), (0,))
            return Record("=11q", *shape, *one, parts, *strides, *none, part, v.layout.offset)

        facts = {"REAL_IS_DOUBLE": int(workspace.dtype.itemsize == 8), "AXES": workspace.mesh.ndim}
        run = workspace.backend.kernel(_FILE, "turn_systems", {**facts, "TENSORS": int(tensors)})
        items = target.layout.channels * workspace.count * target.layout.parts
        places = Unread(self.system) if order is None else order
        run(
            items, target.array, source.array, self.maps, self.system, places, items, self.count,
            int(order is not None), int(back), record(target), record(source),
        )  # fmt: skip


def assign_systems(
    x: Coordinates, systems: Systems | None, system: Any, boxes: Any, workspace: Workspace, *, upload: bool,
    before: Boxes | None = None,
) -> Boxes | None:  # fmt: skip
    """Assign positions to systems, if there are several; move them from their boxes to the mesh's.

    If the boxes are those of ``before``, no memory is allocated after the first call.

    Raises
    ------
    TypeError, ValueError
        If the indices are missing, superfluous, no integers, too few, or on the host and out of range. If the boxes are
        no boxes, or the mesh is not periodic.
    """
    checks.systems_given("plan", None if systems is None else systems.count, system, boxes)
    if systems is None:
        return None
    backend = workspace.backend
    x.systems, x.system = systems, indices(system, x.count, systems.count, backend, upload=upload)
    if boxes is None:
        return None
    box = systems.mesh.box
    number = np.dtype(workspace.dtype)
    rows = matrices(boxes, systems)
    if isinstance(rows, DeviceBoxes):
        to = _on_device(rows, systems, x.system, number, before)
    elif before is not None and before.maps.dtype == number and np.array_equal(before.rows, rows):
        to = replace(before, system=x.system)
    else:
        maps = np.ascontiguousarray(np.linalg.inv(rows) @ box.matrix)
        to = Boxes(backend.upload(maps.astype(number)), x.system, systems.count, rows, backend.upload(maps))
    maps = to.wide
    if backend.name == "cpu":
        table = np.stack(x.arrays, -1).astype(np.float64) - box.origin
        moved = np.matmul(table[:, None], maps[x.system])[:, 0] + box.origin
    else:
        if not backend.facts().get("HAS_FP64", 1):
            raise ValueError("boxes need double precision, which this device lacks: give fractions of a common box.")
        moved = workspace.scratch("systems.moved", (x.count, box.ndim), np.dtype(np.float64))[: x.count]
        facts = {"REAL_IS_DOUBLE": 1, "COORDINATE_IS_DOUBLE": int(x.dtype.itemsize == 8), "MOVES": 1}
        origin = np.zeros(3)
        origin[3 - box.ndim :] = box.origin
        if x.count:
            backend.kernel(_FILE, "move_systems", facts)(
                x.count, *x.arguments(), moved, maps, x.system, x.count, systems.count, x.record(),
                frame_record(box), Record("=3d", *origin),
            )  # fmt: skip
    there = of_natives([moved] * box.ndim, np.dtype(np.float64), backend, x.user)
    x.arrays, x.offsets, x.strides, x.dtype = there.arrays, there.offsets, there.strides, there.dtype
    return to


def _on_device(boxes: DeviceBoxes, systems: Systems, system: Any, number: np.dtype, before: Boxes | None) -> Boxes:
    """Return the maps of boxes on a GPU, in memory that lasts."""
    backend, box = boxes.backend, systems.mesh.box
    if before is not None and before.rows is boxes and before.maps.dtype == number:
        to = replace(before, system=system)
    else:
        shape = (systems.count, box.ndim, box.ndim)
        to = Boxes(backend.empty(shape, number), system, systems.count, boxes, backend.empty(shape, np.float64))
    missing = 3 - box.ndim
    rows = np.eye(3)
    rows[missing:, missing:] = box.matrix
    facts = {"REAL_IS_DOUBLE": 1, "COORDINATE_IS_DOUBLE": int(number.itemsize == 8), "MOVES": 1}
    backend.kernel(_FILE, "map_systems", facts)(
        systems.count, boxes.numbers, to.maps, to.wide, systems.count, missing, Record("=9d", *rows.ravel())
    )
    return to


def matrices(boxes: Any, systems: Systems) -> Any:
    """Return lattice vectors (S, d, d) in double precision, or boxes on a GPU as they are."""
    rows = boxes if isinstance(boxes, DeviceBoxes) else lattices(boxes, systems.count, systems.mesh.ndim)
    if not all(systems.mesh.periodic):
        raise ValueError("boxes are given, and an axis of the mesh is open: boxes may differ on periodic meshes only.")
    return rows


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
