# SPDX-License-Identifier: BSD-3-Clause
"""The patch of mesh that a warp keeps in registers while it walks along x, and the blocks of particles that fit it.

Both directions take the same patch for the same particles, so that they share one order (``walk/walk.h``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from particlemesh.arrays.operands import Layout
from particlemesh.methods.contract import Option
from particlemesh.methods.launches import Group, defines, vector
from particlemesh.orders import block_order
from particlemesh.particles.workspace import Sizes, Workspace
from particlemesh.window import Window

SUPPORTS = range(2, 9)
OPTIONS = {
    "form": Option(None, ("matrix", "multiply"), "matrix instructions, or multiply and add; by default what is fast"),
    "patch": Option(None, (8, 16), "nodes of the patch along z; by default as the density suggests"),
    "levels": Option(None, range(2, 9), "nodes of the patch along x; even for matrix instructions"),
    "chunk": Option(None, range(32, 2**20), "particles of a warp"),
}
_LOCAL_BYTES = 48_000  # of the 48 KB that a group may have
_WARPS = 4  # of a group, where groups are largest
CACHED = 40e6  # bytes of a field that stay near the chip (H200; benchmarks/results/limit-thresholds-nvidia-h200.csv)


@dataclass(frozen=True)
class Patch:
    """The nodes that a warp keeps in registers, as kernels are compiled for them, and the blocks that fit.

    Attributes
    ----------
    matrix : bool
        Whether products of matrices are made by matrix instructions.
    levels, tiles : int
        Nodes of the patch along x, and how many times eight along z.
    cells : (3,) ints
        Of a block.
    single : bool
        Whether reals are float32.
    few : bool
        Whether particles are so few that matrix instructions would mostly multiply zeros.
    """

    matrix: bool
    levels: int
    tiles: int
    cells: tuple[int, int, int]
    single: bool
    few: bool

    @property
    def pairs(self) -> bool:
        """Whether patches begin at even nodes along z, so that pairs of nodes are aligned."""
        return self.single and self.tiles == 2

    def defines(self) -> dict[str, int]:
        """Return the facts of walk/walk.h that are the patch's."""
        return {"LEVELS": self.levels, "Z_TILES": self.tiles, "MATRIX": int(self.matrix), "WITH_MMA": int(self.matrix)}


def patch_of(sizes: Sizes, options: dict[str, Any], count: int, supports: Sequence[int] = ()) -> Patch:
    """Return the patch for ``count`` particles; ``options`` are values of :data:`OPTIONS` by name.

    ``supports`` are those of a piece of the window along each axis, if it is taken in pieces.
    """
    axes, single = sizes.axes, sizes.dtype.itemsize == 4
    matrix = options["form"] == "matrix" if options["form"] else bool(sizes.backend.facts()["HAS_MMA"])
    step = 2 if single and matrix else 1  # levels of a matrix instruction
    x, y, z = supports or (axis.support for axis in axes)
    levels = options["levels"] or _levels(x, step)

    def cells(tiles: int) -> tuple[int, int, int]:
        along_z = 8 * tiles - z + 1
        # A wide patch wins by pairs of nodes in an instruction, a narrow one by more particles in a block (H200).
        return levels - x + 1, 8 - y + 1, along_z - along_z % 2 if single and tiles == 2 else along_z

    def crowd(block: tuple[int, ...]) -> float:
        """Return the particles of a block, which has one cell along missing axes."""
        extents = [axis.extent for axis in axes]
        return count / math.prod(extents) * math.prod(map(min, block, extents))

    tiles = (options["patch"] or 0) // 8 or (1 if crowd(cells(1)) >= _CROWDED else 2)
    block = cells(tiles)
    return Patch(matrix, levels, tiles, block, single, crowd((1, *block[1:])) < _FEW)


def width_of(patch: Patch, group: Group, field: Layout, *, adds: bool) -> int:
    """Return how many reals one instruction moves: one, of a node or, in pairs, of two, as rows are aligned.

    Adds of eight bytes have no vector form.
    """
    size = 4 if patch.single else 8
    width = vector(group, field, size, 16 // size if patch.single or not adds else 1)
    return width if patch.pairs else min(width, group.parts)


# Particles of a block (H200; benchmarks/results/limit-thresholds-nvidia-h200.csv)
_CROWDED = 9  # from here on a narrow patch wastes less
_FEW = 3  # from here on, in blocks of one cell along x, matrix instructions spread faster than multiplying and adding


def _levels(support: int, step: int) -> int:
    return -(-support // step) * step


def cells_of(sizes: Sizes, count: int) -> tuple[int, int, int]:
    """Return the cells of blocks for methods that want neighbours together: the blocks of a walk, if one can serve."""
    if sizes.window.support not in SUPPORTS:
        return 4, 4, 8
    return patch_of(sizes, dict.fromkeys(OPTIONS), count).cells


def declines(sizes: Sizes, options: dict[str, Any], *, stable: bool = False) -> str | None:
    """Return why no patch fits these sizes, or None."""
    if sizes.window.support not in SUPPORTS:
        return f"supports of {SUPPORTS[0]} to {SUPPORTS[-1]} nodes"
    patch = patch_of(sizes, options, sizes.count)
    x = sizes.axes[0].support
    if patch.levels < x:
        return f"{patch.levels} levels are less than the window function's {x} nodes"
    if patch.matrix and sizes.dtype.itemsize == 4 and patch.levels % 2:
        return f"matrix instructions take an even number of levels, not {patch.levels}"
    return unordered(sizes, patch, stable=stable)


def unordered(sizes: Sizes, patch: Patch, *, stable: bool = False) -> str | None:
    """Return why particles cannot be ordered by the blocks of a patch, or None."""
    axes = sizes.axes
    reason = block_order.declines(axes, patch.cells, sizes.count, stable=stable)
    if reason is None:
        along_x, *lines = block_order.blocks_of(axes, patch.cells).counts
        moves = -(-patch.levels // patch.cells[0])
        if math.prod(lines) * (along_x + moves) >= 2**32:  # a warp numbers blocks in 32 bits
            return "nearly 2**32 blocks or more"
    return reason


def chunk_of(sizes: Sizes, patch: Patch, reals: int, *, spreads: bool, longer: int = 1) -> int:
    """Return the particles of a warp: all warps that run at once get as many, in a few rounds.

    Spreading writes the whole patch at the end of a chunk, so few long chunks write less. Interpolation reads a patch
    in less time, and short chunks spread the work more evenly. If the field is beyond the cache, what one round uses of
    it should fit the cache. ``longer`` is for spreading that gains from longer chunks.
    """
    at_once = sizes.backend.units * _WARPS * resident(patch, reals)
    field = math.prod(sizes.mesh.field_shape) * reals * sizes.dtype.itemsize
    # H200; benchmarks/results/limit-thresholds-nvidia-h200.csv has half and twice these chunks
    least, most, alive = (32, longer * (512 if patch.single else 640), 16e6) if spreads else (64, 512, 5e6)
    far = field > CACHED
    if far:
        least, most = 32, longer * 384
    rounds = max(1, round(sizes.count / at_once / most)) if spreads else max(5, sizes.count / at_once / most)
    if far:
        rounds = max(rounds, field / alive)
    return max(least, -(-sizes.count // (int(at_once * rounds) * 32)) * 32)


def resident(patch: Patch, reals: int) -> int:
    """Return the groups per multiprocessor for which registers are bounded: the fastest with few spills (H200)."""
    # benchmarks/results/limit-thresholds-nvidia-h200.csv has one group less and one more.
    held = reals * patch.tiles
    if held == 1 or (held == 2 and patch.single and patch.levels <= 4):
        return 5
    return 4 if held == 2 and patch.levels > 4 else 3


def room_of(
    workspace: Workspace, rows: int, along_x: int, *, levels: int = 8, records: int = 0, indexed: bool = False,
    more: int = 0, most: int = _LOCAL_BYTES,
) -> tuple[dict[str, int], int]:  # fmt: skip
    """Return how many particles of a warp have their rows in local memory at a time, for how many warps, and the bytes.

    ``along_x`` of the rows have ``levels`` reals, and the others eight; ``STAGED`` and ``PITCH`` of walk.h say more.
    ``records`` is how often a batch's records are there, and ``indexed`` adds particles' indices and reads eight
    particles at once also where fewer are left. A warp takes ``more`` bytes, and a group at most ``most``.
    """
    size = workspace.dtype.itemsize
    wide, left = 16 // size, 32 // size
    vectors = 8 * (rows - along_x) // wide + along_x * -(-levels // wide)
    each = (vectors | 1) * 16 + 4 * indexed
    behind = 7 if indexed else left
    bytes_of = {b: (left + b + behind) * each + b * records * 4 * size + more for b in (32, 16, 8)}
    batch = next((b for b in (32, 16) if _WARPS * bytes_of[b] <= most), 8)
    warps = min(_WARPS, most // bytes_of[batch], workspace.backend.group_size // 32)
    return {"BATCH": batch, "WARPS": warps}, warps * bytes_of[batch]


def pool_of(workspace: Workspace) -> int:
    """Return the bytes of local memory that a group may take if it asks for them: three groups run at once."""
    return max(_LOCAL_BYTES, workspace.backend.local_bytes // 3)


def symmetric(window: Window) -> int:
    """Return whether the weights at z from one side are those at -z from the other, as kernels see it."""
    table = np.asarray(window.table)
    return int(np.array_equal(table[::-1], table * (-1.0) ** np.arange(table.shape[1])))


def wide(field: Layout) -> int:
    """Return whether offsets in a field take 64 bits, as kernels see it."""
    return int(sum((n - 1) * abs(s) for n, s in zip(field.shape, field.strides, strict=True)) >= 2**31)


def patch_defines(
    workspace: Workspace, patch: Patch, group: Group, width: int, field: Layout, gradient: int, **more: int
) -> dict[str, int]:
    """Return the compile key of a kernel; ``more`` has what :func:`room_of` returns."""
    return defines(
        workspace, group, width, GRADIENT=gradient, LANES_ALL=1, LANES_ROW=1, SYMMETRIC=symmetric(workspace.window),
        FIELD_IS_WIDE=wide(field), **patch.defines(), **more,
    )  # fmt: skip
