# SPDX-License-Identifier: BSD-3-Clause
"""Spreading by the operator itself, stored as a sparse matrix by rows (CSR)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from particlemesh.arrays import Layout, View
from particlemesh.binning import node_order
from particlemesh.binning.scan import allocate_counts, scan
from particlemesh.fused import MOST, Group, KernelMethod, field_record, groups, kernel, values_record
from particlemesh.method import Option, Problem

if TYPE_CHECKING:
    from particlemesh.backends.base import Kernel
    from particlemesh.plan import Plan

_APPLY, _BUILD = "spread/single_mesh.c", "spread/single_mesh_build.c"
_SINGLE = Group(1, 1, 0)
_NO_LANES = {"LANES_ALL": 1, "LANES_ROW": 1, "GRADIENT": 0}  # shared functions ask for them; none of those is called

_NARROW = 2**32 - 2**8  # entries that 32 bits count; loops step past the last one
_STAGED = 28 * 1024  # bytes of entries that a group puts in order before they are written: seven groups fit an H200
_MOST_LANES = 16  # of a row by the paper's rule: with 32 there is one step more to add up, and no better balance

# Bytes of the matrix a second, built and applied, and rows a second: of an H200 by its memory's speed, and of a
# processor's core; yet to be measured.
_BUILT, _COLLECTED, _READ, _ROWS = 1.0e12, 2.0e11, 3.2e12, 2.0e10
_CPU_BUILT, _CPU_READ = 5e8, 4e9


@dataclass
class _Matrix:
    """Rows of a configuration: nodes of the field; columns: places in node order, or particles."""

    entries: int  # at most
    start: Any
    column: Any
    weight: Any
    slopes: Any = None  # (axes * entries,), an axis after the other


def _entries(asked: Plan | Problem) -> int:
    return int(asked.count) * asked.window.support**asked.mesh.ndim


def _nodes(asked: Plan | Problem) -> int:
    return math.prod(asked.mesh.field_shape)


def _step(quantities: int) -> int:
    """Return the reals from one particle's values in node order to the next's: aligned for wide reads."""
    return -(-quantities // 4) * 4 if quantities > 2 else quantities


def lanes_of_row(entries: int, nodes: int) -> int:
    """Return how many lanes share a row: the power of two below its mean length, at most 16 [guo2015]_."""
    lanes = 1
    while lanes < _MOST_LANES and entries >= 2 * lanes * nodes:
        lanes *= 2
    return lanes


def entries_in_flight(entries: int, nodes: int, lanes: int, quantities: int) -> int:
    """Return how many entries a lane reads before it adds them up: its share of a row, if registers hold it.

    H200: of 2, 4 and 8 the fastest for rows of 10, 30 and 100 entries.
    """
    share = entries / max(1, nodes * lanes)
    return 2 if share <= 2.5 else 4 if share <= 5 or quantities > 2 else 8


def rows_of_group(entries: int, nodes: int, rows: int, bytes_of_entry: int) -> int:
    """Return how many neighbouring rows, of ``rows`` along the last axis, a group fills together, at most 32.

    Their entries should fit into its local memory. Where not even a few rows do, many particles share a cell and
    their entries lie together anyway.
    """
    most = 32
    while most > 2 and most * entries * bytes_of_entry > 0.95 * _STAGED * nodes:
        most //= 2
    most = 32 if most == 2 else most
    return -(-rows // -(-rows // most))


class SingleMesh(KernelMethod):
    """The operator stored by rows, then a sparse matrix times the values; a few lanes a node, no atomics."""

    name = "single_mesh"
    cite = "guo2015"
    backends = frozenset({"cpu", "cuda", "opencl"})
    deterministic = True
    options: ClassVar = {
        "construction": Option(
            "sorted", ("sorted", "paper"), "on GPUs, how the matrix is built: from particles sorted by node, "
            "or as in the paper, with atomics and in no order"
        ),
        "threads_per_row": Option(
            None, (1, 2, 4, 8, 16, 32), "on GPUs, threads that share a node; by default of the mean length of a row"
        ),
        "reduction": Option(
            "shuffle", ("shuffle", "local"), "on GPUs, how these threads add up: through registers or local memory"
        ),
    }  # fmt: skip

    @classmethod
    def declines(cls, problem: Problem) -> str | None:
        if problem.backend.name == "cpu":
            return None
        if problem.deterministic and cls.option(problem, "construction") == "paper":
            return "not deterministic with construction='paper'"
        if _nodes(problem) >= 2**31:
            return "2**31 nodes or more"
        return node_order.declines(problem)

    @classmethod
    def scratch_bytes(cls, problem: Problem) -> int:
        # The gradient's adjoint takes as many weights again for each axis, when it is first called.
        entries, real = _entries(problem), problem.dtype.itemsize
        matrix = entries * (4 + real)
        brought = problem.count * _step(min(problem.components, MOST)) * real
        if problem.backend.name == "cpu":
            return matrix + 8 * (_nodes(problem) + 1) + problem.count * problem.components * real
        starts = 2 * (8 if entries >= _NARROW else 4) * (_nodes(problem) + 1)
        if cls.option(problem, "construction") == "paper":
            return matrix + starts
        return matrix + starts + brought + node_order.order_bytes(problem)

    @classmethod
    def cost(cls, problem: Problem) -> tuple[float, float]:
        real = problem.dtype.itemsize
        size = _entries(problem) * (4 + real)
        passes = -(-problem.components // MOST)
        if problem.backend.name == "cpu":
            return size / _CPU_BUILT, size * problem.components / _CPU_READ
        rate = _COLLECTED if cls.option(problem, "construction") == "paper" else _BUILT
        rows = _nodes(problem) / _ROWS
        return 1e-4 + rows + size / rate, passes * (1e-5 + rows + size / _READ)

    def __init__(self) -> None:
        super().__init__()
        self._matrix: _Matrix | None = None
        self._host: Any = None

    def _sorted(self, plan: Plan) -> bool:
        return bool(self.option(plan, "construction") == "sorted")

    def reserve(self, plan: Plan) -> None:
        if plan.backend.name == "cpu":
            self._reserve_host(plan)
            return
        self._room(plan, plan.capacity)
        if self._sorted(plan):
            node_order.reserve(plan)
            self._brought(plan, plan.capacity, min(plan.components, MOST))

    @staticmethod
    def _reserve_host(plan: Plan) -> None:
        """Allocate what ``matrix_cpu.by_rows`` takes, by its names."""
        from particlemesh.binning.cpu import index_type

        entries = plan.capacity * plan.window.support**plan.mesh.ndim
        plan.scratch("matrix.rows.column", (entries,), np.dtype(index_type(plan.capacity)))
        plan.scratch("matrix.rows.node", (0,), np.dtype(np.uint16))
        plan.scratch("matrix.rows.weight", (entries,), plan.dtype)
        plan.scratch("matrix.values", (plan.capacity * plan.components,), plan.dtype)

    def prepare(self, plan: Plan) -> None:
        """Build the matrix; the slopes of the gradient's adjoint come when they are first wanted."""
        if plan.backend.name == "cpu":
            from particlemesh.spread import matrix_cpu

            self._host = matrix_cpu.by_rows(plan)
            return
        counts, self._matrix = self._room(plan, plan.count)
        if not plan.count:
            return
        nodes, matrix = _nodes(plan), self._matrix
        plan.backend.clear(counts)
        if self._sorted(plan):
            found = node_order.node_order(plan)
            self._kernel(plan, "single_lengths")(nodes, found.start, counts, nodes, found.lattice)
        else:
            particles, lattice = plan.particles, node_order.lattice_record(plan)
            self._kernel(plan, "single_count")(
                matrix.entries, particles.node, counts, plan.count, particles.rows, lattice
            )
        scan(plan.backend, counts, matrix.start, nodes)
        self._fill(plan, counts, matrix.weight, slopes=False)

    def _room(self, plan: Plan, count: int) -> tuple[Any, _Matrix]:
        """Return counts of entries with the books of their scan, and room for the matrix of ``count`` particles."""
        entries = count * plan.window.support**plan.mesh.ndim
        counter = np.dtype(np.uint64 if self._wide(plan) else np.uint32)

        def allocate(name: str, shape: tuple[int, ...], dtype: Any) -> Any:
            return plan.scratch(f"single.{name}", shape, dtype)

        counts = allocate_counts(plan.backend, _nodes(plan), counter, allocate)
        start = allocate("start", (_nodes(plan) + 1,), counter)
        column = allocate("column", (max(entries, 1),), np.dtype(np.uint32))
        return counts, _Matrix(entries, start, column, allocate("weight", (max(entries, 1),), plan.dtype))

    @staticmethod
    def _brought(plan: Plan, count: int, quantities: int) -> Any:
        return plan.scratch("single.values", (max(count, 1) * _step(quantities),), plan.dtype)

    @staticmethod
    def _wide(plan: Plan) -> int:
        """Return whether entries are counted in 64 bits: by the room, which is reserved for one type."""
        return int(plan.capacity * plan.window.support**plan.mesh.ndim >= _NARROW)

    def _kernel(self, plan: Plan, name: str, slopes: int = 0) -> Kernel:
        known = {**_NO_LANES, "COUNT_IS_64": self._wide(plan), "SLOPES": slopes, "STAGED_BYTES": _STAGED}
        return kernel(plan, _BUILD, name, _SINGLE, 1, **known)

    def _fill(self, plan: Plan, counts: Any, target: Any, slopes: bool) -> None:
        """Write columns and weights; of sorted particles slopes alone, where these are asked for."""
        matrix, backend, nodes = self._matrix, plan.backend, _nodes(plan)
        assert matrix is not None
        planes = plan.mesh.ndim if slopes else 0
        if not self._sorted(plan):
            particles = plan.particles
            backend.clear(counts)
            self._kernel(plan, "single_collect", planes)(
                matrix.entries, particles.node, particles.fraction, matrix.start, counts, matrix.column,
                matrix.weight, target, plan.count, particles.rows, matrix.entries, node_order.lattice_record(plan),
                plan.window_record, plan.jacobian_record,
            )  # fmt: skip
            return
        found, length = node_order.node_order(plan), plan.axes[2].size
        size = plan.dtype.itemsize * planes if slopes else 4 + plan.dtype.itemsize
        block = rows_of_group(matrix.entries, nodes, length, size)
        along = -(-length // block)
        blocks = nodes // length * along
        self._kernel(plan, "single_fill", planes)(
            blocks * backend.group_size, found.start, found.node, found.fraction, matrix.start, matrix.column, target,
            found.rows, matrix.entries, blocks, along, block, found.lattice, plan.window_record, plan.jacobian_record,
        )  # fmt: skip

    def _slopes(self, plan: Plan) -> Any:
        matrix = self._matrix
        assert matrix is not None
        if matrix.slopes is None:
            matrix.slopes = plan.scratch("single.slopes", (plan.mesh.ndim * matrix.entries,), plan.dtype)
            counts, _ = self._room(plan, plan.count)
            self._fill(plan, counts, matrix.slopes, slopes=True)
        return matrix.slopes

    def build(self, plan: Plan, kind: int, field: Layout, *values: Layout | None) -> list[Any]:
        slopes = plan.mesh.ndim if kind & 1 else 0
        known = {
            **_NO_LANES, "COUNT_IS_64": kind >> 1, "SLOPES": slopes, "PLACED": int(self._sorted(plan)),
            "REDUCE_LOCAL": int(self.option(plan, "reduction") == "local"),
        }  # fmt: skip
        entries, nodes = _entries(plan), _nodes(plan)
        lanes = self.option(plan, "threads_per_row") or lanes_of_row(entries, nodes)
        built = []
        for group in groups(field):
            quantities = group.parts * group.channels * max(1, slopes)
            known["IN_FLIGHT"] = entries_in_flight(entries, nodes, lanes, quantities)
            run, place = (kernel(plan, _APPLY, name, group, 1, **known) for name in ("single_apply", "single_values"))
            built.append((
                quantities, run, place, values_record(group, values[0]), field_record(group, field, plan.axes)
            ))  # fmt: skip
        return built

    def apply(self, plan: Plan, values: View, field: View, gradient: bool = False, **_: Any) -> None:
        if self._host is not None:
            self._host.apply(plan, values, field, gradient)
            return
        matrix, nodes = self._matrix, _nodes(plan)
        assert matrix is not None
        weight = self._slopes(plan) if gradient else matrix.weight
        lanes = self.option(plan, "threads_per_row") or lanes_of_row(matrix.entries, nodes)
        kind = int(gradient) + 2 * self._wide(plan)
        for quantities, run, place, value_layout, layout in self.launches(plan, kind, field, values):
            brought = values.array
            if self._sorted(plan):
                brought = self._brought(plan, plan.count, quantities)
                order = node_order.node_order(plan).order
                place(plan.count, order, values.array, brought, plan.count, value_layout)
            run(
                nodes * lanes, matrix.start, matrix.column, weight, brought, field.array, nodes,
                lanes.bit_length() - 1, matrix.entries, value_layout, layout,
            )  # fmt: skip
