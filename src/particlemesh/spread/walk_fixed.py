# SPDX-License-Identifier: BSD-3-Clause
"""Spreading by warps that walk, into 64-bit integers: bit-identical in every run (``spread/fixed.h``)."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from particlemesh.arrays.operands import Layout, View
from particlemesh.backends.base import Kernel, Record
from particlemesh.methods.contract import Problem
from particlemesh.methods.launches import MOST, NO_WINDOW, SINGLE, Form, Group, Launch, field_record, kernel
from particlemesh.particles.stencil import Axis
from particlemesh.particles.workspace import Workspace
from particlemesh.spread.walk import Walk, WalkLaunch

_FILE = "spread/fixed.c"
_MANY = 2**18  # work-items that search numbers for the largest


class _Sums(NamedTuple):
    """How a group of channels is added up in integers, which the device scales by powers of two."""

    find: Kernel  # the largest values
    finish: Kernel
    integers: Record  # where they lie
    headroom: int  # bits that the window takes, and the blocks from which a node is reached
    rows: int  # along z
    walk: WalkLaunch


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
        self._workspace: Workspace | None = None  # of the last configuration

    @classmethod
    def scratch_bytes(cls, problem: Problem) -> int:
        return super().scratch_bytes(problem) + 8 * min(problem.components, MOST) * problem.nodes

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
        self._bounds(workspace)
        self._integers(workspace, min(workspace.components, MOST))

    @staticmethod
    def _bounds(workspace: Workspace) -> tuple[Any, Any, Any]:
        # the most particles of a block; bits of each component's largest value; whether one was not finite
        sizes = {"most": 1, "largest": MOST, "not_finite": 1}
        whole = np.dtype(np.uint32)
        most, largest, not_finite = (workspace.scratch(f"fixed.{name}", (size,), whole) for name, size in sizes.items())
        return most, largest, not_finite

    @staticmethod
    def _integers(workspace: Workspace, reals: int) -> Any:
        return workspace.scratch("fixed.sums", (reals * workspace.nodes,), np.dtype(np.uint64))

    def prepare(self, workspace: Workspace) -> None:
        """Order the particles; the fullest block bounds how many stencils meet at a node."""
        order, self._workspace = self.order(workspace), workspace
        most, _, not_finite = self._bounds(workspace)
        for array in (most, not_finite):
            workspace.backend.clear(array)
        run = kernel(workspace, _FILE, "fixed_fullest", SINGLE, 1, **NO_WINDOW)
        run(min(order.blocks.total, _MANY), order.start, most, order.blocks.total)

    def non_finite_values(self) -> bool:
        workspace = self._workspace
        return workspace is not None and bool(workspace.backend.download(self._bounds(workspace)[2])[0])

    def compile(self, workspace: Workspace, form: Form, group: Group, field: Layout, *values: Layout | None) -> Launch:
        blocks, layout = self.order(workspace).blocks, apart(workspace.axes, group.reals)
        z, d = np.linspace(-0.5, 0.5, 257), workspace.mesh.ndim
        weight = 1.01 * np.abs(workspace.window.weights(z)).max()
        slope = 1.01 * np.abs(workspace.window.derivative_weights(z)).max()
        steepest = d * slope * weight ** (d - 1) if form.gradient else weight**d
        # More than once where the mesh is smaller than the support.
        turns = math.prod(-(-axis.support // axis.size) for axis in workspace.axes)
        reached = math.prod(map(reached_from, workspace.axes, blocks.narrow, blocks.counts))
        find, finish = (
            kernel(workspace, _FILE, name, group, 1, **NO_WINDOW | form.facts())
            for name in ("fixed_largest_recorded", "fixed_finish")
        )
        return (
            _Sums(
                find, finish, field_record(Group(group.parts, group.channels, 0), layout, workspace.axes),
                max(0, math.ceil(math.log2(max(reached * turns * steepest, 1)))),
                group.channels * workspace.axes[0].size * workspace.axes[1].size,
                self._walk(workspace, "spread/walk_fixed.c", group, 1, layout, form),
            ),
        )  # fmt: skip

    def apply(self, workspace: Workspace, values: View, field: View, gradient: bool = False, **_: Any) -> None:
        order, (most, largest, not_finite) = self.order(workspace), self._bounds(workspace)
        for sums, value_layout, layout in self.launches(workspace, Form(gradient), field, values):
            integers = self._integers(workspace, sums.walk.reals)
            for array in (integers, largest):
                workspace.backend.clear(array)
            sums.find(
                min(workspace.count, _MANY), order.records, order.start, values.array, largest, workspace.count,
                order.blocks.total, value_layout, workspace.jacobian_record,
            )  # fmt: skip
            to = integers, most, largest, sums.headroom
            self._launch(workspace, sums.walk, values, to, value_layout, sums.integers)
            sums.finish(
                32 * sums.rows, integers, field.array, most, largest, not_finite, sums.headroom, sums.integers, layout
            )  # fmt: skip


def reached_from(axis: Axis, cells: int, count: int) -> int:
    """Return from how many of an axis' ``count`` blocks of ``cells`` a node is reached at most."""
    # The cells are neighbours. Where they come round, the last block may be narrow.
    near = min(axis.support, axis.size) if axis.wraps else axis.support
    return min(count, -(-(near - 1) // cells) + 1 + axis.wraps)


def apart(axes: tuple[Axis, Axis, Axis], reals: int) -> Layout:
    """Return where integers lie of which each real has a mesh."""
    x, y, z = (axis.size for axis in axes)
    return Layout(0, (reals, x, y, z, 1), (x * y * z, y * z, z, 1, 1), 16)
