# SPDX-License-Identifier: BSD-3-Clause
"""The particles of a plan whose caller keeps values in the plan's order: what methods read then lies side by side.

On GPUs the order is that of blocks, as the methods that walk have it (``orders/block_order.py``): their records are
all that is kept of a particle. On the CPU it is the order of tiles, which particles have there anyway.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from particlemesh.arrays.kinds import Kind
from particlemesh.backends.base import As, Backend, Kernel, allocate, kept
from particlemesh.orders import block_order
from particlemesh.orders.block_order import BlockOrder
from particlemesh.particles.located import Particles, Status, TiledParticles, packable, status_of
from particlemesh.particles.workspace import Sizes, Workspace

_FILE = "particles/sorted.c"
_INDEX = np.dtype(np.int32)
_AT_ONCE = 2**17  # particles that are looked at at once for those without weight, of which there are seldom any

CellsFor = Callable[[Sizes, int], tuple[int, int, int]]  # the cells of the blocks by which so many particles are sorted


def kind_on(backend: Backend) -> type[SortedParticles | SortedTiledParticles]:
    """Return what holds sorted particles on a backend."""
    return SortedTiledParticles if backend.name == "cpu" else SortedParticles


def shown(particles: SortedParticles | SortedTiledParticles, kind: Kind, backend: Backend) -> Any:
    """Return the order for a user of arrays of ``kind``, or None where the device would have to be waited for."""
    if kind.home != backend.name:
        return None
    order = particles.order
    if isinstance(order, np.ndarray):  # a slice of its own, so that the plan can still write
        order.setflags(write=False)
    if hasattr(order, "with_queue"):  # PyOpenCL's, in whose memory work on another queue may have been the last
        order = order.with_queue(backend.queue)  # type: ignore[attr-defined]  # only this backend has one
    backend.mark(order)
    return kind.wrap(order)


class _Room:
    """Memory of ``rows`` particles, which those of the next positions take over."""

    def __init__(self, backend: Backend, dtype: np.dtype, rows: int) -> None:
        self.rows = rows
        self.located = Particles(backend, dtype, rows)  # in the caller's order
        self.left = allocate(backend, (1,), np.dtype(np.uint32), "a counter")
        self.status = backend.upload(np.zeros(3, np.uint64))  # of the particles that were sorted
        self.node: Any = None
        self.fraction: Any = None
        self.kernels: dict[Any, Kernel] = {}

    @property
    def nbytes(self) -> int:
        return int(self.located.nbytes + sum(a.nbytes for a in (self.node, self.fraction) if a is not None))


class SortedParticles:
    """Particles by block: the one at place k is the ``order[k]``-th of those that were given.

    ``locate`` works in memory of its own and may find fault; ``hold`` allocates; only ``place`` touches the particles
    before, whose memory it may take.
    """

    def __init__(self, backend: Backend, dtype: np.dtype, rows: int, before: SortedParticles | None = None) -> None:
        self.count = 0
        self.dtype = dtype
        self.by_block: BlockOrder | None = None  # what block_order() gives for these cells, for nothing
        self._backend = backend
        self._room: _Room = before._room if before is not None and before.rows >= rows else _Room(backend, dtype, rows)
        # Of blocks: fixed once memory is reserved for them; then what there is memory for.
        self.cells: tuple[int, int, int] | None = None if before is None else before.cells
        self._held: tuple[int, int, int] | None = None
        self._status = self._room.located.status
        self._is_spelt_out = False
        self._kept = 0  # bytes of smaller rooms that are still in use

    @property
    def rows(self) -> int:
        """Particles that there is room for."""
        return self._room.rows

    @property
    def nbytes(self) -> int:
        return self._room.nbytes + self._kept

    @property
    def order(self) -> Any:
        """Which of the particles that were given is at each place."""
        return self._empty() if self.by_block is None else self.by_block.order.view(_INDEX)[: self.count]

    def _empty(self) -> Any:
        return self._backend.empty((0,), _INDEX)

    @property
    def node(self) -> Any:
        """First nodes of stencils."""
        self._spell_out()
        return self._room.node

    @property
    def fraction(self) -> Any:
        """Centred fractions."""
        self._spell_out()
        return self._room.fraction

    def located(self) -> tuple[bool, Any, Any]:
        """Return False, as they are not packed, ``node`` and ``fraction``."""
        return False, self.node, self.fraction

    def make_stencils(self) -> None:
        """Allocate what stencils take."""
        backend, room = self._backend, self._room
        if room.node is None:
            node = allocate(backend, (3, room.rows), _INDEX, f"the nodes of {room.rows:,} particles")
            room.fraction = allocate(backend, (3, room.rows), self.dtype, f"the fractions of {room.rows:,} particles")
            room.node = node

    def _spell_out(self) -> None:
        self.make_stencils()
        if self.by_block is not None and not self._is_spelt_out and self.count:
            found, room = self.by_block, self._room
            self._kernel("spell_out_places", packed=False)(
                self.count, found.records, found.start, room.node, room.fraction, self.count, room.rows,
                found.blocks.record,
            )  # fmt: skip
        self._is_spelt_out = True

    def spell_out_again(self) -> None:
        """Trust no ``node`` and ``fraction`` that were worked out: what they are of may have changed."""
        self._is_spelt_out = False

    def _kernel(self, name: str, *, packed: bool) -> Any:
        defines = {"REAL_IS_DOUBLE": int(self.dtype.itemsize == 8), "PACKED": int(packed)}
        return kept(self._backend, self._room.kernels).kernel(_FILE, name, defines)

    def reserve(self, workspace: Workspace, cells_for: CellsFor, *, stencils: bool) -> None:
        """Allocate for all that methods will ask for; the cells of blocks stay what they are now."""
        self._room.located.make_room(packed=packable(workspace.axes, self.dtype))
        if stencils:
            self.make_stencils()
        self.cells = None
        self.cells = self._hold(workspace, cells_for, max(self.rows, 1))

    def take_over(self, backend: Backend, other: SortedParticles) -> None:
        """Have the particles of ``other``, where they are: they move with the next positions."""
        self.count, self.by_block, self.cells = other.count, other.by_block, other.cells
        self._status, self._kept = other._status, other._kept
        if (found := other.by_block) is not None:
            self._kept += int(found.order.nbytes + found.records.nbytes + found.start.nbytes)

    def locate(self, *arguments: Any, **options: Any) -> None:
        """Fill in the particles in the caller's order, as :meth:`Particles.locate`."""
        self._room.located.locate(*arguments, **{**options, "packed": True})
        self.count = self._room.located.count

    def hold(self, workspace: Workspace, cells_for: CellsFor) -> None:
        """Allocate what sorting takes."""
        self._held = self._hold(workspace, cells_for, self.count)

    def _hold(self, workspace: Workspace, cells_for: CellsFor, count: int) -> tuple[int, int, int]:
        cells = self.cells or cells_for(workspace, count)
        block_order.reserve_to_sort(workspace, cells, self.rows, stable=workspace.deterministic)
        return cells

    def place(self, workspace: Workspace) -> None:
        """Sort the particles that were located."""
        room, backend, stable = self._room, self._backend, workspace.deterministic
        assert self._held is not None
        located = workspace.over(room.located, self.count)
        found = block_order.sort(located, self._held, stable=stable)
        if self.count:
            packed, node, _ = room.located.located()
            backend.clear(room.left)
            self._kernel("come_last", packed=packed)(
                min(self.count, _AT_ONCE), found.start, As(node, np.int32), found.order, room.located.status,
                room.status, room.left, self.count, room.rows, found.blocks.total, int(stable),
            )  # fmt: skip
        else:
            backend.clear(room.status)
        self.by_block, self._status = found, room.status

    def read_status(self, backend: Backend) -> Status:
        """Read the status record; waits for the device."""
        return status_of(backend, self._status, self.count)

    def __str__(self) -> str:
        cells = (1, 1, 1) if self.by_block is None else self.by_block.blocks.cells
        return "by blocks of {} x {} x {} cells".format(*cells)


class SortedTiledParticles(TiledParticles):
    """Particles by tile, for whom the caller's order is the same; ``order`` says which of those given each one is."""

    def __init__(
        self, backend: Backend, dtype: np.dtype, rows: int, before: SortedTiledParticles | None = None
    ) -> None:
        super().__init__(backend, dtype, rows, before)
        self._places: np.ndarray
        if before is not None and self._order is before._order:
            self._places = before._places
        else:
            self._places = allocate(backend, (self.rows,), self._order.dtype, f"the places of {self.rows:,} particles")
            self._places[:] = np.arange(self.rows, dtype=self._order.dtype)

    @property
    def nbytes(self) -> int:
        return super().nbytes + int(self._places.nbytes)

    @property
    def order(self) -> np.ndarray:
        """Which of the particles that were given is at each place."""
        return self._order[: self.count]

    def hold(self, workspace: Workspace, cells_for: CellsFor) -> None:
        """Nothing is left to allocate."""

    def reserve(self, workspace: Workspace, cells_for: CellsFor, *, stencils: bool) -> None:
        """Nothing is left to allocate."""

    def take_over(self, backend: Backend, other: TiledParticles) -> None:
        assert isinstance(other, SortedTiledParticles)
        super().take_over(backend, other)
        backend.copy(self._order[: self.count], other.order)
        self._at_their_places()

    def place(self, workspace: Workspace) -> None:
        super().place(workspace)
        self._at_their_places()

    def _at_their_places(self) -> None:
        if self._ordering is not None:
            self._ordering = replace(self._ordering, order=self._places[: self.count])

    def __str__(self) -> str:
        bits = (0, 0, 0) if self._ordering is None else self._ordering.tiling.bits
        return "by tiles of {} x {} x {} nodes".format(*(1 << b for b in bits))
