# SPDX-License-Identifier: BSD-3-Clause
"""Interpolation column by column: a work-group walks along x, with the nodes of a few levels in local memory."""

from __future__ import annotations

import functools
import math
from typing import Any, ClassVar

import numpy as np

from particlemesh.interpolate.shares import Lanes, Local
from particlemesh.interpolate.tile import Tile
from particlemesh.methods.contract import Option
from particlemesh.orders import block_tiles
from particlemesh.orders.block_order import Blocks
from particlemesh.orders.block_tiles import Tiles
from particlemesh.particles.stencil import Axis
from particlemesh.particles.workspace import Sizes

_STEP = 4  # levels of a step
_BEGIN = 2  # steps that take as long as the beginning of a tile
_THREADS = 128  # of a group
_LEVELS = 96  # of a tile at most: groups on longer ways get out of step, and read nodes that they share from far
_LEAST, _PARTS = 1024, 4  # particles of a part at least; parts of a group, where they have more


class Ring(Tile):
    """Columns of blocks, with the levels that stencils reach on a ring in local memory; lanes share particles.

    A group walks along x. A step copies only levels that the step before did not have, while the group interpolates.
    Otherwise this is ``tile``: here a tile is a piece of a column, many steps long.
    """

    name = "ring"
    kernel = ("interpolate/ring.c", "interpolate_ring")
    times: ClassVar[tuple[float, ...]] = (
        4.2e12,
        1.85e-11,
        2.8e-11,
        4.6e-14,
    )  # half of the table is 0.8 to 1.2 of the model
    apart = True
    offset_bytes = 0
    options: ClassVar[dict[str, Option]] = Tile.options | {
        "shape": Option(None, tuple, "levels of a step, and cells across a column, rounded to blocks"),
        "steps": Option(None, range(1, 2**14), "steps of a tile"),
        "threads": Option(_THREADS, range(32, 513, 32), "work-items of a group, where lanes are a warp"),
        "particles": Option(None, range(32, 2**20), "particles of a group at most"),
    }

    @classmethod
    def copied(cls, sizes: Sizes, blocks: Blocks, tiles: Tiles, taken: float, more: float) -> float:
        levels, *across = cls.held(sizes, blocks, tiles)
        walked = taken * tiles.cells[0] + more * levels / 2 + (taken + more) * (sizes.axes[0].support - 1)
        return walked * math.prod(n + axis.support - 1 for n, axis in zip(across, sizes.axes[1:], strict=True))

    @classmethod
    def busy(cls, sizes: Sizes) -> float:
        return 0.6 * cls._at_once(sizes)

    # ---- the tiles -------------------------------------------------------------------------------------------------

    @classmethod
    def step(cls, sizes: Sizes, blocks: Blocks) -> int:
        """Return the blocks of a step along x."""
        shape = cls.option(sizes, "shape")
        levels = _STEP if shape is None else shape[0] if len(shape) == 3 else 1
        return min(blocks.counts[0], max(1, round(levels / blocks.cells[0])))

    @classmethod
    def tiles(cls, sizes: Sizes, count: int, blocks: Blocks) -> Tiles:
        shape, step = cls.option(sizes, "shape"), cls.step(sizes, blocks)
        y, z = cls.across(sizes, blocks) if shape is None else block_tiles.across(blocks, (1, *shape)[-2:])
        columns = -(-blocks.counts[1] // y) * -(-blocks.counts[2] // z)
        steps = cls.option(sizes, "steps") or _steps(
            blocks.counts[0], step, max(1, _LEVELS // (step * blocks.cells[0])), columns, cls._at_once(sizes)
        )
        return block_tiles.tiles_of(blocks, (step * steps, y, z))

    @classmethod
    def across(cls, sizes: Sizes, blocks: Blocks) -> tuple[int, int]:
        """Return the blocks across a column, along y and z."""
        parts = cls.reals_of(sizes)
        lanes, size = cls.lanes(sizes, parts), sizes.dtype.itemsize
        groups = cls.resident(sizes, parts, cls.threads(sizes, lanes, sizes.count))
        room = cls.room(sizes, lanes, groups, sizes.count)
        return _across(sizes.axes, blocks, lanes, parts, size, cls.step(sizes, blocks), room)

    @classmethod
    def held(cls, sizes: Sizes, blocks: Blocks, tiles: Tiles) -> tuple[int, int, int]:
        return 2 * cls.step(sizes, blocks) * blocks.cells[0], *tiles.cells[1:]

    @classmethod
    def facts(cls, sizes: Sizes, blocks: Blocks, tiles: Tiles, local: Local) -> dict[str, int]:
        step = cls.step(sizes, blocks)
        return {"STEP": step * blocks.cells[0], "STEP_BLOCKS": step}

    @classmethod
    def threads(cls, sizes: Sizes, lanes: Lanes, count: int) -> int:
        return cls.option(sizes, "threads") if sizes.backend.facts()["HAS_WARP"] else sizes.backend.group_size

    @classmethod
    def resident(cls, sizes: Sizes, parts: int, threads: int) -> int:
        wide = parts * sizes.dtype.itemsize >= 16
        support = sizes.window.support
        known = 2 if parts * sizes.dtype.itemsize > 16 or support > 8 else 3 if wide and support > 4 else 4
        return cls.option(sizes, "groups") or max(1, known * _THREADS // threads)

    @classmethod
    def most(cls, sizes: Sizes, count: int) -> int:
        share = count // (_PARTS * cls._at_once(sizes))
        return cls.option(sizes, "particles") or max(_LEAST, 1 << max(0, share - 1).bit_length())

    @classmethod
    def _at_once(cls, sizes: Sizes) -> int:
        parts = cls.reals_of(sizes)
        return sizes.backend.units * cls.resident(sizes, parts, cls.threads(sizes, cls.lanes(sizes, parts), 0))


@functools.lru_cache(maxsize=1024)
def _across(
    axes: tuple[Axis, Axis, Axis], blocks: Blocks, lanes: Lanes, parts: int, size: int, step: int, room: int
) -> tuple[int, int]:
    """Return the blocks across a column, along y and z, that copy the fewest nodes in ``room`` bytes."""
    y, along_z = (np.arange(1, min(block_tiles.MOST_LINES, count) + 1) for count in blocks.counts[1:])
    tried: list[Any] = []
    for z in along_z:
        cells = block_tiles.cells_of(blocks, (step, y, z))
        held = (2 * step * blocks.cells[0], *cells[1:])
        local = Local.of(axes, held, lanes, parts, 16 // size, size, apart=True)
        columns = -(-blocks.counts[1] // y) * -(-blocks.counts[2] // z)
        tried.append([local.copied * columns, local.reals])
    copied, reals = np.stack(tried, 2)  # (y, z)
    allowed = y[:, None] * along_z <= block_tiles.MOST_LINES
    j, k = block_tiles.best_of(allowed, reals * size <= room, copied, reals)
    return int(y[j]), int(along_z[k])


def _steps(along: int, step: int, most: int, columns: int, at_once: int) -> int:
    """Return the steps of a tile, ``most`` of them, with which all tiles take least, ``at_once`` at a time."""

    def turns(steps: int) -> int:
        tiles = columns * -(-along // (step * steps))
        return -(-tiles // at_once) * (steps + _BEGIN)

    return min(range(1, min(most, -(-along // step)) + 1), key=turns)
