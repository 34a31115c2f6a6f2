# SPDX-License-Identifier: BSD-3-Clause
"""Spreading into 64-bit integers on the CPU: tile by tile, as `particlemesh.spread.colouring` adds reals.

A contribution is a product of one particle's numbers only, rounded to an integer. So sums depend neither on the order
of particles, nor on tiles, threads, or the rest of the mesh.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.polynomial import polynomial

from particlemesh.backends.cpu import claimed, run, threads_for
from particlemesh.backends.jit import compiled
from particlemesh.backends.simd import fetch_add, release
from particlemesh.orders.cpu.stencils import SPARSE, place_of
from particlemesh.orders.cpu.tiles import TileOrdering, await_turn, box_of, box_of_task, last_stencil
from particlemesh.particles.stencil import Axis


def table_of(window_table: np.ndarray, axes: tuple[Axis, Axis, Axis], order: int, dtype: np.dtype) -> np.ndarray:
    """Return the polynomials of derivatives up to an order: (order + 1, axis, power, node), highest power first."""
    support, terms = window_table.shape
    table = np.zeros((order + 1, 3, terms, support), dtype)
    for a, axis in enumerate(axes):
        if axis.scale == 0:  # a missing axis: weight 1 at its only node, slope 0
            table[0, a, -1, 0] = 1
            continue
        for n in range(order + 1):
            derived = polynomial.polyder(window_table, n, axis=1)
            table[n, a, terms - derived.shape[1] :] = derived[:, ::-1].T
    return table


@compiled
def _factors(table, x, y, z, factors):
    """Write weights and derivatives along the three axes: (order + 1, axis, node)."""
    orders, _, terms, support = table.shape
    for n in range(orders):
        for a in range(3):
            at = x if a == 0 else y if a == 1 else z
            for j in range(support):
                factors[n, a, j] = table[n, a, 0, j]
            for t in range(1, terms):
                for j in range(support):
                    factors[n, a, j] = factors[n, a, j] * at + table[n, a, t, j]


@compiled
def _add_row(box, place, factors, values, at, parts, i, j, support):
    """Add one row of a stencil. Its factors follow from those of nodes i and j along the other axes."""
    orders = factors.shape[0]
    wx, wy = factors[0, 0, i], factors[0, 1, j]
    w, d, h = factors[0, 2], factors[min(1, orders - 1), 2], factors[orders - 1, 2]
    for p in range(parts):
        if orders == 1:
            straight = wx * wy * values[at, p, 0]
            for k in range(support):
                box[place + k * parts + p] += np.int64(np.rint(straight * w[k]))
            continue
        dx, dy = factors[1, 0, i], factors[1, 1, j]
        if orders == 2:
            straight = dx * wy * values[at, p, 0] + wx * dy * values[at, p, 1]
            sloped = wx * wy * values[at, p, 2]
            for k in range(support):
                box[place + k * parts + p] += np.int64(np.rint(straight * w[k] + sloped * d[k]))
            continue
        curved = wx * wy * values[at, p, 0]
        sloped = dx * wy * values[at, p, 1] + wx * dy * values[at, p, 2]
        straight = factors[2, 0, i] * wy * values[at, p, 3] + dx * dy * values[at, p, 4]
        straight += wx * factors[2, 1, j] * values[at, p, 5]
        for k in range(support):
            box[place + k * parts + p] += np.int64(np.rint(straight * w[k] + sloped * d[k] + curved * h[k]))


@compiled
def _add_box(tiling, parts, box, low, rows, sums):
    """Add a private box of nodes from ``low`` on to the sums, and clear it."""
    for i in range(rows[0]):
        x = place_of(low[0] + i, tiling.size[0], tiling.wraps[0])
        for j in range(rows[1]):
            y = place_of(low[1] + j, tiling.size[1], tiling.wraps[1])
            source = (i * rows[1] + j) * rows[2] * parts
            if x >= 0 and y >= 0:
                for k in range(rows[2]):
                    z = place_of(low[2] + k, tiling.size[2], tiling.wraps[2])
                    if z >= 0:
                        target = ((x * tiling.size[1] + y) * tiling.size[2] + z) * parts
                        for p in range(parts):
                            sums[target + p] += box[source + k * parts + p]
            box[source : source + rows[2] * parts] = 0


@compiled
def _add_tasks(
    tiling, cells, tile, begin, end, ready, records, packed, order, values, table, boxes, done, sums, counter
):  # fmt: skip
    """Do tasks until none is left; `await_turn` keeps two threads from adding to one node."""
    parts = values.shape[1]
    box = boxes[fetch_add(counter, 1, 1)]
    factors = np.empty((table.shape[0], 3, table.shape[3]), table.dtype)
    sx, sy, sz = tiling.support
    for task in claimed(counter, tile.size):
        this = tile[task]
        chunk = (begin[task] - ready[this, 0]) // cells.chunk
        low, nodes, origin = box_of_task(tiling, cells, packed, this, begin[task], end[task] - 1)
        dense = (end[task] - begin[task]) * sx * sy > SPARSE * nodes[0] * nodes[1]
        step = end[task] - begin[task] if dense else 1
        mask = -1 if dense else 0
        corner, shape = low, nodes if dense else tiling.support
        most = last_stencil(tiling, shape, parts, shape[2] * parts)
        for k in range(begin[task], end[task], step):
            for n in range(k, k + step):
                local = (packed[4 * n + 3] - origin) & mask
                place = (((local >> 20) * shape[1] + (local >> 10 & 1023)) * shape[2] + (local & 1023)) * parts
                place = max(0, min(most, place))
                _factors(table, records[4 * n], records[4 * n + 1], records[4 * n + 2], factors)
                for i in range(sx):
                    for j in range(sy):
                        row = place + (i * shape[1] + j) * shape[2] * parts
                        _add_row(box, row, factors, values, order[n], parts, i, j, sz)
            if k == begin[task]:
                await_turn(tiling, ready, tile.size + 1, done, this, chunk)
            if not dense:
                local = packed[4 * k + 3] - origin
                corner = (low[0] + (local >> 20), low[1] + (local >> 10 & 1023), low[2] + (local & 1023))
            _add_box(tiling, parts, box, corner, shape, sums)
        release(done, this, chunk + 1)


def add_integers(
    ordering: TileOrdering, table: np.ndarray, values: np.ndarray, sums: np.ndarray, threads: int | None = None
) -> None:
    """Add scaled values to integers.

    Parameters
    ----------
    ordering
        The particles.
    table
        From `table_of`.
    values : (N, parts, quantities)
        Scaled, contiguous: 1 value, 3 slopes (x, y, z), or 6 second derivatives (zz, xz, yz, xx, xy, yy).
    sums : (nx, ny, nz, parts) int64
        Contiguous; added to.
    threads
        The most threads to use; by default as many as suit N.
    """
    workers = min(threads_for(threads, len(ordering.order)), max(1, len(ordering.tile)))
    boxes = np.zeros((workers, _box_size(ordering) * values.shape[1]), np.int64)
    run(
        _add_tasks, workers, ordering.tiling, ordering.cells, ordering.tile, ordering.begin, ordering.end,
        ordering.ready, ordering.records, ordering.packed, ordering.order, values, table, boxes,
        np.zeros(len(ordering.ready), np.int64), sums.reshape(-1), steps=200 * len(ordering.order),
    )  # fmt: skip


def _box_size(ordering: TileOrdering) -> int:
    """Return how many nodes the largest tile reaches."""
    tiling, size = ordering.tiling, 1
    for bits, extent, tiles, support in zip(tiling.bits, tiling.extent, tiling.tiles, tiling.support, strict=True):
        width = 1 << bits
        size *= max(width if tiles > 1 else 0, extent - (tiles - 1) * width) + support - 1
    return size


@compiled
def _crowd_tasks(tiling, ready, kept, packed, most, counter):
    """Write the most particles of a cell, tile by tile until none is left."""
    row = fetch_add(counter, 1, 1)
    counts = np.zeros(0, np.int64)
    for this in claimed(counter, ready.shape[0]):
        begin, end = ready[this, 0], ready[this + 1, 0] if this + 1 < ready.shape[0] else kept
        _, nodes = box_of(tiling, this)
        cells = nodes[0] * nodes[1] * nodes[2]
        if counts.size < cells:
            counts = np.zeros(cells, np.int64)
        for n in range(begin, end):
            local = packed[4 * n + 3]
            cell = ((local >> 20) * nodes[1] + (local >> 10 & 1023)) * nodes[2] + (local & 1023)
            counts[cell] += 1
            most[row] = max(most[row], counts[cell])
        for n in range(begin, end):
            local = packed[4 * n + 3]
            counts[((local >> 20) * nodes[1] + (local >> 10 & 1023)) * nodes[2] + (local & 1023)] = 0


def crowd(ordering: TileOrdering, threads: int | None = None) -> int:
    """Return the largest number of particles whose stencils begin at one node."""
    workers = min(threads_for(threads, len(ordering.order)), len(ordering.ready))
    most = np.zeros(max(1, workers), np.int64)
    run(
        _crowd_tasks, workers, ordering.tiling, ordering.ready, ordering.kept, ordering.packed, most,
        steps=5 * len(ordering.order),
    )  # fmt: skip
    return int(most.max())


@np.errstate(invalid="ignore", over="ignore")  # particles without weight may have any values
def quantities(values: np.ndarray, jacobian: np.ndarray, order: int) -> np.ndarray:
    """Return what weights are multiplied by: (N, parts, quantities) of values (N, [d, [d,]] parts).

    Sums of few numbers in one order: they are the same for a particle wherever it is in the array.
    """
    if order == 0:
        return values[:, :, None]
    ndim = jacobian.shape[1]
    if order == 1:
        columns = [sum(jacobian[a, b] * values[:, b] for b in range(ndim)) for a in range(3)]
    else:
        columns = []
        for first, second in ((2, 2), (0, 2), (1, 2), (0, 0), (0, 1), (1, 1)):
            total = np.zeros((len(values), values.shape[-1]), values.dtype)
            for b in range(ndim):
                for c in range(ndim):
                    slope = jacobian[first, b] * jacobian[second, c]
                    if first != second:
                        slope = slope + jacobian[second, b] * jacobian[first, c]
                    total += slope * values[:, b, c]
            columns.append(total)
    return np.stack(columns, axis=-1)


@np.errstate(invalid="ignore")
def exponents(numbers: np.ndarray, least: int, not_finite: int) -> list[int]:
    """Return for each part of (N, parts, quantities) the exponent e of a bound 2**e, from ``least`` up."""
    result = []
    for part in np.moveaxis(numbers, 1, 0):
        largest = float(np.abs(part).max(initial=0))
        exponent = math.frexp(largest)[1] if largest else least
        result.append(max(exponent, least) if math.isfinite(largest) else not_finite)
    return result
