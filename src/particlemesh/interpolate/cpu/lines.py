# SPDX-License-Identifier: BSD-3-Clause
"""Interpolation on one axis, particle after particle in the caller's order."""

from __future__ import annotations

import numpy as np

from particlemesh.backends.cpu import ranges, run, threads_for
from particlemesh.backends.jit import compiled, plain
from particlemesh.backends.simd import horner, item, keep, load, mul, prefetch, put, sums
from particlemesh.orders.cpu.lines import Line
from particlemesh.orders.cpu.rows import Rows
from particlemesh.orders.cpu.stencils import place_of
from particlemesh.particles.locate import SKIP
from particlemesh.particles.stencil import Axis

_AHEAD = 16  # particles between asking for a node and reading it
_SHARE = 4096  # particles that a thread claims at once


@compiled
def _read(node, fraction, field, support, slope, rows, size, wraps, results, counter):
    """Interpolate a field's values, or gradients if ``slope`` is not 0, a share at a time until none is left."""
    table, terms, parts, width, _ = rows
    lanes, zero = len(width), field.dtype.type(0)
    offset = (2 if slope == 0 else 5) * terms * lanes
    factor = field.dtype.type(1 if slope == 0 else slope)
    gathered = np.zeros(lanes, field.dtype)
    count, last = node.size, size * parts - lanes
    for begin, end in ranges(counter, count, _SHARE):
        for k in range(begin, end):
            prefetch(field, parts * item(node, min(k + _AHEAD, count - 1)))
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
            if parts == 1:
                put(results, at, factor * (even + odd))
            else:
                put(results, at, factor * even)
                put(results, at + 1, factor * odd)


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
        _read, threads_for(threads, count), *line, plain(field.reshape(-1)), axis.support, slope, rows, axis.size,
        bool(axis.wraps), results.reshape(-1), steps=20 * count,
    )  # fmt: skip
