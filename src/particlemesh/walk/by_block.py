# SPDX-License-Identifier: BSD-3-Clause
"""Methods that take particles as records, sorted by block: what both directions have in common."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import replace
from typing import ClassVar

from particlemesh.methods.contract import Method, Problem
from particlemesh.methods.launches import KernelMethod
from particlemesh.orders import block_order
from particlemesh.orders.block_order import Cells
from particlemesh.particles.workspace import Sizes, Workspace
from particlemesh.walk import patch


class ByBlock(KernelMethod):
    """A method over the order by blocks (``orders/block_order.py``); ``cells`` says how large blocks are."""

    reads_stencils = False
    prepares_orders = True
    stable: ClassVar[bool] = False  # particles of a block are in the caller's order
    sorts: ClassVar[bool] = False  # order="sorted" sorts particles by the blocks of this method, if it can serve

    @classmethod
    def cells(cls, sizes: Sizes, count: int) -> Cells:
        """Return the cells of a block for ``count`` particles."""
        return patch.cells_of(sizes, count)

    @classmethod
    def refusal(cls, sizes: Sizes, *, stable: bool) -> str | None:
        """Return why particles of ``sizes`` cannot be taken by block, or None."""
        return block_order.declines(sizes.axes, cls.cells(sizes, sizes.count), sizes.count, stable=stable)

    @classmethod
    def declines(cls, problem: Problem) -> str | None:
        return cls.refusal(problem, stable=cls.stable)

    @classmethod
    def scratch_bytes(cls, problem: Problem) -> int:
        return block_order.order_bytes(problem, cls.cells(problem, problem.count), stable=cls.stable)

    @classmethod
    def ordering(cls, problem: Problem) -> float:
        """Return the predicted seconds of ``prepare``."""
        return block_order.seconds(problem, cls.cells(problem, problem.count), stable=cls.stable)

    def reserve(self, workspace: Workspace) -> None:
        kinds = self.kinds(workspace)
        block_order.reserve(workspace, kinds, stable=self.stable)

    def kinds(self, workspace: Workspace) -> block_order.Kinds:
        """Return the blocks by which any number of particles up to the capacity is taken."""
        # Any blocks have neighbours together.
        cells_for = functools.partial(self.cells, workspace)
        return workspace.particles.kinds or block_order.kinds_of(cells_for, workspace.capacity)

    def prepare(self, workspace: Workspace) -> None:
        self.order(workspace)

    def taken(self, workspace: Workspace) -> Cells:
        """Return the cells of the blocks by which particles are taken: if they are sorted, of the blocks of that."""
        sorted_by = workspace.particles.by_block
        return self.cells(workspace, workspace.count) if sorted_by is None else sorted_by.blocks.cells

    def order(self, workspace: Workspace) -> block_order.BlockOrder:
        """Return the particles of ``workspace`` by block, sorted now if they are not yet."""
        return block_order.block_order(workspace, self.taken(workspace), stable=self.stable)


# Cells of a block if no method sorts; the larger ones if there are too many blocks of the first.
_CELLS = ((4, 4, 8), block_order.MOST_CELLS)


def cells_to_sort_by(methods: Iterable[type[Method]], sizes: Sizes, count: int) -> Cells:
    """Return the cells of the blocks by which ``order="sorted"`` sorts ``count`` particles.

    Raises
    ------
    ValueError
        If there are too many particles or blocks.
    """
    if count >= 2**31:  # indices of particles are int32
        raise ValueError(f"{count:,} particles are too many for order='sorted', {2**31 - 1:,} at most: use 'caller'.")
    sizes = replace(sizes, count=count)
    for method in (m for m in methods if issubclass(m, ByBlock) and m.sorts):
        if method.refusal(sizes, stable=sizes.deterministic) is None:
            return method.cells(sizes, count)
    for cells in _CELLS:
        reason = block_order.declines(sizes.axes, cells, count, stable=sizes.deterministic)
        if reason is None:
            return cells
    raise ValueError(f"order='sorted' cannot serve this mesh ({reason}): use order='caller'.")
