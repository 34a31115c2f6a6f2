# SPDX-License-Identifier: BSD-3-Clause
"""Spreading by the operator itself, stored as a sparse matrix by rows (CSR)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from particlemesh.arrays.views import Layout, View
from particlemesh.backends.base import As, Kernel
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
from particlemesh.particles.workspace import Sizes, Workspace
from particlemesh.sorting.scan import allocate_counts, scan

_APPLY, _BUILD, _PLACE = "spread/single_mesh.c", "spread/single_mesh_build.c", "spread/placed.c"

_NARROW = 2**32 - 2**12  # entries that 32 bits count; loops step past the last one, by a chunk at most
_STAGED = 28 * 1024  # bytes of entries that a group puts in order before they are written: seven groups fit an H200
_CHUNK_BYTES = 8 * 1024  # of products that a group has in local memory; with 16 KB H200's caches are too small
_FEW_NODES = 2**19  # fewer would not keep a large GPU's warps busy, 32 rows each
_MOST_LANES = 16  # of a row by the paper's rule: with 32 there is one step more to add up, and no better balance

# Seconds of an entry, and of a row: one thread of a Xeon at 2.5 GHz, busy.
_CPU_BUILT, _CPU_READ, _CPU_ROW = 2.8e-8, 3e-9, 2.5e-8


@dataclass
class _Matrix:
    """Rows of a configuration: nodes of the field; columns: places in node order, or particles."""

    entries: int  # at most
    start: Any
    column: Any
    weight: Any
    slopes: Any = None  # (axes * entries,), an axis after the other


def _entries(sizes: Sizes) -> int:
    return int(sizes.count) * sizes.window.support**sizes.mesh.ndim


def _nodes(sizes: Sizes) -> int:
    return math.prod(sizes.mesh.field_shape)


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
            reals, rows = entries * problem.components, problem.nodes * _CPU_ROW
            return entries * _CPU_BUILT + 2 * rows, reals * _CPU_READ + problem.components * rows
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

    def _sorted(self, workspace: Workspace) -> bool:
        return bool(self.option(workspace, "construction") == "sorted")

    def reserve(self, workspace: Workspace) -> None:
        if workspace.backend.name == "cpu":
            from particlemesh.spread import matrix_entries

            matrix_entries.reserve(
                workspace, "matrix.rows", workspace.capacity * workspace.window.support**workspace.mesh.ndim
            )
            return
        self._room(workspace, workspace.capacity)
        if self._sorted(workspace):
            node_order.reserve(workspace)
            self._brought(workspace, workspace.capacity, min(workspace.components, MOST))

    def prepare(self, workspace: Workspace) -> None:
        """Build the matrix; the slopes of the gradient's adjoint come when they are first wanted."""
        if workspace.backend.name == "cpu":
            from particlemesh.spread import matrix_cpu

            self._host = matrix_cpu.by_rows(workspace)
            return
        counts, self._matrix = self._room(workspace, workspace.capacity)
        if not workspace.count:
            return
        nodes, matrix = _nodes(workspace), self._matrix
        workspace.backend.clear(counts)
        counted = As(counts, matrix.start.dtype)  # with the books of their scan
        if self._sorted(workspace):
            found = node_order.node_order(workspace)
            self._kernel(workspace, "single_lengths")(nodes, found.start, counted, nodes, found.lattice)
        else:
            particles, lattice = workspace.particles, node_order.lattice_record(workspace)
            self._kernel(workspace, "single_count")(
                matrix.entries, particles.node, counted, workspace.count, particles.rows, lattice
            )
        scan(workspace.backend, counts, matrix.start, nodes)
        self._fill(workspace, counts, matrix.weight, slopes=False)

    def _room(self, workspace: Workspace, count: int) -> tuple[Any, _Matrix]:
        """Return counts of entries with the books of their scan, and room for the matrix of ``count`` particles."""
        entries = count * workspace.window.support**workspace.mesh.ndim
        counter = np.dtype(np.uint64 if self._wide(workspace) else np.uint32)

        def allocate(name: str, shape: tuple[int, ...], dtype: Any) -> Any:
            return workspace.scratch(f"single.{name}", shape, dtype)

        counts = allocate_counts(workspace.backend, _nodes(workspace), counter, allocate)
        start = allocate("start", (_nodes(workspace) + 1,), counter)
        column = allocate("column", (max(entries, 1),), np.dtype(np.uint32))
        return counts, _Matrix(entries, start, column, allocate("weight", (max(entries, 1),), workspace.dtype))

    @staticmethod
    def _brought(workspace: Workspace, count: int, quantities: int) -> Any:
        return workspace.scratch("single.values", (max(count, 1) * placed_step(quantities),), workspace.dtype)

    @staticmethod
    def _wide(workspace: Workspace) -> int:
        """Return whether entries are counted in 64 bits: by the room, which is reserved for one type."""
        return int(workspace.capacity * workspace.window.support**workspace.mesh.ndim >= _NARROW)

    def _kernel(self, workspace: Workspace, name: str, slopes: int = 0) -> Kernel:
        known = {**NO_LANES, "COUNT_IS_64": self._wide(workspace), "SLOPES": slopes, "STAGED_BYTES": _STAGED}
        return kernel(workspace, _BUILD, name, SINGLE, 1, **known)

    def _fill(self, workspace: Workspace, counts: Any, target: Any, slopes: bool) -> None:
        """Write columns and weights; of sorted particles slopes alone, where these are asked for."""
        matrix, backend, nodes = self._matrix, workspace.backend, _nodes(workspace)
        assert matrix is not None
        planes = workspace.mesh.ndim if slopes else 0
        if not self._sorted(workspace):
            particles = workspace.particles
            backend.clear(counts)
            counted = As(counts, matrix.start.dtype)
            self._kernel(workspace, "single_collect", planes)(
                matrix.entries, particles.node, particles.fraction, matrix.start, counted, matrix.column,
                matrix.weight, target, workspace.count, particles.rows, matrix.entries,
                node_order.lattice_record(workspace), workspace.window_record, workspace.jacobian_record,
            )  # fmt: skip
            return
        found, length = node_order.node_order(workspace), workspace.axes[2].size
        size = workspace.dtype.itemsize * planes if slopes else 4 + workspace.dtype.itemsize
        block = rows_of_group(_entries(workspace), nodes, length, size)
        along = -(-length // block)
        blocks = nodes // length * along
        self._kernel(workspace, "single_fill", planes)(
            blocks * backend.group_size, found.start, found.node, found.fraction, matrix.start, matrix.column, target,
            found.rows, matrix.entries, blocks, along, block, found.lattice, workspace.window_record,
            workspace.jacobian_record,
        )  # fmt: skip

    def _slopes(self, workspace: Workspace) -> Any:
        matrix = self._matrix
        assert matrix is not None
        if matrix.slopes is None:
            slopes = workspace.scratch("single.slopes", (workspace.mesh.ndim * matrix.entries,), workspace.dtype)
            counts, _ = self._room(workspace, workspace.capacity)
            self._fill(workspace, counts, slopes, slopes=True)
            matrix.slopes = slopes
        return matrix.slopes

    def _ways(self, workspace: Workspace, chunk: int, quantities: int) -> tuple[str, int, dict[str, int]]:
        """Return how rows are added up, by how many lanes each, and what the kernel must know of it.

        The defaults were the fastest on an H200: streams for rows of up to 64 entries, and on meshes too small for a
        warp to have 32 rows; else a warp a row. In flight are 8 entries in streams, else 2 where a lane has hardly
        more, and 4 where rows are long or registers are to be spared.
        """
        entries, nodes = _entries(workspace), _nodes(workspace)
        reduction, lanes = (self.option(workspace, name) for name in ("reduction", "threads_per_row"))
        if reduction is None:
            short = entries < 64 * nodes or nodes < _FEW_NODES
            reduction, lanes = ("stream", lanes) if short else ("shuffle", lanes or 32)
        if reduction == "stream":
            lanes = lanes or lanes_of_stream(entries, nodes, chunk, workspace.backend.group_size)
            return reduction, lanes, {"CHUNK": chunk, "IN_FLIGHT": 8 if quantities <= 2 else 4}
        lanes = lanes or lanes_of_row(entries, nodes)
        flight = 2 if entries <= 2.5 * lanes * nodes else 4
        return reduction, lanes, {"REDUCE_LOCAL": int(reduction == "local"), "IN_FLIGHT": flight}

    def build(self, workspace: Workspace, kind: int, field: Layout, *values: Layout | None) -> list[Any]:
        slopes = workspace.mesh.ndim if kind & 1 else 0
        known = {**NO_LANES, "SLOPES": slopes}
        built = []
        for group in groups(field):
            reals = group.parts * group.channels
            quantities, chunk = reals * max(1, slopes), _CHUNK_BYTES // (reals * workspace.dtype.itemsize)
            reduction, lanes, way = self._ways(workspace, chunk, quantities)
            facts = {**known, **way, "COUNT_IS_64": kind >> 1, "PLACED": int(self._sorted(workspace))}
            name = "single_stream" if reduction == "stream" else "single_apply"
            rows = workspace.backend.group_size // (lanes if reduction == "stream" else 1)
            built.append((
                quantities, -(-_nodes(workspace) // rows) * workspace.backend.group_size, lanes.bit_length() - 1,
                kernel(workspace, _APPLY, name, group, 1, **facts),
                kernel(workspace, _PLACE, "place_values", group, 1, **known), values_record(group, values[0]),
                field_record(group, field, workspace.axes),
            ))  # fmt: skip
        return built

    def apply(self, workspace: Workspace, values: View, field: View, gradient: bool = False, **_: Any) -> None:
        if self._host is not None:
            self._host.apply(workspace, values, field, gradient)
            return
        matrix, nodes = self._matrix, _nodes(workspace)
        assert matrix is not None
        weight = self._slopes(workspace) if gradient else matrix.weight
        kind = int(gradient) + 2 * self._wide(workspace)
        for quantities, items, bits, run, place, value_layout, layout in self.launches(workspace, kind, field, values):
            brought = values.array
            if self._sorted(workspace):
                brought = self._brought(workspace, workspace.capacity, quantities)
                order = node_order.node_order(workspace).order
                place(workspace.count, order, values.array, brought, workspace.count, value_layout)
            run(
                items, matrix.start, matrix.column, weight, brought, field.array, nodes, bits, matrix.entries,
                value_layout, layout,
            )  # fmt: skip
