# SPDX-License-Identifier: BSD-3-Clause
"""Spreading, particle by particle, in the order by blocks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from particlemesh.arrays.operands import Layout, View
from particlemesh.methods.contract import Problem
from particlemesh.methods.launches import LANES, Form, Group, Launch, adding_width, kernel
from particlemesh.particles.workspace import Workspace
from particlemesh.spread.particle import Particle
from particlemesh.walk.by_block import ByBlock


class Ordered(ByBlock, Particle):
    """The particle method over particles sorted by block once: for fields beyond the cache and few particles.

    Adds of neighbours then meet in memory that is near; in a field within the cache they rather get into each other's
    way.
    """

    name = "ordered"

    @classmethod
    def cost(cls, problem: Problem) -> tuple[float, float]:
        _, apply = super().cost(replace(problem, in_order=True))
        cleared = problem.nodes * problem.components * problem.dtype.itemsize / 4e12
        # H200 (benchmarks/results/limit-peer-nvidia-h200.csv)
        return cls.ordering(problem), 1e-6 + cleared + (apply - cleared) * (1.2 + 0.1 * problem.beyond_cache)

    def compile(self, workspace: Workspace, form: Form, group: Group, field: Layout, *values: Layout | None) -> Launch:
        facts = {**form.facts(), **LANES}
        width = adding_width(workspace, group, field)
        return (kernel(workspace, "spread/ordered.c", "spread_ordered", group, width, **facts),)

    def apply(
        self, workspace: Workspace, values: View, field: View, gradient: bool = False, hessian: bool = False, **_: Any
    ) -> None:
        order = self.order(workspace)
        for run, *layouts in self.launches(workspace, Form(gradient, hessian=hessian), field, values):
            run(
                LANES["LANES_ALL"] * workspace.count, order.records, order.start, values.array, field.array,
                *layouts, workspace.window_record, workspace.jacobian_record, order.blocks.record,
            )  # fmt: skip
