# SPDX-License-Identifier: BSD-3-Clause
"""The particles of a plan by blocks of cells, as records, on CUDA and OpenCL: made once per configuration.

All stencils that begin in a block reach into one patch of the mesh (``orders/blocks.h``). A record has what a kernel
needs of a particle in 16 bytes (float64: 32). So a kernel reads particles in one go, one behind the other.

Particles are counted by block, the counts are summed, and every particle goes to its place. The counting may be done
already: a plan that has had an order is likely to need it again, and ``set_positions`` reads every particle.
"""

from __future__ import annotations

import bisect
import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from particlemesh.backends.base import UNKNOWN, As, Record, Unread, kept
from particlemesh.particles.stencil import Axis, base_of
from particlemesh.particles.workspace import Sizes, Workspace
from particlemesh.sorting import radix
from particlemesh.sorting.scan import Allocate, allocate_counts, scan

_FILE = "orders/block_order.c"
# From so many particles on they are dealt to buckets first: where records are small, or particles are sorted as well,
# places at random come to cost more than two rounds in order. By the bytes of a real, and whether particles are sorted
# (H200; benchmarks/results/limit-thresholds-nvidia-h200.csv). Clusters gain from it earlier, and doubles in them.
STAGED_FROM = {(4, False): 1_250_000, (8, False): math.inf, (4, True): 1_000_000, (8, True): 2_500_000}
SORTED_UP_TO = 0.75  # additions a particle: then neighbours go to neighbouring places, and straight
MOST_BUCKETS = 2048  # and blocks of a bucket; as in block_count.h
WORK_COUNTS = 2 * MOST_BUCKETS + 8  # words before the counts, as in block_count.h
EACH = {4: 12, 8: 6}  # particles of a work-item in a tile, by the size of a real: six groups on a multiprocessor
MOST_CELLS = (8, 8, 16)  # of a block along each axis: what a record has bits for
MOST_BLOCKS_ALONG_X = 2**14  # in a line: the same
MOST_BLOCKS = 2**32 - 2**8
MOST_LINES = 2**31 - 2**6  # of blocks along x: kernels count them in 32 bits
_U32 = np.dtype(np.uint32)


Cells = tuple[int, int, int]  # of a block, along three axes
Kinds = dict[Cells, int]  # the blocks that particles may be taken by, and the most particles for each


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
    wide : (3,) ints
        How many of these are wide. The blocks after them are narrow, so that the last one is not the only thin one.
    narrow : (3,) ints
        Nodes of a narrow block.
    last : (3,) ints
        Those of the last block at which stencils may begin.
    along : int
        The axis along which the blocks of a line are neighbours in the order.
    """

    cells: tuple[int, int, int]
    base: tuple[int, int, int]
    counts: tuple[int, int, int]
    wide: tuple[int, int, int]
    narrow: tuple[int, int, int]
    last: tuple[int, int, int]
    along: int = 0

    @property
    def lines(self) -> int:
        """Lines of blocks."""
        return self.total // self.counts[self.along]

    @property
    def total(self) -> int:
        """Blocks in all."""
        return math.prod(self.counts)

    @functools.cached_property
    def record(self) -> Record:
        """``Blocks`` of orders/blocks.h."""
        return Record("=15i", *self.base, *self.cells, *self.counts, *self.wide, *self.narrow)


@dataclass(frozen=True)
class BlockOrder:
    """Particles by block. With lines along x, (bx, by, bz) is number ``(by * counts[2] + bz) * counts[0] + bx``.

    Attributes
    ----------
    records : (words * N,) uint32
        The particles with weight, as orders/blocks.h has them.
    start : (blocks + 1,) uint32
        Where the records of each block begin; the last is how many particles have weight.
    blocks : Blocks
    order : (N,) uint32, optional
        The particle at each place. In a stable order those without weight come last, else they are not in it.
    """

    records: Any
    start: Any
    blocks: Blocks
    order: Any = None


@functools.lru_cache(maxsize=64)
def blocks_of(axes: tuple[Axis, Axis, Axis], cells: tuple[int, int, int]) -> Blocks:
    """Return the blocks of ``cells`` nodes that hold all nodes at which stencils may begin."""
    base, narrow = base_of(axes), narrow_of(cells)
    spans = (axis.low + axis.extent - begin for axis, begin in zip(axes, base, strict=True))
    counts, wide, last = zip(*map(_cut, spans, cells, narrow), strict=True)
    # Lines go where blocks are shortest: so their particles are close. Blocks of walks are shortest along x.
    along = cells.index(min(cells)) if axes[0].extent > 1 else 0
    return Blocks(cells, base, counts, wide, narrow, last, along)


def _cut(span: int, cells: int, narrow: int) -> tuple[int, int, int]:
    """Return how many blocks hold a span of nodes, how many of them are wide, and the nodes of the last one."""
    count = -(-span // cells)
    wide = count - min(count, (count * cells - span) // (cells - narrow)) if narrow < cells else count
    return count, wide, span - min(wide, count - 1) * cells - max(0, count - 1 - wide) * narrow


def narrow_of(cells: tuple[int, int, int]) -> tuple[int, int, int]:
    """Return the cells of a narrow block: along x, where walks go, all are alike.

    Along z blocks that begin at even nodes go on to do so, for walks that move pairs of nodes.
    """
    x, y, z = cells
    return x, max(1, y - 1), z - 2 if z >= 8 and z % 2 == 0 else max(1, z - 1)


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
    if blocks.counts[blocks.along] > MOST_BLOCKS_ALONG_X:
        return f"more than {MOST_BLOCKS_ALONG_X} blocks along {'xyz'[blocks.along]}"
    if blocks.lines > MOST_LINES:
        return "nearly 2**31 lines of blocks or more"
    return "nearly 2**32 blocks or more" if blocks.total > MOST_BLOCKS else None


def order_bytes(sizes: Sizes, cells: tuple[int, int, int], *, stable: bool = False) -> int:
    """Return the bytes that the order takes."""
    if sizes.sorted:
        return 0  # the particles are in it
    total = blocks_of(sizes.axes, cells).total
    rounds = 1 + (not stable and _shift(sizes.count, total, sizes.dtype.itemsize) is not None)
    each = rounds * 4 * sizes.dtype.itemsize + (4 + 4 + 16 if stable else 0)  # keys, order and pairs of the sort
    return sizes.count * each + 8 * (total + 1)


def seconds(sizes: Sizes, cells: tuple[int, int, int], *, stable: bool = False) -> float:
    """Return the predicted seconds of ordering."""
    if sizes.sorted:
        return 0.0
    total = blocks_of(sizes.axes, cells).total
    # H200 (benchmarks/results/limit-peer-nvidia-h200.csv): what comes after locating
    each = 1.5e-10 if stable else 3.6e-11 if sizes.dtype.itemsize == 4 else 6e-11
    return 6e-6 + sizes.count * each + total * 1e-11


def block_order(workspace: Workspace, cells: tuple[int, int, int], *, stable: bool = False) -> BlockOrder:
    """Return the particles of ``workspace`` by block; if ``stable``, in the caller's order within a block."""
    key = ("blocks", cells, stable)
    sorted_by = workspace.particles.by_block
    if sorted_by is not None and sorted_by.blocks.cells == cells:
        return sorted_by
    order: BlockOrder | None = workspace.orders.get(key)
    if order is None:
        order = workspace.orders[key] = _order(workspace, cells, stable)
        workspace.memory.block_cells = cells
    return order


def sort(workspace: Workspace, cells: tuple[int, int, int], *, stable: bool = False) -> BlockOrder:
    """Return the order of particles that a plan keeps sorted: their records have places instead of indices."""
    workspace.memory.block_cells = cells
    return _order(workspace, cells, stable, sorting=True)


def kinds_of(cells_for: Callable[[int], Cells], capacity: int) -> Kinds:
    """Return the blocks of up to ``capacity`` particles: ``cells_for`` has one answer for few, and one for many."""
    few, many = cells_for(0), cells_for(capacity)
    if few == many:
        return {many: capacity}
    most = bisect.bisect_left(range(capacity), True, key=lambda count: cells_for(count) != few) - 1
    return {many: capacity, few: most}


def reserve(workspace: Workspace, kinds: Kinds, *, stable: bool = False) -> None:
    """Allocate, so that ordering by these blocks will not."""
    if workspace.particles.kinds == kinds:
        return  # they will be in this order
    if workspace.particles.kinds is not None:
        workspace.particles.make_stencils()  # sorted by other blocks, they are sorted again, by their stencils
    for cells, count in kinds.items():
        _memory(workspace, blocks_of(workspace.axes, cells), max(count, 1), stable)
    workspace.memory.block_cells = next(iter(kinds))


def reserve_to_sort(workspace: Workspace, kinds: Kinds, *, stable: bool = False) -> None:
    """Allocate, so that sorting particles by these blocks will not."""
    for cells, count in kinds.items():
        _memory(workspace, blocks_of(workspace.axes, cells), max(count, 1), stable, sorting=True)
    workspace.memory.block_cells = next(iter(kinds))


class Counting(NamedTuple):
    """What ``set_positions`` counts while it locates particles."""

    blocks: Blocks
    work: Any
    defines: dict[str, int]


def counting(workspace: Workspace) -> Counting | None:
    """Return what to count while particles are located, if an order is expected; former counts are dropped."""
    memory = workspace.memory
    memory.counted = None
    if memory.block_cells is None or workspace.count == 0 or workspace.backend.capturing() == UNKNOWN:
        return None
    blocks = blocks_of(workspace.axes, memory.block_cells)
    work = _work(workspace, blocks)
    workspace.backend.clear(work)
    return Counting(blocks, work, _cells(blocks))


def _cells(blocks: Blocks) -> dict[str, int]:
    names = "CELLS_X", "CELLS_Y", "CELLS_Z", "NARROW_Y", "NARROW_Z"
    numbers = *blocks.cells, *blocks.narrow[1:]
    lines = {"LINES_ALONG": blocks.along} if blocks.along else {}
    return {"COUNT_IS_64": 0, "KEY_IS_64": 0, **lines, **dict(zip(names, numbers, strict=True))}


def _shift(count: int, total: int, size: int, sorting: bool = False) -> int | None:
    """Return the logarithm of the blocks of a bucket, or None if particles go straight to their blocks.

    Reals have ``size`` bytes; with ``sorting`` the particles are sorted, and not their records alone.
    """
    shift = -(-(total - 1).bit_length() // 2)
    few = 2**shift <= MOST_BUCKETS and -(-total >> shift) <= MOST_BUCKETS
    return shift if few and count >= STAGED_FROM[size, sorting] else None


@dataclass(frozen=True)
class _Memory:
    work: Any
    start: Any
    records: Any
    halfway: Any  # records by bucket
    keys: Any  # of a stable order
    order: Any  # of that, or where particles are sorted
    allocate: Allocate


def _name(blocks: Blocks) -> str:
    return "blocks.{}x{}x{}".format(*blocks.cells)


def _work(workspace: Workspace, blocks: Blocks) -> Any:
    def allocate(what: str, shape: tuple[int, ...], dtype: Any) -> Any:
        return workspace.scratch(f"{_name(blocks)}.{what}", shape, dtype)

    return allocate_counts(workspace.backend, blocks.total, _U32, allocate, "work", WORK_COUNTS // 2)


def _memory(workspace: Workspace, blocks: Blocks, count: int, stable: bool, *, sorting: bool = False) -> _Memory:
    def allocate(what: str, shape: tuple[int, ...], dtype: Any, *, zeros: bool = False) -> Any:
        return workspace.scratch(f"{_name(blocks)}.{'stable.' if stable else ''}{what}", shape, dtype, zeros=zeros)

    work, start = _work(workspace, blocks), allocate("start", (blocks.total + 1,), _U32)
    room = (count * workspace.dtype.itemsize,)  # four reals' worth of words
    # Kernels read records behind the last particle with weight, and use none of them.
    records = allocate("records", room, _U32, zeros=True)
    if not stable:
        dealt = _shift(count, blocks.total, workspace.dtype.itemsize, sorting) is not None
        halfway = workspace.scratch("blocks.halfway", room, _U32) if dealt else None
        order = allocate("order", (count,), _U32) if sorting else None
        return _Memory(work, start, records, halfway, None, order, allocate)
    keys, order = allocate("keys", (count,), _U32), allocate("order", (count,), _U32)
    radix.reserve(workspace.backend, count, _bits(blocks), allocate, order)
    return _Memory(work, start, records, None, keys, order, allocate)


def _bits(blocks: Blocks) -> int:
    return max(1, blocks.total.bit_length())


def _order(workspace: Workspace, cells: tuple[int, int, int], stable: bool, *, sorting: bool = False) -> BlockOrder:
    backend, count = kept(workspace.backend, workspace.memory.kernels), workspace.count
    blocks = blocks_of(workspace.axes, cells)
    memory = _memory(workspace, blocks, max(count, 1), stable, sorting=sorting)
    records = memory.records, memory.order if sorting else memory.records  # the second of two is not written
    work = As(memory.work, _U32)  # counts with the books of their scan
    packed, node, fraction = workspace.particles.located()
    particles = (As(node, np.int32), Unread(fraction)) if packed else (node, fraction)
    defines = {"REAL_IS_DOUBLE": int(workspace.dtype.itemsize == 8), "PACKED": int(packed), **_cells(blocks)}
    rows = workspace.particles.rows
    shift = None if stable else _shift(count, blocks.total, workspace.dtype.itemsize, sorting)
    bins = 256
    if shift is not None:
        bins = max(bins, 2**shift, 2 ** (-(-blocks.total >> shift) - 1).bit_length())
    defines |= {"EACH": EACH[workspace.dtype.itemsize], "BINS": bins, "SORTING": int(sorting)}

    def run(name: str, items: int, *arguments: Any) -> None:
        backend.kernel(_FILE, name, defines)(items, *arguments, blocks.record)

    if workspace.memory.counted == (cells, workspace.backend.capturing()):
        workspace.memory.counted = None  # the order changes the counts
    else:
        backend.clear(memory.work)
        if count:
            run("count_blocks", count, *particles, work, count, rows)
    scan(backend, memory.work, memory.start, blocks.total, skip=WORK_COUNTS // 2)
    if count and stable:
        run("block_keys", count, *particles, memory.keys, count, rows, blocks.total)
        radix.sort(backend, memory.keys, count, _bits(blocks), memory.allocate, into=memory.order)
        run("records_in_order", count, *particles, memory.start, memory.order, memory.records, rows, blocks.total)
    elif count and shift is None:
        run("place_in_blocks", count, *particles, memory.start, work, *records, count, rows, 0)
    elif count and shift is not None:
        buckets, each = -(-blocks.total >> shift), EACH[workspace.dtype.itemsize]
        few = -(-count // each)
        most = round(256 * SORTED_UP_TO)
        run("open_buckets", buckets + 1, memory.start, work, buckets, shift, blocks.total, most)
        run("place_in_blocks", few, *particles, memory.start, work, *records, count, rows, 1)
        run("into_buckets", few, *particles, work, memory.halfway, count, rows, shift)
        tiles = count // (backend.group_size * each) + buckets
        items = tiles * backend.group_size
        run("into_blocks", items, memory.halfway, memory.start, work, *records, buckets, shift)
    return BlockOrder(memory.records, memory.start, blocks, memory.order)
