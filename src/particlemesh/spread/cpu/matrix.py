# SPDX-License-Identifier: BSD-3-Clause
"""Spreading by stored matrices on the processor: by rows, by groups of rows, ELL and COO [guo2015]_.

An entry is a weight and a column, the place of its particle in the order of tiles. Values are brought into that
order first, so that the entries of a row find them close together. A row, or a group of rows, belongs to one
thread. Nothing is added atomically, and results are reproducible for any number of threads.
"""

from __future__ import annotations

import functools
from typing import Any, ClassVar

import numpy as np

from particlemesh.arrays.views import View
from particlemesh.backends.cpu import claimed, ranges, run, threads_for
from particlemesh.backends.jit import compiled, plain
from particlemesh.backends.simd import prefetch
from particlemesh.methods.by_tile import matrix_seconds
from particlemesh.methods.contract import Problem
from particlemesh.methods.stored_matrix import HostMatrix
from particlemesh.particles.workspace import Workspace
from particlemesh.sorting.cpu import index_type
from particlemesh.spread.cpu import entries as storing
from particlemesh.spread.cpu.entries import Entries, count_entries, fill_entries, place_entries

_SHARES = 16  # ranges of rows per thread, each with about as many entries
_AHEAD = 16  # particles between asking for a value and using it
MOST_NODES = 2**16  # of a group
_LONG = 4096  # entries that are added up one after the other, at most: in float32 longer sums lose digits


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
def _add_rows(cuts, start, ell, node, planes, pitch, column, weight, values, field, counter):
    """Add the rows' sums, a share of rows at a time; ``pitch`` entries lie between planes of weights.

    Rows lie behind each other (``ell`` is -1), or in a rectangle of ``ell`` entries each; then follows what did not
    fit, with its ``node``.
    """
    channels, rows, parts = field.shape
    width = channels * planes * parts
    for share in claimed(counter, cuts.size - 1):
        for row in range(cuts[share], cuts[share + 1]):
            begin, end = start[row], start[row + 1]
            if ell >= 0:
                begin, end = row * ell, row * ell + ell
                while end > begin and column[end - 1] < 0:  # a row's entries come first, then nothing
                    end -= 1
            for c in range(channels):
                for p in range(parts):
                    total = field[c, row, p]
                    for b in range(planes):
                        first = (c * planes + b) * parts + p
                        total += _dot(weight, b * pitch, column, begin, end, values, width, first)
                    field[c, row, p] = total
        if ell >= 0:
            begin, end = start[cuts[share]], start[cuts[share + 1]]
            others, before = node[begin:end], rows * ell
            _add_entries(0, others, before + begin, before + end, planes, pitch, column, weight, values, field)


@compiled
def _add_groups(cuts, start, size, node, planes, pitch, column, weight, values, field, counter):
    """Add entries to the nodes of their group, a share of groups at a time."""
    for share in claimed(counter, cuts.size - 1):
        for group in range(cuts[share], cuts[share + 1]):
            begin, end = start[group], start[group + 1]
            _add_entries(group * size, node[begin:end], begin, end, planes, pitch, column, weight, values, field)


class Matrix(HostMatrix):
    """The spreading matrix of one configuration, by rows.

    Its memory is the workspace's scratch, which the next matrix of that kind takes over.
    """

    memory: ClassVar[str] = "matrix.rows"  # name in the scratch
    index_bytes: ClassVar[int] = 4  # of an entry, beside its weight
    rectangle: ClassVar[float] = 1.0  # entries with room, per entry
    # Seconds to build an entry and a row, and to multiply by them: one thread, as those of tiles.
    seconds: ClassVar[tuple[float, float, float, float]] = (1.4e-8, 8e-9, 1.6e-9, 1e-8)

    def __init__(self, workspace: Workspace, entries: Entries) -> None:
        self.entries = entries
        self.weight = fill_entries(workspace, entries)
        self._slope: np.ndarray | None = None

    @classmethod
    def scratch_bytes(cls, method: Any, problem: Problem) -> int:
        entries, real = method.entries(problem, problem.count), problem.dtype.itemsize
        values = problem.count * problem.components * real
        return int(entries * cls.rectangle) * (cls.index_bytes + real) + 8 * (problem.nodes + 1) + values

    @classmethod
    def cost(cls, method: Any, problem: Problem) -> tuple[float, float]:
        build_entry, build_row, add_entry, add_row = cls.seconds
        built, applied = matrix_seconds(problem, build_entry, add_entry)
        return built + problem.nodes * build_row, applied + problem.nodes * problem.components * add_row

    @classmethod
    def reserve(cls, method: Any, workspace: Workspace) -> None:
        storing.reserve(workspace, cls.memory, method.entries(workspace, workspace.capacity))

    @classmethod
    def build(cls, method: Any, workspace: Workspace) -> Matrix:
        return by_rows(workspace)

    @property
    def nbytes(self) -> int:
        """Bytes of what is stored."""
        slope = 0 if self._slope is None else self._slope.nbytes
        return self.entries.nbytes + self.weight.nbytes + slope

    def apply(self, workspace: Workspace, values: View, field: View, gradient: bool = False, **_: Any) -> None:
        """Add the matrix times values, or times vectors (channels, particles, axes, parts), to a field."""
        if not workspace.particles.ordering.kept:
            return
        weight = self.slope(workspace) if gradient else self.weight
        threads = threads_for(workspace.threads, workspace.count)
        target = field.numpy()
        whole = target if target.flags.c_contiguous else np.zeros(target.shape, target.dtype)
        nodes = whole.reshape(target.shape[0], -1, target.shape[-1])
        start, first, size = *self._pieces, self.entries.size
        channels, rows, parts = nodes.shape
        pieces = nodes if first is None else np.zeros((channels, (len(start) - 1) * size, parts), nodes.dtype)
        function, *extra = self._product()
        run(
            function, threads, self._cuts(start, threads), start, *extra, *weight.shape, self.entries.column,
            weight.reshape(-1), self._permuted(workspace, values, threads), pieces,
            steps=workspace.count * workspace.stencil,
        )  # fmt: skip
        if first is not None:
            pieces = pieces.reshape(channels, -1, size, parts)
            sums = np.add.reduceat(pieces, first, axis=1, dtype=np.result_type(nodes, np.float64))
            nodes += sums.reshape(channels, -1, parts)[:, :rows]
        if whole is not target:
            target += whole

    @functools.cached_property
    def _pieces(self) -> tuple[np.ndarray, np.ndarray | None]:
        """Where entries that are added up together begin, and each row's first of these, or None if all rows are short.

        The sums of a long row's pieces are added in double precision.
        """
        start, most = self.entries.start, max(_LONG, 16 * self.entries.size)
        counts = np.diff(start)
        if counts.max(initial=0) <= most:
            return start, None
        pieces = np.maximum(1, -(-counts // most))
        first = np.cumsum(pieces) - pieces
        place = np.arange(pieces.sum()) - np.repeat(first, pieces)
        return np.append(np.repeat(start[:-1], pieces) + most * place, start[-1]), first

    def slope(self, workspace: Workspace) -> np.ndarray:
        """Return the entries' slopes (d, entries) in user coordinates, made at the first call that needs them."""
        if self._slope is None:
            self._slope = fill_entries(workspace, self.entries, slopes=True)
        return self._slope

    def _product(self) -> tuple[Any, ...]:
        """Return the function that adds the product, and what it takes beside what all take."""
        return _add_rows, -1, np.empty(0, index_type(self.entries.rows))

    def _permuted(self, workspace: Workspace, values: View, threads: int) -> np.ndarray:
        """Return values in the order of tiles: for each particle channel by channel, axes, parts."""
        ordering = workspace.particles.ordering
        source = np.ascontiguousarray(np.moveaxis(values.numpy(), 1, 0))
        width = source[0].size
        target = workspace.scratch("matrix.values", (workspace.capacity * width,), source.dtype)[
            : ordering.kept * width
        ]
        order = ordering.order[: ordering.kept]
        run(_permute, threads, plain(source), order, width, target)
        return np.asarray(target)

    def _cuts(self, start: np.ndarray, threads: int) -> np.ndarray:
        """Return where shares of the rows begin, each with about as many entries."""
        rows, before = len(start) - 1, start
        shares = min(rows, _SHARES * threads if threads > 1 else 1)
        if self.entries.width:
            before = before + self.entries.width * np.arange(rows + 1)
        inner = np.searchsorted(before, np.linspace(0, before[-1], shares + 1)[1:-1])
        return np.concatenate(([0], inner, [rows])).astype(np.int64)


class Groups(Matrix):
    """Entries of consecutive nodes together, each with its node."""

    memory = "matrix.groups"
    index_bytes = 6
    seconds = (1.7e-8, 0.0, 2.4e-9, 6e-10)

    @classmethod
    def reserve(cls, method: Any, workspace: Workspace) -> None:
        entries, size = method.entries(workspace, workspace.capacity), method.option(workspace, "group_size")
        storing.reserve(workspace, cls.memory, entries, size=size)

    @classmethod
    def build(cls, method: Any, workspace: Workspace) -> Groups:
        return by_groups(workspace, method.option(workspace, "group_size"))

    def _product(self) -> tuple[Any, ...]:
        return _add_groups, self.entries.size, self.entries.node


class EllCoo(Matrix):
    """A rectangle of the first entries of every row (ELL), and a list of the others with their rows (COO)."""

    memory = "matrix.ell_coo"
    rectangle = 1.2  # predictions need not make ready for the widest rectangle
    seconds = (1.3e-8, 3e-8, 1.75e-9, 1.2e-8)

    def __init__(self, workspace: Workspace, entries: Entries) -> None:
        super().__init__(workspace, entries)
        counts = np.diff(entries.start) if entries.width else 0
        self.row = np.repeat(np.arange(entries.rows, dtype=index_type(entries.rows)), counts)

    @classmethod
    def reserve(cls, method: Any, workspace: Workspace) -> None:
        capacity = workspace.capacity
        entries = method.entries(workspace, capacity) + method.rectangle(workspace, capacity)
        storing.reserve(workspace, cls.memory, entries)

    @classmethod
    def build(cls, method: Any, workspace: Workspace) -> EllCoo:
        return ell_coo(workspace, method.width(workspace, max(workspace.count, 1)))

    @property
    def width(self) -> int:
        """Entries of a row of the rectangle."""
        return self.entries.width

    @property
    def nbytes(self) -> int:
        """Bytes of what is stored."""
        return super().nbytes + self.row.nbytes

    def _product(self) -> tuple[Any, ...]:
        return (_add_rows, self.width, self.row) if self.width else super()._product()


def by_rows(workspace: Workspace) -> Matrix:
    """Return the matrix by rows (CSR): a row is a node, its entries are in the order of tiles."""
    return Matrix(workspace, place_entries(workspace, Matrix.memory, count_entries(workspace)))


def by_groups(workspace: Workspace, group_size: int) -> Groups:
    """Return the matrix by groups of ``group_size`` consecutive nodes, up to 65,536.

    Entries of a group are in the order of tiles, and carry their node.
    """
    if not 1 <= group_size <= MOST_NODES:
        raise ValueError(f"group_size is {group_size}; give 1 to {MOST_NODES:,} nodes.")
    counts = count_entries(workspace, group_size)
    return Groups(workspace, place_entries(workspace, Groups.memory, counts, size=group_size))


def ell_coo(workspace: Workspace, width: int | None = None) -> EllCoo:
    """Return the matrix with the first ``width`` entries of every row in a rectangle, the others in a list.

    By default the width is that of :func:`usual_width`. With long rows there is no rectangle.
    """
    counts = count_entries(workspace)
    wide = usual_width(counts) if width is None else width
    wide = wide if counts.max(initial=0) <= _LONG else 0
    return EllCoo(workspace, place_entries(workspace, EllCoo.memory, counts, width=wide))


def usual_width(counts: np.ndarray) -> int:
    """Return the largest k such that at least max(4096, rows / 3) rows have k entries or more: Bell and Garland's."""
    enough = max(4096, -(-len(counts) // 3))
    return 0 if enough > len(counts) else int(np.partition(counts, len(counts) - enough)[len(counts) - enough])
