# SPDX-License-Identifier: BSD-3-Clause
"""Spreading into 64-bit integers: the same bits whatever the order."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from particlemesh.arrays import Layout, View
from particlemesh.fused import MOST, SINGLE, Group, KernelMethod, field_record, groups, kernel, values_record
from particlemesh.method import Problem
from particlemesh.spread.particle import LANES

if TYPE_CHECKING:
    from particlemesh.plan import Plan

_FILE = "spread/fixed_point.c"


def _tiles(plan: Plan) -> tuple[int, ...]:
    return tuple(-(-axis.extent // axis.support) for axis in plan.axes)


class FixedPoint(KernelMethod):
    """Sums in 64-bit integers, scaled by a power of two; independent of order, for any window."""

    name = "fixed_point"
    cite = "eastman2017"
    deterministic = True
    order_independent = True

    @classmethod
    def scratch_bytes(cls, problem: Problem) -> int:
        return 8 * math.prod(problem.mesh.field_shape) * min(problem.components, 4)

    @classmethod
    def cost(cls, problem: Problem) -> tuple[float, float]:
        adds = problem.count * problem.stencil * problem.components
        sums = 8 * problem.nodes * problem.components
        # H200 (benchmarks/results/guo-long_totals-nvidia-h200.csv, guo-added_clouds-nvidia-h200.csv)
        rate = 2.5e11 if sums < 40e6 else 0.9e11
        return 1e-5 + problem.count * 2e-11, 1.3e-5 + adds / rate + 3 * sums / 3e12

    def __init__(self) -> None:
        super().__init__()
        self._plan: Plan | None = None

    def reserve(self, plan: Plan) -> None:
        self._bounds(plan)
        self._sums(plan, min(plan.components, 4))

    @staticmethod
    def _bounds(plan: Plan) -> tuple[Any, Any, Any, Any]:
        # stencils by tile; the most of them; bits of each component's largest value; whether one was not finite
        whole = np.dtype(np.uint32)
        sizes = {"most": 1, "largest": MOST, "not_finite": 1}
        singles = (plan.scratch(f"fixed.{name}", (size,), whole) for name, size in sizes.items())
        return (plan.scratch("fixed.tiles", _tiles(plan), whole), *singles)

    def _sums(self, plan: Plan, reals: int) -> Any:
        return plan.scratch("fixed.sums", (reals * math.prod(plan.mesh.field_shape),), np.dtype(np.uint64))

    def prepare(self, plan: Plan) -> None:
        """Bound how many stencils meet at a node."""
        self._plan = plan
        tiles, most, _, not_finite = self._bounds(plan)
        for array in (tiles, most, not_finite):
            plan.backend.clear(array)
        particles = plan.particles
        if plan.count:
            lows = [axis.low for axis in plan.axes]
            crowd = kernel(plan, _FILE, "fixed_crowd", SINGLE, 1, GRADIENT=0, **LANES)
            crowd(plan.count, particles.node, tiles, plan.count, particles.rows, *lows, *_tiles(plan)[1:])
        size = math.prod(_tiles(plan))
        kernel(plan, _FILE, "fixed_most", SINGLE, 1, GRADIENT=0, **LANES)(min(size, 2**16), tiles, most, size)

    def non_finite_values(self) -> bool:
        if self._plan is None:
            return False
        return bool(self._plan.backend.download(self._bounds(self._plan)[3])[0])

    def build(self, plan: Plan, kind: int, field: Layout, *values: Layout | None) -> list[Any]:
        z = np.linspace(-0.5, 0.5, 257)
        weight = 1.01 * np.abs(plan.window.weights(z)).max()
        slope = 1.01 * np.abs(plan.window.derivative_weights(z)).max()
        d = plan.mesh.ndim
        steepest = d * slope * weight ** (d - 1) if kind else weight**d
        # A node is reached from at most three tiles an axis (the last may be narrow), more than once where
        # the mesh is smaller than the support.
        turns = math.prod(-(-axis.support // axis.size) for axis in plan.axes)
        headroom = 2 * d + max(0, math.ceil(math.log2(max(steepest * turns, 1))))
        built = []
        for group in groups(field):
            reals = group.parts * group.channels
            sizes = [axis.size for axis in plan.axes]
            nodes = math.prod(sizes)
            x, y = sizes[1] * sizes[2] * group.parts, sizes[2] * group.parts
            strides = (nodes * group.parts, x, y, group.parts, 1)
            dense = Layout(0, (group.channels, *sizes, group.parts), strides, 16)
            names = ("fixed_largest", "fixed_spread", "fixed_finish")
            runs = [kernel(plan, _FILE, n, group, 1, GRADIENT=kind, **LANES) for n in names]
            sums = Group(group.parts, group.channels, 0)
            built.append((
                reals, nodes * reals, headroom, *runs, values_record(group, values[0]),
                field_record(sums, dense, plan.axes), field_record(group, field, plan.axes),
            ))  # fmt: skip
        return built

    def apply(self, plan: Plan, values: View, field: View, gradient: bool = False, **_: Any) -> None:
        particles, count = plan.particles, plan.count
        node, rows = particles.node, particles.rows
        _, most, largest, not_finite = self._bounds(plan)
        for reals, size, headroom, find, add, finish, value_layout, sums_layout, layout in self.launches(
            plan, int(gradient), field, values
        ):
            sums = self._sums(plan, reals)
            plan.backend.clear(sums)
            plan.backend.clear(largest)
            find(min(count, 2**16), node, values.array, largest, count, rows, value_layout, plan.jacobian_record)
            add(
                8 * count, node, particles.fraction, values.array, sums, most, largest, headroom, count, rows,
                value_layout, sums_layout, plan.window_record, plan.jacobian_record,
            )  # fmt: skip
            finish(size, sums, field.array, most, largest, not_finite, headroom, size, layout)
