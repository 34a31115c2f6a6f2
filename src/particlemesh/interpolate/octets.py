# SPDX-License-Identifier: BSD-3-Clause
"""Interpolation column by column: matrix instructions multiply nodes by the weights of eight particles at a time."""

from __future__ import annotations

import functools
import itertools
import math
import operator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from particlemesh.interpolate.ring import Ring
from particlemesh.interpolate.shares import Lanes, Local
from particlemesh.methods.contract import Option, Problem
from particlemesh.methods.launches import MOST
from particlemesh.orders import block_order
from particlemesh.orders.block_order import Blocks, Cells
from particlemesh.orders.block_tiles import MOST_LINES, Tiles, best_of
from particlemesh.particles.stencil import Axis
from particlemesh.particles.workspace import Sizes

_ROWS, _SLICE = 16, 4  # nodes of a matrix instruction along y, and along z
_OCTET = 8  # particles
_LEVELS = 12  # of a step at most
_THREADS = 384  # of a group


@dataclass(frozen=True)
class OctetLanes(Lanes):
    """The lanes of a warp that reads nodes for eight particles (``octets.h``).

    Attributes
    ----------
    weights : int
        Reals of local memory for the weights of a warp's particles.
    """

    weights: int = 0

    def reads(self, axes: tuple[Axis, Axis, Axis]) -> int:
        x, y, z = (axis.support for axis in axes)
        return -(-(x + 1) * (y + 3) * (z + 2) * self.reals // _OCTET)

    def beside(self, size: int, threads: int) -> int:
        return threads // 32 * self.weights * size


class Octets(Ring):
    """Columns as of ``ring``. A warp reads each node once for up to eight particles, by matrix instructions.

    This is for double precision: windows of many nodes take long where each particle reads all its nodes.
    """

    name = "octets"
    kernel = ("interpolate/octets.c", "interpolate_ring")
    # The order of a particle's sums follows from those it shares instructions with.
    deterministic = order_independent = cut_independent = False
    # For the model (H200): seconds of a step, of a matrix product of a warp; bytes per second that come to a group.
    times: ClassVar[tuple[float, ...]] = (2.5e-6, 1.7e-8, 4.2e10)
    options: ClassVar[dict[str, Option]] = {
        name: option for name, option in Ring.options.items() if name not in ("lanes", "reads", "threads")
    } | {"threads": Option(None, range(32, 513, 32), "work-items of a group, where lanes are a warp")}

    @classmethod
    def declines(cls, problem: Problem) -> str | None:
        if problem.dtype.itemsize == 4:
            return "float32: matrix instructions take 11 bits of each number"
        return super().declines(problem)

    @staticmethod
    def reals_of(sizes: Sizes) -> int:
        return min(max(sizes.components, 2), MOST)  # a complex field has two, whatever the plan expects

    @classmethod
    def cells(cls, sizes: Sizes, count: int) -> Cells:
        _, y, z = (axis.support for axis in sizes.axes)
        along_y = max(1, min(7, _ROWS + 1 - y))
        along_z = -(-(z + 1) // _SLICE) * _SLICE + 1 - z
        return min(2, along_y, along_z), along_y, along_z

    @classmethod
    def step(cls, sizes: Sizes, blocks: Blocks) -> int:
        shape = cls.option(sizes, "shape")
        if shape is None:
            return cls._shape(sizes, blocks)[0]
        return min(blocks.counts[0], max(1, round((shape[0] if len(shape) == 3 else 1) / blocks.cells[0])))

    @classmethod
    def across(cls, sizes: Sizes, blocks: Blocks) -> tuple[int, int]:
        return cls._shape(sizes, blocks)[1:]

    @classmethod
    def _shape(cls, sizes: Sizes, blocks: Blocks) -> tuple[int, int, int]:
        """Return the blocks of a step, along x and across."""
        parts, size = cls.reals_of(sizes), sizes.dtype.itemsize
        lanes = cls.lanes(sizes, parts)
        groups = cls.resident(sizes, parts, cls.threads(sizes, lanes, sizes.count))
        room = cls.room(sizes, lanes, groups, sizes.count)
        return _largest(sizes.axes, blocks, lanes, parts, size, room)

    @classmethod
    def held(cls, sizes: Sizes, blocks: Blocks, tiles: Tiles) -> tuple[int, int, int]:
        return _held(blocks, (cls.step(sizes, blocks), *tiles.blocks[1:]))

    @classmethod
    def lanes(cls, sizes: Sizes, parts: int) -> OctetLanes:
        # Lanes 4g + t read node t of row g: sixteen bytes of two rows at a time, or eight of four.
        reals = 2 if parts % 2 == 0 else 1
        return OctetLanes(4, 4 // reals, reals, 1, 1, weights=_OCTET * (3 * sizes.window.support + 1))

    @classmethod
    def threads(cls, sizes: Sizes, lanes: Lanes, count: int) -> int:
        if not sizes.backend.facts()["HAS_WARP"]:
            return sizes.backend.group_size
        threads = cls.option(sizes, "threads") or _THREADS
        while threads > 32 and lanes.beside(sizes.dtype.itemsize, threads) > cls.declared:
            threads //= 2
        return threads

    @classmethod
    def resident(cls, sizes: Sizes, parts: int, threads: int) -> int:
        return cls.option(sizes, "groups") or 1

    @classmethod
    def facts(cls, sizes: Sizes, blocks: Blocks, tiles: Tiles, local: Local) -> dict[str, int]:
        more = {"BLOCK_Y": blocks.cells[1], "BLOCK_Z": blocks.cells[2], "WITH_MMA": 1}
        return super().facts(sizes, blocks, tiles, local) | more

    @classmethod
    def cost(cls, problem: Problem) -> tuple[float, float]:
        blocks = block_order.blocks_of(problem.axes, cls.cells(problem, problem.count))
        tiles, parts = cls.tiles(problem, problem.count, blocks), cls.reals_of(problem)
        levels = cls.step(problem, blocks) * blocks.cells[0]
        steps = tiles.total * tiles.cells[0] / levels * problem.filled
        of_line = max(problem.count, 1) / (steps * tiles.lines)  # particles of a line in a step
        octets = tiles.lines * (of_line / _OCTET - math.expm1(-of_line) / 2)
        x, y, z = (axis.support for axis in problem.axes)
        rows, slices = -(-(y + blocks.cells[1] - 1) // 8), -(-(z + blocks.cells[2] - 1) // _SLICE)
        products = (min(levels, levels * _OCTET / max(of_line, 1)) + x) * rows * slices * parts
        step, each, bandwidth = cls.times
        _, *across = cls.held(problem, blocks, tiles)
        reached = math.prod(n + axis.support - 1 for n, axis in zip(across, problem.axes[1:], strict=True))
        copied = levels * reached * parts * problem.dtype.itemsize / bandwidth
        warps = cls.threads(problem, cls.lanes(problem, parts), problem.count) // 32
        turns = max(1.0, steps / problem.backend.units) * -(-problem.components // MOST)
        slow = 1 if problem.backend.facts()["HAS_WARP"] else 1000
        seconds = turns * max(copied, step + octets / warps * products * each)
        return cls.ordering(problem) + 4e-6, slow * (8e-6 + seconds)


def _held(blocks: Blocks, along: tuple[Any, ...]) -> tuple[int, int, int]:
    """Return the cells whose stencils are in local memory, for so many blocks of a step along each axis."""
    # Columns are as wide where blocks are narrow: what lies beyond the tile there has weight zero.
    x, y, z = (n * cells for n, cells in zip(along, blocks.cells, strict=True))
    return 2 * x, y + blocks.cells[1] - blocks.narrow[1], z + blocks.cells[2] - blocks.narrow[2]


@functools.lru_cache(maxsize=1024)
def _largest(
    axes: tuple[Axis, Axis, Axis], blocks: Blocks, lanes: OctetLanes, parts: int, size: int, room: int
) -> tuple[int, int, int]:
    """Return the blocks of a step, along x and across, with the most cells in ``room`` bytes.

    A step takes about as long whatever it has, since few of its particles wait for each other.
    """
    most = (max(1, _LEVELS // blocks.cells[0]), MOST_LINES, MOST_LINES)
    along_x, y, along_z = (np.arange(1, min(n, count) + 1) for n, count in zip(most, blocks.counts, strict=True))
    tried: list[Any] = []
    for x, z in itertools.product(along_x, along_z):
        local = Local.of(axes, _held(blocks, (x, y, z)), lanes, parts, 16 // size, size, apart=True)
        tried.append([-math.prod(map(operator.mul, (x, y, z), blocks.cells)), local.reals, local.copied])
    by_line = np.stack(tried, 2).reshape(3, len(y), len(along_x), len(along_z)).swapaxes(1, 2)  # (x, y, z)
    cells, reals, copied = by_line
    allowed = y[:, None] * along_z <= MOST_LINES
    i, j, k = best_of(allowed, reals * size <= room, cells, reals, copied)
    return int(along_x[i]), int(y[j]), int(along_z[k])
