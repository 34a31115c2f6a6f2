# SPDX-License-Identifier: BSD-3-Clause
"""Spreading seen from the nodes: each gathers from the lists of the cells around it."""

from __future__ import annotations

from typing import Any

from particlemesh.arrays.operands import Layout, View
from particlemesh.methods.contract import Problem
from particlemesh.methods.launches import LANES, MOST, Form, Group, KernelMethod, Launch, kernel
from particlemesh.orders import node_order
from particlemesh.particles.workspace import Workspace


class GatherList(KernelMethod):
    """Each node gathers from the lists of particles of the cells around it; no atomic additions."""

    name = "gather_list"
    cite = "brown2012"
    deterministic = True

    @classmethod
    def declines(cls, problem: Problem) -> str | None:
        return node_order.declines(problem)

    @classmethod
    def scratch_bytes(cls, problem: Problem) -> int:
        return node_order.order_bytes(problem) + problem.count * min(problem.components, MOST) * problem.dtype.itemsize

    @classmethod
    def cost(cls, problem: Problem) -> tuple[float, float]:
        slow = 1.0 if problem.dtype.itemsize == 4 else 1.35
        # H200 (benchmarks/results/guo-long_totals-nvidia-h200.csv, guo-added_clouds-nvidia-h200.csv)
        # The starts of runs that every node reads, then what its particles take.
        walked = problem.nodes * problem.stencil / problem.window.support * 4.6e-12
        taken = problem.count * problem.stencil * (3.0e-12 + 0.35e-12 * problem.components)
        return node_order.seconds(problem), 1e-5 + slow * (walked + taken)

    def reserve(self, workspace: Workspace) -> None:
        node_order.reserve(workspace)
        self._brought(workspace, min(workspace.components, MOST), max(workspace.capacity, 1))

    @staticmethod
    def _brought(workspace: Workspace, quantities: int, rows: int) -> Any:
        return workspace.scratch("gather_list.brought", (quantities * rows,), workspace.dtype)

    def prepare(self, workspace: Workspace) -> None:
        node_order.node_order(workspace)

    def compile(self, workspace: Workspace, form: Form, group: Group, field: Layout, *values: Layout | None) -> Launch:
        files = {"spread/permute.c": "permute_values", "spread/gather_list.c": "gather_runs"}
        facts = {"GRADIENT": int(form.gradient), **LANES}
        runs = (kernel(workspace, file, name, group, 1, **facts) for file, name in files.items())
        return group.reals * (3 if form.gradient else 1), *runs

    def apply(self, workspace: Workspace, values: View, field: View, gradient: bool = False, **_: Any) -> None:
        order, nodes = node_order.node_order(workspace), workspace.nodes
        for quantities, permute, gather, value_layout, layout in self.launches(
            workspace, Form(gradient), field, values
        ):
            brought = self._brought(workspace, quantities, max(workspace.capacity, 1))
            permute(
                workspace.count, order.order, values.array, brought, workspace.count, order.rows, value_layout,
                workspace.jacobian_record,
            )  # fmt: skip
            gather(
                nodes, order.start, order.node, order.fraction, brought, field.array, nodes, order.rows, order.lattice,
                layout, workspace.window_record,
            )  # fmt: skip
