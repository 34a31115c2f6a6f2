# SPDX-License-Identifier: BSD-3-Clause
"""Interpolation by warps that walk along x, with a window of the mesh in registers."""

from __future__ import annotations

from typing import Any

from particlemesh.arrays.views import Layout, View
from particlemesh.interpolate import lost
from particlemesh.methods.contract import Problem
from particlemesh.methods.launches import field_record, groups, values_record
from particlemesh.particles.workspace import Workspace
from particlemesh.walk import patch
from particlemesh.walk.walking import Pace, Walking

# By the bytes of a real: H200 (choosing/cuda-nvidia-h200.csv)
PACE = {
    4: Pace(5.4e-6, 2.2e-11, 0.11, 2.1e12, 2.2e-8, 1.1e-6, 1.6),
    8: Pace(6.8e-6, 2.2e-11, 0.21, 2.1e12, 5.6e-8, 3.9e-7, 0.0),
}


class Walk(Walking):
    """Particles in the order of a walk; a warp reads a window of the mesh once for all that are in it, into registers.

    The window is one factor of a product of matrices, the weights of neighbouring particles are the other; matrix
    instructions make it. Every warp has the same number of particles, so clusters cost nothing. Results go to the
    caller's order.

    A node that is not finite spoils what is read through windows that have it: of particles whose stencils are fewer
    than 8 (along z 16) nodes away.
    """

    name = "walk"
    cite = "particlemesh2026"
    deterministic = True
    order_independent = True  # a particle's value depends on its window only, and its sum is always added up alike

    @classmethod
    def cost(cls, problem: Problem) -> tuple[float, float]:
        found = cls.found(problem, problem.count)
        seconds = cls.seconds(problem, found, PACE[problem.dtype.itemsize], spreads=False)
        return cls.ordering(problem), cls.slowed(problem) * seconds

    def build(self, workspace: Workspace, kind: int, field: Layout, *values: Layout | None) -> list[Any]:
        found, built = self.walk(workspace), []
        value, gradient = (int(v is not None) for v in values)
        rows = (1 + gradient) * (2 + found.tiles)
        for group in groups(field):
            width = patch.width_of(found, group, field, adds=False)
            facts = patch.walk_defines(
                workspace, found, group, width, rows, field, gradient, indexed=True, VALUE=value, **lost.FACTS[kind % 4]
            )
            run = workspace.backend.kernel("interpolate/walk.c", "interpolate_walk", facts)
            reals = group.parts * group.channels
            built.append(
                (run, reals, *(values_record(group, v) for v in values), field_record(group, field, workspace.axes))
            )
        return built

    def apply(
        self, workspace: Workspace, field: View, values: View | None, gradient: View | None = None, **_: Any
    ) -> None:
        found = self.walk(workspace)
        order = self.order(workspace)
        outputs = [v.array for v in (values, gradient) if v is not None]
        first, last = outputs[0], outputs[-1]  # an output that is not wanted is not written
        kind, located, node, _ = lost.lost_among(workspace)
        for run, reals, value_layout, gradient_layout, field_layout in self.launches(
            workspace, kind + 4 * found.tiles, field, values, gradient
        ):
            chunk = self.option(workspace, "chunk") or patch.chunk_of(workspace, found, reals, spreads=False)
            warps = -(-workspace.count // chunk)
            run(
                32 * warps, order.records, order.start, located, node, field.array, first, last, chunk,
                warps, workspace.count, workspace.particles.rows, order.blocks.record, value_layout, gradient_layout,
                field_layout, workspace.window_record, workspace.jacobian_record,
            )  # fmt: skip
