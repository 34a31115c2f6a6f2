# SPDX-License-Identifier: BSD-3-Clause
"""Spreading by stored matrices on the processor: by rows, or by groups of rows [guo2015]_.

An entry is a weight and a column, the place of its particle in the order of tiles. Values are brought into that
order first, so that the entries of a row find them close together. Rows are nodes, or groups of consecutive nodes.

To build the matrix, each thread counts and then fills shares of the rows: it walks over the particles whose stencils
reach them. To multiply, a row belongs to one thread. So entries are in the order of particles, nothing is added
atomically, and results are reproducible for any number of threads.
"""

from __future__ import annotations

import functools
from typing import Any, ClassVar

import numpy as np

from particlemesh.arrays.operands import View
from particlemesh.backends.cpu import claimed, plain, ranges, run, threads_for
from particlemesh.backends.jit import compiled
from particlemesh.backends.simd import prefetch
from particlemesh.methods.by_tile import box_of, corner_of, factors_at, matrix_seconds, place_of, rows_of, slopes_of
from particlemesh.methods.contract import Problem
from particlemesh.particles.workspace import Workspace
from particlemesh.sorting.cpu import index_type

_BUILD_SHARES = 2  # ranges of rows per thread; with more, more stencils lie in two of them
_SHARES = 16  # the same where matrices multiply, each with about as many entries
_AHEAD = 16  # particles between asking for a value and using it
_LONG = 4096  # entries that are added up one after the other, at most: in float32 longer sums lose digits


class Matrix:
    """The spreading matrix of one configuration; its memory is scratch, which the next one of its kind takes over.

    Attributes
    ----------
    size : int
        Nodes of a row.
    start : (rows + 1,) int64
        Where each row's entries begin.
    column : (entries,) int32 or int64
    node : (entries,) uint16, (0,) where rows are single nodes
        The entry's node within its row.
    weight : (1, entries)
    """

    memory: ClassVar[str] = "matrix.rows"  # name in the scratch
    index_bytes: ClassVar[int] = 4  # of an entry, beside its weight
    # Seconds to build an entry and a row, and to multiply by them: one thread, as those of tiles.
    seconds: ClassVar[tuple[float, float, float, float]] = (1.4e-8, 8e-9, 1.6e-9, 1e-8)

    def __init__(self, workspace: Workspace, size: int = 1) -> None:
        self.size = size
        self._window = rows_of(workspace.window, workspace.axes, 1, workspace.dtype)
        rows = -(-workspace.nodes // size)
        counts = np.empty(rows, np.int64)
        self._walk(workspace, counts)
        self.start = np.zeros(rows + 1, np.int64)
        np.cumsum(counts, out=self.start[1:])
        self.column, self.node = self._indices(workspace, int(self.start[-1]), size)
        self.weight = self._filled(workspace, slopes=False)
        self._slopes: np.ndarray | None = None

    @classmethod
    def scratch_bytes(cls, method: Any, problem: Problem) -> int:
        entries, real = method.entries(problem, problem.count), problem.dtype.itemsize
        values = problem.count * problem.components * real
        return entries * (cls.index_bytes + real) + 8 * (problem.nodes + 1) + values

    @classmethod
    def cost(cls, method: Any, problem: Problem) -> tuple[float, float]:
        build_entry, build_row, add_entry, add_row = cls.seconds
        built, applied = matrix_seconds(problem, build_entry, add_entry)
        return built + problem.nodes * build_row, applied + problem.nodes * problem.components * add_row

    @classmethod
    def reserve(cls, method: Any, workspace: Workspace, size: int = 1) -> None:
        """Allocate for a matrix and for values, so that building and applying will not."""
        entries = method.entries(workspace, workspace.capacity)
        cls._indices(workspace, entries, size)
        workspace.scratch(f"{cls.memory}.weight", (entries,), workspace.dtype)
        workspace.scratch("matrix.values", (workspace.capacity * workspace.components,), workspace.dtype)

    @classmethod
    def build(cls, method: Any, workspace: Workspace) -> Matrix:
        return cls(workspace)

    @classmethod
    def _indices(cls, workspace: Workspace, entries: int, size: int) -> tuple[np.ndarray, np.ndarray]:
        """Return memory for the columns of entries and, if rows are groups, for their nodes."""
        nodes, index = entries if size > 1 else 0, np.dtype(index_type(workspace.capacity))
        column = workspace.scratch(f"{cls.memory}.column", (entries,), index)
        return column[:entries], workspace.scratch(f"{cls.memory}.node", (nodes,), np.dtype(np.uint16))[:nodes]

    def _walk(
        self, workspace: Workspace, cursor: np.ndarray, weight: np.ndarray | None = None, slopes: bool = False
    ) -> None:
        """Count the entries of each row or, if there is room for weights, write entries."""
        ordering, threads = workspace.particles.ordering, threads_for(workspace.threads, workspace.count)
        table, terms, _, lanes, _ = self._window
        shares = min(len(cursor), _BUILD_SHARES * threads if threads > 1 else 1)
        cuts = np.linspace(0, len(cursor), shares + 1).astype(np.int64)
        entries = (None,) * 4 if weight is None else (self.start, self.column, self.node, weight)
        run(
            _walk_rows, threads, ordering.tiling, ordering.ready, ordering.kept, ordering.records, ordering.packed,
            table, terms, len(lanes), workspace.jacobian, slopes, self.size, cuts, cursor, *entries,
            steps=workspace.count * workspace.stencil,
        )  # fmt: skip

    def _filled(self, workspace: Workspace, *, slopes: bool) -> np.ndarray:
        """Return the entries' weights (1, entries), or slopes (d, entries); with weights, write columns and nodes."""
        total = int(self.start[-1])
        planes, name = (workspace.mesh.ndim, "slope") if slopes else (1, "weight")
        most = max(total, workspace.capacity * workspace.stencil if slopes else 0)  # as large as it can be
        memory = workspace.scratch(f"{self.memory}.{name}", (planes * most,), workspace.dtype)
        weight: np.ndarray = memory[: planes * total].reshape(planes, total)
        self._walk(workspace, np.empty(len(self.start) - 1, np.int64), weight, slopes)
        return weight

    @functools.cached_property
    def _pieces(self) -> tuple[np.ndarray, np.ndarray | None]:
        """Where entries that are added up together begin, and each row's first of these, or None if all rows are short.

        The sums of a long row's pieces are added in double precision.
        """
        start, most = self.start, max(_LONG, 16 * self.size)
        counts = np.diff(start)
        if counts.max(initial=0) <= most:
            return start, None
        pieces = np.maximum(1, -(-counts // most))
        first = np.cumsum(pieces) - pieces
        place = np.arange(pieces.sum()) - np.repeat(first, pieces)
        return np.append(np.repeat(start[:-1], pieces) + most * place, start[-1]), first

    def apply(self, workspace: Workspace, values: View, field: View, gradient: bool = False, **_: Any) -> None:
        """Add the matrix times values, or times vectors (channels, particles, axes, parts), to a field."""
        ordering, threads = workspace.particles.ordering, threads_for(workspace.threads, workspace.count)
        if not ordering.kept:
            return
        weight = self._slope(workspace) if gradient else self.weight
        target = field.numpy()
        whole = target if target.flags.c_contiguous else np.zeros(target.shape, target.dtype)
        nodes = whole.reshape(target.shape[0], -1, target.shape[-1])
        start, first = self._pieces
        channels, rows, parts = nodes.shape
        pieces = nodes if first is None else np.zeros((channels, (len(start) - 1) * self.size, parts), nodes.dtype)
        # Values in the order of tiles: for each particle channel by channel, axes, parts.
        source = np.ascontiguousarray(np.moveaxis(values.numpy(), 1, 0))
        width = source[0].size
        permuted = workspace.scratch("matrix.values", (workspace.capacity * width,), source.dtype)
        run(_permute, threads, plain(source), ordering.order[: ordering.kept], width, permuted)
        multiply, *extra = (_add_groups, self.size, self.node) if self.size > 1 else (_add_rows,)
        run(
            multiply, threads, self._cuts(start, threads), start, *extra, *weight.shape, self.column,
            weight.reshape(-1), permuted[: ordering.kept * width], pieces, steps=workspace.count * workspace.stencil,
        )  # fmt: skip
        if first is not None:
            pieces = pieces.reshape(channels, -1, self.size, parts)
            sums = np.add.reduceat(pieces, first, axis=1, dtype=np.result_type(nodes, np.float64))
            nodes += sums.reshape(channels, -1, parts)[:, :rows]
        if whole is not target:
            target += whole

    def _slope(self, workspace: Workspace) -> np.ndarray:
        """Return the entries' slopes (d, entries) in user coordinates, made at the first call that needs them."""
        if self._slopes is None:
            self._slopes = self._filled(workspace, slopes=True)
        return self._slopes

    def _cuts(self, start: np.ndarray, threads: int) -> np.ndarray:
        """Return where shares of the rows begin, each with about as many entries."""
        rows = len(start) - 1
        shares = min(rows, _SHARES * threads if threads > 1 else 1)
        inner = np.searchsorted(start, np.linspace(0, start[-1], shares + 1)[1:-1])
        return np.concatenate(([0], inner, [rows])).astype(np.int64)


class Groups(Matrix):
    """Entries of consecutive nodes together, each with its node."""

    memory = "matrix.groups"
    index_bytes = 6
    seconds = (1.7e-8, 0.0, 2.4e-9, 6e-10)

    @classmethod
    def reserve(cls, method: Any, workspace: Workspace, size: int = 1) -> None:
        super().reserve(method, workspace, method.option(workspace, "group_size"))

    @classmethod
    def build(cls, method: Any, workspace: Workspace) -> Groups:
        return cls(workspace, method.option(workspace, "group_size"))


# ---- compiled: building ----------------------------------------------------------------------------------------------


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
def _walk_rows(
    tiling, ready, kept, records, packed, table, terms, lanes, jacobian, slopes, size, cuts, cursor, start, column,
    node, weight, counter,
):  # fmt: skip
    """Count each row's entries in ``cursor``; with ``weight``, write them at places that it has then.

    Weights are written with columns and, where there is room for them, nodes; ``slopes`` in user coordinates alone.
    """
    (nx, ny, nz), wraps, support = tiling.size, tiling.wraps, tiling.support
    factors, across = np.empty(6 * lanes, records.dtype), np.empty(6, records.dtype)
    for share in claimed(counter, cuts.size - 1):
        begin, end = cuts[share] * size, min(cuts[share + 1] * size, nx * ny * nz)
        for row in range(cuts[share], cuts[share + 1]):
            cursor[row] = 0
            if weight is not None:
                cursor[row] = start[row]
        for tile in range(ready.shape[0]):
            first = ready[tile, 0]
            last = ready[tile + 1, 0] if tile + 1 < ready.shape[0] else kept
            low, nodes = box_of(tiling, tile)
            if first == last or not _reaches(tiling, low, nodes, begin, end):
                continue
            for k in range(first, last):
                corner = corner_of(low, packed[4 * k + 3])
                if weight is not None:
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
                        if weight is not None:
                            xy = factors[i] * factors[lanes + j]
                            if slopes:
                                slopes_of(factors, lanes, i, j, jacobian, across)
                        for m in range(support[2]):
                            pz = place_of(corner[2] + m, nz, wraps[2])
                            if pz < 0 or row + pz < begin or row + pz >= end:
                                continue
                            this = row + pz if size == 1 else (row + pz) // size
                            at = cursor[this]
                            cursor[this] = at + 1
                            if weight is not None:
                                wz, dz = factors[2 * lanes + m], factors[5 * lanes + m]
                                if slopes:
                                    for b in range(weight.shape[0]):
                                        weight[b, at] = across[2 * b] * wz + across[2 * b + 1] * dz
                                    continue
                                weight[0, at] = xy * wz
                                column[at] = k
                                if node.size:
                                    node[at] = row + pz - this * size


# ---- compiled: products ----------------------------------------------------------------------------------------------


@compiled
def _permute(source, order, width, target, counter):
    """Copy numbers, ``width`` a particle, into the order of tiles."""
    for begin, end in ranges(counter, order.size, 4096):
        for k in range(begin, end):
            prefetch(source, width * order[min(k + _AHEAD, order.size - 1)])
            at = width * order[k]
            for j in range(width):
                target[width * k + j] = source[at + j]


@compiled
def _dot(weight, plane, column, begin, end, values, width, first):
    """Return the sum of weight times value of entries [begin, end): four sums side by side, in a fixed order."""
    a = values.dtype.type(0)
    b, c, d = a, a, a
    whole = begin + (end - begin) // 4 * 4
    for e in range(begin, whole, 4):
        a += weight[plane + e] * values[width * column[e] + first]
        b += weight[plane + e + 1] * values[width * column[e + 1] + first]
        c += weight[plane + e + 2] * values[width * column[e + 2] + first]
        d += weight[plane + e + 3] * values[width * column[e + 3] + first]
    for e in range(whole, end):
        a += weight[plane + e] * values[width * column[e] + first]
    return (a + b) + (c + d)


@compiled(inline="always")
def _add_entries(first, node, begin, end, planes, pitch, column, weight, values, field):
    """Add entries [begin, end) to the nodes ``first + node[0]``, ``first + node[1]``, ..."""
    channels, _, parts = field.shape
    width = channels * planes * parts
    for c in range(channels):
        for p in range(parts):
            for e in range(begin, end):
                at = width * column[e] + c * planes * parts + p
                total = weight[e] * values[at]
                for b in range(1, planes):
                    total += weight[b * pitch + e] * values[at + b * parts]
                field[c, first + node[e - begin], p] += total


@compiled
def _add_rows(cuts, start, planes, pitch, column, weight, values, field, counter):
    """Add the rows' sums, a share of rows at a time; ``pitch`` entries lie between planes of weights."""
    channels, _, parts = field.shape
    width = channels * planes * parts
    for share in claimed(counter, cuts.size - 1):
        for row in range(cuts[share], cuts[share + 1]):
            begin, end = start[row], start[row + 1]
            for c in range(channels):
                for p in range(parts):
                    total = field[c, row, p]
                    for b in range(planes):
                        first = (c * planes + b) * parts + p
                        total += _dot(weight, b * pitch, column, begin, end, values, width, first)
                    field[c, row, p] = total


@compiled
def _add_groups(cuts, start, size, node, planes, pitch, column, weight, values, field, counter):
    """Add entries to the nodes of their group, a share of groups at a time."""
    for share in claimed(counter, cuts.size - 1):
        for group in range(cuts[share], cuts[share + 1]):
            begin, end = start[group], start[group + 1]
            _add_entries(group * size, node[begin:end], begin, end, planes, pitch, column, weight, values, field)
