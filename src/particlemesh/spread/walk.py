# SPDX-License-Identifier: BSD-3-Clause
"""Spreading by warps that walk along x, with a window of the mesh in registers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from particlemesh import walks
from particlemesh.arrays import Layout, View
from particlemesh.binning import block_order
from particlemesh.fused import KernelMethod, field_record, groups, values_record, vector
from particlemesh.method import Option, Problem

if TYPE_CHECKING:
    from particlemesh.plan import Plan


class Walk(KernelMethod):
    """Particles in the order of a walk; a warp adds up what a window of the mesh gets, in registers.

    Weights of neighbouring particles are the factors of a product of matrices, which matrix instructions make. What
    the walk has passed leaves by a vector of adds a lane: no tile in local memory, no barrier, and every warp has the
    same number of particles, so clusters cost nothing.
    """

    name = "walk"
    cite = "particlemesh2026"
    reads_stencils = False
    options: ClassVar[dict[str, Option]] = {
        **walks.OPTIONS,
        "fragments": Option(
            True, (True, False), "float32: add up each matrix product outside of it, against its drift"
        ),
    }

    def __init__(self) -> None:
        super().__init__()
        self._reserved: walks.Walk | None = None

    @classmethod
    def _chosen(cls, asked: Plan | Problem) -> dict[str, Any]:
        return {name: cls.option(asked, name) for name in walks.OPTIONS}

    @classmethod
    def declines(cls, problem: Problem) -> str | None:
        return walks.declines(problem, cls._chosen(problem))

    @classmethod
    def scratch_bytes(cls, problem: Problem) -> int:
        return block_order.order_bytes(problem, walks.walk_of(problem, cls._chosen(problem), problem.count).cells)

    @classmethod
    def cost(cls, problem: Problem) -> tuple[float, float]:
        found = walks.walk_of(problem, cls._chosen(problem), problem.count)
        p, reals, double = problem.window.support, problem.components, problem.dtype.itemsize == 8
        each = 4e-12 + 3e-12 * p + 1.9e-12 * p * reals
        left = min(problem.count, problem.nodes / (found.cells[1] * found.cells[2])) * 64 * found.tiles * reals
        if not problem.fits_cache:
            left *= 2
        # H200, prototypes: instructions a particle, and adds of float32 vectors, of float64
        seconds = problem.count * each * (1.6 if double else 1) + left / (1e11 if double else 4e11)
        cleared = problem.nodes * reals * problem.dtype.itemsize / 4e12
        # Where lanes have no registers in common, every exchange between them is a barrier.
        slow = 1 if problem.backend.facts()["HAS_WARP"] else 50
        return block_order.seconds(problem, found.cells), 6e-6 + cleared + slow * seconds

    def _walk(self, plan: Plan) -> walks.Walk:
        # Memory is reserved for one kind of blocks, which then serves whatever comes.
        return self._reserved or walks.walk_of(plan, self._chosen(plan), plan.count)

    def reserve(self, plan: Plan) -> None:
        self._reserved = walks.walk_of(plan, self._chosen(plan), max(plan.capacity, 1))
        block_order.reserve(plan, self._reserved.cells)

    def prepare(self, plan: Plan) -> None:
        block_order.block_order(plan, self._walk(plan).cells)

    def build(self, plan: Plan, kind: int, field: Layout, *values: Layout | None) -> list[Any]:
        found, gradient, built = self._walk(plan), kind & 1, []
        most = 4 if plan.dtype.itemsize == 4 else 1  # adds of eight bytes have no vector form
        for group in groups(field):
            width = vector(group, field, plan.dtype.itemsize, most)
            reals = group.parts * group.channels
            rows = (4 + 3 * reals * found.tiles) if gradient else (2 + reals * found.tiles)
            facts = walks.walk_defines(
                plan, found, group, width, rows, field, gradient, FRAGMENTS=int(self.option(plan, "fragments"))
            )
            if not gradient and (reals < 4 or found.tiles == 2):  # else the compiler finds the better bound
                facts["RESIDENT_GROUPS"] = walks.RESIDENT.get(reals * found.tiles, 3)
            run = plan.backend.kernel("spread/walk.c", "spread_walk", facts)
            items = -(-plan.backend.group_size // facts["WARPS"])  # of a walk
            built.append((run, reals, items, values_record(group, values[0]), field_record(group, field, plan.axes)))
        return built

    def apply(self, plan: Plan, values: View, field: View, gradient: bool = False, **_: Any) -> None:
        found = self._walk(plan)
        order = block_order.block_order(plan, found.cells)
        for run, reals, items, value_layout, field_layout in self.launches(
            plan, int(gradient) + 2 * found.tiles, field, values
        ):
            chunk = self.option(plan, "chunk") or walks.chunk_of(plan, found, reals, spreads=True)
            warps = -(-plan.count // chunk)
            run(
                items * warps, order.records, order.start, values.array, field.array, chunk, warps, order.blocks.record,
                value_layout, field_layout, plan.window_record, plan.jacobian_record,
            )  # fmt: skip
