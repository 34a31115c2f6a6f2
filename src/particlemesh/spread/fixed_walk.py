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

_ADDED = 0.65  # products that are rounded in the time of an addition in memory
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
        **{name: patches.OPTIONS[name] for name in ("patch", "chunk")},
    }

    @classmethod
    def _pieces(cls, sizes: Sizes) -> tuple[int, int]:
        """Return the nodes of a piece along an axis, and the pieces."""
        support = sizes.window.support
        count = -(-support // patches.SUPPORTS[-1])
        return -(-support // count), count

    @classmethod
    def patch_for(cls, sizes: Sizes, count: int) -> Patch:
        supports = [min(axis.support, cls._pieces(sizes)[0]) for axis in sizes.axes]
        # With the levels of walks that interpolate: particles are sorted once for both.
        options, width = {"form": None, "levels": None}, cls.option(sizes, "patch")
        narrow, wide = (patches.patch_of(sizes, {**options, "patch": n}, count, supports) for n in (8, 16))
        extents = [axis.extent for axis in sizes.axes]
        crowd = count * math.prod(min(n, e) / e for n, e in zip(narrow.cells, extents, strict=True))
        # A narrow patch rounds half the products of each particle, and more sums are added.
        more = 64 * narrow.cells[0] * (1 - 2 * narrow.cells[2] / wide.cells[2])
        patch = narrow if width == 8 or (width is None and crowd * narrow.levels >= _ADDED * more) else wide
        return replace(patch, matrix=False, levels=patch.levels if supports[0] > 1 else 1)

    @classmethod
    def refusal(cls, sizes: Sizes, *, stable: bool = False) -> str | None:
        if sizes.window.support == 1:
            return "windows of one node"
        return patches.unordered(sizes, cls.patch_for(sizes, sizes.count), stable=stable)

    @classmethod
    def cost(cls, problem: Problem) -> tuple[float, float]:
        patch, pieces = cls.patch_for(problem, problem.count), cls._pieces(problem)[1] ** problem.mesh.ndim
        seconds = cls.seconds(problem, patch, _PACE[problem.dtype.itemsize], spreads=True)
        return cls.ordering(problem), cls.slowed(problem) * pieces * seconds

    def compile(self, workspace: Workspace, form: Form, group: Group, field: Layout, *values: Layout | None) -> Launch:
        (nodes, count), axes, table = self._pieces(workspace), workspace.axes, workspace.window.table
        supports = {f"SUPPORT_{name}": min(axis.support, nodes) for name, axis in zip("XYZ", axes, strict=True)}
        walk = self._walk(
            workspace, "spread/fixed_walk.c", group, 1, field, form, **supports, SUPPORT=nodes, PIECES=count,
            SYMMETRIC=0, FIELD_IS_WIDE=1,
        )  # fmt: skip  # weights as in stencil.h; fields of any size
        blocks, rows = blocks_of(axes, self.patch(workspace).cells), np.zeros((count * nodes, table.shape[1]))
        rows[: len(table)] = table
        pieces = []
        for first in itertools.product(*(range(0, axis.support, nodes) for axis in axes)):
            x, y, z = (b + n for b, n in zip(blocks.base, first, strict=True))
            window = Record(f"=3q{rows.size}{workspace.dtype.char}", *first, *rows.ravel())
            pieces.append((replace(blocks, base=(x, y, z)).record, window if count > 1 else workspace.window_record))
        return walk, pieces

    def add(self, workspace: Workspace, values: View, launch: Launch, to: tuple[Any, ...], *records: Record) -> None:
        """Add to integers; ``to`` has them, bounds that fix their units, and the place of the first bound."""
        walk, pieces = launch
        for piece in pieces:
            self._launch(workspace, walk, values, to, *records, piece=piece, longer=_LONGER)
