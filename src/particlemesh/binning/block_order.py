# SPDX-License-Identifier: BSD-3-Clause
"""The particles of a plan by blocks of cells, as records, on CUDA and OpenCL: made once a configuration.

All stencils that begin in a block reach into one window of the mesh (``binning/blocks.h``). A record has what a kernel
needs of a particle in 16 bytes (float64: 32), so that particles are read in one go, one behind the other.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from particlemesh.backends.base import Record
from particlemesh.binning import radix
from particlemesh.binning.scan import Allocate, allocate_counts, scan
from particlemesh.stencil import Axis, axes_of

if TYPE_CHECKING:
    from particlemesh.method import Problem
    from particlemesh.plan import Plan

_FILE = "binning/block_order.c"
MOST_CELLS = (8, 8, 16)  # of a block along each axis: what a record has bits for
MOST_BLOCKS_ALONG_X = 2**14  # the same
MOST_BLOCKS = 2**32 - 2**8
_U32 = np.dtype(np.uint32)


@dataclass(frozen=True)
class Blocks:
    """How the nodes that stencils may begin at are cut into blocks; three axes, missing ones first.

    Attributes
    ----------
    cells : (3,) ints
        Nodes of a block.
    base : (3,) ints
        The first node of the first block.
    counts : (3,) ints
        Blocks along each axis.
    """

    cells: tuple[int, int, int]
    base: tuple[int, int, int]
    counts: tuple[int, int, int]

    @property
    def total(self) -> int:
        """Blocks in all."""
        return math.prod(self.counts)

    @functools.cached_property
    def record(self) -> Record:
        """``Blocks`` of binning/blocks.h."""
        return Record("=9i", *self.base, *self.cells, *self.counts)


@dataclass(frozen=True)
class BlockOrder:
    """Particles by block, block (bx, by, bz) being number ``(by * counts[2] + bz) * counts[0] + bx``.

    Attributes
    ----------
    records : (words * N,) uint32
        The particles with weight, as binning/blocks.h has them.
    start : (blocks + 1,) uint32
        Where the records of each block begin; the last is how many particles have weight.
    blocks : Blocks
    """

    records: Any
    start: Any
    blocks: Blocks


def blocks_of(axes: tuple[Axis, Axis, Axis], cells: tuple[int, int, int]) -> Blocks:
    """Return the blocks of ``cells`` nodes that hold all nodes at which stencils may begin.

    Along z they begin at an even node, so that pairs of nodes are aligned.
    """
    base = (axes[0].low, axes[1].low, axes[2].low - axes[2].low % 2)
    counts = tuple(-(-(a.low + a.extent - b) // n) for a, b, n in zip(axes, base, cells, strict=True))
    return Blocks(cells, base, counts)  # type: ignore[arg-type]  # three axes, three counts


def declines(
    axes: tuple[Axis, Axis, Axis], cells: tuple[int, int, int], count: int, *, stable: bool = False
) -> str | None:
    """Return why ``count`` particles cannot be ordered like this, or None."""
    if stable and count >= 2**31:
        return "2**31 particles or more in a stable order"
    if count >= 2**32:
        return "2**32 particles or more"
    if any(n < 1 or n > most for n, most in zip(cells, MOST_CELLS, strict=True)):
        return f"blocks of {cells[0]} x {cells[1]} x {cells[2]} cells"
    blocks = blocks_of(axes, cells)
    if blocks.counts[0] > MOST_BLOCKS_ALONG_X:
        return f"more than {MOST_BLOCKS_ALONG_X} blocks along x"
    return "nearly 2**32 blocks or more" if blocks.total > MOST_BLOCKS else None


def order_bytes(problem: Problem, cells: tuple[int, int, int], *, stable: bool = False) -> int:
    """Return the bytes that the order takes."""
    each = _record_bytes(problem.dtype) + (4 + 4 + 16 if stable else 4)  # ranks; keys, order and pairs of the sort
    return problem.count * each + 8 * (blocks_of(axes_of(problem.mesh, problem.window), cells).total + 1)


def seconds(problem: Problem, cells: tuple[int, int, int], *, stable: bool = False) -> float:
    """Return the predicted seconds of ordering."""
    total = blocks_of(axes_of(problem.mesh, problem.window), cells).total
    # H200, prototypes: one atomic, one record to a random place (../shared/reference/gpu_spreading.md)
    return 1.5e-5 + problem.count * (1.2e-10 if stable else 6e-11) + total * 4e-12


def block_order(plan: Plan, cells: tuple[int, int, int], *, stable: bool = False) -> BlockOrder:
    """Return the particles of ``plan`` by block; within a block, if ``stable``, in the caller's order."""
    key = ("blocks", cells, stable)
    found = plan.shared.get(key)
    if found is None:
        found = plan.shared[key] = _order(plan, cells, stable)
    return found


def reserve(plan: Plan, cells: tuple[int, int, int], *, stable: bool = False) -> None:
    """Allocate for the plan's capacity, so that ordering will not."""
    _memory(plan, blocks_of(plan.axes, cells), max(plan.capacity, 1), stable)


def _record_bytes(dtype: np.dtype) -> int:
    return 4 * int(dtype.itemsize)


@dataclass(frozen=True)
class _Memory:
    counts: Any
    start: Any
    records: Any
    ranks: Any  # of an order that is not stable
    keys: Any  # of a stable one
    order: Any
    allocate: Allocate


def _memory(plan: Plan, blocks: Blocks, count: int, stable: bool) -> _Memory:
    name = "blocks.{}x{}x{}".format(*blocks.cells) + (".stable" if stable else "")

    def allocate(what: str, shape: tuple[int, ...], dtype: Any) -> Any:
        return plan.scratch(f"{name}.{what}", shape, dtype)

    counts = allocate_counts(plan.backend, blocks.total, _U32, allocate)
    start = allocate("start", (blocks.total + 1,), _U32)
    records = allocate("records", (count * _record_bytes(plan.dtype) // 4,), _U32)
    if not stable:
        return _Memory(counts, start, records, allocate("ranks", (count,), _U32), None, None, allocate)
    keys, order = allocate("keys", (count,), _U32), allocate("order", (count,), _U32)
    radix.reserve(plan.backend, count, _bits(blocks), allocate, order)
    return _Memory(counts, start, records, None, keys, order, allocate)


def _bits(blocks: Blocks) -> int:
    return max(1, blocks.total.bit_length())


def _order(plan: Plan, cells: tuple[int, int, int], stable: bool) -> BlockOrder:
    backend, count, particles = plan.backend, plan.count, plan.particles
    blocks = blocks_of(plan.axes, cells)
    memory = _memory(plan, blocks, max(count, 1), stable)
    defines = {
        "REAL_IS_DOUBLE": int(plan.dtype.itemsize == 8), "COUNT_IS_64": 0, "KEY_IS_64": 0,
        "CELLS_X": cells[0], "CELLS_Y": cells[1], "CELLS_Z": cells[2],
    }  # fmt: skip
    backend.clear(memory.counts)
    if count and not stable:
        run = backend.kernel(_FILE, "count_blocks", defines)
        run(count, particles.node, memory.counts, memory.ranks, count, particles.rows, blocks.record)
    elif count:
        run = backend.kernel(_FILE, "block_keys", defines)
        run(count, particles.node, memory.counts, memory.keys, count, particles.rows, blocks.total, blocks.record)
    scan(backend, memory.counts, memory.start, blocks.total)
    if count and not stable:
        run = backend.kernel(_FILE, "place_in_blocks", defines)
        run(
            count, particles.node, particles.fraction, memory.start, memory.ranks, memory.records, count,
            particles.rows, blocks.record,
        )  # fmt: skip
    elif count:
        radix.sort(backend, memory.keys, count, _bits(blocks), memory.allocate, into=memory.order)
        run = backend.kernel(_FILE, "records_in_order", defines)
        run(
            count, particles.node, particles.fraction, memory.start, memory.order, memory.records, particles.rows,
            blocks.total, blocks.record,
        )  # fmt: skip
    return BlockOrder(memory.records, memory.start, blocks)
