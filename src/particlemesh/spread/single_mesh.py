# SPDX-License-Identifier: BSD-3-Clause
"""Spreading by the operator itself, stored as a sparse matrix by rows (CSR)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

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
from particlemesh.sorting.scan import allocate_counts, scan

if TYPE_CHECKING:
    from particlemesh.backends.base import Kernel
    from particlemesh.plan import Plan

_APPLY, _BUILD, _PLACE = "spread/single_mesh.c", "spread/single_mesh_build.c", "spread/placed.c"

_NARROW = 2**32 - 2**12  # entries that 32 bits count; loops step past the last one, by a chunk at most
_STAGED = 28 * 1024  # bytes of entries that a group puts in order before they are written: seven groups fit an H200
_CHUNK_BYTES = 8 * 1024  # of products that a group has in local memory; with 16 KB H200's caches are too small
_FEW_NODES = 2**19  # fewer would not keep a large GPU's warps busy, 32 rows each
_MOST_LANES = 16  # of a row by the paper's rule: with 32 there is one step more to add up, and no better balance


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


def lanes_of_row(entries: int, nodes: int) -> int:
    """Return how many lanes share a row: the power of two below its mean length, at most 16 [guo2015]_."""
    lanes = 1
    while lanes < _MOST_LANES and entries >= 2 * lanes * nodes:
        lanes *= 2
    return lanes


def lanes_of_stream(entries: int, nodes: int, chunk: int, group: int) -> int:
    """Return how many lanes add up a row, where a group takes as many rows as a chunk holds of mean length."""
    lanes = 1
    while lanes < min(32, group) and (group // lanes) * entries > chunk * nodes:
        lanes *= 2
    return lanes


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
    stores_weights = True
    cite = "guo2015"
    backends = frozenset({"cpu", "cuda", "opencl"})
    deterministic = True
    options: ClassVar = {
        "construction": Option(
            "sorted", ("sorted", "paper"), "on GPUs, how the matrix is built: from particles sorted by node, "
            "or as in the paper, with atomics and in no order"
        ),
        "reduction": Option(
            None, ("stream", "shuffle", "local"), "on GPUs, how rows are added up: a group multiplies the entries of "
            "its rows as they come, or threads share a row, as in the paper, through registers or local memory"
        ),
        "threads_per_row": Option(
            None, (1, 2, 4, 8, 16, 32), "on GPUs, threads that add up a row; by default of the mean length of a row"
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
        brought = problem.count * placed_step(min(problem.components, MOST)) * real
        if problem.backend.name == "cpu":
            return matrix + 8 * (_nodes(problem) + 1) + problem.count * problem.components * real
        starts = 2 * (8 if entries >= _NARROW else 4) * (_nodes(problem) + 1)
        if cls.option(problem, "construction") == "paper":
            return matrix + starts
        return matrix + starts + brought + node_order.order_bytes(problem)

    @classmethod
    def cost(cls, problem: Problem) -> tuple[float, float]:
        entries = problem.count * problem.stencil
        if problem.backend.name == "cpu":
            built, applied = matrix_seconds(problem, 1.4e-8, 1.6e-9)
            return built + problem.nodes * 8e-9, applied + problem.nodes * problem.components * 1e-8
        slow = 1.0 if problem.dtype.itemsize == 4 else 1.6
        # H200 (benchmarks/results/guo-long_totals-nvidia-h200.csv, guo-added_clouds-nvidia-h200.csv)
        multiply = entries * (1.6e-12 + 0.6e-12 * problem.components) * slow
        build = problem.nodes * 4.6e-10 + entries * 8e-12 * slow
        if cls.option(problem, "construction") == "paper":
            build = problem.nodes * 1e-11 + entries * 1.4e-10
        return 1e-4 + build, 1e-5 + multiply + problem.nodes * 1e-11

    def __init__(self) -> None:
        super().__init__()
        self._matrix: _Matrix | None = None
        self._host: Any = None

    def _sorted(self, plan: Plan) -> bool:
        return bool(self.option(plan, "construction") == "sorted")

    def reserve(self, plan: Plan) -> None:
        if plan.backend.name == "cpu":
            from particlemesh.spread import matrix_entries

            matrix_entries.reserve(plan, "matrix.rows", plan.capacity * plan.window.support**plan.mesh.ndim)
            return
        self._room(plan, plan.capacity)
        if self._sorted(plan):
            node_order.reserve(plan)
            self._brought(plan, plan.capacity, min(plan.components, MOST))

    def prepare(self, plan: Plan) -> None:
        """Build the matrix; the slopes of the gradient's adjoint come when they are first wanted."""
        if plan.backend.name == "cpu":
            from particlemesh.spread import matrix_cpu

            self._host = matrix_cpu.by_rows(plan)
            return
        counts, self._matrix = self._room(plan, plan.capacity)
        if not plan.count:
            return
        nodes, matrix = _nodes(plan), self._matrix
        plan.backend.clear(counts)
        counted = As(counts, matrix.start.dtype)  # with the books of their scan
        if self._sorted(plan):
            found = node_order.node_order(plan)
            self._kernel(plan, "single_lengths")(nodes, found.start, counted, nodes, found.lattice)
        else:
            particles, lattice = plan.particles, node_order.lattice_record(plan)
            self._kernel(plan, "single_count")(
                matrix.entries, particles.node, counted, plan.count, particles.rows, lattice
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
        return plan.scratch("single.values", (max(count, 1) * placed_step(quantities),), plan.dtype)

    @staticmethod
    def _wide(plan: Plan) -> int:
        """Return whether entries are counted in 64 bits: by the room, which is reserved for one type."""
        return int(plan.capacity * plan.window.support**plan.mesh.ndim >= _NARROW)

    def _kernel(self, plan: Plan, name: str, slopes: int = 0) -> Kernel:
        known = {**NO_LANES, "COUNT_IS_64": self._wide(plan), "SLOPES": slopes, "STAGED_BYTES": _STAGED}
        return kernel(plan, _BUILD, name, SINGLE, 1, **known)

    def _fill(self, plan: Plan, counts: Any, target: Any, slopes: bool) -> None:
        """Write columns and weights; of sorted particles slopes alone, where these are asked for."""
        matrix, backend, nodes = self._matrix, plan.backend, _nodes(plan)
        assert matrix is not None
        planes = plan.mesh.ndim if slopes else 0
        if not self._sorted(plan):
            particles = plan.particles
            backend.clear(counts)
            counted = As(counts, matrix.start.dtype)
            self._kernel(plan, "single_collect", planes)(
                matrix.entries, particles.node, particles.fraction, matrix.start, counted, matrix.column,
                matrix.weight, target, plan.count, particles.rows, matrix.entries, node_order.lattice_record(plan),
                plan.window_record, plan.jacobian_record,
            )  # fmt: skip
            return
        found, length = node_order.node_order(plan), plan.axes[2].size
        size = plan.dtype.itemsize * planes if slopes else 4 + plan.dtype.itemsize
        block = rows_of_group(_entries(plan), nodes, length, size)
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
            slopes = plan.scratch("single.slopes", (plan.mesh.ndim * matrix.entries,), plan.dtype)
            counts, _ = self._room(plan, plan.capacity)
            self._fill(plan, counts, slopes, slopes=True)
            matrix.slopes = slopes
        return matrix.slopes

    def _ways(self, plan: Plan, chunk: int, quantities: int) -> tuple[str, int, dict[str, int]]:
        """Return how rows are added up, by how many lanes each, and what the kernel must know of it.

        The defaults were the fastest on an H200: streams for rows of up to 64 entries, and on meshes too small for a
        warp to have 32 rows; else a warp a row. In flight are 8 entries in streams, else 2 where a lane has hardly
        more, and 4 where rows are long or registers are to be spared.
        """
        entries, nodes = _entries(plan), _nodes(plan)
        reduction, lanes = (self.option(plan, name) for name in ("reduction", "threads_per_row"))
        if reduction is None:
            short = entries < 64 * nodes or nodes < _FEW_NODES
            reduction, lanes = ("stream", lanes) if short else ("shuffle", lanes or 32)
        if reduction == "stream":
            lanes = lanes or lanes_of_stream(entries, nodes, chunk, plan.backend.group_size)
            return reduction, lanes, {"CHUNK": chunk, "IN_FLIGHT": 8 if quantities <= 2 else 4}
        lanes = lanes or lanes_of_row(entries, nodes)
        flight = 2 if entries <= 2.5 * lanes * nodes else 4
        return reduction, lanes, {"REDUCE_LOCAL": int(reduction == "local"), "IN_FLIGHT": flight}

    def build(self, plan: Plan, kind: int, field: Layout, *values: Layout | None) -> list[Any]:
        slopes = plan.mesh.ndim if kind & 1 else 0
        known = {**NO_LANES, "SLOPES": slopes}
        built = []
        for group in groups(field):
            reals = group.parts * group.channels
            quantities, chunk = reals * max(1, slopes), _CHUNK_BYTES // (reals * plan.dtype.itemsize)
            reduction, lanes, way = self._ways(plan, chunk, quantities)
            facts = {**known, **way, "COUNT_IS_64": kind >> 1, "PLACED": int(self._sorted(plan))}
            name = "single_stream" if reduction == "stream" else "single_apply"
            rows = plan.backend.group_size // (lanes if reduction == "stream" else 1)
            built.append((
                quantities, -(-_nodes(plan) // rows) * plan.backend.group_size, lanes.bit_length() - 1,
                kernel(plan, _APPLY, name, group, 1, **facts), kernel(plan, _PLACE, "place_values", group, 1, **known),
                values_record(group, values[0]), field_record(group, field, plan.axes),
            ))  # fmt: skip
        return built

    def apply(self, plan: Plan, values: View, field: View, gradient: bool = False, **_: Any) -> None:
        if self._host is not None:
            self._host.apply(plan, values, field, gradient)
            return
        matrix, nodes = self._matrix, _nodes(plan)
        assert matrix is not None
        weight = self._slopes(plan) if gradient else matrix.weight
        kind = int(gradient) + 2 * self._wide(plan)
        for quantities, items, bits, run, place, value_layout, layout in self.launches(plan, kind, field, values):
            brought = values.array
            if self._sorted(plan):
                brought = self._brought(plan, plan.capacity, quantities)
                order = node_order.node_order(plan).order
                place(plan.count, order, values.array, brought, plan.count, value_layout)
            run(
                items, matrix.start, matrix.column, weight, brought, field.array, nodes, bits, matrix.entries,
                value_layout, layout,
            )  # fmt: skip
