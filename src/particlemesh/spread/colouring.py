# SPDX-License-Identifier: BSD-3-Clause
"""Spreading by tiles in private memory, added to the field in a fixed order without atomic additions.

A field holds numbers (``colouring``), or integers (``fixed_point``), of which any order has the same sums.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, TypeAlias

import numpy as np

from particlemesh.arrays.operands import View
from particlemesh.backends.cpu import CLEARED, PARTICLES_PER_THREAD, claimed, clear, plain, run, threads_for
from particlemesh.backends.jit import compiled
from particlemesh.backends.simd import (
    add_product,
    alternate,
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
    release,
    rounded,
    scaled,
    splat,
    store,
)
from particlemesh.methods.by_tile import (
    CALL,
    SPARSE,
    Rows,
    TileMethod,
    add_box,
    add_rows,
    await_count,
    await_turn,
    box_of_task,
    box_pitch,
    box_size,
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
from particlemesh.sorting.cpu import share_of

_AHEAD = 16  # particles between asking for a value and using it
_APART = 16  # numbers between boxes: two threads write to no line of the cache in common
_KEPT = 8  # numbers of crowded tiles' boxes per particle, at most: twice the bytes of records in the same precision
# On one axis:
_SHARES = 16  # of the particles, each with a field of its own; results depend on their number, which depends on sizes
_LEAST = 1 << 15  # particles of a share
_PER_NODE = 1  # particles of a share per node of its field, which is cleared and added
_LONG = 1 << 13  # particles of a share where nodes are few: float32 sums of more lose digits
_PICKED = 1 << 12  # particles of which a thread picks those of its piece of the nodes
_PIECE = 1 << 13  # nodes of a piece, at least


Scale: TypeAlias = tuple[float, float]  # factors of both parts of a number


def terms_of(
    rows: Callable[[int, int | None], Rows], jacobian: np.ndarray, channel: np.ndarray, order: int
) -> Iterator[tuple[Rows, np.ndarray]]:
    """Yield rows of the window, and values (N, parts), or vectors (N, d, parts) against their slopes.

    Second derivatives are vectors against the slopes of each first one. Sums of few numbers have one order: they are
    the same for a particle wherever it is in the array.
    """
    parts = channel.shape[-1]
    if order < 2:
        yield rows(parts, None), channel
        return
    for axis in range(3 - jacobian.shape[1], 3):
        along = jacobian[axis]
        yield rows(parts, axis), np.asarray(sum(along[b] * channel[:, b] for b in np.flatnonzero(along)))


def add_channel(
    workspace: Workspace, rows: Callable[[int, int | None], Rows], channel: np.ndarray, order: int, target: np.ndarray,
    *, fresh: bool, scale: Scale | None = None,
) -> None:  # fmt: skip
    """Add values to one channel of a field, of numbers or of integers: see `spread_tiles`.

    Parameters
    ----------
    workspace
        The configuration.
    rows
        Of so many parts, and of the derivative along an axis or None.
    channel : (N, [d, [d,]] parts)
        Values, vectors or tensors, by ``order``.
    target : (nx, ny, nz, parts)
        In any memory order.
    fresh
        Whether the target is written, not added to.
    scale
        See `spread_tiles`.
    """
    line = workspace.particles.line if order < 2 else None
    ordering = workspace.particles.ordering if line is None else None
    within = target.flags.c_contiguous
    whole, clears = target if within else np.empty(target.shape, target.dtype), fresh or not within
    for row, some in terms_of(rows, workspace.jacobian, channel, order):
        numbers, threads = np.ascontiguousarray(some), workspace.threads
        jacobian = workspace.jacobian.astype(row.table.dtype, copy=False) if order else None
        if line is not None:
            nodes, numbers = whole.reshape(-1, row.parts), numbers.reshape(-1, row.parts)
            slope = 0.0 if jacobian is None else float(jacobian[2, 0])
            spread_line(line, row, workspace.axes[2], numbers, nodes, slope, threads, fresh=clears, scale=scale)
        else:
            assert ordering is not None
            spread_tiles(ordering, row, numbers, whole, jacobian, threads, fresh=clears, scale=scale)
        clears = False
    if not within:
        np.copyto(target, whole) if fresh else np.add(target, whole, out=target)


@compiled
def _scaled(values, at, parts, scale, width):
    """Return the parts of a number in turn, times the scale of each unless that is None."""
    even, odd = scaled(item(values, at), item(values, at + parts - 1), scale)
    return alternate(even, odd, width)


@compiled(inline="always")
def _spread_values(
    tiling, begin, end, origin, most, mask, records, packed, order, values, scale, rows, plane, pitch, box, weights
):  # fmt: skip
    """Add particles [begin, end) of the ordering to the private box, of numbers or of integers."""
    table, terms, parts, width, missing = rows
    real = table.dtype.type
    lanes = len(width)
    axis = terms * lanes
    sx, sy, sz = tiling.support
    if missing == 2:  # the weights of the other axes are 1
        for k in range(begin, end):
            prefetch(values, parts * item(order, min(k + _AHEAD, order.size - 1)))
            at = parts * item(order, k)
            place = max(0, min(most, ((item(packed, 4 * k + 3) - origin) & mask) * parts))
            along = horner(table, 2 * axis, terms, real(item(records, 4 * k + 2)), width)
            along = keep(mul(along, _scaled(values, at, parts, scale, width)), sz * parts)
            store(box, place, add_product(along, splat(real(1), width), load(box, place, width)))
        return
    if missing == 1:  # a loop of its own takes two thirds of the time
        for k in range(begin, end):
            prefetch(values, parts * item(order, min(k + _AHEAD, order.size - 1)))
            at = parts * item(order, k)
            local = (item(packed, 4 * k + 3) - origin) & mask
            place = max(0, min(most, (local >> 10) * pitch + (local & 1023) * parts))
            store(weights, 0, horner(table, axis, terms, real(item(records, 4 * k + 1)), width))
            along = horner(table, 2 * axis, terms, real(item(records, 4 * k + 2)), width)
            along = keep(mul(along, _scaled(values, at, parts, scale, width)), sz * parts)
            for j in range(sy):
                store(box, place, add_product(splat(item(weights, j), width), along, load(box, place, width)))
                place += pitch
        return
    for k in range(begin, end):
        prefetch(values, parts * item(order, min(k + _AHEAD, order.size - 1)))
        at = parts * item(order, k)
        local = (item(packed, 4 * k + 3) - origin) & mask
        corner = (local >> 20) * plane + (local >> 10 & 1023) * pitch + (local & 1023) * parts
        corner = max(0, min(most, corner))
        store(weights, 0, horner(table, 0, terms, real(item(records, 4 * k)), width))
        store(weights, lanes, horner(table, axis, terms, real(item(records, 4 * k + 1)), width))
        along = horner(table, 2 * axis, terms, real(item(records, 4 * k + 2)), width)
        along = keep(mul(along, _scaled(values, at, parts, scale, width)), sz * parts)
        for i in range(sx):
            row = mul(along, splat(weights[i], width))
            place = corner + i * plane
            for j in range(sy):
                store(box, place, add_product(splat(weights[lanes + j], width), row, load(box, place, width)))
                place += pitch


@compiled(inline="always")
def _spread_vectors(
    tiling, begin, end, origin, most, mask, records, packed, order, values, scale, jacobian, rows, plane, pitch, box,
    weights,
):  # fmt: skip
    """Add the slopes of particles [begin, end) times their vectors to the private box, of numbers or of integers."""
    table, terms, parts, width, _ = rows
    real = table.dtype.type
    lanes = len(width)
    axis = terms * lanes
    sx, sy, sz = tiling.support
    ndim = jacobian.shape[1]
    for k in range(begin, end):
        prefetch(values, ndim * parts * order[min(k + _AHEAD, order.size - 1)])
        at = ndim * parts * order[k]
        local = (packed[4 * k + 3] - origin) & mask
        corner = (local >> 20) * plane + (local >> 10 & 1023) * pitch + (local & 1023) * parts
        corner = max(0, min(most, corner))
        x, y, z = real(records[4 * k]), real(records[4 * k + 1]), real(records[4 * k + 2])
        store(weights, 0, horner(table, 0, terms, x, width))
        store(weights, lanes, horner(table, axis, terms, y, width))
        store(weights, 2 * lanes, horner(table, 3 * axis, terms, x, width))
        store(weights, 3 * lanes, horner(table, 4 * axis, terms, y, width))
        value = horner(table, 2 * axis, terms, z, width)
        slope = horner(table, 5 * axis, terms, z, width)
        vx = _scaled(values, at, parts, scale, width)
        vy = mul(splat(jacobian[1, 0], width), vx)
        vz = mul(splat(jacobian[2, 0], width), vx)
        vx = mul(splat(jacobian[0, 0], width), vx)
        for b in range(1, ndim):
            at += parts
            v = _scaled(values, at, parts, scale, width)
            vx = fma(splat(jacobian[0, b], width), v, vx)
            vy = fma(splat(jacobian[1, b], width), v, vy)
            vz = fma(splat(jacobian[2, b], width), v, vz)
        vx = keep(mul(vx, value), sz * parts)
        vy = keep(mul(vy, value), sz * parts)
        vz = keep(mul(vz, slope), sz * parts)
        for i in range(sx):
            wx, dx = splat(weights[i], width), splat(weights[2 * lanes + i], width)
            straight = fma(dx, vx, mul(wx, vz))
            across = mul(wx, vy)
            place = corner + i * plane
            for j in range(sy):
                row = add_product(splat(weights[lanes + j], width), straight, load(box, place, width))
                store(box, place, add_product(splat(weights[3 * lanes + j], width), across, row))
                place += pitch


@compiled
def _box_places(tiling, cells, packed, tile, begin, end, tasks, parts, lanes, places, reached):
    """Write first node, nodes, packed place in the tile and offset of each crowded task's box; return all numbers.

    Mark the nodes of the first axis that boxes reach.
    """
    total, axis = 0, _first_axis(tiling)
    for k in range(places.shape[0]):
        task = tasks[k]
        low, nodes, origin = box_of_task(tiling, cells, packed, tile[task], begin[task], end[task] - 1)
        for a in range(3):
            places[k, a], places[k, 3 + a] = low[a], nodes[a]
        places[k, 6], places[k, 7] = origin, total
        total += nodes[0] * nodes[1] * box_pitch(nodes[2], tiling.support[2], parts, lanes) + _APART
        for i in range(nodes[axis]):
            node = place_of(low[axis] + i, tiling.size[axis], tiling.wraps[axis])
            if node >= 0:
                reached[node] = True
    return total


@compiled
def _first_axis(tiling):
    """Return the first axis along which the field has several nodes, except the last."""
    return 0 if tiling.size[0] > 1 else 1


@compiled(inline="always")
def _box_place(places, k):
    """Return first node, nodes, packed place in the tile and offset of a crowded task's box."""
    low, nodes = (places[k, 0], places[k, 1], places[k, 2]), (places[k, 3], places[k, 4], places[k, 5])
    return low, nodes, places[k, 6], places[k, 7]


@compiled
def _add_crowded(tiling, parts, lanes, node, places, kept, field):
    """Add the rows of all crowded boxes that lie at one node of the first axis, in the order of tasks."""
    axis = _first_axis(tiling)
    size = tiling.size[axis]
    for k in range(places.shape[0]):
        low, nodes, _, offset = _box_place(places, k)
        first = node - low[axis]
        first = first % size if tiling.wraps[axis] else first
        pitch = box_pitch(nodes[2], tiling.support[2], parts, lanes)
        for i in range(first if first >= 0 else nodes[axis], nodes[axis], size):
            planes, lines = ((i, i + 1), (0, nodes[1])) if axis == 0 else ((0, nodes[0]), (i, i + 1))
            add_rows(tiling, parts, kept[offset:], low, nodes, pitch, planes, lines, False, field)


@compiled
def _spread_tasks(
    tiling, cells, tile, begin, end, ready, records, packed, order, values, scale, jacobian, rows, size, clears, tasks,
    limit, places, reached, kept, done, field, counter,
):  # fmt: skip
    """Clear the field, in ``clears`` shares, do crowded tasks, do the others, and add the boxes of the crowded ones.

    Tiles with ``limit`` tasks and more are crowded.

    Every thread runs this; results do not depend on which thread does which share. The last two numbers of ``done``
    count shares that are cleared and tasks that are done.
    """
    parts, lanes = rows.parts, len(rows.width)
    private = np.zeros(size, field.dtype)  # by each thread: near to its core, and often in its cache
    weights = np.empty(4 * lanes, rows.table.dtype)
    support = tiling.support
    cleared, finished = done.size - 2, done.size - 1
    for share in claimed(counter, clears + tile.size + reached.size):
        if share < clears:
            first, last = share_of(field.size, clears, share)
            field[first:last] = 0
            fetch_add(done, cleared, 1)
            continue
        if share >= clears + tile.size:
            await_count(done, cleared, clears)
            await_count(done, finished, tile.size)
            _add_crowded(tiling, parts, lanes, reached[share - clears - tile.size], places, kept, field)
            continue
        task = tasks[share - clears]
        this = tile[task]
        chunk = (begin[task] - ready[this, 0]) // cells.chunk
        crowded = share - clears < places.shape[0]
        if crowded:
            low, nodes, origin, offset = _box_place(places, share - clears)
        else:
            low, nodes, origin = box_of_task(tiling, cells, packed, this, begin[task], end[task] - 1)
            offset = 0
        # Few particles: one box per particle, the size of a stencil.
        dense = crowded or (end[task] - begin[task]) * support[0] * support[1] > SPARSE * nodes[0] * nodes[1]
        step = end[task] - begin[task] if dense else 1
        mask = -1 if dense else 0
        corner, shape = low, nodes if dense else support
        pitch = box_pitch(shape[2], support[2], parts, lanes)
        plane = shape[1] * pitch
        most = last_stencil(tiling, shape, parts, pitch)
        box = kept[offset : offset + shape[0] * plane] if crowded else private
        if crowded:
            box[:] = 0
        for k in range(begin[task], end[task], step):
            if jacobian is None:
                _spread_values(
                    tiling, k, k + step, origin, most, mask, records, packed, order, values, scale, rows, plane, pitch,
                    box, weights,
                )  # fmt: skip
            else:
                _spread_vectors(
                    tiling, k, k + step, origin, most, mask, records, packed, order, values, scale, jacobian, rows,
                    plane, pitch, box, weights,
                )  # fmt: skip
            if crowded:
                continue
            if k == begin[task]:
                await_count(done, cleared, clears)
                await_turn(tiling, ready, limit, done, this, chunk)
            if not dense:
                corner = corner_of(low, packed[4 * k + 3] - origin)
            add_box(tiling, parts, box, corner, shape, pitch, field)
        if not crowded:
            release(done, this, chunk + 1)
        fetch_add(done, finished, 1)


def spread_tiles(
    ordering: TileOrdering, rows: Rows, values: np.ndarray, field: np.ndarray, jacobian: np.ndarray | None = None,
    threads: int | None = None, *, fresh: bool = False, scale: Scale | None = None,
) -> None:  # fmt: skip
    """Add values, or vectors against the window's slopes, to a field of numbers or of integers.

    Parameters
    ----------
    ordering, rows
        The particles and the window.
    values : (N, parts), or (N, d, parts) if `jacobian` is given
        Contiguous.
    field : (nx, ny, nz, parts)
        Contiguous; added to.
    jacobian : (3, d), optional
        Slopes of mesh coordinates in user coordinates.
    threads
        The most threads to use; by default as many as suit N.
    fresh
        Whether the field is cleared before.
    scale
        What both parts of values are multiplied by. A field of int64 needs float64 rows and scales.
    """
    clears = -(-field.nbytes // CLEARED) if fresh else 0
    work = len(ordering.order) + PARTICLES_PER_THREAD * clears
    parts, lanes = rows.parts, len(rows.width)
    tasks, crowded, limit = ordering.claims
    tiling, numbers, nodes = ordering.tiling, 0, np.empty(0, np.int64)
    if crowded:
        places, reached = np.empty((crowded, 8), np.int64), np.zeros(tiling.size[_first_axis(tiling)], bool)
        particles = ordering.packed, ordering.tile, ordering.begin, ordering.end
        numbers = _box_places(tiling, ordering.cells, *particles, tasks, parts, lanes, places, reached)
        nodes = np.flatnonzero(reached)
    if not crowded or numbers > _KEPT * len(ordering.order):  # too much memory: all tiles take turns
        tasks, limit, numbers = np.arange(len(tasks)), len(tasks) + 1, 0
        places, nodes = np.empty((0, 8), np.int64), nodes[:0]
    run(
        _spread_tasks, min(threads_for(threads, work), max(1, len(ordering.tile) + clears)), tiling,
        ordering.cells, ordering.tile, ordering.begin, ordering.end, ordering.ready, ordering.records,
        ordering.packed, ordering.order, plain(values), scale, jacobian, rows, box_size(tiling, parts, lanes) + _APART,
        clears, tasks, limit, places, nodes, np.empty(numbers, field.dtype),
        np.zeros(len(ordering.ready) + 2, np.int64), field.reshape(-1), steps=100 * len(ordering.order),
    )  # fmt: skip


class Colouring(TileMethod):
    """Tiles of the mesh in private memory, added in a fixed order: no atomics, reproducible for any threads.

    On one axis a tile would save nothing: particles are added in the order given.
    """

    name = "colouring"
    cite = "liu2014"
    fills = True
    clears: ClassVar[bool] = True
    # One thread, between a Xeon at 2.5 GHz (1.3 times these) and an EPYC (0.75): benchmarks/results/cpu-*.csv
    seconds: ClassVar[tuple[float, float, float, float, float]] = (8.2e-9, 0.36e-9, 0.87e-9, 3.2e-8, 2.8e-10)

    @classmethod
    def cost(cls, problem: Problem) -> tuple[float, float]:
        if problem.mesh.ndim > 1 or problem.sorted:
            return super().cost(problem)
        shares = shares_of(problem.count, problem.nodes)
        used = min(shares if shares > 1 else 1 + problem.nodes // _PIECE, threads_for(problem.threads, problem.count))
        shared, alone = seconds_on_line(problem, 1.2e-9, shares if shares > 1 else 0)
        return 0.0, 0.6 * CALL + shared / used + alone

    def apply(
        self, workspace: Workspace, values: View, field: View, gradient: bool = False, hessian: bool = False,
        fresh: bool = False, **_: Any,
    ) -> None:  # fmt: skip
        order = 2 if hessian else int(gradient)
        for source, target in zip(values.numpy(), field.numpy(), strict=True):
            add_channel(workspace, functools.partial(self.rows, workspace), source, order, target, fresh=fresh)


# ---- one axis: particle after particle in the caller's order --------------------------------------------------------


def shares_of(count: int, nodes: int) -> int:
    """Return the number of shares; it follows from sizes, so that results do not depend on the number of threads."""
    many = count // max(_LEAST, _PER_NODE * nodes)
    return max(1, many) if many < _SHARES else max(_SHARES, count // max(_LONG, 16 * nodes))


@compiled
def _add_around(first, values, low, high, size, wraps, parts, field):
    """Add the values of a stencil's nodes from ``low`` to ``high``; some may lie beyond the ends of the axis."""
    for j in range(values.size // parts):
        n = place_of(first + j, size, wraps)
        if n >= low and n < high:
            for part in range(parts):
                field[n * parts + part] += rounded(values[j * parts + part], field)


@compiled
def _pick(node, begin, end, low, high, size, support, picked):
    """Write the particles [begin, end) whose stencils may reach nodes from ``low`` to ``high``; return their number."""
    count = 0
    for k in range(begin, end):  # without branches, which random particles would mispredict
        first = np.int64(item(node, k))
        put(picked, count, np.int32(k))
        count += (first > low - support and first < high) | (first < 0) | (first > size - support)
    return count


@compiled
def _add_pairs(node, fraction, values, picked, low, high, offset, factor, scale, rows, size, wraps, field):
    """Add real values of a linear window with two nodes: two numbers take less time than a vector of four."""
    table, lanes = rows.table, len(rows.width)
    (slope, constant), both = (table[offset], table[offset + lanes]), np.empty(2, table.dtype)
    upper_slope, upper_constant = table[offset + 1], table[offset + lanes + 1]
    for i in range(picked.size):
        prefetch_to_write(field, item(node, item(picked, min(i + _AHEAD, picked.size - 1))))
        k = np.int64(item(picked, i))
        value, _ = scaled(item(values, k), item(values, k), scale)
        first, x, value = np.int64(item(node, k)), item(fraction, k), factor * value
        at, above = (x * slope + constant) * value, (x * upper_slope + upper_constant) * value
        if first >= low and first < high - 1:
            put(field, first, item(field, first) + rounded(at, field))
            put(field, first + 1, item(field, first + 1) + rounded(above, field))
        elif first != SKIP:
            both[0], both[1] = at, above
            _add_around(first, both, low, high, size, wraps, 1, field)


@compiled
def _add_vectors(node, fraction, values, picked, low, high, support, offset, factor, scale, rows, size, wraps, field):
    """Add values, the weights of each as one vector."""
    table, terms, parts, width, _ = rows
    real = table.dtype.type
    weights, last = np.empty(len(width), table.dtype), high * parts - len(width)
    for i in range(picked.size):
        prefetch_to_write(field, parts * item(node, item(picked, min(i + _AHEAD, picked.size - 1))))
        k = np.int64(item(picked, i))
        first = np.int64(item(node, k))
        along = mul(horner(table, offset, terms, real(item(fraction, k)), width), splat(factor, width))
        along = keep(mul(along, _scaled(values, parts * k, parts, scale, width)), support * parts)
        place = first * parts
        if first >= low and place <= last:
            store(field, place, add_product(along, splat(real(1), width), load(field, place, width)))
        elif first != SKIP:
            store(weights, 0, along)
            _add_around(first, weights[: support * parts], low, high, size, wraps, parts, field)


@compiled
def _spread(node, fraction, values, support, slope, scale, rows, size, wraps, fields, pieces, counter):
    """Spread shares of the particles, each to its own field, until none is left; ``slope`` is 0 for values.

    A single share is spread to pieces of the field. Particles of a node are added in their order in each of them.
    """
    table, terms, parts, width, _ = rows
    lanes, count, shares = len(width), node.size, fields.shape[0]
    offset = (2 if slope == 0 else 5) * terms * lanes
    factor = table.dtype.type(1 if slope == 0 else slope)
    picked = np.arange(_PICKED, dtype=np.int32)
    for share in claimed(counter, shares * pieces):
        (start, stop), (low, high), field = (0, count), (0, size), fields[0]
        if pieces > 1:
            low, high = share_of(size, pieces, share)
        elif shares > 1:
            start, stop = share_of(count, shares, share)
            field = fields[share]
            field[:] = 0
        for begin in range(start, stop, _PICKED):
            end = min(begin + _PICKED, stop)
            many, nodes = end - begin, node[begin:end]
            if pieces > 1:
                many = _pick(nodes, 0, many, low, high, size, support, picked)
            some, its = (nodes, fraction[begin:end], values[parts * begin : parts * end]), picked[:many]
            if support == 2 and terms == 2 and parts == 1:
                _add_pairs(*some, its, low, high, offset, factor, scale, rows, size, wraps, field)
            else:
                _add_vectors(*some, its, low, high, support, offset, factor, scale, rows, size, wraps, field)


def spread_line(
    line: Line, rows: Rows, axis: Axis, values: np.ndarray, field: np.ndarray, slope: float = 0.0,
    threads: int | None = None, *, fresh: bool = False, scale: Scale | None = None,
) -> None:  # fmt: skip
    """Add values, or vectors against the window's slopes, to a field of numbers or of integers.

    Parameters
    ----------
    line, rows, axis
        The particles, the window and the mesh's axis.
    values : (N, parts)
        Contiguous.
    field : (nodes, parts)
        Contiguous; added to.
    slope : float
        Of node coordinates in user coordinates, for vectors.
    threads
        The most threads to use; by default as many as suit N.
    fresh
        Whether the field is cleared before.
    scale
        As for `spread_tiles`.
    """
    if fresh:
        clear(field, threads)
    count, numbers = len(line.node), field.size
    shares = shares_of(count, len(field))
    fields = field.reshape(1, -1) if shares == 1 else np.empty((shares, numbers), field.dtype)
    used = threads_for(threads, count)
    pieces = max(1, min(used, len(field) // _PIECE)) if shares == 1 else 1
    run(
        _spread, min(shares * pieces, used), *line, plain(values.reshape(-1)), axis.support, slope, scale, rows,
        axis.size, bool(axis.wraps), fields, pieces, steps=20 * count,
    )  # fmt: skip
    if shares > _SHARES:
        field.reshape(-1)[...] += fields.sum(0, dtype=np.int64 if scale else np.float64)
    elif shares > 1:
        for one in fields:
            field.reshape(-1)[...] += one
