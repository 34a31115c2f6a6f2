# SPDX-License-Identifier: BSD-3-Clause
"""Methods that walk: their blocks of particles, and the model of their times."""

from __future__ import annotations

import functools
import math
from typing import Any, ClassVar, NamedTuple

from particlemesh.methods.contract import Option, Problem
from particlemesh.methods.launches import MOST
from particlemesh.orders import block_order
from particlemesh.orders.block_order import Cells
from particlemesh.particles.workspace import Sizes, Workspace
from particlemesh.walk import patch as patches
from particlemesh.walk.by_block import ByBlock
from particlemesh.walk.patch import Patch


class Pace(NamedTuple):
    """The constants of the model of a walk's time on one device, in seconds and bytes per second."""

    start: float
    each: float  # a particle, if all warps are busy
    product: float  # added to each, relative to it, per matrix product
    rate: float  # bytes per second of nodes that patches pass
    step: float  # a product of eight particles, if nothing else runs
    move: float  # a move of the patch, if nothing else runs
    far: float  # added to a move, relative to it, if the field is beyond the cache


class Walking(ByBlock):
    """A method that walks along x with a patch of the mesh in registers (``walk.py``)."""

    options: ClassVar[dict[str, Option]] = patches.OPTIONS

    def __init__(self) -> None:
        super().__init__()
        self._latest: tuple[int, Patch] | None = None

    @classmethod
    def patch_for(cls, sizes: Sizes, count: int) -> Patch:
        """Return the patch for ``count`` particles."""
        return patches.patch_of(sizes, cls._chosen(sizes), count)

    @classmethod
    def cells(cls, sizes: Sizes, count: int) -> Cells:
        return cls.patch_for(sizes, count).cells

    @classmethod
    def refusal(cls, sizes: Sizes, *, stable: bool) -> str | None:
        return patches.declines(sizes, cls._chosen(sizes), stable=stable)

    @classmethod
    def _chosen(cls, sizes: Sizes) -> dict[str, Any]:
        return {name: cls.option(sizes, name) for name in patches.OPTIONS}

    @classmethod
    def slowed(cls, problem: Problem) -> int:
        """Return the factor by which a walk is slower on devices where lanes exchange registers by barriers.

        Compiling takes long on those devices.
        """
        return 1 if problem.backend.facts()["HAS_WARP"] else 1000

    @classmethod
    def passed(cls, problem: Problem, patch: Patch) -> tuple[float, float]:
        """Return how many reals patches pass, on all lines, and how often a patch moves on to other particles.

        Particles lie anywhere in the part of the box, and in the layers of it, that they fill.
        """
        axes = problem.axes
        blocks_along = block_order.blocks_of(axes, patch.cells).counts
        along_x, *line = (
            axis.extent / count for axis, count in zip(axes, blocks_along, strict=True)
        )  # cells, the mean
        lines = math.prod(cls._share(problem, n) for n in line)
        levels = problem.nodes * problem.filled / math.prod(line) * lines
        each = problem.count / levels  # particles of a level of a line
        blocks = levels / along_x * cls._share(problem, along_x)
        moves = -blocks * math.expm1(-problem.count / blocks)
        return levels * -math.expm1(-each * patch.levels) * 64 * patch.tiles * problem.components, moves

    @staticmethod
    def _share(problem: Problem, cells: float) -> float:
        """Return the share of blocks with ``cells`` cells along an axis that have a layer with particles."""
        return min(1.0, problem.occupied * cells)

    @classmethod
    def most_moves(cls, problem: Problem, patch: Patch, chunk: int) -> float:
        """Return the most moves that any warp makes for its ``chunk`` particles.

        If blocks do not divide the box, the last ones along y and z are thin and have fewer particles per move.
        """
        axes = problem.axes
        extents = [axis.extent for axis in axes]
        cells = list(map(min, patch.cells, extents))
        last = block_order.blocks_of(axes, patch.cells).last
        y, z = (min(1.0, here / n) for here, n in zip(last[1:], cells[1:], strict=True))
        if problem.filled < 0.9:
            y = z = 1.0  # no particles at the edge of the box
        block = max(problem.count, 1) / problem.filled * math.prod(n / e for n, e in zip(cells, extents, strict=True))
        line = block * extents[0] / cells[0]  # its particles
        met = math.prod(cls._share(problem, n) for n in cells)

        def moves(thin: float) -> float:
            return -math.expm1(-block * thin / met) / (block * thin / met)  # per particle

        # Particles of consecutive lines that are equally thin; how thin these lines are; and the lines after them.
        runs = (math.inf, 1.0, 1.0), (line * z, z, 1.0), (math.inf, y, y), (line * y * z, y * z, y)
        return max(min(chunk, n) * moves(thin) + max(chunk - n, 0) * moves(after) for n, thin, after in runs)

    @classmethod
    def seconds(cls, problem: Problem, patch: Patch, pace: Pace, *, spreads: bool) -> float:
        """Return how long a walk takes: the work of all warps or, if they are few, the time of the slowest."""
        products = patch.levels * patch.tiles * problem.components
        chunk = min(patches.chunk_of(problem, patch, min(problem.components, MOST), spreads=spreads), problem.count)
        ends = problem.count / max(chunk, 1) * 64 * products  # where the whole patch is written
        left = cls.passed(problem, patch)[0] + ends
        busy = problem.count * pace.each * (1 + pace.product * products) + left * problem.dtype.itemsize / pace.rate
        moves = cls.most_moves(problem, patch, chunk)
        move = pace.move * (1 + pace.far * problem.beyond_cache)
        return pace.start + math.hypot(busy, (chunk / 8 + moves) * products * pace.step + moves * move)

    def patch(self, workspace: Workspace) -> Patch:
        """Return the patch for the particles of ``workspace``."""
        count = workspace.count
        if self._latest is None or self._latest[0] != count:
            self._latest = count, self.patch_for(workspace, count)
        return self._latest[1]

    def kinds(self, workspace: Workspace) -> block_order.Kinds:
        return block_order.kinds_of(functools.partial(self.cells, workspace), workspace.capacity)

    def taken(self, workspace: Workspace) -> Cells:
        return self.patch(workspace).cells  # no others fit its patch
