# SPDX-License-Identifier: BSD-3-Clause
"""Spreading by a stored matrix in two parts: a rectangle of every row's first entries, a list of the others."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from particlemesh.arrays import Layout, View
from particlemesh.backends.base import As
from particlemesh.methods.by_tile import matrix_seconds
from particlemesh.methods.contract import Option, Problem
from particlemesh.methods.launches import (
    MOST,
    NO_LANES,
    SINGLE,
    KernelMethod,
    field_record,
    groups,
    kernel,
    placed_step,
    values_record,
)
from particlemesh.orders import node_order
from particlemesh.particles.stencil import axes_of
from particlemesh.sorting.scan import allocate_control, allocate_counts, scan

if TYPE_CHECKING:
    from particlemesh.plan import Plan

_BUILD, _APPLY, _PLACE = "spread/hybrid_mesh_build.c", "spread/hybrid_mesh.c", "spread/placed.c"

LEAST_ROWS = 4096  # that must fill a column of the rectangle [bell2009]
LONGEST = 2047  # entries of a row: longer ones count as this long where the width is chosen
INTERVAL = 512  # entries of the list that a warp takes at a time
_MOST_WARPS = 2**14  # that are launched for the list, whose length the host does not know
_WIDE_COUNT = 2**31  # entries from which on they are counted in 64 bits


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


def _ell_entries(entries: int, nodes: int, width: int | None) -> int:
    """Return the room of the rectangle: a third of the rows fill it, where the width is chosen by the rule."""
    if width is not None:
        return nodes * width
    return 3 * entries if nodes >= LEAST_ROWS else 0


class HybridMesh(KernelMethod):
    """Stored weights as ELL and COO: the first entries of all rows side by side, the others as a list; no atomics."""

    name = "hybrid_mesh"
    stores_weights = True
    cite = "bell2009"
    backends = frozenset({"cpu", "cuda", "opencl"})
    deterministic = True
    options: ClassVar = {
        "width": Option(None, range(2**20), "entries of a row in the rectangle; None takes Bell and Garland's rule"),
    }

    @classmethod
    def declines(cls, problem: Problem) -> str | None:
        if problem.backend.name == "cpu":
            return None
        nodes = math.prod(axis.size for axis in axes_of(problem.mesh, problem.window))
        return "2**32 - 1 nodes or more" if nodes >= 2**32 - 1 else node_order.declines(problem)

    @classmethod
    def scratch_bytes(cls, problem: Problem) -> int:
        axes, real = axes_of(problem.mesh, problem.window), problem.dtype.itemsize
        nodes, entries = math.prod(a.size for a in axes), problem.count * math.prod(a.support for a in axes)
        width = _narrowed(cls.option(problem, "width"), problem.count, axes)
        ell = _ell_entries(entries, nodes, width)
        carried = entries // INTERVAL * (4 + 4 * real)
        counts = 3 * nodes * (8 if entries >= _WIDE_COUNT else 4)
        values = problem.count * real * min(problem.components, MOST)
        if problem.backend.name == "cpu":  # which need not make ready for the widest rectangle
            return int(entries * 1.2) * (4 + real) + 8 * (nodes + 1) + values
        own = ell * (4 + real) + entries * (8 + real) + carried + counts + values
        return own + (0 if problem.backend.name == "cpu" else node_order.order_bytes(problem))

    @classmethod
    def cost(cls, problem: Problem) -> tuple[float, float]:
        entries = problem.count * problem.stencil
        if problem.backend.name == "cpu":
            built, applied = matrix_seconds(problem, 1.3e-8, 1.75e-9)
            return built + problem.nodes * 3e-8, applied + problem.nodes * problem.components * 1.2e-8
        slow = 1.0 if problem.dtype.itemsize == 4 else 1.4
        longer = 2.5 if entries > 2047 * problem.nodes else 1.0  # than the widest rectangle
        # H200 (benchmarks/results/guo-long_totals-nvidia-h200.csv, guo-added_clouds-nvidia-h200.csv)
        multiply = entries * (1.9e-12 + 0.35e-12 * problem.components) * slow * longer
        return 1e-4 + entries * 4.5e-11 + problem.nodes * 1.5e-10, 3e-5 + multiply + problem.nodes * 6e-12

    def __init__(self) -> None:
        super().__init__()
        self._built: set[int] = set()
        self._host: Any = None
        self._known: dict[str, int] = {}  # what kernels were compiled for

    def reserve(self, plan: Plan) -> None:
        if plan.backend.name == "cpu":
            from particlemesh.spread import matrix_entries

            nodes, entries = self._sizes(plan)
            matrix_entries.reserve(plan, "matrix.ell_coo", entries + _ell_entries(entries, nodes, self._width(plan)))
            return
        node_order.reserve(plan)
        self._histogram(plan)
        self._excess(plan)
        self._room(plan, 0)  # slopes only if they are wanted: they are three times as large
        self._values(plan, min(plan.components, MOST), 0)

    def prepare(self, plan: Plan) -> None:
        """Build the matrix of values; that of the gradient's adjoint is built when it is first wanted."""
        if plan.backend.name == "cpu":
            from particlemesh.spread import matrix_cpu

            self._host = matrix_cpu.ell_coo(plan, self._width(plan))
            return
        self._built.clear()
        known = self._defines(plan, 0)  # more particles may need wider counts
        if known != self._known:
            self._known = known
            self._launches.clear()
        if plan.count:
            self._divide(plan)
            self._fill(plan, 0)

    # ---- memory -------------------------------------------------------------------------------------------

    def _width(self, plan: Plan) -> int | None:
        return _narrowed(self.option(plan, "width"), max(plan.capacity, 1), plan.axes)

    @staticmethod
    def _sizes(plan: Plan) -> tuple[int, int]:
        """Return how many nodes there are, and the most entries."""
        entries = max(plan.capacity, 1) * math.prod(axis.support for axis in plan.axes)
        return math.prod(axis.size for axis in plan.axes), entries

    def _defines(self, plan: Plan, kind: int) -> dict[str, int]:
        wide = int(self._sizes(plan)[1] >= _WIDE_COUNT)
        return {**NO_LANES, "SLOPES": kind * plan.mesh.ndim, "COUNT_IS_64": wide, "LONGEST": LONGEST}

    def _counter(self, plan: Plan) -> np.dtype:
        return np.dtype(np.uint64 if self._defines(plan, 0)["COUNT_IS_64"] else np.uint32)

    def _histogram(self, plan: Plan) -> tuple[Any, Any]:
        """Return room for how many rows there are of each length, and for how many are shorter."""
        whole = np.dtype(np.uint32)
        counts = allocate_counts(plan.backend, LONGEST + 1, whole, _allocate(plan), "histogram")
        return counts, _allocate(plan)("shorter", (LONGEST + 2,), whole)

    def _excess(self, plan: Plan) -> tuple[Any, Any]:
        """Return room for how many entries of each row do not fit, and for the books of their sums."""
        nodes, allocate = self._sizes(plan)[0], _allocate(plan)
        return allocate("excess", (nodes,), self._counter(plan)), allocate_control(plan.backend, nodes, allocate)

    def _room(self, plan: Plan, kind: int) -> _Matrix:
        nodes, entries = self._sizes(plan)
        ell = max(_ell_entries(entries, nodes, self._width(plan)), 1)
        whole, counter, allocate = np.dtype(np.uint32), self._counter(plan), _allocate(plan)
        planes = plan.mesh.ndim if kind else 1
        return _Matrix(
            lengths=allocate("lengths", (nodes,), counter),
            width=allocate("width", (1,), whole),
            start=allocate("start", (nodes + 1,), counter),
            ell_column=allocate("ell_column", (ell,), whole),
            ell_weight=allocate(f"ell_weight{kind}", (planes * ell,), plan.dtype),
            coo_row=allocate("coo_row", (entries,), whole),
            coo_column=allocate("coo_column", (entries,), whole),
            coo_weight=allocate(f"coo_weight{kind}", (planes * entries,), plan.dtype),
            ell_plane=ell,
            coo_plane=entries,
        )

    def _values(self, plan: Plan, components: int, kind: int) -> tuple[Any, Any, Any]:
        """Return room for values in node order, and for rows and sums that intervals carry over."""
        quantities, allocate = components * (plan.mesh.ndim if kind else 1), _allocate(plan)
        step = placed_step(quantities)
        intervals = -(-self._sizes(plan)[1] // INTERVAL)
        return (
            allocate("values", (max(plan.capacity, 1) * step,), plan.dtype),
            allocate("carry_rows", (intervals,), np.dtype(np.uint32)),
            allocate("carries", (intervals * components,), plan.dtype),
        )

    # ---- the matrix ---------------------------------------------------------------------------------------

    def _divide(self, plan: Plan) -> None:
        """Find the length of every row, the width, and where each row's entries begin in the list."""
        backend, (nodes, _), known = plan.backend, self._sizes(plan), self._defines(plan, 0)
        found, matrix, forced = node_order.node_order(plan), self._room(plan, 0), self._width(plan)
        histogram, shorter = self._histogram(plan)
        excess, control = self._excess(plan)

        def run(name: str, items: int, *arguments: Any) -> None:
            kernel(plan, _BUILD, name, SINGLE, 1, **known)(items, *arguments)

        run("hybrid_lengths", nodes, found.start, matrix.lengths, nodes, found.lattice)
        if forced is None:
            backend.clear(histogram)
            run("hybrid_histogram", min(nodes, 2**17), matrix.lengths, As(histogram, np.uint32), nodes)
            scan(backend, histogram, shorter, LONGEST + 1)
        run("hybrid_width", LONGEST + 1, shorter, matrix.width, nodes, LEAST_ROWS, -1 if forced is None else forced)
        run("hybrid_excess", nodes, matrix.lengths, matrix.width, excess, nodes)
        scan(backend, excess, matrix.start, nodes, control)

    def _fill(self, plan: Plan, kind: int) -> _Matrix:
        """Return the matrix, with weights (``kind`` 0) or slopes filled in."""
        matrix = self._room(plan, kind)
        if kind not in self._built:
            nodes, known, found = self._sizes(plan)[0], self._defines(plan, kind), node_order.node_order(plan)
            for name in ("hybrid_fill", "hybrid_fill_long"):
                kernel(plan, _BUILD, name, SINGLE, 1, **known)(
                    nodes, found.start, found.node, found.fraction, *matrix[:-2], nodes, found.rows, *matrix[-2:],
                    found.lattice, plan.window_record, plan.jacobian_record,
                )  # fmt: skip
            self._built.add(kind)
        return matrix

    # ---- application --------------------------------------------------------------------------------------

    def build(self, plan: Plan, kind: int, field: Layout, *values: Layout | None) -> list[Any]:
        known = {**self._defines(plan, kind), "INTERVAL": INTERVAL}
        names = ("hybrid_ell", "hybrid_coo", "hybrid_carry")
        return [
            (
                group.parts * group.channels,
                kernel(plan, _PLACE, "place_values", group, 1, **known),
                *(kernel(plan, _APPLY, name, group, 1, **known) for name in names),
                values_record(group, values[0]),
                field_record(group, field, plan.axes),
            )
            for group in groups(field)
        ]

    def apply(self, plan: Plan, values: View, field: View, gradient: bool = False, **_: Any) -> None:
        if self._host is not None:
            self._host.apply(plan, values, field, gradient)
            return
        if not plan.count:
            return
        kind, (nodes, entries), count = int(gradient), self._sizes(plan), plan.count
        m, order = self._fill(plan, kind), node_order.node_order(plan).order
        warps = min(-(-entries // INTERVAL), _MOST_WARPS)
        for components, place, ell, coo, carry, value_layout, layout in self.launches(plan, kind, field, values):
            placed, carry_rows, carries = self._values(plan, components, kind)
            place(count, order, values.array, placed, count, value_layout)
            ell(nodes, m.lengths, m.width, m.ell_column, m.ell_weight, placed, field.array, nodes, m.ell_plane, layout)
            coo(
                32 * warps, m.start, m.coo_row, m.coo_column, m.coo_weight, placed, field.array, carry_rows, carries,
                nodes, m.coo_plane, layout,
            )  # fmt: skip
            carry(warps, m.start, carry_rows, carries, field.array, nodes, layout)


def _narrowed(width: int | None, count: int, axes: Any) -> int | None:
    """Return a width that was asked for, or the longest row that there can be."""
    turns = math.prod(-(-axis.support // axis.size) for axis in axes)
    return None if width is None else min(width, count * turns)


def _allocate(plan: Plan) -> Any:
    return lambda name, shape, dtype: plan.scratch(f"hybrid.{name}", shape, dtype)
