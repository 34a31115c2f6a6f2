# SPDX-License-Identifier: BSD-3-Clause
"""Spreading by warps that walk along x, with a patch of the mesh in registers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

from particlemesh.arrays.operands import Layout, View
from particlemesh.backends.base import Kernel, Record
from particlemesh.methods.contract import Option, Problem
from particlemesh.methods.launches import Form, Group, Launch
from particlemesh.particles.workspace import Workspace
from particlemesh.walk import patch as patches
from particlemesh.walk.walking import Pace, Walking

# By the bytes of a real: H200 (choosing/cuda-nvidia-h200.csv)
PACE = {
    4: Pace(6.7e-6, 1.4e-11, 0.11, 1.5e12, 2.2e-8, 3.6e-7, 2.0),
    8: Pace(5.3e-6, 1.4e-11, 0.24, 1.2e12, 5.7e-8, 1.0e-7, 1.1),
}


class WalkLaunch(NamedTuple):
    """The kernel for a group of channels, and what its launches take."""

    kernel: Kernel
    items: int  # of a warp
    reals: int  # of a node
    local_bytes: int  # of a group


class Walk(Walking):
    """Particles in the order of a walk; a warp sums a patch of the mesh in registers.

    The weights of neighbouring particles are the factors of a matrix product, which tensor cores compute. Nodes that
    the walk has passed are added to the field, as vectors where the device adds vectors. There is no tile in local
    memory and no barrier. Every warp has the same number of particles, so clusters cost nothing.

    A value that is not finite spoils the nodes of its patch, which are fewer than 8 (along z 16) from its stencil's.
    All other nodes are right.
    """

    name = "walk"
    confines_non_finite = False
    cite = "particlemesh2026"
    sorts = True
    longer: ClassVar[int] = 1  # times the usual particles of a warp
    options: ClassVar[dict[str, Option]] = {
        **patches.OPTIONS,
        "fragments": Option(
            True, (True, False), "float32: add up each matrix product outside of it, against its drift"
        ),
    }

    @classmethod
    def cost(cls, problem: Problem) -> tuple[float, float]:
        patch = cls.patch_for(problem, problem.count)
        seconds = cls.seconds(problem, patch, PACE[problem.dtype.itemsize], spreads=True)
        cleared = problem.nodes * problem.components * problem.dtype.itemsize / 3e12
        return cls.ordering(problem), cls.slowed(problem) * (cleared + seconds)

    def compile(self, workspace: Workspace, form: Form, group: Group, field: Layout, *values: Layout | None) -> Launch:
        width = patches.width_of(self.patch(workspace), group, field, adds=True)
        return (self._walk(workspace, "spread/walk.c", group, width, field, form),)

    def _walk(
        self, workspace: Workspace, file: str, group: Group, width: int, field: Layout, form: Form, **more: int
    ) -> WalkLaunch:
        patch, reals = self.patch(workspace), group.reals
        rows = (4 + 3 * reals * patch.tiles) if form.gradient else (2 + reals * patch.tiles)
        if patch.few and not self.option(workspace, "form"):
            patch = replace(patch, matrix=False)
        fragments = int(patch.matrix and workspace.dtype.itemsize == 4 and self.option(workspace, "fragments"))
        # Where sums leave no registers, records read ahead are in local memory.
        copies = not patch.single and reals * patch.tiles > 2
        room, local_bytes = patches.room_of(
            workspace, rows, 1 + form.gradient, levels=patch.levels, records=2 * copies, most=patches.pool_of(workspace)
        )
        facts = patches.patch_defines(
            workspace, patch, group, width, field, int(form.gradient), FRAGMENTS=fragments, COPIES=int(copies), **room
        )
        if not form.gradient:
            facts["RESIDENT_GROUPS"] = patches.resident(patch, reals)
        items = -(-workspace.backend.group_size // facts["WARPS"])
        return WalkLaunch(workspace.backend.kernel(file, "spread_walk", facts | more), items, reals, local_bytes)

    def _launch(
        self, workspace: Workspace, walk: WalkLaunch, values: View, to: tuple[Any, ...], *records: Record,
        piece: tuple[Record, Record] | None = None,
    ) -> None:  # fmt: skip
        """Walk over the particles; the arrays and numbers ``to`` say where sums go.

        ``piece`` has the blocks and the window, if they are not the usual ones.
        """
        order = self.order(workspace)
        chunk = self.option(workspace, "chunk") or patches.chunk_of(
            workspace, self.patch(workspace), walk.reals, spreads=True, longer=self.longer
        )
        warps = -(-workspace.count // chunk)
        blocks, window = piece or (order.blocks.record, workspace.window_record)
        walk.kernel(
            walk.items * warps, order.records, order.start, values.array, *to, chunk, warps, blocks,
            *records, window, workspace.jacobian_record, local_bytes=walk.local_bytes,
        )  # fmt: skip

    def apply(self, workspace: Workspace, values: View, field: View, gradient: bool = False, **_: Any) -> None:
        for walk, *layouts in self.launches(workspace, Form(gradient), field, values):
            self._launch(workspace, walk, values, (field.array,), *layouts)
