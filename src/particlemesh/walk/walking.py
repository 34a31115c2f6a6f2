# SPDX-License-Identifier: BSD-3-Clause
"""Methods that walk: their blocks of particles, and the model of their times."""

from __future__ import annotations

import math
from typing import ClassVar, NamedTuple

from particlemesh.methods.contract import Option, Problem
from particlemesh.methods.launches import MOST
from particlemesh.orders import block_order
from particlemesh.particles.workspace import Sizes, Workspace
from particlemesh.walk import patch
from particlemesh.walk.by_block import ByBlock


class Pace(NamedTuple):
    """What a walk takes on one device, in seconds (and bytes a second): of its model."""

    start: float
    each: float  # a particle, if all warps have enough to do
    product: float  # and more, relatively, for each product of matrices
    rate: float  # what windows have passed
    step: float  # a product of eight particles, if nothing is done beside it
    move: float  # a move of the window, if nothing is done beside it
    far: float  # and more, relatively, if the field is beyond the cache


class Walking(ByBlock):
    """A method that walks along x with a window of the mesh in registers (``walk.py``)."""

    options: ClassVar[dict[str, Option]] = patch.OPTIONS

    def __init__(self) -> None:
        super().__init__()
        self._latest: tuple[int, patch.Walk] | None = None

    @classmethod
    def found(cls, sizes: Sizes, count: int) -> patch.Walk:
        """Return the walk for ``count`` particles."""
        return patch.walk_of(sizes, {name: cls.option(sizes, name) for name in patch.OPTIONS}, count)

    @classmethod
    def cells(cls, sizes: Sizes, count: int) -> tuple[int, int, int]:
        return cls.found(sizes, count).cells

    @classmethod
    def declines(cls, problem: Problem) -> str | None:
        chosen = {name: cls.option(problem, name) for name in patch.OPTIONS}
        return patch.declines(problem, chosen, stable=cls.stable)

    @classmethod
    def slowed(cls, problem: Problem) -> int:
        """Return by how much all is slower where lanes have no registers in common: every exchange is a barrier there.

        Compiling takes long there, too.
        """
        return 1 if problem.backend.facts()["HAS_WARP"] else 1000

    @classmethod
    def passed(cls, problem: Problem, found: patch.Walk) -> tuple[float, float]:
        """Return how many reals windows pass, on all lines, and how often a window moves on to other particles.

        Both of particles that lie anywhere in the part of the box, and in the layers of it, that they fill.
        """
        axes = problem.axes
        blocks_along = block_order.blocks_of(axes, found.cells).counts
        along_x, *line = (
            axis.extent / count for axis, count in zip(axes, blocks_along, strict=True)
        )  # cells, the mean
        lines = math.prod(cls._met(problem, n) for n in line)
        levels = problem.nodes * problem.filled / math.prod(line) * lines
        each = problem.count / levels  # particles of a level of a line
        blocks = levels / along_x * cls._met(problem, along_x)
        moves = -blocks * math.expm1(-problem.count / blocks)
        return levels * -math.expm1(-each * found.levels) * 64 * found.tiles * problem.components, moves

    @staticmethod
    def _met(problem: Problem, cells: float) -> float:
        """Return which part of blocks with so many cells along an axis has a layer with particles."""
        return min(1.0, problem.occupied * cells)

    @classmethod
    def most_moves(cls, problem: Problem, found: patch.Walk, chunk: int) -> float:
        """Return how many moves that warp makes of its ``chunk`` particles that makes most.

        Where blocks do not divide the box the last ones along y and z are thin, and have fewer particles for each move.
        """
        axes = problem.axes
        extents = [axis.extent for axis in axes]
        cells = list(map(min, found.cells, extents))
        last = block_order.blocks_of(axes, found.cells).last
        y, z = (min(1.0, here / n) for here, n in zip(last[1:], cells[1:], strict=True))
        if problem.filled < 0.9:
            y = z = 1.0  # at the edge of the box is nobody
        block = max(problem.count, 1) / problem.filled * math.prod(n / e for n, e in zip(cells, extents, strict=True))
        line = block * extents[0] / cells[0]  # its particles
        met = math.prod(cls._met(problem, n) for n in cells)

        def moves(thin: float) -> float:
            return -math.expm1(-block * thin / met) / (block * thin / met)  # for each particle

        # Particles of lines alike that follow each other; how thin these are; and those beside them.
        kinds = (math.inf, 1.0, 1.0), (line * z, z, 1.0), (math.inf, y, y), (line * y * z, y * z, y)
        return max(min(chunk, n) * moves(own) + max(chunk - n, 0) * moves(beside) for n, own, beside in kinds)

    @classmethod
    def seconds(cls, problem: Problem, found: patch.Walk, pace: Pace, *, spreads: bool) -> float:
        """Return how long a walk takes: what all warps do, or, where they are few, what is waited for the slowest."""
        products = found.levels * found.tiles * problem.components
        chunk = min(patch.chunk_of(problem, found, min(problem.components, MOST), spreads=spreads), problem.count)
        ends = problem.count / max(chunk, 1) * 64 * products  # there the whole window leaves
        left = cls.passed(problem, found)[0] + ends
        busy = problem.count * pace.each * (1 + pace.product * products) + left * problem.dtype.itemsize / pace.rate
        moves = cls.most_moves(problem, found, chunk)
        move = pace.move * (1 + pace.far * problem.beyond_cache)
        return pace.start + math.hypot(busy, (chunk / 8 + moves) * products * pace.step + moves * move)

    def walk(self, workspace: Workspace) -> patch.Walk:
        """Return the walk for the plan's particles."""
        count = self.expected(workspace)
        if self._latest is None or self._latest[0] != count:
            self._latest = count, self.found(workspace, count)
        return self._latest[1]

    def taken(self, workspace: Workspace, sorted_by: tuple[int, int, int] | None) -> tuple[int, int, int]:
        return self.walk(workspace).cells  # no others fit its window
