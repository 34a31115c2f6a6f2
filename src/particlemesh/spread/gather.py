# SPDX-License-Identifier: BSD-3-Clause
"""Spreading seen from the nodes: each gathers from the cells around it, one particle a cell; the rest are added."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from particlemesh.arrays.operands import Layout, View
from particlemesh.methods.contract import Problem
from particlemesh.methods.launches import LANES, MOST, SINGLE, Form, Group, KernelMethod, Launch, kernel
from particlemesh.orders import node_order
from particlemesh.particles.workspace import Workspace
from particlemesh.spread.particle import Particle, adding  # particles without a cell are added as there

_FILE = "spread/gather.c"
_MOST_LISTED = 2**16  # particles whose lanes are launched at once: how many are listed only the device knows


class Gather(KernelMethod):
    """Each node gathers from the cells around it, one particle a cell; those without a cell are added atomically."""

    name = "gather"
    cite = "harvey2009"

    @classmethod
    def declines(cls, problem: Problem) -> str | None:
        return node_order.declines(problem)

    @classmethod
    def scratch_bytes(cls, problem: Problem) -> int:
        planes = problem.mesh.ndim + min(problem.components, MOST)
        return node_order.cells(problem) * (4 + planes * problem.dtype.itemsize) + 4 * problem.count + 4

    @classmethod
    def cost(cls, problem: Problem) -> tuple[float, float]:
        cells, slow = node_order.cells(problem), 1.0 if problem.dtype.itemsize == 4 else 1.3
        placed = cells * -math.expm1(-problem.count / cells)  # of particles that lie anywhere
        _, added = Particle.cost(problem)
        overflow = added * (1 - placed / max(problem.count, 1))
        # H200 (benchmarks/results/guo-long_totals-nvidia-h200.csv, guo-added_clouds-nvidia-h200.csv)
        looked = problem.nodes * problem.stencil * 1.45e-12
        taken = placed * problem.stencil * (3.2e-12 + 0.6e-12 * problem.components)
        return 7e-6 + cells * 6e-12 + problem.count * 4e-11, 2e-5 + slow * (looked + taken) + overflow

    def reserve(self, workspace: Workspace) -> None:
        self._placement(workspace, max(workspace.capacity, 1))
        self._brought(workspace, min(workspace.components, MOST))

    @staticmethod
    def _placement(workspace: Workspace, count: int) -> tuple[Any, Any, Any, Any]:
        # index + 1 by cell, fractions by cell, how many particles have none, which
        cells, whole = node_order.cells(workspace), np.dtype(np.uint32)
        return (
            workspace.scratch("gather.slots", (cells,), whole),
            workspace.scratch("gather.placed", (workspace.mesh.ndim * cells,), workspace.dtype),
            workspace.scratch("gather.listed", (1,), whole),
            workspace.scratch("gather.list", (count,), np.dtype(np.int32)),
        )

    @staticmethod
    def _brought(workspace: Workspace, quantities: int) -> Any:
        return workspace.scratch("gather.brought", (quantities * node_order.cells(workspace),), workspace.dtype)

    def prepare(self, workspace: Workspace) -> None:
        """Give each cell one of its particles and list the others."""
        particles, count, cells = workspace.particles, workspace.count, node_order.cells(workspace)
        slots, placed, listed, rest = self._placement(workspace, max(count, 1))
        workspace.backend.clear(slots)
        workspace.backend.clear(listed)
        place, keep = (
            kernel(workspace, _FILE, n, SINGLE, 1, GRADIENT=0, **LANES) for n in ("gather_place", "gather_fractions")
        )
        if count:
            lattice = node_order.lattice_record(workspace)
            place(count, particles.node, slots, listed, rest, count, particles.rows, lattice)
        keep(cells, slots, particles.fraction, placed, cells, particles.rows)

    def compile(self, workspace: Workspace, form: Form, group: Group, field: Layout, *values: Layout | None) -> Launch:
        facts = {"GRADIENT": int(form.gradient), **LANES}
        runs = (kernel(workspace, _FILE, name, group, 1, **facts) for name in ("gather_values", "gather_nodes"))
        quantities = group.reals * (3 if form.gradient else 1)
        listed = adding(workspace, form, group, field, LISTED=1)
        return quantities, *runs, listed, node_order.lattice_record(workspace)

    def apply(self, workspace: Workspace, values: View, field: View, gradient: bool = False, **_: Any) -> None:
        particles, count, cells = workspace.particles, workspace.count, node_order.cells(workspace)
        slots, placed, listed, rest = self._placement(workspace, max(count, 1))
        nodes = workspace.nodes
        for quantities, bring, gather, add, lattice, value_layout, layout in self.launches(
            workspace, Form(gradient), field, values
        ):
            brought = self._brought(workspace, quantities)
            bring(cells, slots, values.array, brought, cells, value_layout, workspace.jacobian_record)
            gather(nodes, placed, brought, field.array, cells, nodes, lattice, layout, workspace.window_record)
            add(
                LANES["LANES_ALL"] * min(count, _MOST_LISTED), particles.node, particles.fraction, values.array,
                field.array, rest, listed, count, particles.rows, value_layout, layout, workspace.window_record,
                workspace.jacobian_record,
            )  # fmt: skip
