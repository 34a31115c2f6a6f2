# SPDX-License-Identifier: BSD-3-Clause
"""Interpolation by warps that walk along x, with a patch of the mesh in registers."""

from __future__ import annotations

from typing import Any

from particlemesh.arrays.operands import Layout, View
from particlemesh.interpolate.shares import WEIGHTLESS, weightless
from particlemesh.methods.contract import Problem
from particlemesh.methods.launches import Form, Group, Launch, targets, written
from particlemesh.particles.workspace import Workspace
from particlemesh.walk import patch as patches
from particlemesh.walk.patch import Patch
from particlemesh.walk.walking import Pace, Walking

# By the bytes of a real: H200 (choosing/cuda-nvidia-h200.csv)
PACE = {
    4: Pace(5.4e-6, 2.2e-11, 0.11, 2.1e12, 2.2e-8, 1.1e-6, 1.6),
    8: Pace(6.8e-6, 2.2e-11, 0.21, 2.1e12, 5.6e-8, 3.9e-7, 0.0),
}

# Groups per multiprocessor for which registers are bounded, by the most words of the patch that a lane holds.
_RESIDENT = ((16, 5), (32, 4), (48, 3), (96, 3))


class Walk(Walking):
    """Particles in the order of a walk; a warp reads a patch of the mesh into registers for many particles.

    The patch is one factor of a matrix product, which tensor cores compute; the weights of neighbouring particles are
    the other. Every warp has the same number of particles, so clusters cost nothing. Results are written in the
    caller's order.

    A node that is not finite spoils the results of all particles whose patch has it. Their stencils are fewer than 8
    (along z 16) nodes away.
    """

    name = "walk"
    confines_non_finite = False
    cite = "particlemesh2026"
    sorts = True
    deterministic = True
    order_independent = True  # a particle's value depends on its patch only, and its sum has one order

    @classmethod
    def cost(cls, problem: Problem) -> tuple[float, float]:
        patch = cls.patch_for(problem, problem.count)
        seconds = cls.seconds(problem, patch, PACE[problem.dtype.itemsize], spreads=False)
        return cls.ordering(problem), cls.slowed(problem) * seconds

    def compile(self, workspace: Workspace, form: Form, group: Group, field: Layout, *values: Layout | None) -> Launch:
        patch, results = self.patch(workspace), written(*values)
        rows = (1 + results["GRADIENT"]) * (2 + patch.tiles)
        width = patches.width_of(patch, group, field, adds=False)
        block = patch.cells[0] * 64 * patch.tiles * group.reals * workspace.dtype.itemsize
        room, local_bytes = patches.room_of(
            workspace, rows, 1 + results["GRADIENT"], levels=patch.levels, records=1, indexed=True, more=block,
            most=patches.pool_of(workspace),
        )  # fmt: skip
        facts = patches.patch_defines(
            workspace, patch, group, width, field, results["GRADIENT"], VALUE=results["VALUE"], **room,
            **WEIGHTLESS[form.variant],
        )  # fmt: skip
        groups = self._resident(patch, group.reals, workspace.dtype.itemsize)
        if groups and not results["GRADIENT"]:
            facts["RESIDENT_GROUPS"] = groups
        return workspace.backend.kernel("interpolate/walk.c", "interpolate_walk", facts), group.reals, local_bytes

    @staticmethod
    def _resident(patch: Patch, reals: int, size: int) -> int | None:
        """Return the groups that a multiprocessor should hold at once, or None if compilers choose."""
        words = 2 * patch.levels * patch.tiles * reals * (size // 4)
        if size == 8 and words == 48:
            return 4  # narrow: its sums are few
        return next((groups for most, groups in _RESIDENT if words <= most), None)

    def apply(
        self, workspace: Workspace, field: View, values: View | None, gradient: View | None = None, **_: Any
    ) -> None:
        patch, order = self.patch(workspace), self.order(workspace)
        unplaced, located, node, _ = weightless(workspace)
        for run, reals, local_bytes, *layouts in self.launches(
            workspace, Form(variant=unplaced), field, values, gradient
        ):
            chunk = self.option(workspace, "chunk") or patches.chunk_of(workspace, patch, reals, spreads=False)
            warps = -(-workspace.count // chunk)
            run(
                32 * warps, order.records, order.start, located, node, field.array, *targets(values, gradient),
                chunk, warps, workspace.count, workspace.particles.rows, order.blocks.record, *layouts,
                workspace.window_record, workspace.jacobian_record, local_bytes=local_bytes,
            )  # fmt: skip
