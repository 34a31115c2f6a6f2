# SPDX-License-Identifier: BSD-3-Clause
"""Spreading, particle by particle."""

from __future__ import annotations

from typing import Any

from particlemesh.arrays.operands import Layout, View
from particlemesh.backends.base import Kernel, Unread
from particlemesh.methods.contract import Problem
from particlemesh.methods.launches import LANES, Form, Group, KernelMethod, Launch, adding_width, kernel
from particlemesh.particles.workspace import Workspace

FILE = "spread/particle.c"


def adding(workspace: Workspace, form: Form, group: Group, field: Layout, file: str = FILE, **facts: int) -> Kernel:
    """Compile the kernel for a group of channels; ``LISTED=1`` takes the particles of a list."""
    width = adding_width(workspace, group, field)
    return kernel(workspace, file, "spread_particle", group, width, **form.facts(), **LANES, **facts)


class Particle(KernelMethod):
    """Each particle's stencil by a few neighbouring lanes, atomic adds, no preparation."""

    name = "particle"
    cite = "guo2015"
    prepares_orders = True
    derivatives = 2

    @classmethod
    def cost(cls, problem: Problem) -> tuple[float, float]:
        adds = problem.count * problem.stencil * problem.components
        # H200 (benchmarks/results/guo-long_totals-nvidia-h200.csv, guo-added_clouds-nvidia-h200.csv)
        # Complex numbers are added as pairs.
        rate = 2.4e11 if problem.dtype.itemsize == 8 else 5.2e11 if problem.components == 2 else 3.3e11
        cleared = problem.nodes * problem.components * problem.dtype.itemsize / 4e12
        slowed = 1.0 if problem.in_order else 1 + 1.2 * problem.beyond_cache
        return 0.0, 4e-6 + cleared + adds / rate * slowed

    def compile(self, workspace: Workspace, form: Form, group: Group, field: Layout, *values: Layout | None) -> Launch:
        return (adding(workspace, form, group, field),)

    def apply(
        self, workspace: Workspace, values: View, field: View, gradient: bool = False, hessian: bool = False, **_: Any
    ) -> None:
        particles, count, no_list = workspace.particles, workspace.count, Unread(workspace.particles.node)
        for run, *layouts in self.launches(workspace, Form(gradient, hessian=hessian), field, values):
            run(
                LANES["LANES_ALL"] * count, particles.node, particles.fraction, values.array, field.array,
                no_list, no_list, count, particles.rows, *layouts, workspace.window_record,
                workspace.jacobian_record,
            )  # fmt: skip
