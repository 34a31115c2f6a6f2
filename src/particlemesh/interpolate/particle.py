# SPDX-License-Identifier: BSD-3-Clause
"""Interpolation, particle by particle."""

from __future__ import annotations

from typing import Any, ClassVar

from particlemesh.arrays.operands import Layout, View
from particlemesh.interpolate.shares import reading
from particlemesh.methods.contract import Problem
from particlemesh.methods.launches import (
    VALUES,
    Form,
    Group,
    KernelMethod,
    Launch,
    kernel,
    reading_width,
    targets,
    written,
)
from particlemesh.particles.workspace import Workspace

# Lanes of a particle, and of one row of its stencil (H200; benchmarks/results/limit-thresholds-nvidia-h200.csv)
LANES = {"LANES_ALL": 4, "LANES_ROW": 2}
# In parts of a mesh, for any number of particles: fast for many, which are in order. A lane has whole rows, so that the
# memory of a field changes no order of sums.
IN_PARTS = {"LANES_ALL": 2, "LANES_ROW": 1}


class Particle(KernelMethod):
    """Each particle's stencil read by a few neighbouring lanes, no preparation."""

    name = "particle"
    cite = "guo2015"
    prepares_orders = True
    deterministic = True
    file: ClassVar[str] = "interpolate/particle.c"
    derivatives = 2
    order_independent = True  # a particle's value does not depend on the others
    cut_independent = True

    @classmethod
    def cost(cls, problem: Problem) -> tuple[float, float]:
        # H200 (choosing/cuda-nvidia-h200.csv)
        return 0.0, 1.5e-6 + reading(problem, 7.3e-12, 1e-13, 3.3e12, shared=problem.in_order)

    def lanes(self, workspace: Workspace, reals: int) -> dict[str, int]:
        """Return how many lanes a particle has, and a row of its stencil."""
        return IN_PARTS if workspace.in_parts else LANES

    def form(self, workspace: Workspace) -> Form:
        """Return what tells kernels for the same arrays from each other."""
        return VALUES

    def facts(self, workspace: Workspace) -> dict[str, int]:
        """Return more facts that the kernel is compiled for."""
        return {}

    def particles(self, workspace: Workspace) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Return what the kernel reads of the particles, and the records behind all others."""
        return (workspace.particles.node, workspace.particles.fraction), ()

    def compile(self, workspace: Workspace, form: Form, group: Group, field: Layout, *values: Layout | None) -> Launch:
        lanes = self.lanes(workspace, group.reals)
        facts = {**written(*values), **lanes, **self.facts(workspace)}
        width = reading_width(workspace, group, field)
        return kernel(workspace, self.file, "interpolate_particle", group, width, **facts), lanes["LANES_ALL"]

    def apply(
        self, workspace: Workspace, field: View, values: View | None, gradient: View | None = None,
        hessian: View | None = None, **_: Any,
    ) -> None:  # fmt: skip
        particles, records = self.particles(workspace)
        results = (values, gradient) if hessian is None else (values, gradient, hessian)
        form = self.form(workspace)._replace(hessian=hessian is not None)
        for run, lanes, *layouts in self.launches(workspace, form, field, *results):
            run(
                lanes * workspace.count, *particles, field.array, *targets(*results), workspace.count,
                workspace.particles.rows, *layouts, workspace.window_record, workspace.jacobian_record, *records,
            )  # fmt: skip
