# SPDX-License-Identifier: BSD-3-Clause
"""Spreading, particle by particle."""

from __future__ import annotations

from typing import Any

from particlemesh.arrays.views import Layout, View
from particlemesh.backends.base import Unread
from particlemesh.methods.contract import Problem
from particlemesh.methods.launches import KernelMethod, field_record, groups, kernel, values_record, vector
from particlemesh.particles.workspace import Workspace

# Lanes of a particle, and of one row of its stencil (H200; benchmarks/results/limit-thresholds-nvidia-h200.csv)
LANES = {"LANES_ALL": 8, "LANES_ROW": 8}


def launches(workspace: Workspace, kind: int, field: Layout, values: Layout | None, **more: int) -> list[Any]:
    """Return kernel and records for every group of channels; ``LISTED=1`` takes the particles of a list."""
    # Adds of eight bytes have no vector form; single ones of neighbouring lanes meet in a sector.
    most = 4 if workspace.dtype.itemsize == 4 else 1
    built = []
    for group in groups(field):
        width = vector(group, field, workspace.dtype.itemsize, most)
        run = kernel(workspace, "spread/particle.c", "spread_particle", group, width, GRADIENT=kind, **LANES, **more)
        built.append((run, values_record(group, values), field_record(group, field, workspace.axes)))
    return built


class Particle(KernelMethod):
    """Each particle's stencil by a few neighbouring lanes, atomic adds, no preparation."""

    name = "particle"
    cite = "guo2015"

    @classmethod
    def cost(cls, problem: Problem) -> tuple[float, float]:
        adds = problem.count * problem.stencil * problem.components
        # H200 (benchmarks/results/guo-long_totals-nvidia-h200.csv, guo-added_clouds-nvidia-h200.csv)
        # Complex numbers are added as pairs.
        rate = 2.4e11 if problem.dtype.itemsize == 8 else 5.2e11 if problem.components == 2 else 3.3e11
        cleared = problem.nodes * problem.components * problem.dtype.itemsize / 4e12
        slowed = 1.0 if problem.in_order else 1 + 1.2 * problem.beyond_cache
        return 0.0, 4e-6 + cleared + adds / rate * slowed

    def build(self, workspace: Workspace, kind: int, field: Layout, *values: Layout | None) -> list[Any]:
        return launches(workspace, kind, field, values[0])

    def apply(self, workspace: Workspace, values: View, field: View, gradient: bool = False, **_: Any) -> None:
        particles, count, no_list = workspace.particles, workspace.count, Unread(workspace.particles.node)
        for run, value_layout, field_layout in self.launches(workspace, int(gradient), field, values):
            run(
                LANES["LANES_ALL"] * count, particles.node, particles.fraction, values.array, field.array,
                no_list, no_list, count, particles.rows, value_layout, field_layout, workspace.window_record,
                workspace.jacobian_record,
            )  # fmt: skip
