# SPDX-License-Identifier: BSD-3-Clause
"""Spreading as a product with a matrix in two factors: lines of nodes by particles, and weights along the line."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from particlemesh.arrays.views import Layout, View
from particlemesh.backends.base import As
from particlemesh.methods.contract import Option, Problem
from particlemesh.methods.launches import SINGLE, Group, KernelMethod, defines, field_record, groups, values_record
from particlemesh.orders import node_order
from particlemesh.particles.workspace import Sizes, Workspace
from particlemesh.sorting.scan import allocate_counts, scan

_BUILD, _APPLY = "spread/line_mesh_build.c", "spread/line_mesh.c"
_LANES = (1, 2, 4, 8, 16, 32)
_NARROW = 2**32 - 2**8  # entries that 32 bits count; loops step past the last one
_LOCAL_BYTES = 40_000  # of the 48 KB that a group may have


def _sizes(sizes: Sizes, count: int) -> tuple[int, int]:
    """Return the entries of the matrix, and the cells of all lines of nodes."""
    x, y, z = sizes.axes
    return count * x.support * y.support, x.size * y.size * z.extent


def _record(quantities: int) -> int:
    """Return the reals of a particle's record: its fraction along the line and what it brings."""
    return 1 << quantities.bit_length()


class LineMesh(KernelMethod):
    """A matrix of lines of nodes by particles; weights along a line are worked out where they are used.

    A particle has support^(d-1) entries instead of support^d: the products of its weights across the line. A line's
    entries lie in the order of the cell, along the line, in which stencils begin; the sums over a cell's entries times
    each of the support's weights are added up to the nodes. No atomics.
    """

    name = "line_mesh"
    stores_weights = True
    cite = "guo2015"
    deterministic = True
    options: ClassVar[dict[str, Option]] = {
        "lanes_per_cell": Option(
            None, _LANES, "lanes that share the entries of a cell; by default as their mean suggests"
        ),
    }

    @classmethod
    def declines(cls, problem: Problem) -> str | None:
        return node_order.declines(problem)

    @classmethod
    def scratch_bytes(cls, problem: Problem) -> int:
        entries, cells = _sizes(problem, problem.count)
        real, start = problem.dtype.itemsize, 4 if entries < _NARROW else 8
        records = problem.count * real * _record(min(problem.components, 4))
        return node_order.order_bytes(problem) + entries * (4 + real) + 2 * start * cells + records

    @classmethod
    def cost(cls, problem: Problem) -> tuple[float, float]:
        entries, cells = _sizes(problem, problem.count)
        lines, slow = problem.stencil / problem.window.support, 1.0 if problem.dtype.itemsize == 4 else 1.6
        # H200 (benchmarks/results/guo-long_totals-nvidia-h200.csv, guo-added_clouds-nvidia-h200.csv)
        build = 4e-5 + cells * lines * 4.6e-12 + entries * 2.5e-11
        multiply = 5e-6 + slow * (cells * 2e-11 + entries * (3.2e-12 + 1.2e-12 * problem.components))
        return node_order.seconds(problem) + build, multiply

    def reserve(self, workspace: Workspace) -> None:
        node_order.reserve(workspace)
        self._room(workspace)
        self._records(workspace, min(workspace.components, 4))

    def _room(self, workspace: Workspace) -> tuple[Any, Any, Any, Any]:
        """Return counts of entries by cell with the books of their scan, their sums, places and weights."""
        entries, cells = _sizes(workspace, max(workspace.capacity, 1))
        counter = np.dtype(np.uint64 if self._wide(workspace) else np.uint32)
        counts = allocate_counts(workspace.backend, cells, counter, workspace.scratch, "lines.counts")
        start = workspace.scratch("lines.start", (cells + 1,), counter)
        place = workspace.scratch("lines.place", (entries,), np.dtype(np.uint32))
        return counts, start, place, workspace.scratch("lines.weight", (entries,), workspace.dtype)

    @staticmethod
    def _wide(workspace: Workspace) -> int:
        """Return whether entries are counted in 64 bits: by the room, which is reserved for one type."""
        return int(_sizes(workspace, max(workspace.capacity, 1))[0] >= _NARROW)

    def _records(self, workspace: Workspace, quantities: int) -> Any:
        return workspace.scratch("lines.records", (max(workspace.capacity, 1) * _record(quantities),), workspace.dtype)

    def _lanes(self, workspace: Workspace) -> int:
        """Return how many lanes share a cell's entries: a few entries each."""
        chosen = self.option(workspace, "lanes_per_cell")
        entries, cells = _sizes(workspace, workspace.count)
        return int(chosen or min(32, 1 << max(0, int(entries / cells / 4).bit_length() - 1)))

    def _kernel(self, workspace: Workspace, file: str, name: str, group: Group, gradient: int, **more: int) -> Any:
        lanes = {"LANES_ALL": 1, "LANES_ROW": 1, "COUNT_IS_64": self._wide(workspace)}
        return workspace.backend.kernel(file, name, defines(workspace, group, 1, GRADIENT=gradient, **lanes, **more))

    def prepare(self, workspace: Workspace) -> None:
        """Build the matrix: count the entries of every cell of every line, add up, fill in."""
        self._sloped = False
        counts, start, place, weight = self._room(workspace)
        found = node_order.node_order(workspace)
        _, cells = _sizes(workspace, workspace.count)
        workspace.backend.clear(counts)
        count = self._kernel(workspace, _BUILD, "line_counts", SINGLE, 0, LANES_CELL=self._fill_lanes(workspace))
        count(cells, found.start, As(counts, start.dtype), cells, found.lattice)
        scan(workspace.backend, counts, start, cells)
        self._fill(workspace, 0, place, weight, weight)

    @staticmethod
    def _fill_lanes(workspace: Workspace) -> int:
        """Return how many lanes fill in a cell's entries: as many as particles begin at a node."""
        return int(min(8, 1 << max(0, int(2 * workspace.count / node_order.cells(workspace)).bit_length() - 1)))

    def _fill(self, workspace: Workspace, gradient: int, place: Any, weight: Any, other: Any) -> None:
        found = node_order.node_order(workspace)
        _, start, _, _ = self._room(workspace)
        _, cells = _sizes(workspace, workspace.count)
        lanes = self._fill_lanes(workspace)
        run = self._kernel(workspace, _BUILD, "line_fill", SINGLE, gradient, LANES_CELL=lanes)
        run(
            cells * lanes, found.start, start, found.fraction, place, weight, other, cells, found.rows,
            found.lattice, workspace.window_record,
        )  # fmt: skip

    def _slopes(self, workspace: Workspace) -> tuple[Any, Any]:
        """Return the entries' slopes across the line, along the first and the second axis; made when first wanted."""
        entries, _ = _sizes(workspace, max(workspace.capacity, 1))
        x, y = (workspace.scratch(f"lines.slope_{axis}", (entries,), workspace.dtype) for axis in "xy")
        if not self._sloped:
            _, _, place, _ = self._room(workspace)
            self._fill(workspace, 1, place, x, y)
            self._sloped = True
        return x, y

    def build(self, workspace: Workspace, kind: int, field: Layout, *values: Layout | None) -> list[Any]:
        built, gradient = [], kind & 1
        for group in groups(field):
            quantities = group.parts * group.channels * (3 if gradient else 1)
            reals, support, real = group.parts * group.channels, workspace.axes[2].support, workspace.dtype.itemsize
            tile = 128
            while tile > 32 and support * (tile + support - 1) * reals * real > _LOCAL_BYTES:
                tile //= 2
            facts = {"RECORD": _record(quantities), "TILE": tile, "LANES_CELL": self._lanes(workspace)}
            brings, spreads = (
                self._kernel(workspace, _APPLY, name, group, gradient, **facts)
                for name in ("line_records", "line_spread")
            )
            lines = workspace.axes[0].size * workspace.axes[1].size
            tiles = -(-workspace.axes[2].size // tile)
            built.append((
                quantities, lines, tiles, brings, spreads, values_record(group, values[0]),
                field_record(group, field, workspace.axes),
            ))  # fmt: skip
        return built

    def apply(self, workspace: Workspace, values: View, field: View, gradient: bool = False, **_: Any) -> None:
        found, count = node_order.node_order(workspace), workspace.count
        _, start, place, weight = self._room(workspace)
        slopes = self._slopes(workspace) if gradient else (weight, weight)
        for quantities, lines, tiles, brings, spreads, value_layout, field_layout in self.launches(
            workspace, int(gradient) + 2 * self._wide(workspace), field, values
        ):
            records = self._records(workspace, quantities)
            brings(
                count, found.order, found.fraction, values.array, records, count, found.rows, value_layout,
                workspace.jacobian_record,
            )  # fmt: skip
            spreads(
                lines * tiles * workspace.backend.group_size, start, place, weight, *slopes, records, field.array,
                lines, tiles, found.lattice, field_layout, workspace.window_record,
            )  # fmt: skip
