# SPDX-License-Identifier: BSD-3-Clause
"""Spreading seen from the nodes: each gathers from the cells around it, one particle a cell; the rest are added."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from particlemesh.arrays import Layout, View
from particlemesh.methods.contract import Problem
from particlemesh.methods.launches import MOST, SINGLE, KernelMethod, field_record, groups, kernel, values_record
from particlemesh.orders import node_order
from particlemesh.spread import particle
from particlemesh.spread.particle import LANES, Particle

if TYPE_CHECKING:
    from particlemesh.plan import Plan

_FILE = "spread/gather.c"
_MOST_LISTED = 2**16  # particles whose lanes are launched at once: how many are listed only the device knows


def _cells(plan: Plan) -> int:
    return math.prod(axis.extent for axis in plan.axes)


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

    def reserve(self, plan: Plan) -> None:
        self._placement(plan, max(plan.capacity, 1))
        self._brought(plan, min(plan.components, MOST))

    @staticmethod
    def _placement(plan: Plan, count: int) -> tuple[Any, Any, Any, Any]:
        # index + 1 by cell, fractions by cell, how many particles have none, which
        cells, whole = _cells(plan), np.dtype(np.uint32)
        return (
            plan.scratch("gather.slots", (cells,), whole),
            plan.scratch("gather.placed", (plan.mesh.ndim * cells,), plan.dtype),
            plan.scratch("gather.listed", (1,), whole),
            plan.scratch("gather.list", (count,), np.dtype(np.int32)),
        )

    @staticmethod
    def _brought(plan: Plan, quantities: int) -> Any:
        return plan.scratch("gather.brought", (quantities * _cells(plan),), plan.dtype)

    def prepare(self, plan: Plan) -> None:
        """Give each cell one of its particles and list the others."""
        particles, count, cells = plan.particles, plan.count, _cells(plan)
        slots, placed, listed, rest = self._placement(plan, max(count, 1))
        plan.backend.clear(slots)
        plan.backend.clear(listed)
        place, keep = (
            kernel(plan, _FILE, n, SINGLE, 1, GRADIENT=0, **LANES) for n in ("gather_place", "gather_fractions")
        )
        if count:
            lattice = node_order.lattice_record(plan)
            place(count, particles.node, slots, listed, rest, count, particles.rows, lattice)
        keep(cells, slots, particles.fraction, placed, cells, particles.rows)

    def build(self, plan: Plan, kind: int, field: Layout, *values: Layout | None) -> list[Any]:
        lattice = node_order.lattice_record(plan)
        built = []
        for group, adding in zip(groups(field), particle.launches(plan, kind, field, values[0], LISTED=1), strict=True):
            quantities = group.parts * group.channels * (3 if kind else 1)
            runs = [kernel(plan, _FILE, n, group, 1, GRADIENT=kind, **LANES) for n in ("gather_values", "gather_nodes")]
            built.append((
                quantities, *runs, values_record(group, values[0]), lattice, field_record(group, field, plan.axes),
                adding[0],
            ))  # fmt: skip
        return built

    def apply(self, plan: Plan, values: View, field: View, gradient: bool = False, **_: Any) -> None:
        particles, count, cells = plan.particles, plan.count, _cells(plan)
        slots, placed, listed, rest = self._placement(plan, max(count, 1))
        nodes = math.prod(a.size for a in plan.axes)
        for quantities, bring, gather, value_layout, lattice, layout, add in self.launches(
            plan, int(gradient), field, values
        ):
            brought = self._brought(plan, quantities)
            bring(cells, slots, values.array, brought, cells, value_layout, plan.jacobian_record)
            gather(nodes, placed, brought, field.array, cells, nodes, lattice, layout, plan.window_record)
            add(
                LANES["LANES_ALL"] * min(count, _MOST_LISTED), particles.node, particles.fraction, values.array,
                field.array, rest, listed, count, particles.rows, value_layout, layout, plan.window_record,
                plan.jacobian_record,
            )  # fmt: skip
