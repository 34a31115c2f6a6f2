# SPDX-License-Identifier: BSD-3-Clause
"""Spreading into 64-bit integers: bit-identical for any order of particles."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from particlemesh.arrays.views import Layout, View
from particlemesh.methods.contract import Problem
from particlemesh.methods.launches import LANES, MOST, SINGLE, Form, Group, KernelMethod, Launch, kernel
from particlemesh.particles.workspace import Workspace
from particlemesh.spread import fixed

_FILE = "spread/fixed_point.c"


def _tiles(workspace: Workspace) -> tuple[int, ...]:
    return tuple(-(-axis.extent // axis.support) for axis in workspace.axes)


class FixedPoint(KernelMethod):
    """Sums in 64-bit integers, scaled by a power of two; independent of order, for any window."""

    name = "fixed_point"
    confines_non_finite = False
    cite = "eastman2017"
    derivatives = 2
    deterministic = True
    order_independent = True

    @classmethod
    def scratch_bytes(cls, problem: Problem) -> int:
        return 8 * problem.nodes * min(problem.components, MOST)

    @classmethod
    def cost(cls, problem: Problem) -> tuple[float, float]:
        adds = problem.count * problem.stencil * problem.components
        sums = 8 * problem.nodes * problem.components
        # H200 (benchmarks/results/guo-long_totals-nvidia-h200.csv, guo-added_clouds-nvidia-h200.csv)
        rate = 2.5e11 if sums < 40e6 else 0.9e11
        return 1e-5 + problem.count * 2e-11, 1.3e-5 + adds / rate + 3 * sums / 3e12

    def __init__(self) -> None:
        super().__init__()
        self._sums = fixed.Sums()

    def reserve(self, workspace: Workspace) -> None:
        self._tile_counts(workspace)
        self._sums.reserve(workspace, fixed.beside(workspace.axes, Group(1, min(workspace.components, MOST), 0)))

    def _tile_counts(self, workspace: Workspace) -> Any:
        return workspace.scratch("fixed.tiles", _tiles(workspace), np.dtype(np.uint32))

    def prepare(self, workspace: Workspace) -> None:
        """Bound how many stencils meet at a node."""
        tiles, particles = self._tile_counts(workspace), workspace.particles
        workspace.backend.clear(tiles)
        if workspace.count:
            lows = [axis.low for axis in workspace.axes]
            crowd = kernel(workspace, _FILE, "fixed_crowd", SINGLE, 1, GRADIENT=0, APART=0, **LANES)
            crowd(
                workspace.count, particles.node, tiles, workspace.count, particles.rows, *lows, *_tiles(workspace)[1:]
            )
        self._sums.prepare(workspace, "fixed_most", tiles, math.prod(_tiles(workspace)))

    def non_finite_values(self) -> bool:
        return self._sums.non_finite_values()

    def compile(self, workspace: Workspace, form: Form, group: Group, field: Layout, *values: Layout | None) -> Launch:
        target = self._sums.target(
            workspace, group, fixed.beside(workspace.axes, group), form=form,
            tiles=3**workspace.mesh.ndim,  # of an axis' tiles the last may be narrow
            find="fixed_largest", apart=False,
        )  # fmt: skip
        facts = {**form.facts(), "APART": 0, **LANES}
        return target, kernel(workspace, _FILE, "fixed_spread", group, 1, **facts)

    def apply(
        self, workspace: Workspace, values: View, field: View, gradient: bool = False, hessian: bool = False, **_: Any
    ) -> None:
        particles, count = workspace.particles, workspace.count
        node, rows = particles.node, particles.rows
        for target, add, value_layout, layout in self.launches(
            workspace, Form(gradient, hessian=hessian), field, values
        ):
            sums, most, largest = self._sums.begin(workspace, target)
            target.find(
                min(count, fixed.MANY), node, values.array, largest, count, rows, value_layout,
                workspace.jacobian_record,
            )  # fmt: skip
            add(
                LANES["LANES_ALL"] * count, node, particles.fraction, values.array, sums, most, largest,
                target.headroom, count, rows, value_layout, target.record, workspace.window_record,
                workspace.jacobian_record,
            )  # fmt: skip
            self._sums.finish(workspace, target, field, layout)
