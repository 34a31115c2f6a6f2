# SPDX-License-Identifier: BSD-3-Clause
"""The particles of a plan with ``order="sorted"``.

On GPUs the order is that of blocks (``orders/block_order.py``), which the walking methods read: only their records are
stored. On the CPU it is the order of tiles, as for all particles there.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from particlemesh.arrays.kinds import Kind, allocate
from particlemesh.backends.base import As, Backend, Kernel, kept
from particlemesh.orders import block_order
from particlemesh.orders.block_order import BlockOrder, Cells, Kinds, kinds_of
from particlemesh.orders.cpu.particles import SortedHostParticles
from particlemesh.particles.located import DeviceParticles, Status, packable, post_status
from particlemesh.particles.workspace import Sizes, Workspace

_FILE = "orders/sorted_particles.c"
_INDEX = np.dtype(np.int32)
_AT_ONCE = 2**17  # work-items that search for particles with zero weight, which are rare

CellsFor = Callable[[Sizes, int], Cells]  # cells of the blocks for a number of particles


def kind_on(backend: Backend) -> type[SortedDeviceParticles | SortedHostParticles]:
    """Return the class of sorted particles on a backend."""
    return SortedHostParticles if backend.name == "cpu" else SortedDeviceParticles


def shown(particles: SortedDeviceParticles | SortedHostParticles, kind: Kind, backend: Backend) -> Any:
    """Return the order as an array of ``kind``, or None if a copy must wait for the device."""
    if kind.home != backend.name:
        return None
    order = particles.order
    if isinstance(order, np.ndarray):  # a new slice: the plan can still write
        order.setflags(write=False)
    if hasattr(order, "with_queue"):  # PyOpenCL: another queue may have written last
        order = order.with_queue(backend.queue)  # type: ignore[attr-defined]  # only this backend has one
    backend.mark(order)
    return kind.wrap(order)


class _Room:
    """Memory for ``rows`` particles, which later positions reuse."""

    def __init__(self, backend: Backend, dtype: np.dtype, rows: int) -> None:
        self.rows = rows
        self.located = DeviceParticles(backend, dtype, rows)  # in the caller's order
        self.left = allocate(backend, (1,), np.dtype(np.uint32), "a counter")
        self.status = backend.upload(np.zeros(3, np.uint64))  # of the particles that were sorted
        self.node: Any = None
        self.fraction: Any = None
        self.kernels: dict[Any, Kernel] = {}

    @property
    def nbytes(self) -> int:
        return int(self.located.nbytes + sum(a.nbytes for a in (self.node, self.fraction) if a is not None))


class SortedDeviceParticles:
    """Particles by block on a GPU: the particle at place k has the caller's index ``order[k]``.

    ``locate`` writes to separate memory and may raise; ``hold`` allocates. Only ``place`` overwrites the particles of
    the previous configuration, whose memory it may reuse.
    """

    def __init__(
        self, backend: Backend, dtype: np.dtype, rows: int, before: SortedDeviceParticles | None = None
    ) -> None:
        self.count = 0
        self.dtype = dtype
        self.by_block: BlockOrder | None = None  # block_order() returns it without ordering again
        self._backend = backend
        self._room: _Room = before._room if before is not None and before.rows >= rows else _Room(backend, dtype, rows)
        # Blocks with reserved memory, and the cells of the blocks of these particles.
        self.kinds: Kinds | None = None if before is None else before.kinds
        self._cells: Cells | None = None
        self._status = self._room.located.status
        self._is_unpacked = False
        self._kept = 0  # bytes of smaller rooms still in use

    @property
    def rows(self) -> int:
        """Number of particles that fit."""
        return self._room.rows

    @property
    def nbytes(self) -> int:
        return self._room.nbytes + self._kept

    @property
    def order(self) -> Any:
        """The caller's index of the particle at each place."""
        return self._empty() if self.by_block is None else self.by_block.order.view(_INDEX)[: self.count]

    def _empty(self) -> Any:
        return self._backend.empty((0,), _INDEX)

    @property
    def node(self) -> Any:
        """First nodes of stencils."""
        self._unpack()
        return self._room.node

    @property
    def fraction(self) -> Any:
        """Centred fractions."""
        self._unpack()
        return self._room.fraction

    def located(self) -> tuple[bool, Any, Any]:
        """Return False (not packed), ``node`` and ``fraction``."""
        return False, self.node, self.fraction

    def make_stencils(self) -> None:
        """Allocate memory for stencils."""
        backend, room = self._backend, self._room
        if room.node is None:
            node = allocate(backend, (3, room.rows), _INDEX, f"the nodes of {room.rows:,} particles")
            room.fraction = allocate(backend, (3, room.rows), self.dtype, f"the fractions of {room.rows:,} particles")
            room.node = node

    def _unpack(self) -> None:
        self.make_stencils()
        if self.by_block is not None and not self._is_unpacked and self.count:
            order, room = self.by_block, self._room
            self._kernel("unpack_places", packed=False)(
                self.count, order.records, order.start, room.node, room.fraction, self.count, room.rows,
                order.blocks.record,
            )  # fmt: skip
        self._is_unpacked = True

    def unpack_again(self) -> None:
        """Unpack ``node`` and ``fraction`` again when they are next read, as the records may have changed."""
        self._is_unpacked = False

    def _kernel(self, name: str, *, packed: bool) -> Any:
        defines = {"REAL_IS_DOUBLE": int(self.dtype.itemsize == 8), "PACKED": int(packed)}
        return kept(self._backend, self._room.kernels).kernel(_FILE, name, defines)

    def reserve(self, workspace: Workspace, cells_for: CellsFor, *, stencils: bool) -> None:
        """Allocate the memory of sorting and of methods for up to ``rows`` particles."""
        self._room.located.make_room(packed=packable(workspace.axes, self.dtype))
        if stencils:
            self.make_stencils()
        self.kinds = kinds_of(functools.partial(cells_for, workspace), max(self.rows, 1))
        block_order.reserve_to_sort(workspace, self.kinds, stable=workspace.deterministic)

    def take_over(self, backend: Backend, other: SortedDeviceParticles) -> None:
        """Share the particles of ``other`` in its memory, until the next positions are set."""
        self.count, self.by_block, self.kinds = other.count, other.by_block, other.kinds
        self._status, self._kept = other._status, other._kept
        if (order := other.by_block) is not None:
            self._kept += int(order.order.nbytes + order.records.nbytes + order.start.nbytes)

    def locate(self, *arguments: Any, **options: Any) -> None:
        """Locate particles in the caller's order, as :meth:`DeviceParticles.locate`."""
        self._room.located.locate(*arguments, **{**options, "packed": True})
        self.count = self._room.located.count

    def choose_blocks(self, workspace: Workspace, cells_for: CellsFor) -> None:
        """Choose blocks for these particles, and allocate the memory to sort by them."""
        self._cells = cells_for(workspace, self.count)
        block_order.reserve_to_sort(workspace, {self._cells: self.count}, stable=workspace.deterministic)

    def place(self, workspace: Workspace) -> None:
        """Sort the located particles."""
        room, backend, stable = self._room, self._backend, workspace.deterministic
        assert self._cells is not None
        located = workspace.over(room.located, self.count)
        order = block_order.sort(located, self._cells, stable=stable)
        if self.count:
            packed, node, _ = room.located.located()
            backend.clear(room.left)
            self._kernel("come_last", packed=packed)(
                min(self.count, _AT_ONCE), order.start, As(node, np.int32), order.order, room.located.status,
                room.status, room.left, self.count, room.rows, order.blocks.total, int(stable),
            )  # fmt: skip
        else:
            backend.clear(room.status)
        self.by_block, self._status = order, room.status

    def post_status(self, backend: Backend) -> Callable[[], Status]:
        """Send the status record to the host, and return what reads it, which waits for the device."""
        return post_status(backend, self._status, self.count)

    def __str__(self) -> str:
        cells = (1, 1, 1) if self.by_block is None else self.by_block.blocks.cells
        return "by blocks of {} x {} x {} cells".format(*cells)
