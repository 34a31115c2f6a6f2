# SPDX-License-Identifier: BSD-3-Clause
"""Spreading into 64-bit integers on the CPU: tile by tile, as `particlemesh.spread.colouring` adds reals.

A contribution is a product of one particle's numbers only, rounded to an integer. So sums depend neither on the order
of particles, nor on tiles, threads, or the rest of the mesh.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.polynomial import polynomial

from particlemesh.arrays.operands import View
from particlemesh.backends.cpu import claimed, run, threads_for
from particlemesh.backends.jit import compiled
from particlemesh.backends.simd import fetch_add, release
from particlemesh.methods.by_tile import (
    SPARSE,
    await_turn,
    box_of,
    box_of_task,
    box_size,
    corner_of,
    last_stencil,
    place_of,
)
from particlemesh.particles.stencil import Axis
from particlemesh.particles.workspace import Workspace


class HostSums:
    """Sums of one configuration. Values that are not finite have the exponent ``no_bound``.

    Attributes
    ----------
    not_finite : bool
        Whether any value was.
    """

    def __init__(self, workspace: Workspace, no_bound: int) -> None:
        self.not_finite = False
        self._workspace, self._no_bound = workspace, no_bound
        self._crowd = 0  # the most particles whose stencils begin at one node
        if workspace.count:
            ordering = workspace.particles.ordering
            workers = min(threads_for(workspace.threads, workspace.count), len(ordering.ready))
            most = np.zeros(max(1, workers), np.int64)
            run(
                _crowd_tasks, workers, ordering.tiling, ordering.ready, ordering.kept, ordering.packed, most,
                steps=5 * workspace.count,
            )  # fmt: skip
            self._crowd = int(most.max())

    def quantities(self, values: View, order: int) -> list[np.ndarray]:
        """Return by channel what weights, or derivatives of that order, are multiplied by: (N, parts, quantities)."""
        return [_quantities_of(channel, self._workspace.jacobian, order) for channel in values.numpy()]

    @np.errstate(invalid="ignore")
    def bounds(self, numbers: list[np.ndarray], share: int) -> np.ndarray:
        """Return exponents: of a node, which gets up to ``share`` / 256 of a cell's particle, and of each part."""
        ordering, least = self._workspace.particles.ordering, int(np.finfo(self._workspace.dtype).minexp)
        bounds = [max(0, (self._crowd * share).bit_length() - 8)]
        for channel in numbers:
            some = channel if ordering.kept == len(channel) else channel[ordering.order[: ordering.kept]]
            for part in np.moveaxis(some, 1, 0):
                largest = float(np.abs(part).max(initial=0))
                exponent = max(math.frexp(largest)[1], least) if largest else least
                bounds.append(exponent if math.isfinite(largest) else self._no_bound)
        return np.array(bounds, np.int32)

    @np.errstate(invalid="ignore", over="ignore")  # particles without weight may have any values
    def add(self, numbers: list[np.ndarray], order: int, bounds: Any, sums: np.ndarray) -> None:
        """Add to integers (channels, nx, ny, nz, parts), in the units that ``bounds`` fix."""
        workspace, ordering = self._workspace, self._workspace.particles.ordering
        table = _table_of(workspace.window.table, workspace.axes, order, workspace.dtype)
        each = np.asarray(bounds, np.int64)[1:].reshape(len(numbers), -1)
        parts = each.shape[1]
        workers = min(threads_for(workspace.threads, workspace.count), max(1, len(ordering.tile)))
        boxes = np.zeros((workers, box_size(ordering.tiling, parts, parts * ordering.tiling.support[2])), np.int64)
        for channel, exponents, target in zip(numbers, each, sums, strict=True):
            bounded = exponents != self._no_bound
            scale = np.where(bounded, 62 - int(bounds[0]) - exponents, 0)[:, None]
            scaled = np.ldexp(np.where(bounded[:, None], channel, channel.dtype.type(0)), scale)
            whole = target if target.flags.c_contiguous else np.zeros(target.shape, np.int64)
            run(
                _add_tasks, workers, ordering.tiling, ordering.cells, ordering.tile, ordering.begin, ordering.end,
                ordering.ready, ordering.records, ordering.packed, ordering.order, np.ascontiguousarray(scaled), table,
                boxes, np.zeros(len(ordering.ready), np.int64), whole.reshape(-1), steps=200 * workspace.count,
            )  # fmt: skip
            if whole is not target:
                target += whole

    def convert(self, sums: np.ndarray, bounds: Any, field: np.ndarray, *, adds: bool) -> None:
        """Write the field that integers stand for, or add it."""
        each = np.asarray(bounds, np.int64)[1:].reshape(len(field), -1)
        for source, exponents, target in zip(sums, each, field, strict=True):
            for part, exponent in enumerate(exponents):
                if exponent == self._no_bound:
                    self.not_finite = True
                    target[..., part] = np.nan
                    continue
                numbers = np.ldexp(source[..., part].astype(field.dtype), int(exponent + bounds[0] - 62))
                target[..., part] = target[..., part] + numbers if adds else numbers


def _table_of(window_table: np.ndarray, axes: tuple[Axis, Axis, Axis], order: int, dtype: np.dtype) -> np.ndarray:
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


@np.errstate(invalid="ignore", over="ignore")  # particles without weight may have any values
def _quantities_of(values: np.ndarray, jacobian: np.ndarray, order: int) -> np.ndarray:
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
                corner = corner_of(low, packed[4 * k + 3] - origin)
            _add_box(tiling, parts, box, corner, shape, sums)
        release(done, this, chunk + 1)


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
