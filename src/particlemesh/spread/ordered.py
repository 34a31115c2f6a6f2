# SPDX-License-Identifier: BSD-3-Clause
"""Spreading, particle by particle, in the order by blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from particlemesh import walks
from particlemesh.arrays import Layout, View
from particlemesh.binning import block_order
from particlemesh.fused import field_record, groups, kernel, values_record, vector
from particlemesh.method import Problem
from particlemesh.spread.particle import LANES, Particle
from particlemesh.stencil import axes_of

if TYPE_CHECKING:
    from particlemesh.plan import Plan


class Ordered(Particle):
    """The particle method over particles sorted by block once: for fields beyond the cache and few particles.

    Adds of neighbours then meet in memory that is near; in a field within the cache they rather get into each other's
    way.
    """

    name = "ordered"
    reads_stencils = False

    def __init__(self) -> None:
        super().__init__()
        self._reserved: tuple[int, int, int] | None = None

    @classmethod
    def declines(cls, problem: Problem) -> str | None:
        axes = axes_of(problem.mesh, problem.window)
        return block_order.declines(axes, walks.cells_of(problem, problem.count), problem.count)

    @classmethod
    def scratch_bytes(cls, problem: Problem) -> int:
        return block_order.order_bytes(problem, walks.cells_of(problem, problem.count))

    @classmethod
    def cost(cls, problem: Problem) -> tuple[float, float]:
        _, apply = super().cost(problem)
        cleared = problem.nodes * problem.components * problem.dtype.itemsize / 4e12
        order = block_order.seconds(problem, walks.cells_of(problem, problem.count))
        # H200 (benchmarks/results/limit-peer-nvidia-h200.csv)
        return order, 1e-6 + cleared + (apply - cleared) * (1.2 if problem.fits_cache else 0.6)

    def _cells(self, plan: Plan) -> tuple[int, int, int]:
        return self._reserved or walks.cells_of(plan, plan.count)

    def reserve(self, plan: Plan) -> None:
        self._reserved = walks.cells_of(plan, max(plan.capacity, 1))
        block_order.reserve(plan, self._reserved)

    def prepare(self, plan: Plan) -> None:
        block_order.block_order(plan, self._cells(plan))

    def build(self, plan: Plan, kind: int, field: Layout, *values: Layout | None) -> list[Any]:
        most = 4 if plan.dtype.itemsize == 4 else 1
        built = []
        for group in groups(field):
            width = vector(group, field, plan.dtype.itemsize, most)
            run = kernel(plan, "spread/ordered.c", "spread_ordered", group, width, GRADIENT=kind, **LANES)
            built.append((run, values_record(group, values[0]), field_record(group, field, plan.axes)))
        return built

    def apply(self, plan: Plan, values: View, field: View, gradient: bool = False, **_: Any) -> None:
        order = block_order.block_order(plan, self._cells(plan))
        for run, value_layout, field_layout in self.launches(plan, int(gradient), field, values):
            run(
                LANES["LANES_ALL"] * plan.count, order.records, order.start, values.array, field.array, value_layout,
                field_layout, plan.window_record, plan.jacobian_record, order.blocks.record,
            )  # fmt: skip
