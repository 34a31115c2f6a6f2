# SPDX-License-Identifier: BSD-3-Clause
"""Overlaps from tight lists: two particles meet where the masks of their entries have no bit in common."""

from __future__ import annotations

import numpy as np

from particlemesh.backends.cpu import run, threads_for
from particlemesh.backends.jit import compiled
from particlemesh.backends.simd import fetch_add
from particlemesh.grid.cpu.cells import Cells, margins
from particlemesh.grid.cpu.lanes import unowned
from particlemesh.grid.cpu.listing import Listed, listed_of, rows_for
from particlemesh.grid.cpu.lists import Lists, order_of_lists
from particlemesh.grid.cpu.rows import squared, write_neighbour
from particlemesh.grid.cpu.tight import extents, sizes_of, tight_range
from particlemesh.grid.cpu.walk import image_shift

_SHARE = 64  # cells that a thread claims at a time


@compiled(forceinline=True)
def _images(entry, entries, folded, half, cells, size, periodic, reciprocal, margin, image):
    """Write how many boxes away the cell of an entry is, where its particle is in the box."""
    missing, inverse, origin = cells.missing, cells.inverse, cells.origin
    i, mask = entry // entries, entry % entries
    for a in range(missing, 3):
        image[a] = 0
        if not periodic[a]:
            continue
        s, reach = folded.dtype.type(0), half[i, 0] * reciprocal[a]
        for b in range(missing, 3):
            s += inverse[a, b] * (folded[i, b] - origin[b])
        if half.shape[1] > 1:
            reach = folded.dtype.type(0)
            for b in range(missing, 3):
                reach += abs(inverse[a, b]) * half[i, b - missing]
        low, _ = tight_range(s, reach, margin[a], folded.dtype.type(size[a]), periodic[a])
        cell = low + (mask >> (a - missing) & 1)
        if cell < 0 or cell >= size[a]:
            image[a] = cell // size[a]


@compiled
def _meet(start, order, folded, half, boxes, cells, reciprocal, margin, counts, rows, keep, room, counter):
    """Count the overlaps of shares of cells, or write them, until no share is left."""
    start, order, folded, half, counts = unowned(start), unowned(order), unowned(folded), unowned(half), unowned(counts)
    cells, rows, reciprocal, margin = unowned(cells), unowned(rows), unowned(reciprocal), unowned(margin)
    image = unowned(room[fetch_add(counter, 1, 1)])
    size, periodic = sizes_of(cells)
    real, missing = folded.dtype.type, cells.missing
    entries = 1 << (3 - missing)
    first_axis, second_axis = max(half.shape[1] - 3, 0), max(half.shape[1] - 2, 0)
    while True:
        begin = fetch_add(counter, 0, 1) * _SHARE
        if begin >= counts.size:
            return
        for c in range(begin, min(begin + _SHARE, counts.size)):
            first, held = start[c], start[c + 1] - start[c]
            for m in range(held if held > 1 else 0):
                _images(order[first + m], entries, folded, half, cells, size, periodic, reciprocal, margin, image[m])
            at = rows.start[c] if keep else 0
            for m in range(held):
                for n in range(m + 1, held):
                    one, two = np.int64(order[first + m]), np.int64(order[first + n])
                    if one % entries & two % entries:
                        continue
                    i, j = one // entries, two // entries
                    t0, t1, t2 = image[m, 0] - image[n, 0], image[m, 1] - image[n, 1], image[m, 2] - image[n, 2]
                    if i == j and (t0 < 0 or (t0 == 0 and (t1 < 0 or (t1 == 0 and t2 < 0)))):
                        t0, t1, t2 = -t0, -t1, -t2
                    r0, r1, r2 = real(t0), real(t1), real(t2)
                    dx = (folded[j, 0] - folded[i, 0]) + image_shift(cells.rows, r0, r1, r2, 0)
                    dy = (folded[j, 1] - folded[i, 1]) + image_shift(cells.rows, r0, r1, r2, 1)
                    dz = (folded[j, 2] - folded[i, 2]) + image_shift(cells.rows, r0, r1, r2, 2)
                    if boxes:
                        # One number for all axes, or one for each; those of missing axes meet 0 <= 0 twice.
                        near = abs(dx) <= half[i, first_axis] + half[j, first_axis]
                        near = near and abs(dy) <= half[i, second_axis] + half[j, second_axis]
                        near = near and abs(dz) <= half[i, -1] + half[j, -1]
                    else:
                        reach = half[i, 0] + half[j, 0]
                        near = squared(dx, dy, dz) <= reach * reach
                    if near:
                        if keep:
                            write_neighbour(rows, at, i, j, dx, dy, dz, t0, t1, t2)
                        at += 1
            if not keep:
                counts[c] = at


def overlaps_of_lists(
    lists: Lists,
    folded: np.ndarray,
    turns: np.ndarray | None,
    half: np.ndarray,
    cells: Cells,
    *,
    shape: str | None = None,
    quantities: str = "ij",
    threads: int | None = None,
) -> Listed:
    """Return the pairs that overlap as a coo list, each once, ``i < j``, from a tight grid's lists.

    Parameters
    ----------
    lists
        What `particlemesh.grid.cpu.tight.linked_list_tight` returned.
    folded, turns : (N, 3)
        Positions inside the box, and the turns taken off.
    half : number, (N,) or (N, d)
        Radii or half extents, as they were given to it.
    cells
        The grid.
    shape
        ``"sphere"`` or ``"box"``; by default what ``half`` is for.
    quantities
        Letters of ``"ijSdD"``.
    threads
        The most threads to use.
    """
    sizes = extents(half, len(folded), cells)
    if shape not in {None, "sphere", "box"}:
        raise ValueError(f"shape={shape!r} is neither 'sphere' nor 'box'.")
    if shape == "sphere" and np.ndim(half) == 2:
        raise ValueError("shape='sphere' needs a radius for each particle, not half extents.")
    if shape == "box" and np.ndim(half) < 2 and not cells.orthorhombic:
        raise ValueError(
            "shape='box' for radii in a triclinic box: lists of spheres miss the corners of cubes. Build with half "
            "extents."
        )
    reciprocal, margin = np.sqrt((cells.inverse**2).sum(1)), margins(cells)
    boxes = int(shape == "box" or (shape is None and np.ndim(half) == 2))
    threads = threads_for(threads, len(folded))
    start, order = order_of_lists(lists.head, lists.next, threads)
    used = max(1, min(threads, cells.total // _SHARE))
    room = np.zeros((used, int(np.diff(start).max(initial=0)), 3), np.int64)
    counts = np.zeros(cells.total, np.int32)
    rows = rows_for("", cells, 0)

    def meet(keep: int) -> None:
        run(
            _meet, used, start, order, folded, sizes, boxes, cells, reciprocal, margin, counts, rows, keep, room,
            np.zeros(2, np.int64),
        )  # fmt: skip

    meet(0)
    first = np.zeros(cells.total + 1, np.int64)
    np.cumsum(counts, out=first[1:])
    none = np.empty((0, 3), np.int32)
    turned = none if turns is None else turns
    rows = rows_for(quantities, cells, int(first[-1]))._replace(start=first, turns=turned, turned=turned)
    meet(1)
    return listed_of(rows, quantities, None, counts)
