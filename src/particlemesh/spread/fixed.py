# SPDX-License-Identifier: BSD-3-Clause
"""Sums in 64-bit integers: their memory, their scale, and their way to the field (``spread/fixed.h``)."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from particlemesh.arrays.views import Layout, View
from particlemesh.backends.base import Kernel, Record
from particlemesh.methods.launches import MOST, NO_LANES, SINGLE, Form, Group, field_record, kernel
from particlemesh.particles.stencil import Axis
from particlemesh.particles.workspace import Workspace

_FILE = "spread/fixed.c"
MANY = 2**18  # work-items that search numbers for the largest


class Target(NamedTuple):
    """What a group of channels is added to."""

    layout: Layout  # of the integers
    record: Record
    headroom: int  # bits that the window takes, and the tiles from which a node is reached
    find: Kernel  # the largest values
    finish: Kernel
    rows: int  # along z


class Sums:
    """The integers of one method, scaled by powers of two for which the device finds what bounds the sums."""

    def __init__(self) -> None:
        self._workspace: Workspace | None = None  # of the last configuration

    @staticmethod
    def _bounds(workspace: Workspace) -> tuple[Any, Any, Any]:
        # the most stencils of a tile; bits of each component's largest value; whether one was not finite
        sizes = {"most": 1, "largest": MOST, "not_finite": 1}
        whole = np.dtype(np.uint32)
        most, largest, not_finite = (workspace.scratch(f"fixed.{name}", (size,), whole) for name, size in sizes.items())
        return most, largest, not_finite

    def _integers(self, workspace: Workspace, layout: Layout) -> Any:
        return workspace.scratch("fixed.sums", (layout.channels * layout.strides[0],), np.dtype(np.uint64))

    def reserve(self, workspace: Workspace, layout: Layout) -> None:
        """Allocate for integers of a layout."""
        self._bounds(workspace)
        self._integers(workspace, layout)

    def prepare(self, workspace: Workspace, name: str, numbers: Any, count: int) -> None:
        """Find the most stencils of a tile, by a kernel of that name; forget that values were not finite."""
        self._workspace = workspace
        most, _, not_finite = self._bounds(workspace)
        for array in (most, not_finite):
            workspace.backend.clear(array)
        run = kernel(workspace, _FILE, name, SINGLE, 1, **NO_LANES, APART=0)
        run(min(count, MANY), numbers, most, count)

    def non_finite_values(self) -> bool:
        """Return whether any value since the last configuration was not finite."""
        workspace = self._workspace
        return workspace is not None and bool(workspace.backend.download(self._bounds(workspace)[2])[0])

    def target(
        self, workspace: Workspace, group: Group, layout: Layout, *, form: Form, tiles: int, find: str, apart: bool,
    ) -> Target:  # fmt: skip
        """Return where a group of channels goes.

        A node is reached from at most so many ``tiles``; ``find`` is the kernel that finds the largest values.
        ``layout`` is :func:`apart`.
        """
        z = np.linspace(-0.5, 0.5, 257)
        weight = 1.01 * np.abs(workspace.window.weights(z)).max()
        slope = 1.01 * np.abs(workspace.window.derivative_weights(z)).max()
        curvature = 1.01 * np.abs(workspace.window.derivative_weights(z, 2)).max()
        d = workspace.mesh.ndim
        steepest = d * slope * weight ** (d - 1) if form.gradient else weight**d
        if form.hessian:
            steepest = d * curvature * weight ** (d - 1) + d * (d - 1) / 2 * slope**2 * weight ** max(d - 2, 0)
        # More than once where the mesh is smaller than the support.
        turns = math.prod(-(-axis.support // axis.size) for axis in workspace.axes)
        headroom = max(0, math.ceil(math.log2(max(tiles * turns * steepest, 1))))
        names = (find, "fixed_finish")
        key = {**NO_LANES, **form.facts(), "APART": int(apart)}
        largest, finish = (kernel(workspace, _FILE, name, group, 1, **key) for name in names)
        whole = Group(group.parts, group.channels, 0)
        return Target(
            layout, field_record(whole, layout, workspace.axes), headroom, largest, finish,
            group.channels * workspace.axes[0].size * workspace.axes[1].size,
        )  # fmt: skip

    def begin(self, workspace: Workspace, target: Target) -> tuple[Any, Any, Any]:
        """Return the cleared integers and what bounds them: the most stencils, and room for the largest values."""
        sums, (most, largest, _) = self._integers(workspace, target.layout), self._bounds(workspace)
        workspace.backend.clear(sums)
        workspace.backend.clear(largest)
        return sums, most, largest

    def finish(self, workspace: Workspace, target: Target, field: View, layout: Record) -> None:
        """Add the sums to the field."""
        target.finish(
            32 * target.rows, self._integers(workspace, target.layout), field.array, *self._bounds(workspace),
            target.headroom, target.record, layout,
        )  # fmt: skip


def apart(axes: tuple[Axis, Axis, Axis], reals: int) -> Layout:
    """Return where integers lie of which each real has a mesh."""
    x, y, z = (axis.size for axis in axes)
    return Layout(0, (reals, x, y, z, 1), (x * y * z, y * z, z, 1, 1), 16)
