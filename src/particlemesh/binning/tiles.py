# SPDX-License-Identifier: BSD-3-Clause
"""Particles by tile: boxes of nodes small enough that a thread works on a private copy in its cache.

A tile holds the particles whose stencil starts in it. Tiles are at least as wide as a stencil reaches,
so only neighbours overlap. Work is cut into tasks (a tile and at most so many of its particles) in a
fixed order, in which every thread claims the next; see `particlemesh.spread.colouring`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from particlemesh.backends.cpu import run, threads_for
from particlemesh.backends.jit import compiled
from particlemesh.backends.simd import acquire, fetch_add, give_way, prefetch_to_write, store_record
from particlemesh.binning.cpu import histogram_rows, index_type, scan, share_of

if TYPE_CHECKING:
    from particlemesh.plan import Plan
    from particlemesh.stencil import Axis

SKIP = -(2**31)  # node of a particle without weight
CHUNK = 4096  # particles of a task at most, so that one crowded tile is shared among threads
_BLOCK = 512  # particles placed at a time
_ALIGN = 8
_LOCAL_BITS = 10  # of each coordinate within a tile, in the record of a particle


class Tiling(NamedTuple):
    """How the mesh is cut: three axes of everything."""

    size: tuple[int, int, int]  # nodes of the field
    wraps: tuple[int, int, int]
    low: tuple[int, int, int]  # smallest first node of a stencil
    extent: tuple[int, int, int]  # how many first nodes there are
    support: tuple[int, int, int]
    bits: tuple[int, int, int]  # a tile is 2**bits wide; the last one of an axis also has the rest
    tiles: tuple[int, int, int]


@dataclass(frozen=True)
class TileOrdering:
    """The particles of one configuration in the order of tiles.

    Attributes
    ----------
    tiling
        How the mesh is cut.
    records : (4 N,)
        Fractions of each particle in this order, and its place in the tile as the bits of an integer.
    order : (N,)
        The caller's index of each; those from ``kept`` on have no weight.
    tile, begin, end : (tasks,)
        The tasks in the order in which they are claimed.
    ready : (tiles, 2)
        Where a tile's particles start, and how many tasks it has.
    """

    tiling: Tiling
    records: np.ndarray
    order: np.ndarray
    kept: int
    tile: np.ndarray
    begin: np.ndarray
    end: np.ndarray
    ready: np.ndarray

    @property
    def nbytes(self) -> int:
        """Bytes beside ``records`` and ``order``, which are scratch memory of the plan."""
        return self.tile.nbytes + self.begin.nbytes + self.end.nbytes + self.ready.nbytes

    @property
    def packed(self) -> np.ndarray:
        """The records as integers."""
        return self.records.view(np.int32 if self.records.dtype == np.float32 else np.int64)

    def box_size(self, parts: int, lanes: int) -> int:
        """Return how many numbers the private box of any tile takes."""
        size = 1
        for a in range(3):
            width, tiles = 1 << self.tiling.bits[a], self.tiling.tiles[a]
            starts = max(width if tiles > 1 else 0, self.tiling.extent[a] - (tiles - 1) * width)
            nodes = starts + self.tiling.support[a] - 1
            size *= nodes if a < 2 else box_pitch(nodes, self.tiling.support[a], parts, lanes)
        return size


@compiled
def box_pitch(nodes, support, parts, lanes):
    """Return how many numbers lie between rows of ``nodes`` nodes: a vector may start at any stencil."""
    return ((nodes - support) * parts + lanes + _ALIGN - 1) // _ALIGN * _ALIGN


@compiled
def box_of(tiling, tile):
    """Return the first node of a tile's stencils and how many nodes they cover, per axis."""
    nx, ny, nz = tiling.tiles
    x, y, z = tile // nz // ny, tile // nz % ny, tile % nz
    (bx, by, bz), (ex, ey, ez), (sx, sy, sz) = tiling.bits, tiling.extent, tiling.support
    low = (tiling.low[0] + (x << bx), tiling.low[1] + (y << by), tiling.low[2] + (z << bz))
    nodes = (
        (1 << bx if x < nx - 1 else ex - (x << bx)) + sx - 1,
        (1 << by if y < ny - 1 else ey - (y << by)) + sy - 1,
        (1 << bz if z < nz - 1 else ez - (z << bz)) + sz - 1,
    )
    return low, nodes


def tiling_of(axes: Sequence[Axis], bits: Sequence[int] | None = None) -> Tiling:
    """Return how a mesh is cut into tiles: it depends on nothing else, so results do not."""
    present = sum(axis.size > 1 or axis.support > 1 for axis in axes)
    # Measured on an EPYC 9005 at 128^3: smaller boxes fit the first cache, larger ones have less rim.
    wished = list(bits or {0: (0, 0, 0), 1: (0, 0, 9), 2: (0, 5, 5), 3: (3, 4, 5)}[present])
    if bits is None and present == 3 and np.prod([float(axis.extent) for axis in axes]) < 2**20:
        wished = [3, 3, 4]  # a small mesh: enough tiles for many threads
    for a, axis in enumerate(axes):
        # At least support - 1 wide, so that only neighbours overlap.
        wished[a] = max(wished[a], (axis.support - 2).bit_length() if axis.support > 1 else 0)
    return Tiling(
        size=_three(axis.size for axis in axes),
        wraps=_three(int(axis.wraps) for axis in axes),
        low=_three(axis.low for axis in axes),
        extent=_three(axis.extent for axis in axes),
        support=_three(axis.support for axis in axes),
        bits=_three(wished),
        tiles=_three(max(1, axis.extent >> w) for axis, w in zip(axes, wished, strict=True)),
    )


def _three(numbers: Iterable[int]) -> tuple[int, int, int]:
    x, y, z = (int(n) for n in numbers)
    return x, y, z


@compiled
def _tiles_of(tiling, x, y, z, begin, end, last, key, local):
    """Write the tile of particles [begin, end) and their place in it, packed into one integer."""
    one = np.int32(1)
    lx, ly, lz = np.int32(tiling.low[0]), np.int32(tiling.low[1]), np.int32(tiling.low[2])
    bx, by, bz = np.int32(tiling.bits[0]), np.int32(tiling.bits[1]), np.int32(tiling.bits[2])
    nx, ny, nz = np.int32(tiling.tiles[0]), np.int32(tiling.tiles[1]), np.int32(tiling.tiles[2])
    ten = np.int32(_LOCAL_BITS)
    for k in range(end - begin):
        skipped = z[begin + k] == SKIP
        px, py, pz = x[begin + k] - lx, y[begin + k] - ly, z[begin + k] - lz
        tx, ty, tz = min(px >> bx, nx - one), min(py >> by, ny - one), min(pz >> bz, nz - one)
        key[k] = last if skipped else (tx * ny + ty) * nz + tz
        px, py, pz = px - (tx << bx), py - (ty << by), pz - (tz << bz)
        local[k] = (((px << ten) | py) << ten) | pz


@compiled
def _count_tiles(tiling, x, y, z, histogram, counter):
    rows = histogram.shape[0]
    last = np.int32(histogram.shape[1] - 1)
    key, local = np.empty(_BLOCK, np.int32), np.empty(_BLOCK, np.int32)
    while True:
        row = fetch_add(counter, 0, 1)
        if row >= rows:
            return
        begin, end = share_of(x.size, rows, row)
        counts = histogram[row]
        counts[:] = 0
        for block in range(begin, end, _BLOCK):
            stop = min(block + _BLOCK, end)
            _tiles_of(tiling, x, y, z, block, stop, last, key, local)
            for k in range(stop - block):
                counts[key[k]] += 1


@compiled
def _place_in_tiles(tiling, x, y, z, fx, fy, fz, place, records, order, counter):
    rows = place.shape[0]
    last = np.int32(place.shape[1] - 1)
    key, local = np.empty(_BLOCK, np.int32), np.empty(_BLOCK, np.int32)
    target = np.empty(_BLOCK, np.int64)
    while True:
        row = fetch_add(counter, 0, 1)
        if row >= rows:
            return
        begin, end = share_of(x.size, rows, row)
        places = place[row]
        for block in range(begin, end, _BLOCK):
            stop = min(block + _BLOCK, end)
            _tiles_of(tiling, x, y, z, block, stop, last, key, local)
            # Places are far apart in memory: asked for a block ahead, writing them takes half the time.
            for k in range(stop - block):
                at = places[key[k]]
                places[key[k]] = at + 1
                target[k] = at
                prefetch_to_write(records, 4 * at)
                prefetch_to_write(order, at)
            for k in range(stop - block):
                at, n = target[k], block + k
                order[at] = n
                store_record(records, 4 * at, fx[n], fy[n], fz[n], np.int64(local[k]))


@compiled
def _list_tasks(tiling, start, tile, begin, end, ready):
    """List tasks slab by slab, so that a slab of the field is still in a cache when its next tile comes.

    Within a slab tiles of one colour (parity in y and z) follow each other, and their chunks take turns: most
    of a slab lies between tasks that overlap, so that threads seldom wait for each other.
    """
    nx, ny, nz = tiling.tiles
    active = np.empty((ny // 2 + 1) * (nz // 2 + 1), np.int64)
    tasks = 0
    for x in range(nx):
        for colour in range(4):
            left = 0
            for y in range(colour >> 1, ny, 2):
                for z in range(colour & 1, nz, 2):
                    this = (x * ny + y) * nz + z
                    count = start[this + 1] - start[this]
                    ready[this, 0] = start[this]
                    ready[this, 1] = (count + CHUNK - 1) // CHUNK
                    if count > 0:
                        active[left] = this
                        left += 1
            chunk = 0
            while left > 0:
                still = 0
                for k in range(left):
                    this = active[k]
                    tile[tasks] = this
                    begin[tasks] = start[this] + chunk * CHUNK
                    end[tasks] = min(begin[tasks] + CHUNK, start[this + 1])
                    tasks += 1
                    if chunk + 1 < ready[this, 1]:
                        active[still] = this
                        still += 1
                left = still
                chunk += 1
    return tasks


def _empty(name: str, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    return np.empty(shape, dtype)


def tile_ordering(
    axes: Sequence[Axis],
    node: np.ndarray,
    fraction: np.ndarray,
    threads: int | None = None,
    *,
    empty: Callable[..., np.ndarray] = _empty,
    bits: Sequence[int] | None = None,
) -> TileOrdering:
    """Return particles in the order of tiles, the same for any number of threads.

    Parameters
    ----------
    axes
        The mesh's three axes as stencils see them.
    node : (3, N) int32
        First nodes, ``SKIP`` for particles without weight.
    fraction : (3, N)
        Fractions, in the type of the values.
    threads
        The most threads to use; by default as many as suit N.
    empty
        Called with a name, a shape and a dtype: where the two large arrays come from.
    bits
        Widths of tiles, as powers of two; by default those measured to be fastest.
    """
    count = node.shape[1]
    threads = threads_for(threads, count)
    tiling = tiling_of(axes, bits)
    tiles = math.prod(tiling.tiles)
    index = index_type(count)
    histogram = np.empty((histogram_rows(count, tiles + 1, threads), tiles + 1), index)
    start = np.empty(tiles + 2, np.int64)
    records = empty("tile records", (4 * count,), fraction.dtype)
    order = empty("tile order", (count,), index)
    used = len(histogram)
    run(_count_tiles, used, tiling, *node, histogram, np.zeros(1, np.int64))
    scan(histogram, start, threads)
    run(_place_in_tiles, used, tiling, *node, *fraction, histogram, records, order, np.zeros(1, np.int64))
    most = tiles + count // CHUNK + 1
    tile, begin, end = (np.empty(most, np.int64) for _ in range(3))
    ready = np.empty((tiles, 2), np.int64)
    tasks = _list_tasks(tiling, start, tile, begin, end, ready)
    kept = int(start[tiles])
    return TileOrdering(tiling, records, order, kept, tile[:tasks], begin[:tasks], end[:tasks], ready)


def reserve(plan: Plan) -> None:
    """Allocate records and order for the plan's capacity."""
    plan.scratch("tile records", (4 * plan.capacity,), plan.dtype)
    plan.scratch("tile order", (plan.capacity,), np.dtype(index_type(plan.capacity)))


def ordering_of(plan: Plan) -> TileOrdering:
    """Return the plan's particles in the order of tiles; made once for a configuration."""
    ordering = plan.shared.get("tiles")
    if ordering is None:
        count, particles = plan.count, plan.particles

        def exactly(name: str, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
            return plan.scratch(name, shape, dtype)[: shape[0]]  # which may be longer

        ordering = tile_ordering(
            plan.axes, particles.node[:, :count], particles.fraction[:, :count], plan.threads, empty=exactly
        )
        plan.shared["tiles"] = ordering
    return ordering


@compiled
def await_turn(tiling, ready, done, tile, chunk):
    """Wait until every task that overlaps this one and is listed before it has been added.

    Those tasks were claimed before this one, by threads that are running, and wait only for still
    earlier ones: some thread can always go on. The order is that of `_list_tasks`: slab and colour, chunk, tile.
    """
    nx, ny, nz = tiling.tiles
    tz = tile % nz
    ty = tile // nz % ny
    tx = tile // nz // ny
    mine = 4 * tx + 2 * (ty & 1) + (tz & 1)
    for n in range(27):
        x, y, z = tx + n // 9 % 3 - 1, ty + n // 3 % 3 - 1, tz + n % 3 - 1
        if tiling.wraps[0]:
            x = (x + nx) % nx
        if tiling.wraps[1]:
            y = (y + ny) % ny
        if tiling.wraps[2]:
            z = (z + nz) % nz
        if x < 0 or x >= nx or y < 0 or y >= ny or z < 0 or z >= nz:
            continue
        other = (x * ny + y) * nz + z
        target = ready[other, 1]
        group = 4 * x + 2 * (y & 1) + (z & 1)
        if group > mine:
            continue
        if group == mine:  # itself, or across the seam of an odd number of tiles
            target = min(target, chunk + 1 if other < tile else chunk)
        turns = 0
        while acquire(done, other) < target:
            turns += 1
            if turns > 100:
                give_way()
