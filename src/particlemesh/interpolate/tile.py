# SPDX-License-Identifier: BSD-3-Clause
"""Interpolation tile by tile: a work-group copies the nodes that a tile's stencils reach to local memory."""

from __future__ import annotations

import functools
import math
from typing import Any, ClassVar

import numpy as np

from particlemesh.arrays.operands import Layout, View
from particlemesh.interpolate.shares import WEIGHTLESS, Lanes, Local, weightless
from particlemesh.methods.contract import Option, Problem
from particlemesh.methods.launches import MOST, Form, Group, Launch, defines, targets, vector, written
from particlemesh.orders import block_order, block_tiles
from particlemesh.orders.block_order import Blocks
from particlemesh.orders.block_tiles import Tiles
from particlemesh.particles.stencil import Axis
from particlemesh.particles.workspace import Sizes, Workspace
from particlemesh.walk import patch as patches
from particlemesh.walk.by_block import ByBlock

_PARTICLES = 1024  # of a work-group at most
# Groups that a multiprocessor has local memory for, by the bytes of a node: they hide each other's copies.
_GROUPS = {4: 6, 8: 3, 12: 3, 16: 2, 24: 2, 32: 2}
# Groups that a multiprocessor has registers for, by the words of a node, for windows of up to 4, 8 and more nodes.
# Without a bound the compiler saves registers until it spills (H200: up to 1.25 times as long).
_RESIDENT = {("float32", 2): (3, 3, None), ("float64", 2): (3, 3, None), ("float64", 4): (3, 2, 2)}
_CROWDED = (
    0.25  # particles per node: above it stencils of wide nodes take longer than copies, and more groups read at once
)
_AT_ONCE = (
    2048  # cells of a multiprocessor: with so few, all tiles run at once, and single precision wants small groups
)
_SMALL = 64 * 1024  # bytes: where a group cannot have more, several groups may run whatever one has
_OF_SYSTEM = 1024  # bytes of local memory of each group, beside the method's
_TILES, _MANY = 4, 16  # tiles of a group, groups of a multiprocessor at least, where its registers are not known
_CACHED = 40e6  # bytes of records and results: more of them come from memory


class Tile(ByBlock):
    """Tiles of blocks, with the nodes that their stencils reach, in local memory; lanes share particles.

    Every group copies the nodes of its tile once, and reads stencils from there. Particles come in the order of a walk,
    so that spreading and interpolation order them once. A tile's particles are one run of that order per line of
    blocks. Crowded tiles are taken by several groups.
    """

    name = "tile"
    kernel: ClassVar = ("interpolate/tile.c", "interpolate_tile")
    # For the model, from an H100's table, half of which is 0.85 to 1.2 of it: bytes copied per second; seconds of a
    # particle, of one whose result comes from memory, and of a byte of local memory that lanes read.
    times: ClassVar[tuple[float, ...]] = (3.8e12, 1.35e-11, 2.8e-11, 4.4e-14)
    apart: ClassVar[bool] = False  # whether a level may be written while others are read
    declared: ClassVar[int] = 48 * 1024  # bytes: what CUDA allows a group in arrays of the kernel, the nodes apart
    offset_bytes: ClassVar[int] = 6144  # of local memory for the places of a tile's rows
    cite = "particlemesh2026"
    deterministic = True
    order_independent = True  # a particle's value does not depend on the others
    options: ClassVar[dict[str, Option]] = {
        "shape": Option(None, tuple, "cells of a tile along each axis, rounded to blocks; by default what fits"),
        "lanes": Option(None, (1, 2, 4, 8), "lanes of a warp that share a particle"),
        "reads": Option(None, (1, 2, 4), "reals that a lane reads from local memory at a time"),
        "threads": Option(None, (32, 64, 128, 192, 256, 384, 512), "work-items of a group, where lanes are a warp"),
        "particles": Option(_PARTICLES, range(32, 2**20), "particles of a group at most"),
        "groups": Option(None, range(1, 33), "groups that a multiprocessor must have registers for"),
    }

    @classmethod
    def declines(cls, problem: Problem) -> str | None:
        shape = cls.option(problem, "shape")
        if shape is not None and len(shape) != problem.mesh.ndim:
            return f"shape {shape} for a {problem.mesh.ndim}-D mesh: it needs one length per axis"
        reason = super().declines(problem)
        if reason is None:
            blocks = block_order.blocks_of(problem.axes, cls.cells(problem, problem.count))
            tiles = cls.tiles(problem, problem.count, blocks)
            # A field may be complex, whatever the plan expects of values.
            needed = cls._local_bytes(problem, blocks, tiles, min(max(problem.components, 2), MOST))
            if needed > problem.backend.local_bytes:
                return f"nodes that take {needed:,} of {problem.backend.local_bytes:,} bytes of local memory"
            if tiles.total >= 2**31:
                return "2**31 tiles or more"
        return reason

    @staticmethod
    def reals_of(sizes: Sizes) -> int:
        """Return the reals of a node that local memory is planned for."""
        # A complex field has two reals, whatever the plan expects: tiles that fill all memory must hold them.
        return min(max(sizes.components, 2 if sizes.backend.local_bytes <= _SMALL else 1), MOST)

    @classmethod
    def most(cls, sizes: Sizes, count: int) -> int:
        """Return the most particles that a group takes at a time, of ``count``."""
        return int(cls.option(sizes, "particles"))

    @classmethod
    def held(cls, sizes: Sizes, blocks: Blocks, tiles: Tiles) -> tuple[int, int, int]:
        """Return the cells whose stencils are in local memory at a time."""
        return tiles.cells

    @classmethod
    def facts(cls, sizes: Sizes, blocks: Blocks, tiles: Tiles, local: Local) -> dict[str, int]:
        """Return what the kernel knows of nodes along x when it is compiled."""
        return {"TILE_X": local.nodes[0]}

    @classmethod
    def _local_bytes(cls, sizes: Sizes, blocks: Blocks, tiles: Tiles, parts: int) -> int:
        """Return the bytes of local memory of a group, for nodes of ``parts`` reals."""
        lanes, size = cls.lanes(sizes, parts), sizes.dtype.itemsize
        held = cls.held(sizes, blocks, tiles)
        nodes = Local.of(sizes.axes, held, lanes, parts, 16 // size, size, apart=cls.apart).reals * size
        return nodes + cls.offset_bytes + lanes.beside(size, cls.threads(sizes, lanes, sizes.count))

    @classmethod
    def at_once(cls, sizes: Sizes) -> int:
        blocks = block_order.blocks_of(sizes.axes, cls.cells(sizes, sizes.count))
        tiles = cls.tiles(sizes, sizes.count, blocks)
        return MOST if cls._local_bytes(sizes, blocks, tiles, MOST) <= sizes.backend.local_bytes else 2

    @classmethod
    def scratch_bytes(cls, problem: Problem) -> int:
        blocks = block_order.blocks_of(problem.axes, cls.cells(problem, problem.count))
        listed = block_tiles.parts_bytes(cls.tiles(problem, problem.count, blocks), problem.count, _PARTICLES)
        return super().scratch_bytes(problem) + listed

    @classmethod
    def cost(cls, problem: Problem) -> tuple[float, float]:
        blocks = block_order.blocks_of(problem.axes, cls.cells(problem, problem.count))
        tiles = cls.tiles(problem, problem.count, blocks)
        size = problem.components * problem.dtype.itemsize
        crowd = max(problem.count, 1) * math.prod(tiles.cells) / (cls._everywhere(problem) * problem.filled)
        taken = tiles.total * problem.filled * -math.expm1(-crowd)
        more = problem.count / cls.most(problem, problem.count)
        # Copies; each particle, with its result beyond the caches; stencils read from local memory.
        bandwidth, each, far, byte = cls.times
        moved = problem.count * (4 * problem.dtype.itemsize + size)
        if moved > _CACHED and not problem.in_order:
            each += far * (1 - _CACHED / moved)
        reads = cls.lanes(problem, cls.reals_of(problem)).reads(problem.axes) * problem.dtype.itemsize
        copied = cls.copied(problem, blocks, tiles, taken, more) * size
        slow = 1 if problem.backend.facts()["HAS_WARP"] else 1000
        busy = min(1.0, (taken + more) / cls.busy(problem))
        seconds = (copied / bandwidth + problem.count * (each + byte * reads)) / busy
        return cls.ordering(problem) + 4e-6, slow * (4e-6 + seconds)

    @classmethod
    def copied(cls, sizes: Sizes, blocks: Blocks, tiles: Tiles, taken: float, more: float) -> float:
        """Return the nodes that groups copy, for ``taken`` tiles and ``more`` parts of them."""
        reached = (n + axis.support - 1 for n, axis in zip(tiles.cells, sizes.axes, strict=True))
        return (taken + more) * math.prod(reached)

    @classmethod
    def busy(cls, sizes: Sizes) -> float:
        """Return the parts of tiles below which the device is idle in part."""
        return 2.6 * sizes.backend.units

    # ---- the tiles -------------------------------------------------------------------------------------------------

    @staticmethod
    def _everywhere(sizes: Sizes) -> int:
        return math.prod(axis.extent for axis in sizes.axes)

    @classmethod
    def lanes(cls, sizes: Sizes, parts: int) -> Lanes:
        """Return how lanes share a particle's stencil, for nodes of ``parts`` reals."""
        size = sizes.dtype.itemsize
        # Narrow nodes: a lane reads its own particle's stencil, without padding. Wide ones: all banks at a time.
        lanes, reals = 8, 16 // size
        if size * parts == 4:
            lanes, reals = 1, 1
        elif size * parts == 8 and size == 4 and sizes.window.support <= 4:
            lanes, reals = 4, 2
        elif parts == 2 and sizes.window.support > 8:
            lanes = 4  # a row of 10 nodes leaves 6 places of 16 empty, of 12 it leaves 2
        lanes = cls.option(sizes, "lanes") or lanes
        reals = min(cls.option(sizes, "reads") or reals, 16 // size)
        return Lanes.of(sizes.axes, parts, lanes, reals, turns=True)

    @classmethod
    def tiles(cls, sizes: Sizes, count: int, blocks: Blocks) -> Tiles:
        """Return the tiles for ``count`` particles in ``blocks``."""
        shape = cls.option(sizes, "shape")
        if shape is not None:
            x, *across = (1,) * (3 - len(shape)) + tuple(shape)
            x = max(1, round(x / blocks.cells[0]))
            return block_tiles.tiles_of(blocks, (x, *block_tiles.across(blocks, across)))
        size = sizes.dtype.itemsize
        parts = cls.reals_of(sizes)
        lanes = cls.lanes(sizes, parts)
        resident = _GROUPS[parts * size]
        if parts * size == 16 and count > _CROWDED * cls._everywhere(sizes):
            resident += 1 if sizes.window.support <= 4 else 2 if sizes.window.support <= 8 else 0
        room = cls.room(sizes, lanes, resident, count)
        groups = sizes.backend.units * resident
        # Powers of two: plans do not compile anew for every number of particles.
        share = cls.most(sizes, count) * cls._everywhere(sizes) / max(count, 1)
        most = 1 << min(30, max(0, round(math.log2(share))))
        return _tiles_for(sizes.axes, blocks, lanes, parts, size, room, most, groups)

    @classmethod
    def room(cls, sizes: Sizes, lanes: Lanes, groups: int, count: int) -> int:
        """Return the bytes of local memory for nodes, where a multiprocessor runs ``groups`` at a time."""
        local = sizes.backend.local_bytes
        room = local if local <= _SMALL else local // groups - _OF_SYSTEM
        return room - cls.offset_bytes - lanes.beside(sizes.dtype.itemsize, cls.threads(sizes, lanes, count))

    @classmethod
    def threads(cls, sizes: Sizes, lanes: Lanes, count: int) -> int:
        """Return the work-items of a group, for ``count`` particles in all."""
        if not sizes.backend.facts()["HAS_WARP"]:
            return sizes.backend.group_size
        wide = sizes.dtype.itemsize == 8 and lanes.all == 4  # windows, with few particles of a tile
        small = sizes.dtype.itemsize == 4 and cls._everywhere(sizes) <= _AT_ONCE * sizes.backend.units
        threads = 128 if lanes.all == 1 or wide or small or cls._crowded(sizes, lanes, count) else 256
        while lanes.beside(sizes.dtype.itemsize, threads) + cls.offset_bytes > cls.declared:
            threads //= 2
        return cls.option(sizes, "threads") or threads

    @classmethod
    def _crowded(cls, sizes: Sizes, lanes: Lanes, count: int) -> bool:
        """Whether stencils of wide nodes and windows take so long that small groups read them."""
        wide = sizes.dtype.itemsize == 8 and lanes.all == 8 and 4 < sizes.window.support <= 8
        return wide and count > _CROWDED * cls._everywhere(sizes)

    @classmethod
    def resident(cls, sizes: Sizes, parts: int, threads: int) -> int | None:
        """Return the groups that a multiprocessor must have registers for, or None if the compiler decides."""
        known = _RESIDENT.get((sizes.dtype.name, parts * sizes.dtype.itemsize // 4))
        support = sizes.window.support
        groups = known and known[(support > 4) + (support > 8)]
        if groups and support <= 8:
            groups = min(6, groups * 256 // threads)
        return cls.option(sizes, "groups") or groups

    @classmethod
    def _at_a_time(cls, sizes: Sizes, lanes: Lanes, threads: int, bound: int | None, local: int) -> int:
        """Return how many groups the device runs at a time, or 0 if unknown.

        With just so many, all groups have neighbouring tiles at any time. Nodes that they share come from the
        second-level cache (10⁶ particles, 256³, windows of 6: 1.1 times as fast).
        """
        if bound is None:
            return 0
        beside = _OF_SYSTEM + cls.offset_bytes + lanes.beside(sizes.dtype.itemsize, threads)
        if (room := sizes.backend.local_bytes) > _SMALL:
            bound = max(1, min(bound, room // (local + beside)))
        return sizes.backend.units * bound

    # ---- calls -----------------------------------------------------------------------------------------------------

    def reserve(self, workspace: Workspace) -> None:
        super().reserve(workspace)
        for cells, count in self.kinds(workspace).items():
            blocks = block_order.blocks_of(workspace.axes, cells)
            turns = (int(_CROWDED * self._everywhere(workspace)) + n for n in (0, 1))
            numbers = {1, count, *(n for n in turns if 1 < n < count)}  # tiles may be smaller on either side of a turn
            most = max(self.tiles(workspace, n, blocks).total for n in numbers)
            size = self.option(workspace, "particles") or _PARTICLES
            block_tiles.reserve(workspace, min(most, count) + count // size)

    def prepare(self, workspace: Workspace) -> None:
        super().prepare(workspace)
        if workspace.count:
            self.parts(workspace)

    def parts(self, workspace: Workspace) -> tuple[Tiles, block_tiles.Parts]:
        """Return the tiles of ``workspace``, and those that have particles."""
        order = self.order(workspace)
        tiles = self.tiles(workspace, workspace.count, order.blocks)
        return tiles, block_tiles.parts_of(workspace, order, tiles, self.most(workspace, workspace.count))

    def compile(self, workspace: Workspace, form: Form, group: Group, field: Layout, *values: Layout | None) -> Launch:
        unplaced, blocks, tiles = form.variant
        backend, size, axes = workspace.backend, workspace.dtype.itemsize, workspace.axes
        lanes = self.lanes(workspace, group.parts)
        copy = vector(group, field, size, 16 // size, pairs=16 // size)
        held = self.held(workspace, blocks, tiles)
        local = Local.of(axes, held, lanes, group.parts, copy, size, apart=self.apart)
        threads = self.threads(workspace, lanes, workspace.count)
        groups = self.resident(workspace, group.parts, threads)
        open_ = not all(axis.wraps for axis in axes)  # nor do missing axes, beyond which tiles may have rows
        facts = defines(
            workspace, group, lanes.reals, LANES_ALL=lanes.all, LANES_ROW=lanes.z, IN_TURN=int(lanes.in_turn),
            COPY=copy, TILE_Y=local.nodes[1], CHUNKS=local.chunks, ROW_PITCH=local.pitch, LEVEL_PITCH=local.level,
            ALIGN=local.align, LINES=tiles.lines, LINES_Z=tiles.blocks[2], OPEN=int(open_),
            FIELD_IS_WIDE=patches.wide(field), GROUP_SIZE=threads, SYMMETRIC=patches.symmetric(workspace.window),
            **written(*values), **WEIGHTLESS[unplaced], **self.facts(workspace, blocks, tiles, local),
            **({"RESIDENT_GROUPS": groups} if groups else {}),
        )  # fmt: skip
        kernel = backend.kernel(*self.kernel, facts)
        local_bytes = local.reals * size
        return kernel, threads, local_bytes, self._at_a_time(workspace, lanes, threads, groups, local_bytes)

    def apply(
        self, workspace: Workspace, field: View, values: View | None, gradient: View | None = None, **_: Any
    ) -> None:
        order = self.order(workspace)
        tiles, parts = self.parts(workspace)
        unplaced, located, node, _ = weightless(workspace)
        form = Form(variant=(unplaced, order.blocks, tiles))
        for run, threads, local, at_a_time, *layouts in self.launches(workspace, form, field, values, gradient):
            many = max(-(-parts.most // _TILES), workspace.backend.units * _MANY)
            groups = min(parts.most, at_a_time or many)
            run(
                threads * groups, order.records, order.start, located, node, parts.listed, parts.parts, field.array,
                *targets(values, gradient), self.most(workspace, workspace.count), workspace.count,
                workspace.particles.rows, order.blocks.record, tiles.record, *layouts, workspace.window_record,
                workspace.jacobian_record, local_bytes=local,
            )  # fmt: skip


@functools.lru_cache(maxsize=1024)  # predictions ask for those of every measured problem
def _tiles_for(
    axes: tuple[Axis, Axis, Axis],
    blocks: Blocks,
    lanes: Lanes,
    parts: int,
    size: int,
    room: int,
    most: int,
    groups: int,
) -> Tiles:
    """Return the tiles that copy the fewest nodes, in ``room`` bytes; a group takes ``most`` cells, ``groups`` run."""
    everywhere = math.prod(axis.extent for axis in axes)

    def up_to(axis: int, limit: int) -> np.ndarray:
        return np.arange(1, min(limit, blocks.counts[axis], max(1, 64 // blocks.cells[axis])) + 1)

    x, y, along_z = up_to(0, 64), up_to(1, block_tiles.MOST_LINES)[:, None], up_to(2, block_tiles.MOST_LINES)
    tried: list[Any] = []
    for z in along_z:
        cells = block_tiles.cells_of(blocks, (x, y, z))
        local = Local.of(axes, cells, lanes, parts, 16 // size, size)
        total = math.prod(-(-count // n) for n, count in zip((x, y, z), blocks.counts, strict=True))
        copied = local.copied * (total * np.maximum(1.0, math.prod(cells) / most) + groups) / everywhere
        tried.append([copied, local.reals])
    copied, reals = np.stack(tried, 2)  # (y, z, x)
    allowed = y * along_z <= block_tiles.MOST_LINES
    j, k, i = block_tiles.best_of(allowed[:, :, None], reals * size <= room, copied, reals)
    return block_tiles.tiles_of(blocks, (int(x[i]), int(y[j, 0]), int(along_z[k])))
