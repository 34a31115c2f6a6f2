# SPDX-License-Identifier: BSD-3-Clause
"""The entries of stored matrices on the processor: count, scan, fill.

Rows are nodes, or groups of consecutive nodes. Each thread counts and fills shares of the rows: it walks over the
particles whose stencils reach them. So entries are in the order of particles, for any number of threads.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from particlemesh.backends.cpu import claimed, run, threads_for
from particlemesh.backends.jit import compiled
from particlemesh.orders.cpu.stencils import corner_of, factors_at, place_of, rows_of, slopes_of
from particlemesh.orders.cpu.tiles import box_of
from particlemesh.particles.workspace import Workspace
from particlemesh.sorting.cpu import index_type

_SHARES = 2  # ranges of rows per thread; with more, more stencils lie in two of them


@dataclass(frozen=True)
class Entries:
    """Where the entries are, and their columns: places of particles in the order of tiles.

    Attributes
    ----------
    name
        Of the scratch memory that they are in.
    size
        Nodes of a row.
    width
        Entries of each row in a rectangle that comes first; unused ones have the column -1.
    start : (rows + 1,) int64
        Where each row's other entries begin, after the rectangle.
    column : (entries,) int32 or int64
    node : (entries,) uint16, (0,) where rows are single nodes
        The entry's node within its row.
    """

    name: str
    size: int
    width: int
    start: np.ndarray
    column: np.ndarray
    node: np.ndarray

    @property
    def rows(self) -> int:
        return len(self.start) - 1

    @property
    def total(self) -> int:
        return self.rows * self.width + int(self.start[-1])

    @property
    def nbytes(self) -> int:
        return self.start.nbytes + self.column.nbytes + self.node.nbytes


@compiled
def _reaches(tiling, low, nodes, begin, end):
    """Return whether a box of nodes has one whose number lies in [begin, end)."""
    (sx, sy, sz), wraps = tiling.size, tiling.wraps
    for i in range(nodes[0]):
        x = place_of(low[0] + i, sx, wraps[0])
        if x < 0 or x * sy * sz >= end or (x + 1) * sy * sz <= begin:
            continue
        for j in range(nodes[1]):
            y = place_of(low[1] + j, sy, wraps[1])
            row = (x * sy + y) * sz
            if y < 0 or row >= end or row + sz <= begin:
                continue
            for k in range(nodes[2]):
                z = place_of(low[2] + k, sz, wraps[2])
                if z >= 0 and begin <= row + z < end:
                    return True
    return False


@compiled
def _tile_particles(tiling, ready, kept, tile, begin, end):
    """Return the places of a tile's particles if some may reach nodes [begin, end), and its first node."""
    first = ready[tile, 0]
    last = ready[tile + 1, 0] if tile + 1 < ready.shape[0] else kept
    low, nodes = box_of(tiling, tile)
    if first < last and not _reaches(tiling, low, nodes, begin, end):
        last = first
    return first, last, low


@compiled
def _count(tiling, ready, kept, packed, size, cuts, counts, counter):
    """Count each row's entries."""
    (nx, ny, nz), wraps, support = tiling.size, tiling.wraps, tiling.support
    for share in claimed(counter, cuts.size - 1):
        begin, end = cuts[share] * size, min(cuts[share + 1] * size, nx * ny * nz)
        counts[cuts[share] : cuts[share + 1]] = 0
        for tile in range(ready.shape[0]):
            first, last, low = _tile_particles(tiling, ready, kept, tile, begin, end)
            for k in range(first, last):
                corner = corner_of(low, packed[4 * k + 3])
                for i in range(support[0]):
                    x = place_of(corner[0] + i, nx, wraps[0])
                    if x < 0 or x * ny * nz >= end or (x + 1) * ny * nz <= begin:
                        continue
                    for j in range(support[1]):
                        y = place_of(corner[1] + j, ny, wraps[1])
                        row = (x * ny + y) * nz
                        if y < 0 or row >= end or row + nz <= begin:
                            continue
                        for m in range(support[2]):
                            z = place_of(corner[2] + m, nz, wraps[2])
                            if z >= 0 and begin <= row + z < end:
                                counts[row + z if size == 1 else (row + z) // size] += 1


@compiled
def _fill(
    tiling, ready, kept, records, packed, table, terms, lanes, jacobian, slopes, size, width, cuts, start, cursor,
    column, node, weight, counter,
):  # fmt: skip
    """Write weights, or ``slopes`` in user coordinates, and columns and nodes where there is room for them."""
    (nx, ny, nz), wraps, support = tiling.size, tiling.wraps, tiling.support
    factors, across = np.empty(6 * lanes, weight.dtype), np.empty(6, weight.dtype)
    planes = weight.shape[0]
    rectangle = width * (start.size - 1)
    for share in claimed(counter, cuts.size - 1):
        begin, end = cuts[share] * size, min(cuts[share + 1] * size, nx * ny * nz)
        for row in range(cuts[share], cuts[share + 1]):
            cursor[row] = row * width if width else start[row]
        for tile in range(ready.shape[0]):
            first, last, low = _tile_particles(tiling, ready, kept, tile, begin, end)
            for k in range(first, last):
                corner = corner_of(low, packed[4 * k + 3])
                if not _reaches(tiling, corner, support, begin, end):
                    continue
                x, y, z = records[4 * k], records[4 * k + 1], records[4 * k + 2]
                factors_at(table, terms, lanes, x, y, z, slopes, factors)
                for i in range(support[0]):
                    px = place_of(corner[0] + i, nx, wraps[0])
                    if px < 0 or px * ny * nz >= end or (px + 1) * ny * nz <= begin:
                        continue
                    for j in range(support[1]):
                        py = place_of(corner[1] + j, ny, wraps[1])
                        row = (px * ny + py) * nz
                        if py < 0 or row >= end or row + nz <= begin:
                            continue
                        xy = factors[i] * factors[lanes + j]
                        if slopes:
                            slopes_of(factors, lanes, i, j, jacobian, across)
                        for m in range(support[2]):
                            pz = place_of(corner[2] + m, nz, wraps[2])
                            if pz < 0 or row + pz < begin or row + pz >= end:
                                continue
                            this = row + pz if size == 1 else (row + pz) // size
                            at = cursor[this]
                            cursor[this] = at + 1 if at + 1 != (this + 1) * width else rectangle + start[this]
                            wz = factors[2 * lanes + m]
                            if slopes:
                                for b in range(planes):
                                    dz = factors[5 * lanes + m]
                                    weight[b, at] = across[2 * b] * wz + across[2 * b + 1] * dz
                                continue
                            weight[0, at] = xy * wz
                            column[at] = k
                            if node.size:
                                node[at] = row + pz - this * size


def _build_cuts(workspace: Workspace, rows: int, threads: int) -> np.ndarray:
    shares = min(rows, _SHARES * threads if threads > 1 else 1)
    return np.linspace(0, rows, shares + 1).astype(np.int64)


def count_entries(workspace: Workspace, size: int = 1) -> np.ndarray:
    """Return how many entries each row of ``size`` nodes has."""
    ordering = workspace.particles.ordering
    rows = -(-math.prod(ordering.tiling.size) // size)
    threads = threads_for(workspace.threads, workspace.count)
    counts = np.empty(rows, np.int64)
    run(
        _count, threads, ordering.tiling, ordering.ready, ordering.kept, ordering.packed, size,
        _build_cuts(workspace, rows, threads), counts, steps=workspace.count * workspace.stencil,
    )  # fmt: skip
    return counts


def reserve(workspace: Workspace, name: str, entries: int, *, size: int = 0) -> None:
    """Allocate for a matrix of up to ``entries``, and for values, so that building and applying will not."""
    workspace.scratch(f"{name}.column", (entries,), np.dtype(index_type(workspace.capacity)))
    workspace.scratch(f"{name}.node", (entries if size else 0,), np.dtype(np.uint16))
    workspace.scratch(f"{name}.weight", (entries,), workspace.dtype)
    workspace.scratch("matrix.values", (workspace.capacity * workspace.components,), workspace.dtype)


def place_entries(workspace: Workspace, name: str, counts: np.ndarray, *, size: int = 0, width: int = 0) -> Entries:
    """Return room for ``counts`` entries in each row; of groups, if there is a ``size``, with the entries' nodes."""
    start = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(np.maximum(counts - width, 0), out=start[1:])
    total = len(counts) * width + int(start[-1])
    column = workspace.scratch(f"{name}.column", (total,), workspace.particles.ordering.order.dtype)[:total]
    nodes = total if size else 0
    node = workspace.scratch(f"{name}.node", (nodes,), np.dtype(np.uint16))[:nodes]
    column[: len(counts) * width] = -1
    return Entries(name, max(1, size), width, start, column, node)


def fill_entries(workspace: Workspace, entries: Entries, *, slopes: bool = False) -> np.ndarray:
    """Return the entries' weights (1, entries), or slopes (d, entries); with weights, write columns and nodes."""
    ordering = workspace.particles.ordering
    threads = threads_for(workspace.threads, workspace.count)
    table, terms, _, lanes, _ = rows_of(workspace.window.table, workspace.axes, 1, workspace.dtype)
    planes, total = workspace.mesh.ndim if slopes else 1, entries.total
    name = f"{entries.name}.{'slope' if slopes else 'weight'}"
    most = max(
        total, workspace.capacity * math.prod(a.support for a in workspace.axes) if slopes else 0
    )  # as large as it can be
    weight = workspace.scratch(name, (planes * most,), workspace.dtype)[: planes * total].reshape(planes, total)
    run(
        _fill, threads, ordering.tiling, ordering.ready, ordering.kept, ordering.records, ordering.packed, table, terms,
        len(lanes), workspace.jacobian, slopes, entries.size, entries.width,
        _build_cuts(workspace, entries.rows, threads), entries.start, np.empty(entries.rows, np.int64), entries.column,
        entries.node, weight, steps=workspace.count * workspace.stencil,
    )  # fmt: skip
    return weight
