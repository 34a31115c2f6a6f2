# SPDX-License-Identifier: BSD-3-Clause
"""Spreading as a product with a matrix in two factors: lines of nodes by particles, and weights along the line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from particlemesh.arrays import Layout, View
from particlemesh.backends.base import As
from particlemesh.methods.contract import Option, Problem
from particlemesh.methods.launches import SINGLE, Group, KernelMethod, defines, field_record, groups, values_record
from particlemesh.orders import node_order
from particlemesh.particles.stencil import axes_of
from particlemesh.sorting.scan import allocate_counts, scan

if TYPE_CHECKING:
    from particlemesh.plan import Plan

_BUILD, _APPLY = "spread/line_mesh_build.c", "spread/line_mesh.c"
_LANES = (1, 2, 4, 8, 16, 32)
_NARROW = 2**32 - 2**8  # entries that 32 bits count; loops step past the last one
_LOCAL_BYTES = 40_000  # of the 48 KB that a group may have


def _sizes(asked: Plan | Problem, count: int) -> tuple[int, int]:
    """Return the entries of the matrix, and the cells of all lines of nodes."""
    x, y, z = axes_of(asked.mesh, asked.window)
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

    def reserve(self, plan: Plan) -> None:
        node_order.reserve(plan)
        self._room(plan)
        self._records(plan, min(plan.components, 4))

    def _room(self, plan: Plan) -> tuple[Any, Any, Any, Any]:
        """Return counts of entries by cell with the books of their scan, their sums, places and weights."""
        entries, cells = _sizes(plan, max(plan.capacity, 1))
        counter = np.dtype(np.uint64 if self._wide(plan) else np.uint32)
        counts = allocate_counts(plan.backend, cells, counter, plan.scratch, "lines.counts")
        start = plan.scratch("lines.start", (cells + 1,), counter)
        place = plan.scratch("lines.place", (entries,), np.dtype(np.uint32))
        return counts, start, place, plan.scratch("lines.weight", (entries,), plan.dtype)

    @staticmethod
    def _wide(plan: Plan) -> int:
        """Return whether entries are counted in 64 bits: by the room, which is reserved for one type."""
        return int(_sizes(plan, max(plan.capacity, 1))[0] >= _NARROW)

    def _records(self, plan: Plan, quantities: int) -> Any:
        return plan.scratch("lines.records", (max(plan.capacity, 1) * _record(quantities),), plan.dtype)

    def _lanes(self, plan: Plan) -> int:
        """Return how many lanes share a cell's entries: a few entries each."""
        chosen = self.option(plan, "lanes_per_cell")
        entries, cells = _sizes(plan, plan.count)
        return int(chosen or min(32, 1 << max(0, int(entries / cells / 4).bit_length() - 1)))

    def _kernel(self, plan: Plan, file: str, name: str, group: Group, gradient: int, **more: int) -> Any:
        lanes = {"LANES_ALL": 1, "LANES_ROW": 1, "COUNT_IS_64": self._wide(plan)}
        return plan.backend.kernel(file, name, defines(plan, group, 1, GRADIENT=gradient, **lanes, **more))

    def prepare(self, plan: Plan) -> None:
        """Build the matrix: count the entries of every cell of every line, add up, fill in."""
        self._sloped = False
        counts, start, place, weight = self._room(plan)
        found = node_order.node_order(plan)
        _, cells = _sizes(plan, plan.count)
        plan.backend.clear(counts)
        count = self._kernel(plan, _BUILD, "line_counts", SINGLE, 0, LANES_CELL=self._fill_lanes(plan))
        count(cells, found.start, As(counts, start.dtype), cells, found.lattice)
        scan(plan.backend, counts, start, cells)
        self._fill(plan, 0, place, weight, weight)

    @staticmethod
    def _fill_lanes(plan: Plan) -> int:
        """Return how many lanes fill in a cell's entries: as many as particles begin at a node."""
        return int(min(8, 1 << max(0, int(2 * plan.count / node_order.cells(plan)).bit_length() - 1)))

    def _fill(self, plan: Plan, gradient: int, place: Any, weight: Any, other: Any) -> None:
        found = node_order.node_order(plan)
        _, start, _, _ = self._room(plan)
        _, cells = _sizes(plan, plan.count)
        lanes = self._fill_lanes(plan)
        run = self._kernel(plan, _BUILD, "line_fill", SINGLE, gradient, LANES_CELL=lanes)
        run(
            cells * lanes, found.start, start, found.fraction, place, weight, other, cells, found.rows,
            found.lattice, plan.window_record,
        )  # fmt: skip

    def _slopes(self, plan: Plan) -> tuple[Any, Any]:
        """Return the entries' slopes across the line, along the first and the second axis; made when first wanted."""
        entries, _ = _sizes(plan, max(plan.capacity, 1))
        x, y = (plan.scratch(f"lines.slope_{axis}", (entries,), plan.dtype) for axis in "xy")
        if not self._sloped:
            _, _, place, _ = self._room(plan)
            self._fill(plan, 1, place, x, y)
            self._sloped = True
        return x, y

    def build(self, plan: Plan, kind: int, field: Layout, *values: Layout | None) -> list[Any]:
        built, gradient = [], kind & 1
        for group in groups(field):
            quantities = group.parts * group.channels * (3 if gradient else 1)
            reals, support, real = group.parts * group.channels, plan.axes[2].support, plan.dtype.itemsize
            tile = 128
            while tile > 32 and support * (tile + support - 1) * reals * real > _LOCAL_BYTES:
                tile //= 2
            facts = {"RECORD": _record(quantities), "TILE": tile, "LANES_CELL": self._lanes(plan)}
            brings, spreads = (
                self._kernel(plan, _APPLY, name, group, gradient, **facts) for name in ("line_records", "line_spread")
            )
            lines = plan.axes[0].size * plan.axes[1].size
            tiles = -(-plan.axes[2].size // tile)
            built.append((
                quantities, lines, tiles, brings, spreads, values_record(group, values[0]),
                field_record(group, field, plan.axes),
            ))  # fmt: skip
        return built

    def apply(self, plan: Plan, values: View, field: View, gradient: bool = False, **_: Any) -> None:
        found, count = node_order.node_order(plan), plan.count
        _, start, place, weight = self._room(plan)
        slopes = self._slopes(plan) if gradient else (weight, weight)
        for quantities, lines, tiles, brings, spreads, value_layout, field_layout in self.launches(
            plan, int(gradient) + 2 * self._wide(plan), field, values
        ):
            records = self._records(plan, quantities)
            brings(
                count, found.order, found.fraction, values.array, records, count, found.rows, value_layout,
                plan.jacobian_record,
            )  # fmt: skip
            spreads(
                lines * tiles * plan.backend.group_size, start, place, weight, *slopes, records, field.array, lines,
                tiles, found.lattice, field_layout, plan.window_record,
            )  # fmt: skip
