# SPDX-License-Identifier: BSD-3-Clause
"""Tiles of blocks: boxes of neighbouring blocks of an order by blocks, listed once per configuration.

A tile's particles are a few runs of that order, so methods that work tile by tile share it with those that walk. Only
the device knows which tiles have particles, and how many; the host does not wait for it. A list on the device has a
part for each tile that has particles, and more where they crowd.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from particlemesh.backends.base import Record, kept
from particlemesh.orders.block_order import BlockOrder, Blocks
from particlemesh.particles.workspace import Workspace

MOST_LINES = 32  # of blocks along x in a tile: a lane of a warp has one
_U32 = np.dtype(np.uint32)


@dataclass(frozen=True)
class Tiles:
    """How blocks are put together to tiles.

    Attributes
    ----------
    blocks : (3,) ints
        Blocks of a tile along each axis.
    counts : (3,) ints
        Tiles along each axis; the last ones may have fewer blocks.
    cells : (3,) ints
        The most cells of a tile along each axis.
    """

    blocks: tuple[int, int, int]
    counts: tuple[int, int, int]
    cells: tuple[int, int, int]

    @property
    def total(self) -> int:
        """Tiles in all."""
        return math.prod(self.counts)

    @property
    def lines(self) -> int:
        """Lines of blocks in a tile."""
        return self.blocks[1] * self.blocks[2]

    @property
    def record(self) -> Record:
        """``Tiles`` of orders/block_tiles.h."""
        return Record("=6i", *self.blocks, *self.counts)


@dataclass(frozen=True)
class Parts:
    """The tiles that have particles.

    Attributes
    ----------
    parts : (4 * most,) uint32
        Of each part its tile's first block along each axis, and its number in the tile.
    listed : (1,) uint32
        How many parts there are.
    most : int
        The most parts that there can be.
    """

    parts: Any
    listed: Any
    most: int


def tiles_of(blocks: Blocks, along: tuple[int, ...]) -> Tiles:
    """Return tiles of so many blocks along each axis, or of all blocks where there are fewer."""
    x, y, z = (min(n, count) for n, count in zip(along, blocks.counts, strict=True))
    tile = (x, y, z)
    cells = map(int, cells_of(blocks, tile))
    counts = (-(-count // n) for n, count in zip(tile, blocks.counts, strict=True))
    return Tiles(tile, (*counts,), (*cells,))  # type: ignore[arg-type]


def cells_of(blocks: Blocks, tile: tuple[Any, Any, Any]) -> list[Any]:
    """Return the most cells of so many blocks along each axis: numbers, or arrays of them."""
    sizes = zip(tile, blocks.cells, blocks.counts, blocks.wide, blocks.narrow, strict=True)
    return [np.minimum(n * c, wide * c + (count - wide) * narrow) for n, c, count, wide, narrow in sizes]


def best_of(allowed: Any, fits: Any, cost: Any, memory: Any, ties: Any = 0.0) -> tuple[int, ...]:
    """Return where of allowed tiles the best is: of those that fit the least ``cost``, else the least memory.

    Of equals it is that with the least ``ties``, of these the first. All are arrays, which broadcast.
    """
    ranks = np.where(allowed & fits, cost, np.inf)
    if np.isinf(ranks).all():
        ranks = np.where(allowed, memory, np.inf)
    best = np.where(ranks == ranks.min(), ties, np.inf).argmin()
    return tuple(map(int, np.unravel_index(best, ranks.shape)))


def across(blocks: Blocks, cells: Sequence[int]) -> tuple[int, int]:
    """Return the blocks along y and z that are nearest to so many ``cells``, and as many lines as a tile may have."""
    y, z = (max(1, round(n / c)) for n, c in zip(cells, blocks.cells[1:], strict=True))
    y = min(y, blocks.counts[1], MOST_LINES)
    return y, max(1, min(z, MOST_LINES // y))


def most_parts(tiles: Tiles, count: int, size: int) -> int:
    """Return the most parts, of ``size`` particles, that ``count`` particles can have."""
    return min(tiles.total, count) + count // size


def parts_bytes(tiles: Tiles, count: int, size: int) -> int:
    """Return the bytes that the list takes."""
    return 16 * most_parts(tiles, count, size) + 4


def reserve(workspace: Workspace, most: int) -> tuple[Any, Any]:
    """Return memory for so many parts, and for their number."""
    parts = workspace.scratch("tiles.parts", (4 * max(most, 1),), _U32)
    return parts, workspace.scratch("tiles.listed", (1,), _U32)


def parts_of(workspace: Workspace, order: BlockOrder, tiles: Tiles, size: int) -> Parts:
    """Return the tiles of ``order`` that have particles, in parts of at most ``size`` particles."""
    key = "parts", order.blocks, tiles, size
    listed: Parts | None = workspace.orders.get("tiles of blocks", {}).get(key)
    if listed is None:
        most = most_parts(tiles, workspace.count, size)
        parts, number = reserve(workspace, most)
        backend = kept(workspace.backend, workspace.memory.kernels)
        backend.clear(number)
        run = backend.kernel("orders/block_tiles.c", "list_parts", {"REAL_IS_DOUBLE": 0})
        run(tiles.total, order.start, number, parts, size, order.blocks.record, tiles.record)
        listed = Parts(parts, number, most)
        workspace.orders["tiles of blocks"] = {key: listed}  # one memory: the latest only
    return listed
