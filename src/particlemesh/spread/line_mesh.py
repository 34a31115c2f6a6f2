# SPDX-License-Identifier: BSD-3-Clause
"""Spreading as a product with a matrix in two factors: lines of nodes by particles, and weights along the line."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from particlemesh.arrays.operands import Layout, View
from particlemesh.backends.base import As, Kernel
from particlemesh.methods.contract import Option, Problem
from particlemesh.methods.launches import MOST, NO_LANES, SINGLE, Form, Group, Launch, kernel
from particlemesh.methods.stored_matrix import StoredMatrix
from particlemesh.orders import node_order
from particlemesh.particles.workspace import Sizes, Workspace
from particlemesh.sorting.scan import allocate_counts, scan

_BUILD, _APPLY = "spread/line_mesh_build.c", "spread/line_mesh.c"
_LOCAL_BYTES = 40_000  # of the 48 KB that a group may have


def _cells(sizes: Sizes) -> int:
    """Return the cells of all lines of nodes."""
    x, y, z = sizes.axes
    return x.size * y.size * z.extent


def _record(quantities: int) -> int:
    """Return the reals of a particle's record: its fraction along the line and what it brings."""
    return 1 << quantities.bit_length()


def _lanes_for(entries: float, most: int) -> int:
    """Return the power of two at or below ``entries``, from 1 to ``most``."""
    return int(min(most, 1 << max(0, int(entries).bit_length() - 1)))


class LineMesh(StoredMatrix):
    """A matrix of lines of nodes by particles; weights along a line are worked out where they are used.

    A particle has support^(d-1) entries instead of support^d: the products of its weights across the line. A line's
    entries lie in the order of the cell, along the line, in which stencils begin. The entries of a cell are summed,
    times each of the support's weights. The nodes add up these sums, without atomics.
    """

    name = "line_mesh"
    narrow = 2**32 - 2**8  # loops step past the last entry
    options: ClassVar[dict[str, Option]] = {
        "lanes_per_cell": Option(
            None, (1, 2, 4, 8, 16, 32), "lanes that share the entries of a cell; by default as their mean suggests"
        ),
    }

    @classmethod
    def entries(cls, sizes: Sizes, count: int) -> int:
        x, y, _ = sizes.axes
        return count * x.support * y.support

    @classmethod
    def device_declines(cls, problem: Problem) -> str | None:
        return node_order.declines(problem)

    @classmethod
    def device_bytes(cls, problem: Problem) -> int:
        entries, real = cls.entries(problem, problem.count), problem.dtype.itemsize
        starts = 2 * (4 if entries < cls.narrow else 8) * _cells(problem)
        records = problem.count * real * _record(min(problem.components, MOST))
        return node_order.order_bytes(problem) + entries * (4 + real) + starts + records

    @classmethod
    def device_cost(cls, problem: Problem) -> tuple[float, float]:
        entries, cells = cls.entries(problem, problem.count), _cells(problem)
        lines, slow = problem.stencil / problem.window.support, 1.0 if problem.dtype.itemsize == 4 else 1.6
        # H200 (benchmarks/results/guo-long_totals-nvidia-h200.csv, guo-added_clouds-nvidia-h200.csv)
        build = 4e-5 + cells * lines * 4.6e-12 + entries * 2.5e-11
        multiply = 5e-6 + slow * (cells * 2e-11 + entries * (3.2e-12 + 1.2e-12 * problem.components))
        return node_order.seconds(problem) + build, multiply

    # ---- the matrix ---------------------------------------------------------------------------------------

    def allocate(self, workspace: Workspace) -> None:
        node_order.reserve(workspace)
        self._room(workspace)
        self._records(workspace, min(workspace.components, MOST))

    def _room(self, workspace: Workspace) -> tuple[Any, Any, Any, Any]:
        """Return counts of entries by cell with the books of their scan, their sums, places and weights."""
        entries, cells, counter = self.most(workspace), _cells(workspace), self.counter(workspace)
        allocate = self.scratch(workspace)
        counts = allocate_counts(workspace.backend, cells, counter, allocate)
        start = allocate("start", (cells + 1,), counter)
        place = allocate("place", (entries,), np.dtype(np.uint32))
        return counts, start, place, allocate("weight", (entries,), workspace.dtype)

    def _slopes(self, workspace: Workspace) -> tuple[Any, Any]:
        """Return room for the entries' slopes across the line, along the first and the second axis."""
        x, y = (self.scratch(workspace)(f"slope_{a}", (self.most(workspace),), workspace.dtype) for a in "xy")
        return x, y

    def _records(self, workspace: Workspace, quantities: int) -> Any:
        shape = (max(workspace.capacity, 1) * _record(quantities),)
        return workspace.scratch(f"{self.name}.records", shape, workspace.dtype)

    def _build(self, workspace: Workspace, name: str, *, slopes: bool) -> tuple[int, Kernel]:
        """Return the lanes that fill in a cell's entries, as many as particles begin at a node, and the kernel."""
        lanes = _lanes_for(2 * workspace.count / node_order.cells(workspace), 8)
        facts = {**NO_LANES, "GRADIENT": int(slopes), "COUNT_IS_64": int(self.wide(workspace)), "LANES_CELL": lanes}
        return lanes, kernel(workspace, _BUILD, name, SINGLE, 1, **facts)

    def assemble(self, workspace: Workspace) -> None:
        """Count the entries of every cell of every line, and add up the counts."""
        (counts, start, _, _), cells = self._room(workspace), _cells(workspace)
        order = node_order.node_order(workspace)
        workspace.backend.clear(counts)
        _, count = self._build(workspace, "line_counts", slopes=False)
        count(cells, order.start, As(counts, start.dtype), cells, order.lattice)
        scan(workspace.backend, counts, start, cells)

    def fill(self, workspace: Workspace, slopes: bool) -> None:
        order, cells, (_, start, place, weight) = (
            node_order.node_order(workspace), _cells(workspace), self._room(workspace)
        )  # fmt: skip
        targets = self._slopes(workspace) if slopes else (weight, weight)
        lanes, run = self._build(workspace, "line_fill", slopes=slopes)
        run(
            cells * lanes, order.start, start, order.fraction, place, *targets, cells, order.rows, order.lattice,
            workspace.window_record,
        )  # fmt: skip

    # ---- application --------------------------------------------------------------------------------------

    def lanes(self, workspace: Workspace) -> int:
        """Return how many lanes share a cell's entries: a few entries each."""
        entries = self.entries(workspace, workspace.count) / _cells(workspace)
        return int(self.option(workspace, "lanes_per_cell") or _lanes_for(entries / 4, 32))

    def compile(self, workspace: Workspace, form: Form, group: Group, field: Layout, *values: Layout | None) -> Launch:
        quantities = group.reals * (3 if form.gradient else 1)
        support, real, tile = workspace.axes[2].support, workspace.dtype.itemsize, 128
        while tile > 32 and support * (tile + support - 1) * group.reals * real > _LOCAL_BYTES:
            tile //= 2
        facts = {
            **NO_LANES, "GRADIENT": int(form.gradient), "COUNT_IS_64": int(form.wide), "RECORD": _record(quantities),
            "TILE": tile, "LANES_CELL": self.lanes(workspace),
        }  # fmt: skip
        runs = (kernel(workspace, _APPLY, name, group, 1, **facts) for name in ("line_records", "line_spread"))
        return quantities, -(-workspace.axes[2].size // tile), *runs

    def multiply(self, workspace: Workspace, values: View, field: View, gradient: bool = False, **_: Any) -> None:
        order, count = node_order.node_order(workspace), workspace.count
        _, start, place, weight = self._room(workspace)
        slopes = self._slopes(workspace) if gradient else (weight, weight)
        self.filled(workspace, slopes=gradient)
        lines = workspace.axes[0].size * workspace.axes[1].size
        form = Form(gradient, self.wide(workspace))
        for quantities, tiles, bring, spread, value_layout, layout in self.launches(workspace, form, field, values):
            records = self._records(workspace, quantities)
            bring(
                count, order.order, order.fraction, values.array, records, count, order.rows, value_layout,
                workspace.jacobian_record,
            )  # fmt: skip
            spread(
                lines * tiles * workspace.backend.group_size, start, place, weight, *slopes, records, field.array,
                lines, tiles, order.lattice, layout, workspace.window_record,
            )  # fmt: skip
