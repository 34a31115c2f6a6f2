# SPDX-License-Identifier: BSD-3-Clause
"""Spreading on one axis, particle after particle in the caller's order, reproducible for any number of threads."""

from __future__ import annotations

import numpy as np

from particlemesh.backends.cpu import claimed, clear, run, threads_for
from particlemesh.backends.jit import compiled, plain
from particlemesh.backends.simd import add, alternate, horner, item, keep, load, mul, prefetch_to_write, put, store
from particlemesh.orders.cpu.lines import Line
from particlemesh.orders.cpu.rows import Rows
from particlemesh.orders.cpu.stencils import place_of
from particlemesh.particles.locate import SKIP
from particlemesh.particles.stencil import Axis
from particlemesh.sorting.cpu import share_of

_AHEAD = 16  # particles between asking for a node and adding to it
_SHARES = 16  # of the particles, each with a field of its own; results depend on their number, which depends on sizes
_LEAST = 1 << 15  # particles of a share
_PER_NODE = 1  # particles of a share per node of its field, which is cleared and added
_LONG = 1 << 13  # particles of a share where nodes are few: float32 sums of more lose digits


def shares_of(count: int, nodes: int) -> int:
    """Return the number of shares; it follows from sizes, so that results do not depend on the number of threads."""
    many = count // max(_LEAST, _PER_NODE * nodes)
    return max(1, many) if many < _SHARES else max(_SHARES, count // max(_LONG, 16 * nodes))


@compiled
def _add_around(first, values, size, wraps, parts, field):
    """Add the values of a stencil's nodes, some of which may lie beyond the ends of the axis."""
    for j in range(values.size // parts):
        n = place_of(first + j, size, wraps)
        if n >= 0:
            for part in range(parts):
                field[n * parts + part] += values[j * parts + part]


@compiled
def _add_pairs(node, fraction, values, lower, upper, factor, size, wraps, field):
    """Add real values of a linear window with two nodes: two numbers take less time than a vector of four."""
    (slope, constant), (upper_slope, upper_constant), both = lower, upper, np.empty(2, field.dtype)
    for k in range(node.size):
        prefetch_to_write(field, item(node, min(k + _AHEAD, node.size - 1)))
        first, x, value = np.int64(item(node, k)), item(fraction, k), factor * item(values, k)
        at, above = (x * slope + constant) * value, (x * upper_slope + upper_constant) * value
        if first >= 0 and first < size - 1:
            put(field, first, item(field, first) + at)
            put(field, first + 1, item(field, first + 1) + above)
        elif first != SKIP:
            both[0], both[1] = at, above
            _add_around(first, both, size, wraps, 1, field)


@compiled
def _add_rows(node, fraction, values, support, offset, factor, rows, size, wraps, field):
    """Add values, the weights of each as one vector."""
    table, terms, parts, width, _ = rows
    weights, last = np.empty(len(width), field.dtype), size * parts - len(width)
    for k in range(node.size):
        prefetch_to_write(field, parts * item(node, min(k + _AHEAD, node.size - 1)))
        first = np.int64(item(node, k))
        along = horner(table, offset, terms, item(fraction, k), width)
        even, odd = item(values, parts * k) * factor, item(values, parts * k + parts - 1) * factor
        along = keep(mul(along, alternate(even, odd, width)), support * parts)
        place = first * parts
        if first >= 0 and place <= last:
            store(field, place, add(along, load(field, place, width)))
        elif first != SKIP:
            store(weights, 0, along)
            _add_around(first, weights[: support * parts], size, wraps, parts, field)


@compiled
def _spread(node, fraction, values, support, slope, rows, size, wraps, fields, counter):
    """Spread shares of the particles, each to its own field, until none is left; ``slope`` is 0 for values."""
    table, terms, parts, width, _ = rows
    lanes, count, shares = len(width), node.size, fields.shape[0]
    offset = (2 if slope == 0 else 5) * terms * lanes
    factor = fields.dtype.type(1 if slope == 0 else slope)
    lower, upper = (table[offset], table[offset + lanes]), (table[offset + 1], table[offset + lanes + 1])
    for share in claimed(counter, shares):
        begin, end = share_of(count, shares, share)
        field = fields[share]
        if shares > 1:
            field[:] = 0
        its = values[parts * begin : parts * end]
        if support == 2 and terms == 2 and parts == 1:
            _add_pairs(node[begin:end], fraction[begin:end], its, lower, upper, factor, size, wraps, field)
        else:
            _add_rows(
                node[begin:end], fraction[begin:end], its, support, offset, factor, rows, size, wraps, field
            )  # fmt: skip


def spread_line(
    line: Line, rows: Rows, axis: Axis, values: np.ndarray, field: np.ndarray, slope: float = 0.0,
    threads: int | None = None, *, fresh: bool = False,
) -> None:  # fmt: skip
    """Add values, or vectors against the window's slopes, to a field.

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
    """
    if fresh:
        clear(field, threads)
    count, numbers = len(line.node), field.size
    shares = shares_of(count, len(field))
    fields = field.reshape(1, -1) if shares == 1 else np.empty((shares, numbers), field.dtype)
    used = min(shares, threads_for(threads, count))
    run(
        _spread, used, *line, plain(values.reshape(-1)), axis.support, slope, rows, axis.size,
        bool(axis.wraps), fields, steps=20 * count,
    )  # fmt: skip
    if shares > _SHARES:
        field.reshape(-1)[...] += fields.sum(0, dtype=np.float64)
    elif shares > 1:
        for one in fields:
            field.reshape(-1)[...] += one
