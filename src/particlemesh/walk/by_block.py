# SPDX-License-Identifier: BSD-3-Clause
"""Methods that take particles as records, sorted by block: what those of both directions have in common."""

from __future__ import annotations

from typing import ClassVar

from particlemesh.methods.contract import Problem
from particlemesh.methods.launches import KernelMethod
from particlemesh.orders import block_order
from particlemesh.particles.workspace import Sizes, Workspace
from particlemesh.walk import patch


class ByBlock(KernelMethod):
    """A method over the order by blocks (``orders/block_order.py``); ``cells`` says how large blocks are."""

    reads_stencils = False
    stable: ClassVar[bool] = False  # particles of a block are in the caller's order

    def __init__(self) -> None:
        super().__init__()
        self._reserved = 0  # particles that there is memory for

    @classmethod
    def cells(cls, sizes: Sizes, count: int) -> tuple[int, int, int]:
        """Return the cells of a block for ``count`` particles."""
        return patch.cells_of(sizes, count)

    @classmethod
    def declines(cls, problem: Problem) -> str | None:
        axes = problem.axes
        return block_order.declines(axes, cls.cells(problem, problem.count), problem.count, stable=cls.stable)

    @classmethod
    def scratch_bytes(cls, problem: Problem) -> int:
        return block_order.order_bytes(problem, cls.cells(problem, problem.count), stable=cls.stable)

    @classmethod
    def ordering(cls, problem: Problem) -> float:
        """Return the predicted seconds of ``prepare``."""
        return block_order.seconds(problem, cls.cells(problem, problem.count), stable=cls.stable)

    def expected(self, workspace: Workspace) -> int:
        """Return for how many particles blocks are chosen: reserved memory is for one kind, which serves any number."""
        return self._reserved or workspace.count

    def reserve(self, workspace: Workspace) -> None:
        self._reserved = max(workspace.capacity, 1)
        block_order.reserve(workspace, self.taken(workspace, workspace.particles.cells), stable=self.stable)

    def prepare(self, workspace: Workspace) -> None:
        self.order(workspace)

    def taken(self, workspace: Workspace, sorted_by: tuple[int, int, int] | None) -> tuple[int, int, int]:
        """Return the cells of the blocks that this plan's particles are taken by, which may be sorted already.

        Any blocks have neighbours together.
        """
        return sorted_by or self.cells(workspace, self.expected(workspace))

    def order(self, workspace: Workspace) -> block_order.BlockOrder:
        """Return the plan's particles by block, sorted if they are not yet."""
        found = workspace.particles.by_block
        cells = self.taken(workspace, None if found is None else found.blocks.cells)
        return block_order.block_order(workspace, cells, stable=self.stable)
