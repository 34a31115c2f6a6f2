# SPDX-License-Identifier: BSD-3-Clause
"""Spreading by a stored matrix in two parts: a rectangle of every row's first entries, a list of the others."""

from __future__ import annotations

import math
from typing import Any, ClassVar, NamedTuple

import numpy as np

from particlemesh.arrays.operands import Layout, View
from particlemesh.backends.base import As
from particlemesh.methods.contract import Option, Problem
from particlemesh.methods.launches import MOST, NO_LANES, SINGLE, Form, Group, Launch, kernel
from particlemesh.methods.stored_matrix import StoredMatrix, place_kernel
from particlemesh.orders import node_order
from particlemesh.particles.workspace import Sizes, Workspace
from particlemesh.sorting.scan import allocate_control, allocate_counts, scan
from particlemesh.spread.cpu.matrix import Matrix

_BUILD, _APPLY = "spread/hybrid_mesh_build.c", "spread/hybrid_mesh.c"

LEAST_ROWS = 4096  # that must fill a column of the rectangle [bell2009]
LONGEST = 2047  # entries of a row: longer ones count as this long where the width is chosen
INTERVAL = 512  # entries of the list that a warp takes at a time
_MOST_WARPS = 2**14  # that are launched for the list, whose length the host does not know


class _Matrix(NamedTuple):
    """Where the matrix lies; planes of weights are ``ell_plane`` and ``coo_plane`` apart."""

    lengths: Any
    width: Any
    start: Any
    ell_column: Any
    ell_weight: Any
    coo_row: Any
    coo_column: Any
    coo_weight: Any
    ell_plane: int
    coo_plane: int


class HybridMesh(StoredMatrix):
    """Stored weights as ELL and COO: the first entries of all rows side by side, the others as a list; no atomics."""

    name = "hybrid_mesh"
    cite = "bell2009"
    backends = frozenset({"cpu", "cuda", "opencl"})
    host = Matrix  # rows of one kind: caches make a rectangle of no use
    narrow = 2**31
    options: ClassVar = {
        "width": Option(
            None, range(2**20), "on GPUs, entries of a row in the rectangle; None takes Bell and Garland's rule"
        ),
    }

    @classmethod
    def width(cls, sizes: Sizes, count: int) -> int | None:
        """Return the chosen width, or the longest row that there can be if that is less."""
        width, turns = cls.option(sizes, "width"), math.prod(-(-axis.support // axis.size) for axis in sizes.axes)
        return None if width is None else min(width, count * turns)

    @classmethod
    def rectangle(cls, sizes: Sizes, count: int) -> int:
        """Return the most entries of the rectangle: a third of the rows fill it, if the rule chooses the width."""
        width = cls.width(sizes, count)
        if width is not None:
            return sizes.nodes * width
        return 3 * cls.entries(sizes, count) if sizes.nodes >= LEAST_ROWS else 0

    @classmethod
    def device_declines(cls, problem: Problem) -> str | None:
        return "2**32 - 1 nodes or more" if problem.nodes >= 2**32 - 1 else node_order.declines(problem)

    @classmethod
    def device_bytes(cls, problem: Problem) -> int:
        entries, real = cls.entries(problem, problem.count), problem.dtype.itemsize
        carried = entries // INTERVAL * (4 + 4 * real)
        counts = 3 * problem.nodes * (8 if entries >= cls.narrow else 4)
        values = problem.count * real * min(problem.components, MOST)
        stored = cls.rectangle(problem, problem.count) * (4 + real) + entries * (8 + real)
        return stored + carried + counts + values + node_order.order_bytes(problem)

    @classmethod
    def device_cost(cls, problem: Problem) -> tuple[float, float]:
        entries, slow = problem.count * problem.stencil, 1.0 if problem.dtype.itemsize == 4 else 1.4
        longer = 2.5 if entries > 2047 * problem.nodes else 1.0  # than the widest rectangle
        # H200 (benchmarks/results/guo-long_totals-nvidia-h200.csv, guo-added_clouds-nvidia-h200.csv)
        multiply = entries * (1.9e-12 + 0.35e-12 * problem.components) * slow * longer
        return 1e-4 + entries * 4.5e-11 + problem.nodes * 1.5e-10, 3e-5 + multiply + problem.nodes * 6e-12

    # ---- memory -------------------------------------------------------------------------------------------

    def allocate(self, workspace: Workspace) -> None:
        node_order.reserve(workspace)
        self._histogram(workspace)
        self._excess(workspace)
        self._room(workspace, slopes=False)
        components = min(workspace.components, MOST)
        self.placed(workspace, components)
        self._carries(workspace, components)

    def _histogram(self, workspace: Workspace) -> tuple[Any, Any]:
        """Return room for how many rows there are of each length, and for how many are shorter."""
        whole, allocate = np.dtype(np.uint32), self.scratch(workspace)
        counts = allocate_counts(workspace.backend, LONGEST + 1, whole, allocate, "histogram")
        return counts, allocate("shorter", (LONGEST + 2,), whole)

    def _excess(self, workspace: Workspace) -> tuple[Any, Any]:
        """Return room for how many entries of each row do not fit, and for the books of their sums."""
        nodes, allocate = workspace.nodes, self.scratch(workspace)
        excess = allocate("excess", (nodes,), self.counter(workspace))
        return excess, allocate_control(workspace.backend, nodes, allocate)

    def _room(self, workspace: Workspace, *, slopes: bool) -> _Matrix:
        nodes, entries = workspace.nodes, self.most(workspace)
        ell = max(self.rectangle(workspace, max(workspace.capacity, 1)), 1)
        whole, counter, allocate = np.dtype(np.uint32), self.counter(workspace), self.scratch(workspace)
        planes, weights = (workspace.mesh.ndim, "slope") if slopes else (1, "weight")
        return _Matrix(
            lengths=allocate("lengths", (nodes,), counter),
            width=allocate("width", (1,), whole),
            start=allocate("start", (nodes + 1,), counter),
            ell_column=allocate("ell_column", (ell,), whole),
            ell_weight=allocate(f"ell_{weights}", (planes * ell,), workspace.dtype),
            coo_row=allocate("coo_row", (entries,), whole),
            coo_column=allocate("coo_column", (entries,), whole),
            coo_weight=allocate(f"coo_{weights}", (planes * entries,), workspace.dtype),
            ell_plane=ell,
            coo_plane=entries,
        )

    def _carries(self, workspace: Workspace, components: int) -> tuple[Any, Any]:
        """Return room for rows and sums that intervals carry over."""
        intervals, allocate = -(-self.most(workspace) // INTERVAL), self.scratch(workspace)
        rows = allocate("carry_rows", (intervals,), np.dtype(np.uint32))
        return rows, allocate("carries", (intervals * components,), workspace.dtype)

    # ---- the matrix ---------------------------------------------------------------------------------------

    def _facts(self, workspace: Workspace, form: Form) -> dict[str, int]:
        slopes = workspace.mesh.ndim if form.gradient else 0
        return {**NO_LANES, "SLOPES": slopes, "COUNT_IS_64": int(form.wide), "LONGEST": LONGEST}

    def assemble(self, workspace: Workspace) -> None:
        """Find the length of every row, the width, and where each row's entries begin in the list."""
        backend, nodes = workspace.backend, workspace.nodes
        facts = self._facts(workspace, Form(wide=self.wide(workspace)))
        order, matrix = node_order.node_order(workspace), self._room(workspace, slopes=False)
        forced = self.width(workspace, max(workspace.capacity, 1))
        histogram, shorter = self._histogram(workspace)
        excess, control = self._excess(workspace)

        def run(name: str, items: int, *arguments: Any) -> None:
            kernel(workspace, _BUILD, name, SINGLE, 1, **facts)(items, *arguments)

        run("row_lengths", nodes, order.start, matrix.lengths, nodes, order.lattice)
        if forced is None:
            backend.clear(histogram)
            run("hybrid_histogram", min(nodes, 2**17), matrix.lengths, As(histogram, np.uint32), nodes)
            scan(backend, histogram, shorter, LONGEST + 1)
        run("hybrid_width", LONGEST + 1, shorter, matrix.width, nodes, LEAST_ROWS, -1 if forced is None else forced)
        run("hybrid_excess", nodes, matrix.lengths, matrix.width, excess, nodes)
        scan(backend, excess, matrix.start, nodes, control)

    def fill(self, workspace: Workspace, slopes: bool) -> None:
        matrix, nodes, order = self._room(workspace, slopes=slopes), workspace.nodes, node_order.node_order(workspace)
        facts = self._facts(workspace, Form(slopes, self.wide(workspace)))
        for name in ("hybrid_fill", "hybrid_fill_long"):
            kernel(workspace, _BUILD, name, SINGLE, 1, **facts)(
                nodes, order.start, order.node, order.fraction, *matrix[:-2], nodes, order.rows, *matrix[-2:],
                order.lattice, workspace.window_record, workspace.jacobian_record,
            )  # fmt: skip

    # ---- application --------------------------------------------------------------------------------------

    def compile(self, workspace: Workspace, form: Form, group: Group, field: Layout, *values: Layout | None) -> Launch:
        facts = {**self._facts(workspace, form), "INTERVAL": INTERVAL}
        runs = (
            kernel(workspace, _APPLY, name, group, 1, **facts) for name in ("hybrid_ell", "hybrid_coo", "hybrid_carry")
        )
        return group.reals, place_kernel(workspace, form, group), *runs

    def multiply(self, workspace: Workspace, values: View, field: View, gradient: bool = False, **_: Any) -> None:
        nodes, count, m = workspace.nodes, workspace.count, self._room(workspace, slopes=gradient)
        self.filled(workspace, slopes=gradient)
        order, vectors = node_order.node_order(workspace).order, workspace.mesh.ndim if gradient else 1
        warps = min(-(-self.most(workspace) // INTERVAL), _MOST_WARPS)
        form = Form(gradient, self.wide(workspace))
        for components, place, ell, coo, carry, value_layout, layout in self.launches(workspace, form, field, values):
            placed, (rows, sums) = self.placed(workspace, components * vectors), self._carries(workspace, components)
            place(count, order, values.array, placed, count, value_layout)
            ell(nodes, m.lengths, m.width, m.ell_column, m.ell_weight, placed, field.array, nodes, m.ell_plane, layout)
            coo(
                32 * warps, m.start, m.coo_row, m.coo_column, m.coo_weight, placed, field.array, rows, sums, nodes,
                m.coo_plane, layout,
            )  # fmt: skip
            carry(warps, m.start, rows, sums, field.array, nodes, layout)
