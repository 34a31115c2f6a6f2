# SPDX-License-Identifier: BSD-3-Clause
"""Methods over domain copies: the particles of a plan in copies, for groups that take blocks of cells.

Each cell has one place in each copy, and its i-th particle lies in copy i. Blocks are stored one after the other,
and so are the cells of a block, the last axis fastest. Each axis has a segment of its own, so that work-items of
neighbouring cells read neighbouring reals. Places without a particle hold dummies.

Only the device knows how many particles the fullest cell holds, and the host does not wait for it. So there are as
many copies as a uniform cloud needs. Further particles of a cell are read through node order: slower, same result.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from particlemesh.backends.base import Record
from particlemesh.methods.contract import Option, Problem
from particlemesh.methods.launches import LANES, MOST, Group, KernelMethod, kernel
from particlemesh.orders import node_order
from particlemesh.orders.node_order import NodeOrder
from particlemesh.particles.workspace import Sizes, Workspace

# Local memory that every GPU gives a group by default.
_MOST_LOCAL = 48 * 1024
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


class ByCopy(KernelMethod):
    """A method over domain copies, block by block of cells."""

    options: ClassVar = {
        "block": Option(None, tuple, "cells of a block along each axis; by default 512, 16 x 32, 4 x 4 x 32"),
        "copies": Option(
            None, range(1, 2**20), "domain copies in memory; by default what the fullest cell of a uniform cloud needs"
        ),
        "ranks": Option(
            "stable", ("stable", "atomic"), "which particle of a cell goes to which copy: by index, or as atomics count"
        ),
    }
    cite = "buyukkececi2013"
    deterministic = True

    @classmethod
    def blocks(cls, sizes: Sizes, count: int) -> Blocks:
        """Return how the mesh is cut into blocks, and how many copies ``count`` particles get."""
        return blocks_of(sizes, count, cls.option(sizes, "block"), cls.option(sizes, "copies"))

    @classmethod
    def declines(cls, problem: Problem) -> str | None:
        shape = cls.option(problem, "block")
        if shape is not None and len(shape) != problem.mesh.ndim:
            return f"block {shape} for a {problem.mesh.ndim}-D mesh: it needs one length per axis"
        if math.prod(cls.blocks(problem, problem.count).room) >= 2**31:
            return "a block that reaches 2**31 nodes or more"
        return node_order.declines(problem)

    @classmethod
    def scratch_bytes(cls, problem: Problem) -> int:
        """Return the bytes for values; vectors and gradients take a segment of the copies for each axis more."""
        blocks, reals = cls.blocks(problem, problem.count), min(problem.components, MOST)
        copies = (problem.mesh.ndim + reals) * blocks.copies * blocks.places + reals * blocks.nodes
        return node_order.order_bytes(problem) + copies * problem.dtype.itemsize + 4 * blocks.count * blocks.chunks

    @classmethod
    def steps(cls, problem: Problem) -> float:
        """Return the predicted additions to nodes or from them, dummies included.

        With fewer than 512 blocks part of a large GPU is idle, which counts as more additions.
        """
        blocks = cls.blocks(problem, problem.count)
        mean = problem.count / node_order.cells(problem)
        taken = blocks.places * fullest(mean, blocks.group)
        idle = max(1.0, 512 / math.prod(blocks.blocks))
        return taken * problem.stencil * problem.components * idle

    @classmethod
    def preparation(cls, problem: Problem) -> float:
        # Sorting, and positions to their places: H200 (benchmarks/results/guo-long_totals-nvidia-h200.csv).
        return 3e-5 + problem.count * 2.3e-10 + problem.nodes * 1.7e-11

    def segments(self, workspace: Workspace) -> int:
        """Return the most segments of the copies that a call takes."""
        raise NotImplementedError

    def reserve(self, workspace: Workspace) -> None:
        blocks = self.blocks(workspace, workspace.capacity)
        node_order.reserve(workspace, stable=self._stable(workspace))
        self._memory(workspace, blocks)
        self.carried(workspace, blocks, self.segments(workspace))
        self.extended(workspace, blocks, min(workspace.components, MOST))

    def carried(self, workspace: Workspace, blocks: Blocks, segments: int) -> Any:
        """Return memory for the values of particles, in copies."""
        return workspace.scratch("copies.carried", (segments * blocks.copies * blocks.places,), workspace.dtype)

    def extended(self, workspace: Workspace, blocks: Blocks, reals: int) -> Any:
        """Return memory for the extended mesh."""
        return workspace.scratch("copies.extended", (reals * blocks.nodes,), workspace.dtype)

    def prepare(self, workspace: Workspace) -> None:
        """Put particles into domain copies."""
        if workspace.count:
            self.copies(workspace)

    def copies(self, workspace: Workspace) -> Copies:
        """Return the particles of ``workspace`` in domain copies, placed now if they are not yet."""
        copies: Copies | None = workspace.orders.get("domain copies")
        if copies is None:
            blocks = self.blocks(workspace, workspace.count)
            order = node_order.node_order(workspace, stable=self._stable(workspace))
            fullest, position = self._memory(workspace, blocks)
            facts = {"REAL_IS_DOUBLE": int(workspace.dtype.itemsize == 8)}
            workspace.backend.kernel("orders/domain_copies.c", "copies_place", facts)(
                blocks.places, order.start, order.fraction, fullest, position, order.rows, workspace.mesh.ndim,
                order.lattice, blocks.record,
            )  # fmt: skip
            copies = workspace.orders["domain copies"] = Copies(blocks, order, fullest, position)
        return copies

    @staticmethod
    def _memory(workspace: Workspace, blocks: Blocks) -> tuple[Any, Any]:
        fullest = workspace.scratch("copies.fullest", (blocks.count * blocks.chunks,), np.dtype(np.uint32))
        places = workspace.mesh.ndim * blocks.copies * blocks.places
        return fullest, workspace.scratch("copies.position", (places,), workspace.dtype)

    def _stable(self, workspace: Workspace) -> bool:
        return bool(self.option(workspace, "ranks") == "stable")

    def kernels(
        self, workspace: Workspace, file: str, names: tuple[str, ...], group: Group, **facts: int
    ) -> tuple[Any, ...]:
        """Return the reals of a group of channels, the bytes of local memory they take, and the kernels."""
        local = group.reals * math.prod(self.blocks(workspace, 0).room) * workspace.dtype.itemsize
        within = local <= _MOST_LOCAL
        runs = (kernel(workspace, file, n, group, 1, WITHIN=int(within), **facts, **LANES) for n in names)
        return group.reals, local if within else 0, *runs
