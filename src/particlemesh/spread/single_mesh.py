# SPDX-License-Identifier: BSD-3-Clause
"""Spreading by the operator itself, stored as a sparse matrix by rows (CSR)."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import numpy as np

from particlemesh.arrays.operands import Layout, View
from particlemesh.backends.base import As, Kernel
from particlemesh.methods.contract import Option, Problem
from particlemesh.methods.launches import MOST, NO_LANES, SINGLE, Form, Group, Launch, kernel
from particlemesh.methods.stored_matrix import StoredMatrix, place_kernel, placed_step
from particlemesh.orders import node_order
from particlemesh.particles.workspace import Sizes, Workspace
from particlemesh.sorting.scan import allocate_counts, scan
from particlemesh.spread.cpu.matrix import Matrix

_APPLY, _BUILD = "spread/single_mesh.c", "spread/single_mesh_build.c"

_STAGED = 28 * 1024  # bytes of entries that a group puts in order before they are written: seven groups fit an H200
_CHUNK_BYTES = 8 * 1024  # of products that a group has in local memory; with 16 KB H200's caches are too small
_FEW_NODES = 2**19  # fewer would not keep a large GPU's warps busy, 32 rows each
_MOST_LANES = 16  # of a row by the paper's rule: with 32 there is one step more to add up, and no better balance


class _SparseRows(NamedTuple):
    """Where the matrix lies. Rows are nodes of the field, columns places in node order, or particles."""

    entries: int  # at most
    counts: Any  # of each row, with the books of their scan
    start: Any
    column: Any
    weight: Any


class _Sum(NamedTuple):
    """How rows are added up: by which reduction, by how many lanes each, and what the kernel must know of it."""

    reduction: str
    lanes: int
    facts: dict[str, int]


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

    Their entries should fit into its local memory. If not even a few rows do, many particles share a cell, so that
    their entries lie together without this.
    """
    most = 32
    while most > 2 and most * entries * bytes_of_entry > 0.95 * _STAGED * nodes:
        most //= 2
    most = 32 if most == 2 else most
    return -(-rows // -(-rows // most))


class SingleMesh(StoredMatrix):
    """The operator stored by rows, then a sparse matrix times the values; a few lanes a node, no atomics."""

    name = "single_mesh"
    backends = frozenset({"cpu", "cuda", "opencl"})
    host = Matrix
    narrow = 2**32 - 2**12  # loops step past the last entry, by a chunk at most
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
    def _sorted(cls, sizes: Sizes) -> bool:
        return bool(cls.option(sizes, "construction") == "sorted")

    @classmethod
    def device_declines(cls, problem: Problem) -> str | None:
        if problem.deterministic and not cls._sorted(problem):
            return "not deterministic with construction='paper'"
        if problem.nodes >= 2**31:
            return "2**31 nodes or more"
        return node_order.declines(problem)

    @classmethod
    def device_bytes(cls, problem: Problem) -> int:
        # The gradient's adjoint takes as many weights again for each axis, when it is first called.
        entries, real = cls.entries(problem, problem.count), problem.dtype.itemsize
        stored = entries * (4 + real) + 2 * (8 if entries >= cls.narrow else 4) * (problem.nodes + 1)
        if not cls._sorted(problem):
            return stored
        values = problem.count * placed_step(min(problem.components, MOST)) * real
        return stored + values + node_order.order_bytes(problem)

    @classmethod
    def device_cost(cls, problem: Problem) -> tuple[float, float]:
        entries, slow = problem.count * problem.stencil, 1.0 if problem.dtype.itemsize == 4 else 1.6
        # H200 (benchmarks/results/guo-long_totals-nvidia-h200.csv, guo-added_clouds-nvidia-h200.csv)
        multiply = entries * (1.6e-12 + 0.6e-12 * problem.components) * slow
        build = problem.nodes * 4.6e-10 + entries * 8e-12 * slow
        if not cls._sorted(problem):
            build = problem.nodes * 1e-11 + entries * 1.4e-10
        return 1e-4 + build, 1e-5 + multiply + problem.nodes * 1e-11

    # ---- the matrix ---------------------------------------------------------------------------------------

    def allocate(self, workspace: Workspace) -> None:
        self._rows(workspace)
        if self._sorted(workspace):
            node_order.reserve(workspace)
            self.placed(workspace, min(workspace.components, MOST))

    def _rows(self, workspace: Workspace) -> _SparseRows:
        entries, nodes, counter, allocate = (
            self.most(workspace), workspace.nodes, self.counter(workspace), self.scratch(workspace)
        )  # fmt: skip
        return _SparseRows(
            entries,
            allocate_counts(workspace.backend, nodes, counter, allocate),
            allocate("start", (nodes + 1,), counter),
            allocate("column", (entries,), np.dtype(np.uint32)),
            allocate("weight", (entries,), workspace.dtype),
        )

    def _slopes(self, workspace: Workspace) -> Any:
        shape = (workspace.mesh.ndim * self.most(workspace),)
        return workspace.scratch(f"{self.name}.slopes", shape, workspace.dtype)

    def _kernel(self, workspace: Workspace, name: str, slopes: int = 0) -> Kernel:
        facts = {**NO_LANES, "COUNT_IS_64": int(self.wide(workspace)), "SLOPES": slopes, "STAGED_BYTES": _STAGED}
        return kernel(workspace, _BUILD, name, SINGLE, 1, **facts)

    def assemble(self, workspace: Workspace) -> None:
        """Find where each row's entries begin."""
        rows, nodes = self._rows(workspace), workspace.nodes
        workspace.backend.clear(rows.counts)
        counts = As(rows.counts, rows.start.dtype)  # with the books of their scan
        if self._sorted(workspace):
            order = node_order.node_order(workspace)
            self._kernel(workspace, "row_lengths")(nodes, order.start, counts, nodes, order.lattice)
        else:
            particles, lattice = workspace.particles, node_order.lattice_record(workspace)
            self._kernel(workspace, "single_count")(
                rows.entries, particles.node, counts, workspace.count, particles.rows, lattice
            )
        scan(workspace.backend, rows.counts, rows.start, nodes)

    def fill(self, workspace: Workspace, slopes: bool) -> None:
        """Write columns and weights. With ``slopes``, write slopes; of sorted particles these alone."""
        rows, backend, nodes = self._rows(workspace), workspace.backend, workspace.nodes
        target, planes = (self._slopes(workspace), workspace.mesh.ndim) if slopes else (rows.weight, 0)
        if not self._sorted(workspace):
            particles = workspace.particles
            backend.clear(rows.counts)
            self._kernel(workspace, "single_collect", planes)(
                rows.entries, particles.node, particles.fraction, rows.start, As(rows.counts, rows.start.dtype),
                rows.column, rows.weight, target, workspace.count, particles.rows, rows.entries,
                node_order.lattice_record(workspace), workspace.window_record, workspace.jacobian_record,
            )  # fmt: skip
            return
        order, length = node_order.node_order(workspace), workspace.axes[2].size
        size = workspace.dtype.itemsize * planes if slopes else 4 + workspace.dtype.itemsize
        block = rows_of_group(self.entries(workspace, workspace.count), nodes, length, size)
        along = -(-length // block)
        blocks = nodes // length * along
        self._kernel(workspace, "single_fill", planes)(
            blocks * backend.group_size, order.start, order.node, order.fraction, rows.start, rows.column, target,
            order.rows, rows.entries, blocks, along, block, order.lattice, workspace.window_record,
            workspace.jacobian_record,
        )  # fmt: skip

    # ---- application --------------------------------------------------------------------------------------

    def _sum(self, workspace: Workspace, reals: int, quantities: int) -> _Sum:
        """Return how rows of the present particles are added up, by a launch for ``reals`` of a node.

        The defaults were the fastest on an H200. Rows of up to 64 entries are streams, as are all rows on meshes too
        small for a warp to have 32 of them. Else a row has a warp. Streams have 8 entries in flight. Else 2 are in
        flight if a lane has few more, and 4 if rows are long or registers are scarce.
        """
        entries, nodes = self.entries(workspace, workspace.count), workspace.nodes
        reduction, lanes = (self.option(workspace, name) for name in ("reduction", "threads_per_row"))
        if reduction is None:
            short = entries < 64 * nodes or nodes < _FEW_NODES
            reduction, lanes = ("stream", lanes) if short else ("shuffle", lanes or 32)
        if reduction == "stream":
            chunk = _CHUNK_BYTES // (reals * workspace.dtype.itemsize)
            lanes = lanes or lanes_of_stream(entries, nodes, chunk, workspace.backend.group_size)
            return _Sum(reduction, lanes, {"CHUNK": chunk, "IN_FLIGHT": 8 if quantities <= 2 else 4})
        lanes = lanes or lanes_of_row(entries, nodes)
        flight = 2 if entries <= 2.5 * lanes * nodes else 4
        return _Sum(reduction, lanes, {"REDUCE_LOCAL": int(reduction == "local"), "IN_FLIGHT": flight})

    def compile(self, workspace: Workspace, form: Form, group: Group, field: Layout, *values: Layout | None) -> Launch:
        slopes = workspace.mesh.ndim if form.gradient else 0
        quantities = group.reals * max(1, slopes)
        reduction, lanes, how = self._sum(workspace, group.reals, quantities)
        facts = {
            **NO_LANES, "SLOPES": slopes, **how, "COUNT_IS_64": int(form.wide), "PLACED": int(self._sorted(workspace))
        }  # fmt: skip
        name = "single_stream" if reduction == "stream" else "single_apply"
        rows = workspace.backend.group_size // (lanes if reduction == "stream" else 1)
        items = -(-workspace.nodes // rows) * workspace.backend.group_size
        multiply = kernel(workspace, _APPLY, name, group, 1, **facts)
        return quantities, items, lanes.bit_length() - 1, multiply, place_kernel(workspace, form, group)

    def multiply(self, workspace: Workspace, values: View, field: View, gradient: bool = False, **_: Any) -> None:
        rows, weight = self._rows(workspace), None
        if gradient:
            weight = self._slopes(workspace)
            self.filled(workspace, slopes=True)
        form = Form(gradient, self.wide(workspace))
        for quantities, items, bits, run, place, value_layout, layout in self.launches(workspace, form, field, values):
            brought = values.array
            if self._sorted(workspace):
                brought = self.placed(workspace, quantities)
                order = node_order.node_order(workspace).order
                place(workspace.count, order, values.array, brought, workspace.count, value_layout)
            run(
                items, rows.start, rows.column, rows.weight if weight is None else weight, brought, field.array,
                workspace.nodes, bits, rows.entries, value_layout, layout,
            )  # fmt: skip
