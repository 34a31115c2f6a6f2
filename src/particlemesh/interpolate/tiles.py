# SPDX-License-Identifier: BSD-3-Clause
"""Interpolation by tiles: each thread copies a box of the field and reads its particles' stencils there."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from particlemesh.arrays.operands import View
from particlemesh.backends.cpu import plain, ranges, run, threads_for
from particlemesh.backends.jit import compiled
from particlemesh.backends.simd import (
    fetch_add,
    fma,
    horner,
    item,
    keep,
    load,
    mul,
    prefetch,
    prefetch_to_write,
    put,
    splat,
    store,
    sums,
)
from particlemesh.methods.by_tile import (
    CALL,
    SPARSE,
    Rows,
    TileMethod,
    box_of_task,
    box_pitch,
    box_size,
    copy_box,
    corner_of,
    last_stencil,
    place_of,
    seconds_on_line,
)
from particlemesh.methods.contract import Problem
from particlemesh.orders.cpu.particles import Line, TileOrdering
from particlemesh.particles.locate import SKIP
from particlemesh.particles.stencil import Axis
from particlemesh.particles.workspace import Workspace

_AHEAD = 16  # particles between asking for a result's place and writing it
# On one axis: particles between asking for a node and reading it, and particles that a thread claims at once.
_NODES_AHEAD, _SHARE = 16, 4096


@compiled(inline="always")
def _put_sums(values, at, parts, even, odd):
    """Write a number of one part, or of two: the sums over lanes with even numbers and over the others."""
    if parts == 1:
        put(values, at, even + odd)
    else:
        put(values, at, even)
        put(values, at + 1, odd)


@compiled(inline="always")
def _put_row(values, at, parts, row):
    """Write the sums over lanes of a row."""
    even, odd = sums(row)
    _put_sums(values, at, parts, even, odd)


@compiled(inline="always")
def _read_values(
    tiling, begin, end, origin, most, mask, records, packed, order, values, rows, plane, pitch, box, weights
):  # fmt: skip
    """Interpolate at particles [begin, end) of the ordering in the private box."""
    table, terms, parts, width, missing = rows
    lanes = len(width)
    axis = terms * lanes
    sx, sy, sz = tiling.support
    zero = splat(box.dtype.type(0), width)
    if missing == 2:  # the weights of the other axes are 1
        for k in range(begin, end):
            prefetch_to_write(values, parts * item(order, min(k + _AHEAD, order.size - 1)))
            place = max(0, min(most, ((item(packed, 4 * k + 3) - origin) & mask) * parts))
            along = horner(table, 2 * axis, terms, item(records, 4 * k + 2), width)
            _put_row(values, parts * item(order, k), parts, keep(mul(along, load(box, place, width)), sz * parts))
        return
    if missing == 1:  # a loop of its own takes two thirds of the time
        for k in range(begin, end):
            prefetch_to_write(values, parts * item(order, min(k + _AHEAD, order.size - 1)))
            local = (item(packed, 4 * k + 3) - origin) & mask
            place = max(0, min(most, (local >> 10) * pitch + (local & 1023) * parts))
            store(weights, 0, horner(table, axis, terms, item(records, 4 * k + 1), width))
            total = zero
            for j in range(sy):
                total = fma(splat(item(weights, j), width), load(box, place, width), total)
                place += pitch
            along = horner(table, 2 * axis, terms, item(records, 4 * k + 2), width)
            _put_row(values, parts * item(order, k), parts, keep(mul(along, total), sz * parts))
        return
    for k in range(begin, end):
        prefetch_to_write(values, parts * item(order, min(k + _AHEAD, order.size - 1)))
        local = (item(packed, 4 * k + 3) - origin) & mask
        corner = (local >> 20) * plane + (local >> 10 & 1023) * pitch + (local & 1023) * parts
        corner = max(0, min(most, corner))
        store(weights, 0, horner(table, 0, terms, item(records, 4 * k), width))
        store(weights, lanes, horner(table, axis, terms, item(records, 4 * k + 1), width))
        total = zero
        for i in range(sx):
            place = corner + i * plane
            slab = zero
            for j in range(sy):
                slab = fma(splat(item(weights, lanes + j), width), load(box, place, width), slab)
                place += pitch
            total = fma(splat(item(weights, i), width), slab, total)
        along = horner(table, 2 * axis, terms, item(records, 4 * k + 2), width)
        _put_row(values, parts * item(order, k), parts, keep(mul(along, total), sz * parts))


@compiled(inline="always")
def _read_gradients(
    tiling, begin, end, origin, most, mask, records, packed, order, values, gradients, jacobian, rows, plane, pitch,
    box, weights,
):  # fmt: skip
    """Interpolate values (if there is room for any) and gradients in one pass over the stencils."""
    table, terms, parts, width, _ = rows
    lanes = len(width)
    axis = terms * lanes
    sx, sy, sz = tiling.support
    ndim = jacobian.shape[1]
    zero = splat(box.dtype.type(0), width)
    for k in range(begin, end):
        prefetch_to_write(gradients, ndim * parts * order[min(k + _AHEAD, order.size - 1)])
        local = (packed[4 * k + 3] - origin) & mask
        corner = (local >> 20) * plane + (local >> 10 & 1023) * pitch + (local & 1023) * parts
        corner = max(0, min(most, corner))
        x, y, z = records[4 * k], records[4 * k + 1], records[4 * k + 2]
        store(weights, 0, horner(table, 0, terms, x, width))
        store(weights, lanes, horner(table, axis, terms, y, width))
        store(weights, 2 * lanes, horner(table, 3 * axis, terms, x, width))
        store(weights, 3 * lanes, horner(table, 4 * axis, terms, y, width))
        total, slope_x, slope_y = zero, zero, zero
        for i in range(sx):
            place = corner + i * plane
            slab, across = zero, zero
            for j in range(sy):
                row = load(box, place, width)
                slab = fma(splat(weights[lanes + j], width), row, slab)
                across = fma(splat(weights[3 * lanes + j], width), row, across)
                place += pitch
            wx = splat(weights[i], width)
            total = fma(wx, slab, total)
            slope_y = fma(wx, across, slope_y)
            slope_x = fma(splat(weights[2 * lanes + i], width), slab, slope_x)
        along = horner(table, 2 * axis, terms, z, width)
        slope = horner(table, 5 * axis, terms, z, width)
        x_even, x_odd = sums(keep(mul(along, slope_x), sz * parts))
        y_even, y_odd = sums(keep(mul(along, slope_y), sz * parts))
        z_even, z_odd = sums(keep(mul(slope, total), sz * parts))
        if parts == 1:
            x_even, y_even, z_even = x_even + x_odd, y_even + y_odd, z_even + z_odd
        for b in range(ndim):
            jx, jy, jz = jacobian[0, b], jacobian[1, b], jacobian[2, b]
            at = (ndim * order[k] + b) * parts
            gradients[at] = jx * x_even + jy * y_even + jz * z_even
            if parts == 2:
                gradients[at + 1] = jx * x_odd + jy * y_odd + jz * z_odd
        if values.size:
            _put_row(values, parts * order[k], parts, keep(mul(along, total), sz * parts))


@compiled
def _read_tasks(
    tiling, cells, tile, begin, end, records, packed, order, values, gradients, jacobian, rows, size, field, counter
):  # fmt: skip
    """Do tasks until none is left."""
    parts, lanes = rows.parts, len(rows.width)
    box, weights = np.empty(size, field.dtype), np.empty(4 * lanes, field.dtype)
    support = tiling.support
    while True:  # measured: with claimed() tasks take a tenth longer
        task = fetch_add(counter, 0, 1)
        if task >= tile.size:
            return
        low, nodes, origin = box_of_task(tiling, cells, packed, tile[task], begin[task], end[task] - 1)
        # Few particles: one box per particle, the size of a stencil.
        dense = (end[task] - begin[task]) * support[0] * support[1] > SPARSE * nodes[0] * nodes[1]
        step = end[task] - begin[task] if dense else 1
        mask = -1 if dense else 0
        corner, shape = low, nodes if dense else support
        pitch = box_pitch(shape[2], support[2], parts, lanes)
        plane = shape[1] * pitch
        most = last_stencil(tiling, shape, parts, pitch)
        for k in range(begin[task], end[task], step):
            if not dense:
                corner = corner_of(low, packed[4 * k + 3] - origin)
            copy_box(tiling, parts, field, corner, shape, pitch, box)
            if jacobian is None:
                _read_values(
                    tiling, k, k + step, origin, most, mask, records, packed, order, values, rows, plane, pitch, box,
                    weights,
                )  # fmt: skip
            else:
                _read_gradients(
                    tiling, k, k + step, origin, most, mask, records, packed, order, values, gradients, jacobian, rows,
                    plane, pitch, box, weights,
                )  # fmt: skip


def read_tiles(
    ordering: TileOrdering, rows: Rows, field: np.ndarray, values: np.ndarray | None,
    gradients: np.ndarray | None = None, jacobian: np.ndarray | None = None, threads: int | None = None,
) -> None:  # fmt: skip
    """Interpolate a field's values, gradients, or both.

    Parameters
    ----------
    ordering, rows
        The particles and the window.
    field : (nx, ny, nz, parts)
        Contiguous.
    values : (N, parts), or None
        Contiguous; written.
    gradients : (N, d, parts), optional
        Contiguous; written, per user length.
    jacobian : (3, d), optional
        Slopes of mesh coordinates in user coordinates; given if and only if `gradients` is.
    threads
        The most threads to use; by default as many as suit N.
    """
    workers = min(threads_for(threads, len(ordering.order)), max(1, len(ordering.tile)))
    size = box_size(ordering.tiling, rows.parts, len(rows.width)) + 64 // field.itemsize  # apart from another thread's
    without = ordering.order[ordering.kept :]
    for results in (values, gradients):
        if results is not None and len(without):
            results[without] = 0
    nothing = np.empty(0, field.dtype)
    run(
        _read_tasks, workers, ordering.tiling, ordering.cells, ordering.tile, ordering.begin, ordering.end,
        ordering.records, ordering.packed, ordering.order, nothing if values is None else values.reshape(-1),
        None if gradients is None else gradients.reshape(-1), jacobian, rows, size, plain(field),
        steps=100 * len(ordering.order),
    )  # fmt: skip


class Tiles(TileMethod):
    """Tiles of the field copied to private memory, shared among threads by tasks.

    On one axis a tile would save nothing: the field is read as particles come.
    """

    name = "tiles"
    cite = "liu2014"
    order_independent = True  # a particle's value does not depend on the others, nor on the tile
    cut_independent = True
    # One thread, between a Xeon at 2.5 GHz (1.3 times these) and an EPYC (0.75): benchmarks/results/cpu-*.csv
    seconds = (9e-9, 0.43e-9, 0.57e-9, 2.5e-8, 2.2e-10)

    @classmethod
    def cost(cls, problem: Problem) -> tuple[float, float]:
        if problem.mesh.ndim > 1 or problem.sorted:
            return super().cost(problem)
        return 0.0, 0.6 * CALL + seconds_on_line(problem, 2.5e-9)[0] / threads_for(problem.threads, problem.count)

    def apply(
        self, workspace: Workspace, field: View, values: View | None, gradient: View | None = None,
        hessian: View | None = None, **_: Any,
    ) -> None:  # fmt: skip
        line = workspace.particles.line
        ordering = workspace.particles.ordering if hessian is not None or line is None else None
        rows = self.rows(workspace, field.layout.parts)
        jacobian = None if gradient is None else workspace.jacobian
        targets = [None if view is None else view.numpy() for view in (values, gradient)]
        for b, source in enumerate(field.numpy()):
            batch = [None if target is None else target[b] for target in targets]
            whole = [None if t is None else t if t.flags.c_contiguous else np.empty(t.shape, t.dtype) for t in batch]
            nodes = np.ascontiguousarray(source)
            if ordering is None:
                slope = float(workspace.jacobian[2, 0])
                for result, factor in zip(whole, (0.0, slope), strict=True):
                    if result is not None:
                        its = nodes.reshape(-1, rows.parts), result
                        read_line(line, rows, workspace.axes[2], *its, factor, workspace.threads)
            elif values is not None or gradient is not None:
                read_tiles(ordering, rows, nodes, whole[0], whole[1], jacobian, workspace.threads)
            for target, result in zip(batch, whole, strict=True):
                if target is not None and result is not target:
                    target[...] = result
            if hessian is not None and ordering is not None:
                self._hessian(workspace, ordering, nodes, hessian.numpy()[b])

    def _hessian(self, workspace: Workspace, ordering: TileOrdering, field: np.ndarray, hessian: np.ndarray) -> None:
        """Write second derivatives (N, d, d, parts): the gradient of each derivative, by axis."""
        slopes = np.empty((*hessian.shape[:2], field.shape[-1]), field.dtype)
        hessian[...] = 0
        for rows, along in self.derived(workspace, field.shape[-1]):
            read_tiles(ordering, rows, field, None, slopes, workspace.jacobian, workspace.threads)
            for b, factor in enumerate(along):
                if factor:
                    hessian[:, b, b:] += factor * slopes[:, b:]
        for b, c in itertools.combinations(range(workspace.mesh.ndim), 2):
            hessian[:, c, b] = hessian[:, b, c]


# ---- one axis: particle after particle in the caller's order --------------------------------------------------------


@compiled
def _read_line(node, fraction, field, support, slope, rows, size, wraps, results, counter):
    """Interpolate a field's values, or gradients if ``slope`` is not 0, a share at a time until none is left."""
    table, terms, parts, width, _ = rows
    lanes, zero = len(width), field.dtype.type(0)
    offset = (2 if slope == 0 else 5) * terms * lanes
    factor = field.dtype.type(1 if slope == 0 else slope)
    gathered = np.zeros(lanes, field.dtype)
    count, last = node.size, size * parts - lanes
    for begin, end in ranges(counter, count, _SHARE):
        for k in range(begin, end):
            prefetch(field, parts * item(node, min(k + _NODES_AHEAD, count - 1)))
            first, at = np.int64(item(node, k)), parts * k
            place = first * parts
            if first == SKIP:
                for part in range(parts):
                    put(results, at + part, zero)
                continue
            if first >= 0 and place <= last:
                row = load(field, place, width)
            else:
                for j in range(support):
                    n = place_of(first + j, size, wraps)
                    for part in range(parts):
                        gathered[j * parts + part] = field[n * parts + part] if n >= 0 else zero
                row = load(gathered, 0, width)
            even, odd = sums(keep(mul(horner(table, offset, terms, item(fraction, k), width), row), support * parts))
            _put_sums(results, at, parts, factor * even, factor * odd)


def read_line(
    line: Line, rows: Rows, axis: Axis, field: np.ndarray, results: np.ndarray, slope: float = 0.0,
    threads: int | None = None,
) -> None:  # fmt: skip
    """Interpolate a field's values or gradients.

    Parameters
    ----------
    line, rows, axis
        The particles, the window and the mesh's axis.
    field : (nodes, parts)
        Contiguous.
    results : (N, parts)
        Contiguous; written.
    slope : float
        Of node coordinates in user coordinates, for gradients.
    threads
        The most threads to use; by default as many as suit N.
    """
    count = len(line.node)
    run(
        _read_line, threads_for(threads, count), *line, plain(field.reshape(-1)), axis.support, slope, rows, axis.size,
        bool(axis.wraps), results.reshape(-1), steps=20 * count,
    )  # fmt: skip
