# SPDX-License-Identifier: BSD-3-Clause
"""Overlaps from tight lists: two particles meet where the masks of their entries have no bit in common."""

from __future__ import annotations

import numpy as np

from particlemesh.backends.cpu import run, threads_for
from particlemesh.backends.jit import compiled
from particlemesh.backends.simd import fetch_add
from particlemesh.grid import checks
from particlemesh.grid.cpu.builders.lists import order_of_lists
from particlemesh.grid.cpu.builders.tight import extents, sizes_of, tight_range
from particlemesh.grid.cpu.lanes import unowned
from particlemesh.grid.cpu.locate import CpuCells, margins
from particlemesh.grid.cpu.queries.candidates import image_shift
from particlemesh.grid.cpu.queries.listing import pairs_of, rows_for
from particlemesh.grid.cpu.queries.rows import squared, write_neighbour
from particlemesh.grid.results import Pairs
from particlemesh.grid.storage import TightLists

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
def _meet(start, order, folded, half, boxes, cells, reciprocal, margin, counts, rows, keep, numbers, held, counter):
    """Count the overlaps of shares of cells, or write them, until no share is left."""
    start, order, folded, half, counts = unowned(start), unowned(order), unowned(folded), unowned(half), unowned(counts)
    cells, rows, reciprocal, margin = unowned(cells), unowned(rows), unowned(reciprocal), unowned(margin)
    thread = fetch_add(counter, 1, 1)
    x, y, z = unowned(numbers[thread, 0]), unowned(numbers[thread, 1]), unowned(numbers[thread, 2])
    h0, h1, h2 = unowned(numbers[thread, 3]), unowned(numbers[thread, 4]), unowned(numbers[thread, 5])
    who, masks, image = unowned(held[thread, :, 0]), unowned(held[thread, :, 1]), unowned(held[thread, :, 2:5])
    hits = unowned(held[thread, :, 5])
    size, periodic = sizes_of(cells)
    real, missing, lattice = folded.dtype.type, cells.missing, cells.rows
    entries = 1 << (3 - missing)
    # Half extents: one number for all axes, or one for each; those of missing axes meet 0 <= 0 twice.
    first_axis, second_axis = max(half.shape[1] - 3, 0), max(half.shape[1] - 2, 0)
    while True:
        begin = fetch_add(counter, 0, 1) * _SHARE
        if begin >= counts.size:
            return
        for c in range(begin, min(begin + _SHARE, counts.size)):
            first, entered = start[c], start[c + 1] - start[c]
            at = rows.start[c] if keep else 0
            turned = False
            for m in range(entered if entered > 1 else 0):
                entry = np.int64(order[first + m])
                i = entry // entries
                who[m], masks[m] = i, entry % entries
                x[m], y[m], z[m] = folded[i, 0], folded[i, 1], folded[i, 2]
                h0[m], h1[m], h2[m] = half[i, first_axis], half[i, second_axis], half[i, -1]
                _images(entry, entries, folded, half, cells, size, periodic, reciprocal, margin, image[m])
                turned = turned or image[m, 0] != 0 or image[m, 1] != 0 or image[m, 2] != 0
            for m in range(entered):
                got = 0
                for n in range(m + 1, entered):
                    dx, dy, dz = x[n] - x[m], y[n] - y[m], z[n] - z[m]
                    if turned:
                        t0, t1, t2 = image[m, 0] - image[n, 0], image[m, 1] - image[n, 1], image[m, 2] - image[n, 2]
                        r0, r1, r2 = real(t0), real(t1), real(t2)
                        dx += image_shift(lattice, r0, r1, r2, 0)
                        dy += image_shift(lattice, r0, r1, r2, 1)
                        dz += image_shift(lattice, r0, r1, r2, 2)
                    if boxes:
                        near = (abs(dx) <= h0[m] + h0[n]) & (abs(dy) <= h1[m] + h1[n]) & (abs(dz) <= h2[m] + h2[n])
                    else:
                        reach = h0[m] + h0[n]
                        near = squared(dx, dy, dz) <= reach * reach
                    hits[got] = n
                    got += np.int64(near & (masks[m] & masks[n] == 0))
                if keep:
                    for h in range(got):
                        n = hits[h]
                        i, j = who[m], who[n]
                        t0, t1, t2 = image[m, 0] - image[n, 0], image[m, 1] - image[n, 1], image[m, 2] - image[n, 2]
                        # Entries ascend, so i <= j; of a particle and its own image the positive turn counts.
                        if i == j and (t0 < 0 or (t0 == 0 and (t1 < 0 or (t1 == 0 and t2 < 0)))):
                            t0, t1, t2 = -t0, -t1, -t2
                        r0, r1, r2 = real(t0), real(t1), real(t2)
                        dx = (x[n] - x[m]) + image_shift(lattice, r0, r1, r2, 0)
                        dy = (y[n] - y[m]) + image_shift(lattice, r0, r1, r2, 1)
                        dz = (z[n] - z[m]) + image_shift(lattice, r0, r1, r2, 2)
                        write_neighbour(rows, at + h, i, j, dx, dy, dz, t0, t1, t2)
                at += got
            if not keep:
                counts[c] = at


def overlaps_of_lists(
    lists: TightLists,
    folded: np.ndarray,
    turns: np.ndarray | None,
    half: np.ndarray,
    cells: CpuCells,
    *,
    shape: str | None = None,
    quantities: str = "ij",
    threads: int | None = None,
) -> Pairs:
    """Return the pairs that overlap as a coo list, each once, ``i < j``, from a tight grid's lists.

    Parameters
    ----------
    lists
        What `particlemesh.grid.cpu.builders.tight.tight_lists` returned.
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
    axes = 3 if np.ndim(half) == 2 else 1
    boxes = int(checks.compares_boxes(axes, shape))
    checks.lists_suffice(axes, boxes=boxes == 1, orthorhombic=bool(cells.orthorhombic))
    reciprocal, margin = np.sqrt((cells.inverse**2).sum(1)), margins(cells)
    threads = threads_for(threads, len(folded))
    start, order = order_of_lists(lists.heads, lists.next, threads)[:2]
    used = max(1, min(threads, cells.total // _SHARE))
    longest = int(np.diff(start).max(initial=0)) + 1
    numbers, held = np.zeros((used, 6, longest), cells.dtype), np.zeros((used, longest, 6), np.int64)
    counts = np.zeros(cells.total, np.int32)
    rows = rows_for("", cells, 0)

    def meet(keep: int) -> None:
        run(
            _meet, used, start, order, folded, sizes, boxes, cells, reciprocal, margin, counts, rows, keep, numbers,
            held, np.zeros(2, np.int64), steps=float(np.square(np.diff(start), dtype=float).sum()),
        )  # fmt: skip

    meet(0)
    first = np.zeros(cells.total + 1, np.int64)
    np.cumsum(counts, out=first[1:])
    none = np.empty((0, 3), np.int32)
    turned = none if turns is None else turns
    rows = rows_for(quantities, cells, int(first[-1]))._replace(start=first, turns=turned, turned=turned)
    meet(1)
    return pairs_of(rows, quantities)
