# SPDX-License-Identifier: BSD-3-Clause
"""The particles of a plan in domain copies, for groups that take blocks of cells: made once per configuration.

Each cell has one place in each copy, and its i-th particle lies in copy i. Blocks are stored one after the other,
and so are the cells of a block, the last axis fastest. Each axis has a segment of its own, so that work-items of
neighbouring cells read neighbouring reals. Places without a particle hold dummies.

Only the device knows how many particles the fullest cell holds, and the host does not wait for it. So there are as
many copies as a uniform cloud needs. Further particles of a cell are read through node order: slower, same result.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from particlemesh.backends.base import Record
from particlemesh.orders import node_order
from particlemesh.orders.node_order import NodeOrder
from particlemesh.particles.workspace import Sizes, Workspace

# Of the paper: 32 banks of local memory along the fastest axis, 512 cells.
SHAPES = {1: (512,), 2: (16, 32), 3: (4, 4, 32)}
_MOST_PLACES = 16, 8  # per particle, and more per cell: on a small mesh there are no copies for a whole crowd


@dataclass(frozen=True)
class Blocks:
    """How the cells of a mesh are cut into blocks.

    Attributes
    ----------
    cells : (3,)
        Cells of a block along each axis; no more than the mesh has.
    blocks : (3,)
        Blocks along each axis; the last ones may stand out over the mesh.
    extended : (3,)
        Nodes that particles in a block reach: its cells and the support's rest.
    room : (3,)
        Nodes of an extended block in memory, beyond ``extended`` where a block's cells fill no whole groups.
    low : (3,)
        First node of the first block.
    chunks : int
        How many cells of a block each work-item owns.
    copies : int
        Domain copies in memory.
    group : int
        Work-items of a group.
    """

    cells: tuple[int, ...]
    blocks: tuple[int, ...]
    extended: tuple[int, ...]
    room: tuple[int, ...]
    low: tuple[int, ...]
    chunks: int
    copies: int
    group: int

    @property
    def count(self) -> int:
        return math.prod(self.blocks)

    @property
    def places(self) -> int:
        """Places of one copy."""
        return self.count * self.chunks * self.group

    @property
    def nodes(self) -> int:
        """Nodes of the extended mesh in memory."""
        return self.count * math.prod(self.room)

    @property
    def record(self) -> Record:
        return Record("=11i", *self.cells, *self.blocks, *self.room, self.chunks, self.copies)


def fullest(mean: float, cells: int) -> int:
    """Return how many particles fewer than one of so many cells of a uniform cloud exceeds (Chernoff's bound)."""
    if mean == 0:
        return 1
    rare = math.log(max(cells, 2))
    low, high = mean, mean + rare + math.sqrt(2 * rare * mean) + 1  # Bernstein's bound is weaker
    for _ in range(50):
        middle = (low + high) / 2
        if middle * math.log(middle / mean) - middle + mean < rare:
            low = middle
        else:
            high = middle
    return math.ceil(high)


def blocks_of(sizes: Sizes, count: int, shape: tuple[int, ...] | None, copies: int | None) -> Blocks:
    """Return the blocks of a mesh, and how many copies ``count`` particles get."""
    axes, group = sizes.axes, sizes.backend.group_size
    shape = (1,) * (3 - sizes.mesh.ndim) + (shape or SHAPES[sizes.mesh.ndim])
    cells = tuple(min(n, axis.extent) for n, axis in zip(shape, axes, strict=True))
    blocks = tuple(-(-axis.extent // c) for c, axis in zip(cells, axes, strict=True))
    chunks = -(-math.prod(cells) // group)
    rows = -(-chunks * group // (cells[1] * cells[2]))
    extended = tuple(c + axis.support - 1 for c, axis in zip(cells, axes, strict=True))
    room = (rows + axes[0].support - 1, *extended[1:])
    if copies is None:
        everywhere, places = math.prod(axis.extent for axis in axes), math.prod(blocks) * chunks * group
        a_particle, a_cell = _MOST_PLACES
        copies = min(fullest(count / everywhere, everywhere), -(-a_particle * count // places) + a_cell)
    return Blocks(cells, blocks, extended, room, tuple(axis.low for axis in axes), chunks, copies, group)


@dataclass(frozen=True)
class Copies:
    """Particles in domain copies.

    Attributes
    ----------
    blocks : Blocks
    order : NodeOrder
        Where the particles of each cell are in the caller's order.
    fullest : (blocks, chunks) uint32
        Particles of the fullest cell among the cells that a group takes at a time; the largest is the paper's p_max.
    position : (axes, copies, places) real
        Fractions; zero for dummies.
    """

    blocks: Blocks
    order: NodeOrder
    fullest: Any
    position: Any


def memory_bytes(sizes: Sizes, blocks: Blocks) -> int:
    """Return the bytes that the order and the positions take."""
    positions = sizes.mesh.ndim * blocks.copies * blocks.places * sizes.dtype.itemsize
    return node_order.order_bytes(sizes) + positions + 4 * blocks.count * blocks.chunks


def reserve(workspace: Workspace, blocks: Blocks, *, stable: bool) -> None:
    """Allocate for ``blocks``, so that placing particles will not."""
    node_order.reserve(workspace, stable=stable)
    _memory(workspace, blocks)


def domain_copies(workspace: Workspace, blocks: Blocks, *, stable: bool) -> Copies:
    """Return the particles of ``workspace`` in domain copies; if not ``stable``, which copy is whose may change."""
    copies: Copies | None = workspace.orders.get("domain copies")
    if copies is None:
        order = node_order.node_order(workspace, stable=stable)
        fullest, position = _memory(workspace, blocks)
        place = workspace.backend.kernel(
            "orders/domain_copies.c", "copies_place", {"REAL_IS_DOUBLE": int(workspace.dtype.itemsize == 8)}
        )
        place(
            blocks.places, order.start, order.fraction, fullest, position, order.rows, workspace.mesh.ndim,
            order.lattice, blocks.record,
        )  # fmt: skip
        copies = workspace.orders["domain copies"] = Copies(blocks, order, fullest, position)
    return copies


def _memory(workspace: Workspace, blocks: Blocks) -> tuple[Any, Any]:
    return (
        workspace.scratch("copies.fullest", (blocks.count * blocks.chunks,), np.dtype(np.uint32)),
        workspace.scratch("copies.position", (workspace.mesh.ndim * blocks.copies * blocks.places,), workspace.dtype),
    )
