# SPDX-License-Identifier: BSD-3-Clause
"""Spreading by warps that walk along x, with a window of the mesh in registers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

from particlemesh.arrays.views import Layout, View
from particlemesh.backends.base import Kernel, Record
from particlemesh.methods.contract import Option, Problem
from particlemesh.methods.launches import Group, field_record, groups, values_record
from particlemesh.particles.workspace import Workspace
from particlemesh.walk import patch
from particlemesh.walk.walking import Pace, Walking

# By the bytes of a real: H200 (choosing/cuda-nvidia-h200.csv)
PACE = {
    4: Pace(6.7e-6, 1.4e-11, 0.11, 1.5e12, 2.2e-8, 3.6e-7, 2.0),
    8: Pace(5.3e-6, 1.4e-11, 0.24, 1.2e12, 5.7e-8, 1.0e-7, 1.1),
}


class _Run(NamedTuple):
    kernel: Kernel
    items: int  # of a warp's walk
    reals: int  # of a node


class Walk(Walking):
    """Particles in the order of a walk; a warp adds up what a window of the mesh gets, in registers.

    Weights of neighbouring particles are the factors of a product of matrices, which matrix instructions make. What
    the walk has passed leaves by adds, of vectors where there are any: no tile in local memory, no barrier, and every
    warp has the same number of particles, so clusters cost nothing.

    A value that is not finite spoils the nodes of its window, which are fewer than 8 (along z 16) from its stencil's;
    those elsewhere are right.
    """

    name = "walk"
    cite = "particlemesh2026"
    options: ClassVar[dict[str, Option]] = {
        **patch.OPTIONS,
        "fragments": Option(
            True, (True, False), "float32: add up each matrix product outside of it, against its drift"
        ),
    }

    @classmethod
    def cost(cls, problem: Problem) -> tuple[float, float]:
        found = cls.found(problem, problem.count)
        seconds = cls.seconds(problem, found, PACE[problem.dtype.itemsize], spreads=True)
        cleared = problem.nodes * problem.components * problem.dtype.itemsize / 3e12
        return cls.ordering(problem), cls.slowed(problem) * (cleared + seconds)

    def build(self, workspace: Workspace, kind: int, field: Layout, *values: Layout | None) -> list[Any]:
        built = []
        for group in groups(field):
            width = patch.width_of(self.walk(workspace), group, field, adds=True)
            run = self._kernel(workspace, "spread/walk.c", group, width, field, kind & 1)
            built.append((run, values_record(group, values[0]), field_record(group, field, workspace.axes)))
        return built

    def _kernel(self, workspace: Workspace, file: str, group: Group, width: int, field: Layout, gradient: int) -> _Run:
        found, reals = self.walk(workspace), group.parts * group.channels
        rows = (4 + 3 * reals * found.tiles) if gradient else (2 + reals * found.tiles)
        if found.few and not self.option(workspace, "form"):
            found = replace(found, matrix=False)
        fragments = int(found.matrix and workspace.dtype.itemsize == 4 and self.option(workspace, "fragments"))
        facts = patch.walk_defines(workspace, found, group, width, rows, field, gradient, FRAGMENTS=fragments)
        if not gradient:
            facts["RESIDENT_GROUPS"] = patch.resident(found, reals)
        items = -(-workspace.backend.group_size // facts["WARPS"])
        return _Run(workspace.backend.kernel(file, "spread_walk", facts), items, reals)

    def _again(self, workspace: Workspace, gradient: bool) -> int:
        """What launches are remembered by."""
        found = self.walk(workspace)
        return int(gradient) + 2 * found.tiles + 8 * found.few

    def _run(self, workspace: Workspace, run: _Run, values: View, to: tuple[Any, ...], *records: Record) -> None:
        """Walk: the arrays and numbers ``to`` say where sums go."""
        order = self.order(workspace)
        chunk = self.option(workspace, "chunk") or patch.chunk_of(
            workspace, self.walk(workspace), run.reals, spreads=True
        )
        warps = -(-workspace.count // chunk)
        run.kernel(
            run.items * warps, order.records, order.start, values.array, *to, chunk, warps, order.blocks.record,
            *records, workspace.window_record, workspace.jacobian_record,
        )  # fmt: skip

    def apply(self, workspace: Workspace, values: View, field: View, gradient: bool = False, **_: Any) -> None:
        for run, value_layout, field_layout in self.launches(
            workspace, self._again(workspace, gradient), field, values
        ):
            self._run(workspace, run, values, (field.array,), value_layout, field_layout)
