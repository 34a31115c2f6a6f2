# SPDX-License-Identifier: BSD-3-Clause
"""Particles by tile: boxes of nodes small enough that a thread works on a private copy in its cache.

A tile holds the particles whose stencil starts in it. Tiles are at least as wide as a stencil reaches,
so only neighbours overlap. Work is cut into tasks: a tile and at most so many of its particles.
Threads claim them in a fixed order; see `particlemesh.spread.colouring`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from particlemesh import checks
from particlemesh.backends.jit import compiled
from particlemesh.backends.simd import acquire, give_way, item
from particlemesh.particles.locate import SKIP
from particlemesh.particles.stencil import Axis

CHUNK = 4096  # particles of a task at most, so that one crowded tile is shared among threads
_LARGE_CHUNK = 16384  # the same of many particles: fewer boxes
_TASKS = 512  # that are enough for many threads
_CROWDED = 64  # a tile with more than this part of all tasks is crowded
_TOGETHER = 64  # tiles of slabs that are listed together: 16 of each colour. With 128 they leave the caches
_FEW = 256  # particles: a smaller box saves them less time than finding it takes
_ALIGN = 8
LOCAL_BITS = 10  # of each coordinate within a tile, in the record of a particle
# Particles follow each other by cells of a tile, where cells have so many: stencils that overlap are then in the first
# cache. With supports of 7 to 12 spreading takes 0.7 of the time (Xeon, 10**6 particles, 128^3).
_IN_CELLS = 4
MOST_TILES = 2**24  # beyond, as on a mesh of 4096 nodes cubed, tiles grow: counts would cost more than they save


class Tiling(NamedTuple):
    """How the mesh is cut: three axes of everything."""

    size: tuple[int, int, int]  # nodes of the field
    wraps: tuple[int, int, int]
    low: tuple[int, int, int]  # smallest first node of a stencil
    extent: tuple[int, int, int]  # how many first nodes there are
    support: tuple[int, int, int]
    bits: tuple[int, int, int]  # a tile is 2**bits wide; the last one of an axis also has the rest
    tiles: tuple[int, int, int]


class Cells(NamedTuple):
    """How the particles of a tile are cut: into cells, by which they follow each other, and into tasks."""

    bits: tuple[int, int, int]  # a cell is 2**bits wide; the last one of an axis also has the rest
    along: tuple[int, int, int]
    chunk: int  # particles of a task at most

    @classmethod
    def of(cls, tiling: Tiling, count: int) -> Cells:
        """Return the cells of three-dimensional tiles with many particles, or one for each tile."""
        chunk = min(max(CHUNK, count // _TASKS), _LARGE_CHUNK)
        if min(tiling.extent) == 1 or count < _IN_CELLS * math.prod(tiling.tiles):
            return cls(tiling.bits, (1, 1, 1), chunk)
        most = 3 if max(tiling.support) < 10 else 2
        bits = _three(min(b, most) for b in tiling.bits)
        along = _three(1 << b - c for b, c in zip(tiling.bits, bits, strict=True))
        if count < _IN_CELLS * math.prod(tiling.tiles) * math.prod(along):
            return cls(tiling.bits, (1, 1, 1), chunk)
        return cls(bits, along, chunk)


@dataclass(frozen=True)
class TileOrdering:
    """The particles of one configuration in the order of tiles.

    Attributes
    ----------
    tiling, cells
        How the mesh is cut into tiles, and a tile into cells, by which its particles follow each other.
    records : (4 N,)
        Fractions of each particle in this order, and its place in the tile as the bits of an integer.
    order : (N,)
        The caller's index of each; those from ``kept`` on have no weight.
    tile, begin, end : (tasks,)
        The tasks, as `list_tasks` lists them.
    ready : (tiles, 2)
        Where a tile's particles start, and how many tasks it has.
    """

    tiling: Tiling
    cells: Cells
    records: np.ndarray
    order: np.ndarray
    kept: int
    tile: np.ndarray
    begin: np.ndarray
    end: np.ndarray
    ready: np.ndarray

    @functools.cached_property
    def claims(self) -> tuple[np.ndarray, int, int]:
        """Tasks of crowded tiles, then the others; how many of them are crowded; from how many on a tile is crowded.

        In turns, the tasks of such a tile would keep most threads waiting.
        """
        limit = max(2, len(self.tile) // _CROWDED + 1)
        crowded = self.ready[self.tile, 1] >= limit
        return np.argsort(~crowded, kind="stable"), int(crowded.sum()), limit

    @property
    def nbytes(self) -> int:
        """Bytes beside ``records`` and ``order``, which may be longer than what is shown of them."""
        return self.tile.nbytes + self.begin.nbytes + self.end.nbytes + self.ready.nbytes

    @property
    def packed(self) -> np.ndarray:
        """The records as integers."""
        return self.records.view(np.int32 if self.records.dtype == np.float32 else np.int64)

    def located(self) -> tuple[np.ndarray, np.ndarray]:
        """Return first nodes and fractions (3, N) in the caller's order; nodes without weight are ``SKIP``."""
        count, kept, tiling = len(self.order), self.kept, self.tiling
        order = self.order[:kept]
        node, fraction = np.full((3, count), SKIP, np.int32), np.zeros((3, count), self.records.dtype)
        fraction[:, order] = self.records.reshape(-1, 4)[:kept, :3].T
        starts = self.ready[:, 0]
        tile = np.repeat(np.arange(len(starts)), np.diff(starts, append=kept))
        within = self.packed[3 : 4 * kept : 4].astype(np.int64)
        for a, corner in enumerate(np.unravel_index(tile, tiling.tiles)):
            local = within >> (2 - a) * LOCAL_BITS & (1 << LOCAL_BITS) - 1
            node[a, order] = tiling.low[a] + (corner << tiling.bits[a]) + local
        return node, fraction

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
def last_stencil(tiling, nodes, parts, pitch):
    """Return where in a box its last stencil begins.

    Places are limited to it: if another thread of the caller writes to positions while they are placed, particles may
    be in the wrong cell. Their sums are wrong then, but no other memory is written.
    """
    sx, sy, sz = tiling.support
    return ((nodes[0] - sx) * nodes[1] + nodes[1] - sy) * pitch + (nodes[2] - sz) * parts


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


@compiled
def _reached(first, nodes, end, is_last):
    """Return how many of a tile's nodes some stencils reach that end at ``end``; the last cell also has the rest."""
    return nodes - first if is_last else min(nodes, end) - first


@compiled
def box_of_task(tiling, cells, packed, tile, first, last):
    """Return first node, nodes per axis, and packed place in the tile, of the box in which a task works.

    Its particles follow each other by cells, from the first's to the last's. So in a cluster its box is that of one
    cell or a few. It fits the first cache, and little is added to the field. Few particles get the tile's.
    """
    low, nodes = box_of(tiling, tile)
    if last - first < _FEW:
        return low, nodes, 0
    (bx, by, bz), (mx, my, mz), (sx, sy, sz) = cells.bits, cells.along, tiling.support
    a, b = item(packed, 4 * first + 3), item(packed, 4 * last + 3)
    x0, x1 = min(a >> 20 >> bx, mx - 1), min(b >> 20 >> bx, mx - 1)
    y0, y1 = min((a >> 10 & 1023) >> by, my - 1), min((b >> 10 & 1023) >> by, my - 1)
    z0, z1 = min((a & 1023) >> bz, mz - 1), min((b & 1023) >> bz, mz - 1)
    if x0 != x1:  # cells of an axis follow each other only within one cell of the axes before it
        y0, y1 = 0, my - 1
    if x0 != x1 or y0 != y1:
        z0, z1 = 0, mz - 1
    x, y, z = x0 << bx, y0 << by, z0 << bz
    nodes = (
        _reached(x, nodes[0], (x1 + 1 << bx) + sx - 1, x1 == mx - 1),
        _reached(y, nodes[1], (y1 + 1 << by) + sy - 1, y1 == my - 1),
        _reached(z, nodes[2], (z1 + 1 << bz) + sz - 1, z1 == mz - 1),
    )
    return (low[0] + x, low[1] + y, low[2] + z), nodes, x << 20 | y << 10 | z


def tiling_of(axes: tuple[Axis, ...]) -> Tiling:
    """Return how a mesh is cut into tiles: it depends on nothing else, so results do not.

    Raises
    ------
    MemoryError
        If there are more than `MOST_TILES` of the widest tiles.
    """
    return _tiling(axes, MOST_TILES)


@functools.lru_cache(maxsize=64)
def _tiling(axes: tuple[Axis, ...], most: int) -> Tiling:
    present = sum(axis.size > 1 or axis.support > 1 for axis in axes)
    # Measured on an EPYC 9005 at 128^3: smaller boxes fit the first cache, larger ones have less rim.
    wished = list({0: (0, 0, 0), 1: (0, 0, 9), 2: (0, 5, 5), 3: (3, 4, 5)}[present])
    if present == 3 and np.prod([float(axis.extent) for axis in axes]) < 2**20:
        wished = [3, 3, 4]  # a small mesh: enough tiles for many threads
    for a, axis in enumerate(axes):
        # At least support - 1 wide, so that only neighbours overlap.
        wished[a] = max(wished[a], (axis.support - 2).bit_length() if axis.support > 1 else 0)
    extents = [axis.extent for axis in axes]
    while (tiles := math.prod(_tiles_along(extents, wished))) > most:
        # The last tile of an axis is up to twice as wide as the others.
        wider = [a for a in range(3) if extents[a] >> wished[a] > 1 and wished[a] < LOCAL_BITS - 1]
        checks.tile_count(bool(wider), [axis.size for axis in axes], tiles, most)
        wished[min(wider, key=wished.__getitem__)] += 1
    return Tiling(
        size=_three(axis.size for axis in axes),
        wraps=_three(int(axis.wraps) for axis in axes),
        low=_three(axis.low for axis in axes),
        extent=_three(axis.extent for axis in axes),
        support=_three(axis.support for axis in axes),
        bits=_three(wished),
        tiles=_three(_tiles_along(extents, wished)),
    )


def _tiles_along(extents: Sequence[int], bits: Sequence[int]) -> list[int]:
    return [max(1, extent >> width) for extent, width in zip(extents, bits, strict=True)]


def _three(numbers: Iterable[int]) -> tuple[int, int, int]:
    x, y, z = (int(n) for n in numbers)
    return x, y, z


@compiled
def slabs_together(tiling):
    """Return how many slabs of tiles that do not touch are listed together: enough for many threads."""
    return max(1, _TOGETHER // (tiling.tiles[1] * tiling.tiles[2]))


@compiled
def group_of(x, y, z, together):
    """Return which group of tiles that do not touch a tile belongs to: every other slab of some, and one colour."""
    return 8 * (x // (2 * together)) + 4 * (x & 1) + 2 * (y & 1) + (z & 1)


@compiled
def list_tasks(tiling, size, start, tile, begin, end, ready):
    """List tasks of up to ``size`` particles slab by slab: its field stays in a cache for the next tile.

    Within a slab tiles of one colour (parity in y and z) follow each other, and their chunks take turns. Where slabs
    have few tiles, several take part that do not touch. So many tasks lie between two that overlap, and threads seldom
    wait for each other. This is the order of `group_of`.
    """
    nx, ny, nz = tiling.tiles
    together = slabs_together(tiling)
    active = np.empty(together * (ny // 2 + 1) * (nz // 2 + 1), np.int64)
    tasks = 0
    for slab in range(2 * ((nx - 1) // (2 * together) + 1)):
        first = slab // 2 * 2 * together + slab % 2
        for colour in range(4):
            left = 0
            for x in range(first, min(nx, first + 2 * together), 2):
                for y in range(colour >> 1, ny, 2):
                    for z in range(colour & 1, nz, 2):
                        this = (x * ny + y) * nz + z
                        count = start[this + 1] - start[this]
                        ready[this, 0] = start[this]
                        ready[this, 1] = (count + size - 1) // size
                        if count > 0:
                            active[left] = this
                            left += 1
            chunk = 0
            while left > 0:
                still = 0
                for k in range(left):
                    this = active[k]
                    tile[tasks] = this
                    begin[tasks] = start[this] + chunk * size
                    end[tasks] = min(begin[tasks] + size, start[this + 1])
                    tasks += 1
                    if chunk + 1 < ready[this, 1]:
                        active[still] = this
                        still += 1
                left = still
                chunk += 1
    return tasks


@compiled
def await_count(counts, place, target):
    """Wait until a count that other threads raise is ``target``."""
    turns = 0
    while acquire(counts, place) < target:
        turns += 1
        if turns > 100:
            give_way()


@compiled
def await_turn(tiling, ready, limit, done, tile, chunk):
    """Wait until every task that overlaps this one and is listed before it has been added.

    Tiles with ``limit`` tasks and more take no turns.

    Those tasks were claimed before this one, by threads that are running, and wait only for still
    earlier ones: some thread can always go on. The order is that of `list_tasks`: group, chunk, tile.
    """
    nx, ny, nz = tiling.tiles
    tz = tile % nz
    ty = tile // nz % ny
    tx = tile // nz // ny
    together = slabs_together(tiling)
    mine = group_of(tx, ty, tz, together)
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
        group = group_of(x, y, z, together)
        if group > mine or target >= limit:
            continue
        if group == mine:  # itself, or across the seam of an odd number of tiles
            target = min(target, chunk + 1 if other < tile else chunk)
        await_count(done, other, target)
