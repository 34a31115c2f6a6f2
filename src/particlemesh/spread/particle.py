# SPDX-License-Identifier: BSD-3-Clause
"""Spreading, particle by particle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from particlemesh.arrays import Layout, View
from particlemesh.backends.base import Unread
from particlemesh.methods.contract import Problem
from particlemesh.methods.launches import KernelMethod, field_record, groups, kernel, values_record, vector

if TYPE_CHECKING:
    from particlemesh.plan import Plan

# Lanes of a particle, and of one row of its stencil (H200; benchmarks/results/limit-thresholds-nvidia-h200.csv)
LANES = {"LANES_ALL": 8, "LANES_ROW": 8}


def launches(plan: Plan, kind: int, field: Layout, values: Layout | None, **more: int) -> list[Any]:
    """Return kernel and records for every group of channels; ``LISTED=1`` takes the particles of a list."""
    # Adds of eight bytes have no vector form; single ones of neighbouring lanes meet in a sector.
    most = 4 if plan.dtype.itemsize == 4 else 1
    built = []
    for group in groups(field):
        width = vector(group, field, plan.dtype.itemsize, most)
        run = kernel(plan, "spread/particle.c", "spread_particle", group, width, GRADIENT=kind, **LANES, **more)
        built.append((run, values_record(group, values), field_record(group, field, plan.axes)))
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

    def build(self, plan: Plan, kind: int, field: Layout, *values: Layout | None) -> list[Any]:
        return launches(plan, kind, field, values[0])

    def apply(self, plan: Plan, values: View, field: View, gradient: bool = False, **_: Any) -> None:
        particles, count, no_list = plan.particles, plan.count, Unread(plan.particles.node)
        for run, value_layout, field_layout in self.launches(plan, int(gradient), field, values):
            run(
                LANES["LANES_ALL"] * count, particles.node, particles.fraction, values.array, field.array,
                no_list, no_list, count, particles.rows, value_layout, field_layout, plan.window_record,
                plan.jacobian_record,
            )  # fmt: skip
