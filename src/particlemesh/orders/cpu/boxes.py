# SPDX-License-Identifier: BSD-3-Clause
"""Boxes of nodes copied between a field and a thread's private memory, by true modulo or clipped."""

from __future__ import annotations

from particlemesh.backends.jit import compiled
from particlemesh.backends.simd import WIDTHS, add, load, splat, store
from particlemesh.orders.cpu.stencils import place_of

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
