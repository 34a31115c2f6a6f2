# SPDX-License-Identifier: BSD-3-Clause
"""Particles into the order of tiles, straight from their positions.

Two passes over the positions: one counts, one places. Both locate every particle, which takes less time than
writing nodes and fractions in the caller's order and reading them again. The first pass also finds what is wrong,
so that nothing is overwritten for positions that will be refused.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from particlemesh.backends.cpu import claimed, run, threads_for
from particlemesh.backends.jit import compiled
from particlemesh.backends.simd import item, prefetch_to_write, put, store_record
from particlemesh.orders.cpu.tiles import CHUNK, LOCAL_BITS, Cells, TileOrdering, Tiling, list_tasks, tiling_of
from particlemesh.particles.locate import (
    BLOCK,
    NOTHING_WRONG,
    SKIP,
    Frame,
    Located,
    block_room,
    frame_of,
    locate_block,
    located,
    note_bad,
)
from particlemesh.sorting.cpu import histogram_rows, index_type, scan, share_of

if TYPE_CHECKING:
    from particlemesh.box import Box
    from particlemesh.particles.stencil import Axis

_SHARES = 2  # ranges of particles for each thread, so that a thread that starts late has less left to do


class Counted(NamedTuple):
    """The result of the first pass."""

    located: Located
    columns: tuple[np.ndarray, ...]  # kept alive for the second pass
    address: np.ndarray
    stride: np.ndarray
    frame: Frame
    tiling: Tiling
    cells: Cells
    system: np.ndarray | None
    pitch: int
    histogram: np.ndarray  # particles of each range and cell; after the cells those without weight
    threads: int


@compiled
def _cells_of(tiling, cells, node, length, last, key, local):
    """Write the cell of each particle of a block and its place in the tile, packed into one integer."""
    one = np.int32(1)
    x, y, z = node[0], node[1], node[2]
    lx, ly, lz = np.int32(tiling.low[0]), np.int32(tiling.low[1]), np.int32(tiling.low[2])
    bx, by, bz = np.int32(tiling.bits[0]), np.int32(tiling.bits[1]), np.int32(tiling.bits[2])
    nx, ny, nz = np.int32(tiling.tiles[0]), np.int32(tiling.tiles[1]), np.int32(tiling.tiles[2])
    cx, cy, cz = np.int32(cells.bits[0]), np.int32(cells.bits[1]), np.int32(cells.bits[2])
    mx, my, mz = np.int32(cells.along[0]), np.int32(cells.along[1]), np.int32(cells.along[2])
    ten = np.int32(LOCAL_BITS)
    if tiling.extent[0] == 1 and tiling.extent[1] == 1:  # one axis
        for k in range(length):
            pz = z[k] - lz
            tz = min(pz >> bz, nz - one)
            key[k] = last if z[k] == SKIP else tz
            local[k] = pz - (tz << bz)
        return
    for k in range(length):
        skipped = z[k] == SKIP
        px, py, pz = x[k] - lx, y[k] - ly, z[k] - lz
        tx, ty, tz = min(px >> bx, nx - one), min(py >> by, ny - one), min(pz >> bz, nz - one)
        tile = (tx * ny + ty) * nz + tz
        px, py, pz = px - (tx << bx), py - (ty << by), pz - (tz << bz)
        qx, qy, qz = min(px >> cx, mx - one), min(py >> cy, my - one), min(pz >> cz, mz - one)
        key[k] = last if skipped else ((tile * mx + qx) * my + qy) * mz + qz
        local[k] = (((px << ten) | py) << ten) | pz


@compiled(inline="always")
def _to_systems(frame, system, pitch, begin, length, node):
    """Move the nodes of particles to those of their systems, along the first axis."""
    if system is not None:
        first, z = node[3 - frame.native.axes.size], node[2]
        for k in range(length):
            first[k] += np.int32(0) if z[k] == SKIP else system[begin + k] * np.int32(pitch)


@compiled
def _count_cells(address, stride, count, frame, tiling, cells, system, pitch, histogram, status, counter):
    """Count the particles of each cell, and those that are bad, a range at a time until none is left."""
    rows = histogram.shape[0]
    last = np.int32(histogram.shape[1] - 1)
    room = block_room(frame)
    key, local = np.empty(BLOCK, np.int32), np.empty(BLOCK, np.int32)
    for row in claimed(counter, rows):
        begin, end = share_of(count, rows, row)
        counts = histogram[row]
        counts[:] = 0
        for block in range(begin, end, BLOCK):
            length = min(BLOCK, end - block)
            if locate_block(address, stride, frame, block, length, room):
                note_bad(block, length, room[2], status[row])
            _to_systems(frame, system, pitch, block, length, room[0])
            _cells_of(tiling, cells, room[0], length, last, key, local)
            for k in range(length):
                put(counts, key[k], item(counts, key[k]) + 1)


@compiled
def _place_in_cells(address, stride, count, frame, tiling, cells, system, pitch, place, records, order, counter):
    """Write the particles where the counts say, a range at a time until none is left."""
    rows = place.shape[0]
    last = np.int32(place.shape[1] - 1)
    room = block_room(frame)
    fraction = room[1]
    key, local = np.empty(BLOCK, np.int32), np.empty(BLOCK, np.int32)
    target = np.empty(BLOCK, np.int64)
    real = records.dtype.type
    for row in claimed(counter, rows):
        begin, end = share_of(count, rows, row)
        places = place[row]
        for block in range(begin, end, BLOCK):
            length = min(BLOCK, end - block)
            locate_block(address, stride, frame, block, length, room)
            _to_systems(frame, system, pitch, block, length, room[0])
            _cells_of(tiling, cells, room[0], length, last, key, local)
            # Places are far apart in memory: asked for a block ahead, writing them takes half the time.
            for k in range(length):
                at = item(places, key[k])
                put(places, key[k], at + 1)
                # Never past the end, even if another thread of the caller writes to the positions meanwhile.
                at = min(np.int64(at), count - 1)
                target[k] = at
                prefetch_to_write(records, 4 * at)
                prefetch_to_write(order, at)
            for k in range(length):
                at = target[k]
                put(order, at, block + k)
                store_record(
                    records, 4 * at, real(fraction[0, k]), real(fraction[1, k]), real(fraction[2, k]),
                    np.int64(local[k]),
                )  # fmt: skip


@compiled
def _order_few(address, stride, frame, tiling, cells, system, pitch, status, records, order, tasks, ready, counter):
    """Do both passes in one call by one thread, since calls take longer than few particles; return both totals."""
    count, bins = order.size, ready.shape[0] * cells.along[0] * cells.along[1] * cells.along[2] + 1
    histogram = np.empty((1, bins), order.dtype)
    _count_cells(address, stride, count, frame, tiling, cells, system, pitch, histogram, status, counter)
    start, total = np.empty(bins + 1, np.int64), np.int64(0)
    for b in range(bins):
        start[b] = total
        total += histogram[0, b]
        histogram[0, b] = start[b]
    start[bins] = total
    counter[0] = 0
    _place_in_cells(address, stride, count, frame, tiling, cells, system, pitch, histogram, records, order, counter)
    start = start[: bins : (bins - 1) // ready.shape[0]].copy()
    return list_tasks(tiling, cells.chunk, start, tasks[0], tasks[1], tasks[2], ready), start[ready.shape[0]]


@functools.lru_cache(maxsize=64)
def _maps(
    axes: tuple[Axis, Axis, Axis], of_one: tuple[Axis, Axis, Axis] | None, box: Box, real: np.dtype,
    bits: tuple[int, ...] | None,
) -> tuple[Frame, Tiling]:  # fmt: skip
    return frame_of(of_one or axes, box, real), tiling_of(axes, bits)


class _PassArguments(NamedTuple):
    """Positions as arguments of both passes."""

    columns: tuple[np.ndarray, ...]
    address: np.ndarray
    stride: np.ndarray
    frame: Frame
    tiling: Tiling
    cells: Cells

    @classmethod
    def of(
        cls, columns: Sequence[np.ndarray], axes: tuple[Axis, Axis, Axis], box: Box,
        of_one: tuple[Axis, Axis, Axis] | None, bits: tuple[int, ...] | None,
    ) -> _PassArguments:  # fmt: skip
        real = columns[0].dtype.newbyteorder("=")
        columns = tuple(x if x.dtype.isnative else x.astype(real) for x in columns)
        frame, tiling = _maps(axes, of_one, box, real, bits)
        address = np.array([x.__array_interface__["data"][0] for x in columns])
        stride = np.array([x.strides[0] for x in columns])
        return cls(columns, address, stride, frame, tiling, Cells.of(tiling, len(columns[0])))


def order_few(
    columns: Sequence[np.ndarray], axes: tuple[Axis, Axis, Axis], box: Box, dtype: np.dtype, *,
    of_one: tuple[Axis, Axis, Axis] | None = None, system: np.ndarray | None = None, pitch: int = 0,
) -> tuple[Located, TileOrdering]:  # fmt: skip
    """Return what is wrong with few positions, and their order in new memory, as both functions below.

    Parameters
    ----------
    columns, axes, box, of_one, system, pitch
        As for `count_positions`.
    dtype
        Of the records.
    """
    _, *given, tiling, cells = _PassArguments.of(columns, axes, box, of_one, None)
    count, tiles = len(columns[0]), math.prod(tiling.tiles)
    status = np.zeros((1, 8), np.int64)
    status[0, 2] = -1
    records, order = np.empty(4 * count, dtype), np.empty(count, index_type(count))
    room, ready = np.empty((3, tiles + count // CHUNK + 1), np.int64), np.empty((tiles, 2), np.int64)
    tasks, kept = _order_few(
        *given, tiling, cells, system, pitch, status, records, order, room, ready, np.zeros(2, np.int64)
    )  # fmt: skip
    bad = NOTHING_WRONG if status[0, 2] < 0 else located(status)
    tile, begin, end = room[:, :tasks]
    return bad, TileOrdering(tiling, cells, records, order, kept, tile, begin, end, ready)


def count_positions(
    columns: Sequence[np.ndarray],
    axes: tuple[Axis, Axis, Axis],
    box: Box,
    threads: int | None = None,
    *,
    bits: tuple[int, ...] | None = None,
    of_one: tuple[Axis, Axis, Axis] | None = None,
    system: np.ndarray | None = None,
    pitch: int = 0,
) -> Counted:
    """Count particles by tile and say what is wrong with positions; never raise for it.

    Parameters
    ----------
    columns : d arrays of shape (N,), float32 or float64
        Positions, of any stride.
    axes, box
        As for `particlemesh.particles.locate.frame_of`.
    threads
        The most threads to use; by default as many as suit N.
    bits
        Widths of tiles, as powers of two; by default those measured to be fastest.
    of_one, system, pitch
        Axes of one of several systems, int32 (N,) the system of each particle, and nodes from one system to the next.
    """
    count = len(columns[0])
    columns, address, stride, frame, tiling, cells = _PassArguments.of(columns, axes, box, of_one, bits)
    bins = math.prod(tiling.tiles) * math.prod(cells.along) + 1
    threads = threads_for(threads, count)
    rows = histogram_rows(count, bins, threads * _SHARES if threads > 1 else 1)
    histogram = np.empty((rows, bins), index_type(count))
    status = np.zeros((rows, 8), np.int64)
    status[:, 2] = -1
    threads = min(threads, rows)
    run(
        _count_cells, threads, address, stride, count, frame, tiling, cells, system, pitch, histogram, status,
        steps=20 * count,
    )  # fmt: skip
    return Counted(located(status), columns, address, stride, frame, tiling, cells, system, pitch, histogram, threads)


def place_positions(counted: Counted, records: np.ndarray, order: np.ndarray) -> TileOrdering:
    """Return the particles that were counted in the order of tiles, the same for any number of threads.

    Parameters
    ----------
    counted
        What `count_positions` returned; its places are used up.
    records : (4 N,)
        Written, in its own type. Fastest where it begins with a line of the cache.
    order : (N,) int32 or int64
        Written.
    """
    _, _, address, stride, frame, tiling, cells, system, pitch, histogram, threads = counted
    count, tiles = len(order), math.prod(tiling.tiles)
    start = np.empty(tiles * math.prod(cells.along) + 2, np.int64)
    scan(histogram, start, threads)
    run(
        _place_in_cells, threads, address, stride, count, frame, tiling, cells, system, pitch, histogram, records,
        order, steps=20 * count,
    )  # fmt: skip
    start = start[: -1 : math.prod(cells.along)].copy()  # of tiles, and behind the last
    most = tiles + count // CHUNK + 1
    tile, begin, end = (np.empty(most, np.int64) for _ in range(3))
    ready = np.empty((tiles, 2), np.int64)
    tasks = list_tasks(tiling, cells.chunk, start, tile, begin, end, ready)
    kept = int(start[tiles])
    return TileOrdering(tiling, cells, records, order, kept, tile[:tasks], begin[:tasks], end[:tasks], ready)
