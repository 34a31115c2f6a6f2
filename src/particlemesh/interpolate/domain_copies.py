# SPDX-License-Identifier: BSD-3-Clause
"""Interpolation block by block: every work-item owns a cell and reads the nodes of its block's extended block."""

from __future__ import annotations

from typing import Any

from particlemesh.arrays.operands import Layout, View
from particlemesh.methods.by_copy import ByCopy
from particlemesh.methods.contract import Problem
from particlemesh.methods.launches import MOST, VALUES, Form, Group, Launch, targets, written
from particlemesh.particles.workspace import Workspace


class DomainCopies(ByCopy):
    """Particles of a cell in copies of the domain; a group per block gathers from its own copy of the nodes."""

    name = "domain_copies"
    order_independent = True  # a particle's value does not depend on the others

    @classmethod
    def cost(cls, problem: Problem) -> tuple[float, float]:
        slow = 1.0 if problem.dtype.itemsize == 4 else 1.6
        # H200, particles and nodes as in benchmarks/results/buyukkececi-times-nvidia-h200.csv
        reads = cls.steps(problem) * (0.17e-12 / problem.components + 0.1e-12) * slow
        moved = (problem.nodes * 5e-11 + problem.count * 3e-11) * problem.components
        return cls.preparation(problem), 2e-5 + moved + reads

    def segments(self, workspace: Workspace) -> int:
        return min(workspace.components, MOST) * (1 + workspace.mesh.ndim)

    def compile(self, workspace: Workspace, form: Form, group: Group, field: Layout, *values: Layout | None) -> Launch:
        names = ("copies_extend", "copies_interpolate", "copies_collect")
        return self.kernels(workspace, "interpolate/domain_copies.c", names, group, **written(*values))

    def apply(
        self, workspace: Workspace, field: View, values: View | None, gradient: View | None = None, **_: Any
    ) -> None:
        copies, particles, count = self.copies(workspace), workspace.particles, workspace.count
        blocks, order = copies.blocks, copies.order
        lattice, record = order.lattice, blocks.record
        arrays = targets(values, gradient)
        results = (values is not None) + workspace.mesh.ndim * (gradient is not None)
        for reals, local, extend, interpolate, collect, value_layout, gradient_layout, layout in self.launches(
            workspace, VALUES, field, values, gradient
        ):
            result = self.carried(workspace, blocks, reals * results)
            extended = self.extended(workspace, blocks, reals)
            extend(blocks.count * blocks.group, field.array, extended, lattice, record, layout)
            interpolate(
                blocks.count * blocks.group, copies.position, extended, result, copies.fullest, order.start,
                order.order, order.fraction, *arrays, order.rows, lattice, record, value_layout, gradient_layout,
                workspace.window_record, workspace.jacobian_record, local_bytes=local,
            )  # fmt: skip
            collect(
                count, particles.node, order.start, order.rank, result, *arrays, count, particles.rows, lattice,
                record, value_layout, gradient_layout,
            )  # fmt: skip
