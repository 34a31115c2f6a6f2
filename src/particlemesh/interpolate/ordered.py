# SPDX-License-Identifier: BSD-3-Clause
"""Interpolation, particle by particle, in the order by blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from particlemesh.by_block import ByBlock
from particlemesh.interpolate import lost
from particlemesh.interpolate.particle import LANES, Particle, reading
from particlemesh.method import Problem

if TYPE_CHECKING:
    from particlemesh.plan import Plan


class Ordered(ByBlock, Particle):
    """The particle method over particles sorted by block once: neighbours find each other's rows in the cache."""

    name = "ordered"
    file: ClassVar[str] = "interpolate/ordered.c"

    @classmethod
    def cost(cls, problem: Problem) -> tuple[float, float]:
        # H200 (timings/cuda-nvidia-h200.csv): neighbours share what comes from far away
        return cls.ordering(problem), 3e-6 + reading(problem, 3.5e-12, 9.4e-14, 5.6e12)

    def lanes(self, plan: Plan, reals: int) -> dict[str, int]:
        # Many neighbours in the cache are read faster by a lane each, few by several.
        # H200; benchmarks/limit/thresholds.py tries other numbers.
        crowded = plan.count >= 2**16 and plan.count > self._nodes(plan) / 4
        return {"LANES_ALL": 1, "LANES_ROW": 1} if crowded else LANES

    @staticmethod
    def _nodes(plan: Plan) -> int:
        return plan.axes[0].size * plan.axes[1].size * plan.axes[2].size

    def kind(self, plan: Plan) -> int:
        return lost.lost_among(plan)[0] + 4 * self.lanes(plan, 1)["LANES_ALL"]

    def facts(self, plan: Plan) -> dict[str, int]:
        return lost.FACTS[lost.lost_among(plan)[0]]

    def particles(self, plan: Plan) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        order = self.order(plan)
        _, node, fraction = lost.lost_among(plan)
        # Only those without weight are looked for among them, in whatever form they are.
        return (order.records, order.start, node, node, fraction), (order.blocks.record,)
