# SPDX-License-Identifier: BSD-3-Clause
"""Particles of one axis in the caller's order: first nodes and fractions, and from these the order of tiles.

On one axis a stencil is a few neighbouring numbers, so sorting takes longer than all that it could save.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from particlemesh.backends.cpu import ranges, run, threads_for
from particlemesh.backends.jit import compiled
from particlemesh.backends.simd import fetch_add, store_record
from particlemesh.orders.cpu.tiles import CHUNK, Cells, TileOrdering, list_tasks, tiling_of
from particlemesh.particles.locate import BLOCK, SKIP, Located, block_room, frame_of, locate_block, located, note_bad
from particlemesh.sorting.cpu import counting_sort

if TYPE_CHECKING:
    from particlemesh.box import Box
    from particlemesh.particles.stencil import Axis


class Line(NamedTuple):
    """Stencils of particles on one axis, in the caller's order."""

    node: np.ndarray  # (rows,) int32: first nodes, SKIP without weight
    fraction: np.ndarray  # (rows,)


@compiled
def _locate(address, stride, frame, system, pitch, nodes, fractions, status, counter):
    """Write first nodes and fractions, a block at a time until none is left."""
    room = block_room(frame)
    row = fetch_add(counter, 1, 1)
    node, fraction, bad = room[0][2], room[1][2], room[2]
    for begin, end in ranges(counter, nodes.size, BLOCK):
        length = end - begin
        if locate_block(address, stride, frame, begin, length, room):
            note_bad(begin, length, bad, status[row])
        if system is not None:
            for k in range(length):
                node[k] += np.int32(0) if node[k] == SKIP else system[begin + k] * np.int32(pitch)
        some_nodes, some_fractions = nodes[begin:end], fractions[begin:end]  # these loops become vector instructions
        for k in range(length):
            some_nodes[k] = node[k]
        for k in range(length):
            some_fractions[k] = fraction[k]


def locate_line(
    columns: Sequence[np.ndarray], axes: tuple[Axis, Axis, Axis], box: Box, line: Line, threads: int | None = None, *,
    system: np.ndarray | None = None, pitch: int = 0,
) -> Located:  # fmt: skip
    """Write first nodes and fractions to ``line``, and return what is wrong with positions; never raise for it.

    Parameters
    ----------
    columns : one array of shape (N,), float32 or float64
        Positions, of any stride.
    axes, box
        As for `particlemesh.particles.locate.frame_of`; of one of several systems.
    line : Line
        Arrays (N,), which are written.
    threads
        The most threads to use; by default as many as suit N.
    system, pitch
        int32 (N,) the system of each particle, and nodes from one system to the next.
    """
    (x,) = columns
    x = x if x.dtype.isnative else x.astype(x.dtype.newbyteorder("="))
    threads = threads_for(threads, len(x))
    status = np.zeros((threads, 8), np.int64)
    status[:, 2] = -1
    address, stride = np.array([x.__array_interface__["data"][0]]), np.array([x.strides[0]])
    run(
        _locate, threads, address, stride, frame_of(axes, box, x.dtype), system, pitch, *line, status,
        steps=10 * len(x),
    )  # fmt: skip
    return located(status)


@compiled
def _write_records(node, fraction, low, bits, tiles, order, records, counter):
    """Write the particles in the order of tiles."""
    zero = records.dtype.type(0)
    for begin, end in ranges(counter, order.size, BLOCK):
        for k in range(begin, end):
            i = order[k]
            at = np.int64(node[i]) - low
            local = at - (min(at >> bits, tiles - 1) << bits)
            store_record(records, 4 * k, zero, zero, fraction[i], local)


def tiles_of_line(
    line: Line, axes: tuple[Axis, Axis, Axis], records: np.ndarray, threads: int | None = None
) -> TileOrdering:
    """Return the particles in the order of tiles, as `orders.cpu.placing` makes it of positions.

    Parameters
    ----------
    line, axes
        The particles and the mesh.
    records : (4 N,)
        Written.
    threads
        The most threads to use; by default as many as suit N.
    """
    tiling, count = tiling_of(axes), len(line.node)
    cells = Cells.of(tiling, count)
    low, bits, tiles = tiling.low[2], tiling.bits[2], tiling.tiles[2]
    at = line.node.astype(np.int64) - low
    keys = np.minimum(at >> bits, tiles - 1)
    keys[line.node == SKIP] = tiles
    threads = threads_for(threads, count)
    placed = counting_sort(keys.astype(np.int32), tiles + 1, threads)
    run(_write_records, threads, *line, low, bits, tiles, placed.order, records, steps=20 * count)
    start = placed.start[:-1].copy()
    most = tiles + count // CHUNK + 1
    tile, begin, end = (np.empty(most, np.int64) for _ in range(3))
    ready = np.empty((tiles, 2), np.int64)
    tasks = list_tasks(tiling, cells.chunk, start, tile, begin, end, ready)
    return TileOrdering(
        tiling, cells, records, placed.order, int(start[tiles]), tile[:tasks], begin[:tasks],
        end[:tasks], ready,
    )  # fmt: skip
