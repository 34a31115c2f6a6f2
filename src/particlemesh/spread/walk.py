# SPDX-License-Identifier: BSD-3-Clause
"""Spreading by warps that walk along x, with a window of the mesh in registers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from particlemesh.arrays import Layout, View
from particlemesh.backends.base import Kernel, Record
from particlemesh.methods.contract import Option, Problem
from particlemesh.methods.launches import Group, field_record, groups, values_record
from particlemesh.walk import patch
from particlemesh.walk.by_block import Pace, Walking

if TYPE_CHECKING:
    from particlemesh.plan import Plan


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

    def build(self, plan: Plan, kind: int, field: Layout, *values: Layout | None) -> list[Any]:
        built = []
        for group in groups(field):
            width = patch.width_of(self.walk(plan), group, field, adds=True)
            run = self._kernel(plan, "spread/walk.c", group, width, field, kind & 1)
            built.append((run, values_record(group, values[0]), field_record(group, field, plan.axes)))
        return built

    def _kernel(self, plan: Plan, file: str, group: Group, width: int, field: Layout, gradient: int) -> _Run:
        found, reals = self.walk(plan), group.parts * group.channels
        rows = (4 + 3 * reals * found.tiles) if gradient else (2 + reals * found.tiles)
        if found.few and not self.option(plan, "form"):
            found = replace(found, matrix=False)
        fragments = int(found.matrix and plan.dtype.itemsize == 4 and self.option(plan, "fragments"))
        facts = patch.walk_defines(plan, found, group, width, rows, field, gradient, FRAGMENTS=fragments)
        if not gradient:
            facts["RESIDENT_GROUPS"] = patch.resident(found, reals)
        items = -(-plan.backend.group_size // facts["WARPS"])
        return _Run(plan.backend.kernel(file, "spread_walk", facts), items, reals)

    def _again(self, plan: Plan, gradient: bool) -> int:
        """What launches are remembered by."""
        found = self.walk(plan)
        return int(gradient) + 2 * found.tiles + 8 * found.few

    def _run(self, plan: Plan, run: _Run, values: View, to: tuple[Any, ...], *records: Record) -> None:
        """Walk: the arrays and numbers ``to`` say where sums go."""
        order = self.order(plan)
        chunk = self.option(plan, "chunk") or patch.chunk_of(plan, self.walk(plan), run.reals, spreads=True)
        warps = -(-plan.count // chunk)
        run.kernel(
            run.items * warps, order.records, order.start, values.array, *to, chunk, warps, order.blocks.record,
            *records, plan.window_record, plan.jacobian_record,
        )  # fmt: skip

    def apply(self, plan: Plan, values: View, field: View, gradient: bool = False, **_: Any) -> None:
        for run, value_layout, field_layout in self.launches(plan, self._again(plan, gradient), field, values):
            self._run(plan, run, values, (field.array,), value_layout, field_layout)
