# SPDX-License-Identifier: BSD-3-Clause
"""Sums of integers by warps that walk: the bits of ``fixed_point``, which adds them particle by particle."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from particlemesh.arrays.operands import Layout, View
from particlemesh.backends.base import Record
from particlemesh.methods.contract import Option, Problem
from particlemesh.methods.launches import Form, Group, Launch
from particlemesh.orders.block_order import blocks_of
from particlemesh.particles.workspace import Sizes, Workspace
from particlemesh.spread.walk import Walk
from particlemesh.walk import patch as patches
from particlemesh.walk.patch import Patch
from particlemesh.walk.walking import Pace

_CROWDED = 3  # particles of a block, from which on narrow patches are faster: they round fewer products
_LONGER = 4  # times the chunks of reals: integers do not drift, and fewer patches are added
# Modelled for an H200, by the bytes of a real: it rounds to 64 bits at an eighth of the rate of products.
_PACE = {size: Pace(7e-6, 1.4e-11, 1.1, 1e11 * size, 9e-8, 3.6e-7, 2.0) for size in (4, 8)}


class FixedWalk(Walk):
    """How ``fixed_point`` adds integers of many particles on GPUs: no method of its own.

    Windows of more than eight nodes along an axis are taken in two pieces along it, each with half of their weights.
    """

    name = "fixed_point"
    options: ClassVar[dict[str, Option]] = {
        "form": Option(None, ("walk", "particle"), "GPUs: add in registers, or in memory; by default by model"),
        "patch": patches.OPTIONS["patch"],
        "chunk": patches.OPTIONS["chunk"],
    }

    @classmethod
    def _pieces(cls, sizes: Sizes) -> tuple[int, list[int]]:
        """Return the nodes of a piece, and the pieces of the window along each axis."""
        support, most = sizes.window.support, patches.SUPPORTS[-1]
        count = -(-support // most)
        return -(-support // count), [1 if axis.support == 1 else count for axis in sizes.axes]

    @classmethod
    def patch_for(cls, sizes: Sizes, count: int) -> Patch:
        nodes, _ = cls._pieces(sizes)
        # With the levels of walks that interpolate: particles are sorted once for both.
        options = {"form": None, "levels": None, "patch": cls.option(sizes, "patch")}
        supports = [min(axis.support, nodes) for axis in sizes.axes]
        return replace(patches.patch_of(sizes, options, count, supports=supports, crowded=_CROWDED), matrix=False)

    @classmethod
    def refusal(cls, sizes: Sizes, *, stable: bool = False) -> str | None:
        if sizes.window.support == 1:
            return "windows of one node"
        return patches.unordered(sizes, cls.patch_for(sizes, sizes.count), stable=stable)

    @classmethod
    def cost(cls, problem: Problem) -> tuple[float, float]:
        patch, (_, pieces) = cls.patch_for(problem, problem.count), cls._pieces(problem)
        seconds = cls.seconds(problem, patch, _PACE[problem.dtype.itemsize], spreads=True)
        return cls.ordering(problem), cls.slowed(problem) * math.prod(pieces) * seconds

    def compile(self, workspace: Workspace, form: Form, group: Group, field: Layout, *values: Layout | None) -> Launch:
        nodes, counts = self._pieces(workspace)
        facts = {"SUPPORT": nodes, "SYMMETRIC": 0, "FIELD_IS_WIDE": 1}  # weights as in stencil.h; fields of any size
        for name, axis in zip("XYZ", workspace.axes, strict=True):
            facts[f"SUPPORT_{name}"] = min(axis.support, nodes)
        walk = self._walk(workspace, "spread/fixed_walk.c", group, 1, field, form, **facts)
        blocks, table = blocks_of(workspace.axes, self.patch(workspace).cells), workspace.window.table
        table = np.concatenate([table, np.zeros((nodes * max(counts) - len(table), table.shape[1]))])
        pieces = []
        for which in itertools.product(*map(range, counts)):
            x, y, z = (b + nodes * n for b, n in zip(blocks.base, which, strict=True))
            weights = np.concatenate([table[nodes * n : nodes * (n + 1)].ravel() for n in which])
            window = Record(f"={weights.size}{workspace.dtype.char}", *weights)
            pieces.append((replace(blocks, base=(x, y, z)).record, window))
        return walk, pieces

    def add(self, workspace: Workspace, values: View, launch: Launch, to: tuple[Any, ...], *records: Record) -> None:
        """Add to integers; ``to`` has them, bounds that fix their units, and the place of the first bound."""
        walk, pieces = launch
        for piece in pieces:
            self._launch(workspace, walk, values, to, *records, piece=piece, longer=_LONGER)
