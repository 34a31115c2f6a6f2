# SPDX-License-Identifier: BSD-3-Clause
"""Interpolation, particle by particle, in the order of tiles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from particlemesh.binning import tile_order
from particlemesh.interpolate.particle import Particle, in_cache, read_bytes
from particlemesh.method import Problem

if TYPE_CHECKING:
    from particlemesh.plan import Plan


class Ordered(Particle):
    """The particle method over particles sorted by tile once: neighbours find each other's rows in the cache."""

    name = "ordered"
    file: ClassVar[str] = "interpolate/ordered.c"

    @classmethod
    def declines(cls, problem: Problem) -> str | None:
        return "2**31 particles or more" if problem.count >= 2**31 else None

    @classmethod
    def scratch_bytes(cls, problem: Problem) -> int:
        return 12 * problem.count

    @classmethod
    def cost(cls, problem: Problem) -> tuple[float, float]:
        rate = 3.8e12 if problem.dtype.itemsize == 4 else 4.9e12
        # H200 (benchmarks/results/spread-nvidia-h200.csv)
        return 3e-5 + problem.count * 8e-11, 5e-6 + read_bytes(problem) / (rate if in_cache(problem) else 2.6e12)

    def reserve(self, plan: Plan) -> None:
        tile_order.reserve(plan)

    def prepare(self, plan: Plan) -> None:
        tile_order.tile_order(plan)

    def order(self, plan: Plan) -> Any:
        return tile_order.tile_order(plan).order
