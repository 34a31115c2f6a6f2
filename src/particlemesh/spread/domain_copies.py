# SPDX-License-Identifier: BSD-3-Clause
"""Spreading block by block, in step: every work-item owns a cell, and all go through the stencil together."""

from __future__ import annotations

from typing import Any

from particlemesh.arrays.operands import Layout, View
from particlemesh.methods.by_copy import ByCopy
from particlemesh.methods.contract import Problem
from particlemesh.methods.launches import MOST, Form, Group, Launch
from particlemesh.particles.workspace import Workspace


class DomainCopies(ByCopy):
    """Particles of a cell in copies of the domain; a group per block adds them in step, without atomics."""

    name = "domain_copies"

    @classmethod
    def declines(cls, problem: Problem) -> str | None:
        if problem.deterministic and cls.option(problem, "ranks") == "atomic":
            return "ranks='atomic' is not deterministic"
        return super().declines(problem)

    @classmethod
    def cost(cls, problem: Problem) -> tuple[float, float]:
        slow = 1.0 if problem.dtype.itemsize == 4 else 1.5
        # H200 (benchmarks/results/guo-long_totals-nvidia-h200.csv, guo-added_clouds-nvidia-h200.csv)
        adds = cls.steps(problem) * (0.15e-12 / problem.components + 0.3e-12) * slow
        return cls.preparation(problem), 4e-5 + problem.nodes * problem.components * 6.5e-11 * slow + adds

    def segments(self, workspace: Workspace) -> int:
        return min(workspace.components, MOST) * workspace.mesh.ndim

    def compile(self, workspace: Workspace, form: Form, group: Group, field: Layout, *values: Layout | None) -> Launch:
        names = ("copies_store", "copies_spread", "copies_stitch")
        return self.kernels(workspace, "spread/domain_copies.c", names, group, GRADIENT=int(form.gradient))

    def apply(self, workspace: Workspace, values: View, field: View, gradient: bool = False, **_: Any) -> None:
        copies = self.copies(workspace)
        blocks, order = copies.blocks, copies.order
        lattice, record, nodes = order.lattice, blocks.record, workspace.nodes
        vectors = workspace.mesh.ndim if gradient else 1
        for reals, local, store, spread, stitch, value_layout, layout in self.launches(
            workspace, Form(gradient), field, values
        ):
            strength = self.carried(workspace, blocks, reals * vectors)
            extended = self.extended(workspace, blocks, reals)
            store(
                blocks.places, order.start, order.order, copies.fullest, values.array, strength, lattice, record,
                value_layout, workspace.jacobian_record,
            )  # fmt: skip
            spread(
                blocks.count * blocks.group, copies.position, strength, extended, copies.fullest, order.start,
                order.order, order.fraction, values.array, order.rows, lattice, record, value_layout,
                workspace.window_record, workspace.jacobian_record, local_bytes=local,
            )  # fmt: skip
            stitch(nodes, extended, field.array, nodes, lattice, record, layout)
