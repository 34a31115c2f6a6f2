# SPDX-License-Identifier: BSD-3-Clause
"""Particles by tile: boxes of nodes small enough that a thread works on a private copy in its cache.

A tile holds the particles whose stencil starts in it. Tiles are at least as wide as a stencil reaches,
so only neighbours overlap. Work is cut into tasks: a tile and at most so many of its particles.
Threads claim them in a fixed order; see `particlemesh.spread.colouring`.

Stencils are read from rows of lanes, from which a particle's weights are made with vector instructions.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.polynomial import polynomial

from particlemesh import checks
from particlemesh.backends.jit import compiled
from particlemesh.backends.simd import WIDTHS, acquire, add, give_way, item, load, splat, store, width_of
from particlemesh.particles.stencil import Axis

CHUNK = 4096  # particles of a task at most, so that one crowded tile is shared among threads
_LARGE_CHUNK = 16384  # the same of many particles: fewer boxes
_TASKS = 512  # that are enough for many threads
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


# ---- rows of lanes, and the nodes of a stencil ----------------------------------------------------------------------


# Below so many stencil rows of particles per row of the tile's box, particles go without that box
# (EPYC 9005, 128^3 nodes).
SPARSE = 3.0


class Rows(NamedTuple):
    """A window for values of so many parts.

    Attributes
    ----------
    table
        Polynomials of the three axes, then of their slopes: ``terms`` rows each, highest power first. There is
        one lane per node, on the last axis one per part of a node. Lanes past the support are zero.
    terms
        Rows of each polynomial.
    parts
        Reals of a value.
    width
        Its length is the number of lanes.
    missing
        Axes that the mesh does not have: the first ones, whose only weight is 1.
    """

    table: np.ndarray
    terms: int
    parts: int
    width: tuple[int, ...]
    missing: int


def rows_of(
    window_table: np.ndarray, axes: Sequence[Axis], parts: int, dtype: np.dtype, along: int | None = None
) -> Rows:
    """Return the rows of a window's table (support, degree + 1), ascending powers, for the mesh's axes.

    With ``along``, an axis, they are those of the window's derivative along it: its slopes are second derivatives.
    """
    terms = window_table.shape[1]
    width = width_of(max(axis.support for axis in axes) * parts, np.dtype(dtype).itemsize)
    table = np.zeros((2, 3, terms, len(width)), dtype)
    missing = 0
    for a, axis in enumerate(axes):
        copies = parts if a == 2 else 1
        lanes = axis.support * copies
        if axis.size == 1 and axis.scale == 0:  # a missing axis: weight 1, slope 0
            table[0, a, -1, :lanes] = 1
            missing += 1
            continue
        for slope in (0, 1):
            derived = polynomial.polyder(window_table, slope + (a == along), axis=1)
            table[slope, a, terms - derived.shape[1] :, :lanes] = np.repeat(derived[:, ::-1].T, copies, axis=1)
    return Rows(table.reshape(-1), terms, parts, width, missing)


@compiled
def place_of(node, size, wraps):
    """Return the place of a node along one axis, or -1 if there is none."""
    if wraps:
        return node % size if node >= size else node
    return node if 0 <= node < size else -1


@compiled
def corner_of(low, local):
    """Return the first node of a particle's stencil, of its tile's first node and its place in the tile."""
    return low[0] + (local >> 20), low[1] + (local >> 10 & 1023), low[2] + (local & 1023)


# One particle's weights, for methods that store them: their time is not what counts.


@compiled
def factors_at(table, terms, lanes, x, y, z, slopes, factors):
    """Write the weights along the three axes, and if ``slopes`` then theirs, ``lanes`` numbers each.

    ``table``, ``terms`` and ``lanes`` are those of `Rows` for one part.
    """
    for number in range(6 if slopes else 3):
        axis = number % 3
        at = x if axis == 0 else y if axis == 1 else z
        out, row = number * lanes, number * terms * lanes
        for j in range(lanes):
            factors[out + j] = table[row + j]
        for _ in range(1, terms):
            row += lanes
            for j in range(lanes):
                factors[out + j] = factors[out + j] * at + table[row + j]


@compiled
def slopes_of(factors, lanes, i, j, jacobian, across):
    """Write what a node's weight and slope along z are multiplied by to give its slope in user coordinates.

    For each coordinate b: ``across[2 b] * wz + across[2 b + 1] * dz``.
    """
    wx, wy = factors[i], factors[lanes + j]
    dx, dy = factors[3 * lanes + i], factors[4 * lanes + j]
    for b in range(jacobian.shape[1]):
        across[2 * b] = jacobian[0, b] * dx * wy + jacobian[1, b] * wx * dy
        across[2 * b + 1] = jacobian[2, b] * wx * wy


# ---- boxes of nodes between a field and private memory, by true modulo or clipped -----------------------------------


_WIDTH = WIDTHS[8]


@compiled
def add_rows(tiling, parts, box, low, rows, pitch, planes, lines, clears, field):
    """Add rows of the private ``box``, of a range of planes and of lines, to the field. See `add_box`."""
    size = tiling.size[2]
    zero = splat(box.dtype.type(0), _WIDTH)
    for i in range(planes[0], planes[1]):
        x = place_of(low[0] + i, tiling.size[0], tiling.wraps[0])
        for j in range(lines[0], lines[1]):
            y = place_of(low[1] + j, tiling.size[1], tiling.wraps[1])
            source = (i * rows[1] + j) * pitch
            if x >= 0 and y >= 0:
                target = (x * tiling.size[1] + y) * size * parts
                k = 0 if tiling.wraps[2] else max(0, -low[2])
                last = rows[2] if tiling.wraps[2] else min(rows[2], size - low[2])
                while k < last:
                    z = (low[2] + k) % size
                    length = min(last - k, size - z) * parts
                    a, b = target + z * parts, source + k * parts
                    whole = length - length % 8
                    for n in range(0, whole, 8):
                        store(field, a + n, add(load(field, a + n, _WIDTH), load(box, b + n, _WIDTH)))
                    for n in range(whole, length):
                        field[a + n] += box[b + n]
                    k += size - z
            if clears:
                for n in range(0, pitch, 8):  # the pitch is a multiple of 8
                    store(box, source + n, zero)


@compiled
def add_box(tiling, parts, box, low, rows, pitch, field):
    """Add the private ``box`` to the field and clear it.

    ``low`` is the box's first node and ``rows`` its number of nodes, per axis. Two of its rows along the
    last axis begin ``pitch`` numbers apart.
    """
    add_rows(tiling, parts, box, low, rows, pitch, (0, rows[0]), (0, rows[1]), True, field)


@compiled
def copy_box(tiling, parts, field, low, rows, pitch, box):
    """Copy part of the field into the private ``box``, as `add_box` adds it; zero where there is no node."""
    size = tiling.size[2]
    zero = splat(box.dtype.type(0), _WIDTH)
    for i in range(rows[0]):
        x = place_of(low[0] + i, tiling.size[0], tiling.wraps[0])
        for j in range(rows[1]):
            y = place_of(low[1] + j, tiling.size[1], tiling.wraps[1])
            target = (i * rows[1] + j) * pitch
            if x < 0 or y < 0 or not tiling.wraps[2]:
                for n in range(0, pitch, 8):
                    store(box, target + n, zero)
            if x >= 0 and y >= 0:
                source = (x * tiling.size[1] + y) * size * parts
                k = 0 if tiling.wraps[2] else max(0, -low[2])
                last = rows[2] if tiling.wraps[2] else min(rows[2], size - low[2])
                while k < last:
                    z = (low[2] + k) % size
                    length = min(last - k, size - z) * parts
                    a, b = source + z * parts, target + k * parts
                    whole = length - length % 8
                    for n in range(0, whole, 8):
                        store(box, b + n, load(field, a + n, _WIDTH))
                    for n in range(whole, length):
                        box[b + n] = field[a + n]
                    k += size - z
