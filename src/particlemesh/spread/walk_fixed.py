# SPDX-License-Identifier: BSD-3-Clause
"""Spreading by warps that walk, into 64-bit integers: bit-identical in every run."""

from __future__ import annotations

import math
from typing import Any

from particlemesh.arrays.views import Layout, View
from particlemesh.methods.contract import Problem
from particlemesh.methods.launches import MOST, Form, Group, Launch
from particlemesh.particles.stencil import Axis
from particlemesh.particles.workspace import Workspace
from particlemesh.spread import fixed
from particlemesh.spread.walk import Walk


def reached_from(axis: Axis, cells: int, count: int) -> int:
    """Return from how many of an axis' ``count`` blocks of ``cells`` a node is reached at most."""
    # The cells are neighbours. Where they come round, the last block may be narrow.
    near = min(axis.support, axis.size) if axis.wraps else axis.support
    return min(count, -(-(near - 1) // cells) + 1 + axis.wraps)


class WalkFixed(Walk):
    """The walk with a stable order and 64-bit integers, in which the sums of its warps do not depend on their order.

    A warp sums reals in registers, always in one order, and adds its sums to the mesh as integers. A value that is not
    finite makes all nodes of its component NaN. A plan with ``order="sorted"`` sorts particles of a block in another
    order each time, and the last bits with them, unless it is ``deterministic``.
    """

    name = "walk_fixed"
    cite = "eastman2017"
    deterministic = True
    stable = True
    sorts = False
    prepares_orders = False  # it has sums to clear
    includes = Walk

    def __init__(self) -> None:
        super().__init__()
        self._sums = fixed.Sums()

    @classmethod
    def scratch_bytes(cls, problem: Problem) -> int:
        layout = fixed.apart(problem.axes, min(problem.components, MOST))
        return super().scratch_bytes(problem) + 8 * layout.channels * layout.strides[0]

    @classmethod
    def cost(cls, problem: Problem) -> tuple[float, float]:
        prepare, apply = super().cost(problem)
        reals, size = problem.components, problem.dtype.itemsize
        if size == 4:
            left, _ = cls.passed(problem, cls.patch_for(problem, problem.count))
            apply += left / 1.4e11 - left / 3.2e11  # integers have no vector form
        passes = problem.nodes * (2 * 8 + 2 * size) + problem.count * size  # cleared, added to the field; the largest
        return prepare + 1e-5, apply + 1e-5 + passes * reals / 3e12  # H200: launches, bytes per second

    def reserve(self, workspace: Workspace) -> None:
        super().reserve(workspace)
        self._sums.reserve(workspace, fixed.apart(workspace.axes, min(workspace.components, MOST)))

    def prepare(self, workspace: Workspace) -> None:
        """Order the particles; the fullest block bounds how many stencils meet at a node."""
        order = self.order(workspace)
        self._sums.prepare(workspace, "fixed_fullest", order.start, order.blocks.total)

    def non_finite_values(self) -> bool:
        return self._sums.non_finite_values()

    def compile(self, workspace: Workspace, form: Form, group: Group, field: Layout, *values: Layout | None) -> Launch:
        blocks = self.order(workspace).blocks
        layout = fixed.apart(workspace.axes, group.reals)
        target = self._sums.target(
            workspace, group, layout, form=form,
            tiles=math.prod(map(reached_from, workspace.axes, blocks.narrow, blocks.counts)),
            find="fixed_largest_recorded", apart=True,
        )  # fmt: skip
        return target, self._walk(workspace, "spread/walk_fixed.c", group, 1, layout, form)

    def apply(self, workspace: Workspace, values: View, field: View, gradient: bool = False, **_: Any) -> None:
        order = self.order(workspace)
        for target, walk, value_layout, layout in self.launches(workspace, Form(gradient), field, values):
            sums, most, largest = self._sums.begin(workspace, target)
            target.find(
                min(workspace.count, fixed.MANY), order.records, order.start, values.array, largest, workspace.count,
                order.blocks.total, value_layout, workspace.jacobian_record,
            )  # fmt: skip
            self._launch(workspace, walk, values, (sums, most, largest, target.headroom), value_layout, target.record)
            self._sums.finish(workspace, target, field, layout)
