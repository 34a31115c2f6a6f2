# SPDX-License-Identifier: BSD-3-Clause
"""Spreading by warps that own windows of the mesh, and store every node once."""

from __future__ import annotations

import math
from typing import Any, ClassVar, NamedTuple

from particlemesh.arrays.views import Layout, View
from particlemesh.backends.base import Kernel
from particlemesh.methods.contract import Option, Problem
from particlemesh.methods.launches import MOST, Form, Group, KernelMethod, Launch, vector
from particlemesh.orders import visits
from particlemesh.orders.visits import SIDE, Windows
from particlemesh.particles.workspace import Sizes, Workspace
from particlemesh.walk import patch as patches
from particlemesh.walk.patch import SUPPORTS, Patch

_WARPS = 16  # of a multiprocessor that windows keep busy
_LEAST_LEVELS = 4  # of a window, where others would do as well
_SLABS = 2**26  # bytes that slabs may take, or half of what the field takes


class _Owner(NamedTuple):
    spread: Kernel
    add: Kernel
    items: int  # of a warp
    reals: int  # of a node


class Owner(KernelMethod):
    """A warp owns a window of the mesh, visits all particles that reach it, and stores every node once.

    Nothing is added in memory and nothing is cleared. Windows are 8 x 8 nodes of a part of the x axis. Particles near
    the edge of a window are visited by its neighbours as well. Products are those of the walk. Windows with many
    particles are cut into pieces, which are added in a fixed order, so that results are reproducible.

    A value that is not finite spoils nodes that are fewer than 8 from its stencil. All other nodes are right.
    """

    name = "owner"
    cite = "particlemesh2026"
    deterministic = True
    confines_non_finite = False
    reads_stencils = False
    fills = True
    options: ClassVar[dict[str, Option]] = {
        "form": Option(None, ("matrix", "multiply"), "matrix instructions, or multiply and add; by default by device"),
        "parts": Option(None, range(1, 2**20), "of the x axis; by default as many as keep the device busy"),
        "resident": Option(None, range(1, 17), "groups of a multiprocessor, for which registers are bounded"),
        "alone": Option(2, range(8), "float32: so many visits left over are multiplied and added one by one"),
    }

    @classmethod
    def windows(cls, sizes: Sizes) -> Windows:
        """Return the windows of the mesh."""
        x, y, z = sizes.axes
        columns = -(-y.size // SIDE) * -(-z.size // SIDE)
        parts = cls.option(sizes, "parts")
        if parts is None:
            parts = min(round(sizes.backend.units * _WARPS / columns), x.size // _LEAST_LEVELS)
            parts = max(1, parts, -(-x.size // visits.MOST_ALONG_X))
        return visits.windows_of(sizes.axes, parts)

    @classmethod
    def pieces(cls, sizes: Sizes) -> int:
        """Return how many pieces are cut off windows at most: each takes a slab."""
        windows, reals = cls.windows(sizes), min(sizes.components, MOST)
        slab = windows.length[0] * SIDE**2 * reals * sizes.dtype.itemsize
        field = math.prod(sizes.mesh.field_shape) * reals * sizes.dtype.itemsize
        return max(1, min(windows.total, max(_SLABS, field // 2) // slab))

    @classmethod
    def declines(cls, problem: Problem) -> str | None:
        if problem.window.support not in SUPPORTS:
            return f"supports of {SUPPORTS[0]} to {SUPPORTS[-1]} nodes"
        return visits.declines(problem, cls.windows(problem))

    @classmethod
    def scratch_bytes(cls, problem: Problem) -> int:
        windows, pieces = cls.windows(problem), cls.pieces(problem)
        slab = windows.length[0] * SIDE**2 * min(problem.components, MOST) * problem.dtype.itemsize
        return visits.order_bytes(problem, windows, pieces) + pieces * slab

    @classmethod
    def cost(cls, problem: Problem) -> tuple[float, float]:
        windows, size = cls.windows(problem), problem.dtype.itemsize
        mean = math.prod(
            1 + (axis.support - 1) / min(n, axis.size) for axis, n in zip(problem.axes, windows.length, strict=True)
        )
        # H200: visits, each with a product of levels; levels stored
        each = (9.5e-12 if size == 4 else 7e-12) * (1 + 0.15 * problem.axes[0].support * problem.components)
        stored = problem.nodes * problem.components * size / 2.6e12
        slow = 1.0 if problem.backend.facts()["HAS_WARP"] else 1000.0
        crowded = 1.0 / problem.filled**0.5
        return visits.seconds(problem, windows, problem.filled), slow * (
            5e-6 + stored + problem.count * mean * each * crowded
        )

    def reserve(self, workspace: Workspace) -> None:
        windows, pieces = self.windows(workspace), self.pieces(workspace)
        visits.reserve(workspace, windows, pieces)
        self._slabs(workspace, min(workspace.components, MOST))

    def _slabs(self, workspace: Workspace, reals: int) -> Any:
        slab = self.windows(workspace).length[0] * SIDE**2 * reals
        return workspace.scratch("owner.slabs", (self.pieces(workspace) * slab,), workspace.dtype)

    def _order(self, workspace: Workspace) -> visits.Visits:
        return visits.visits_of(workspace, self.windows(workspace), self.pieces(workspace))

    def prepare(self, workspace: Workspace) -> None:
        self._order(workspace)

    def patch(self, workspace: Sizes) -> Patch:
        """Return what a warp keeps in registers."""
        x, single = workspace.axes[0].support, workspace.dtype.itemsize == 4
        form = self.option(workspace, "form")
        matrix = form == "matrix" if form else bool(workspace.backend.facts()["HAS_MMA" if single else "HAS_WIDE_MMA"])
        return Patch(matrix, x + x % 2 if matrix else x, 1, (1, 1, 1), single, few=False)

    def compile(self, workspace: Workspace, form: Form, group: Group, field: Layout, *values: Layout | None) -> Launch:
        patch, reals, size = self.patch(workspace), group.reals, workspace.dtype.itemsize
        width = vector(group, field, size, 16 // size)
        rows = (4 + 3 * reals) if form.gradient else (2 + reals)
        more: dict[str, Any] = {"ALONE": self.option(workspace, "alone") if size == 4 else 0}
        resident = self.option(workspace, "resident")
        if resident is None and not form.gradient:
            held = patch.levels * reals  # the most groups with few spills, as sm_90 is compiled
            resident = (4 if held <= 12 else 3 if held <= 16 else 2) + (size == 4)
        if resident is not None:
            more["RESIDENT_GROUPS"] = resident
        facts = patches.patch_defines(workspace, patch, group, width, rows, field, int(form.gradient), **more)
        file, backend = "spread/owner.c", workspace.backend
        items = -(-backend.group_size // facts["WARPS"])
        return (
            _Owner(backend.kernel(file, "spread_owner", facts), backend.kernel(file, "add_slabs", facts), items, reals),
        )

    def apply(
        self, workspace: Workspace, values: View, field: View, gradient: bool = False, fresh: bool = False, **_: Any
    ) -> None:
        order, windows, pieces = self._order(workspace), self.windows(workspace), self.pieces(workspace)
        for owner, value_layout, layout in self.launches(workspace, Form(gradient), field, values):
            slabs = self._slabs(workspace, max(owner.reals, min(workspace.components, MOST)))
            owner.spread(
                owner.items * (windows.total + pieces), order.records, order.visits, order.start, order.work,
                order.pieces, values.array, field.array, slabs, windows.total, int(not fresh), windows.record,
                value_layout, layout, workspace.window_record, workspace.jacobian_record,
            )  # fmt: skip
            owner.add(
                8 * workspace.backend.units * workspace.backend.group_size, order.visits, order.start, order.work,
                order.pieces, slabs, field.array, windows.record, layout,
            )  # fmt: skip
