# SPDX-License-Identifier: BSD-3-Clause
"""How lanes share a particle's stencil (``shares.h``), how nodes lie in local memory, and how long reading takes."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from particlemesh.backends.base import Unread
from particlemesh.methods.contract import Problem
from particlemesh.particles.stencil import Axis
from particlemesh.particles.workspace import Workspace

_SECTOR, _BANKS = 32, 128  # bytes: those of memory; of local memory, whose banks then repeat
# How kernels that read orders find the particles without weight, which are in no order and whose results are zero
# (weightless.h): they read all stencils, all packed stencils, or the end of the order.
WEIGHTLESS = (
    {"PACKED": 0, "WEIGHTLESS_LAST": 0},
    {"PACKED": 1, "WEIGHTLESS_LAST": 0},
    {"PACKED": 0, "WEIGHTLESS_LAST": 1},
)


@dataclass(frozen=True)
class Lanes:
    """How the lanes of a warp share a particle's stencil, as stencil.h divides it.

    Attributes
    ----------
    z, y : int
        Lanes along z, and rows that lanes read at a time.
    reals : int
        What one lane reads at a time.
    each, rows : int
        How many reads of a row a lane has, and rows of a level.
    in_turn : bool
        Whether rows are dealt to lanes in turn, through all levels.
    """

    z: int
    y: int
    reals: int
    each: int
    rows: int
    in_turn: bool = False

    @classmethod
    def of(
        cls, axes: tuple[Axis, Axis, Axis], parts: int, lanes: int, reals: int, most: int = 8, *, turns: bool = False
    ) -> Lanes:
        """Return how ``lanes``, ``most`` of them along z, share a stencil of nodes with ``parts`` reals.

        With ``turns`` rows may be dealt in turn.
        """
        row, slack = axes[2].support * parts, max(0, reals - parts)
        slots = -(-(row + slack) // reals)
        z = min(8 if slots > 4 else 4 if slots > 2 else slots, lanes, most)
        y = 1 if axes[1].support == 1 else lanes // z
        # Nodes of 16 bytes in rows of 5 or 6: of eight lanes along z some would read none.
        if turns and lanes == 8 and z == 8 and slots in (5, 6) and axes[1].support == slots and reals == parts:
            return cls(2, 4, reals, -(-slots // 2), -(-axes[1].support // 4), in_turn=True)
        return cls(z, y, reals, -(-slots // z), -(-axes[1].support // y))

    @property
    def all(self) -> int:
        """Lanes of a particle."""
        return self.z * self.y

    @property
    def span(self) -> int:
        """Reals that lanes read of a row."""
        return self.z * self.each * self.reals

    def reads(self, axes: tuple[Axis, Axis, Axis]) -> int:
        """Return the reals that lanes read of a particle's stencil, with those that are not the stencil's."""
        x, y = axes[0].support, axes[1].support
        rows = -(-x * y // self.y) * self.y if self.in_turn else x * self.rows * self.y
        return rows * self.span

    def beside(self, size: int, threads: int) -> int:
        """Return the bytes of local memory for the particles of a group, with reals of ``size`` bytes."""
        return 0 if self.all == 1 else threads * (4 * size + 4)


@dataclass(frozen=True)
class Local:
    """The nodes of a tile in local memory, as ``tile`` and ``ring`` copy them (``tile_box.h``).

    Attributes
    ----------
    nodes : (3,) ints
        Nodes along each axis, those along z with what aligns copies.
    align : int
        Rows begin at multiples of so many nodes of the field.
    chunks : int
        Copies of a row.
    pitch, level : int
        Reals from one row to the next, and from one level to the next.
    reals, copied : int
        All reals, and those that are copied.
    """

    nodes: tuple[int, int, int]
    align: int
    chunks: int
    pitch: int
    level: int
    reals: int
    copied: int

    @classmethod
    def of(
        cls, axes: tuple[Axis, Axis, Axis], cells: Sequence[Any], lanes: Lanes, parts: int, copy: int, size: int,
        *, apart: bool = False,
    ) -> Local:  # fmt: skip
        """Return the nodes of a tile of ``cells``, which come in copies of so many reals of ``size`` bytes.

        If levels are ``apart``, no lane reads beyond the end of one.
        """
        x, y, z = (n + axis.support - 1 for n, axis in zip(cells, axes, strict=True))
        # Memory moves sectors: copies that lie in them otherwise than in the field take up to 1.7 times as long.
        # Lanes that read particles of their own meet in fewer banks if rows are not.
        sector = lanes.all > 1 and copy * size == 16
        step = (_SECTOR if sector else 16) // size
        align = max(1, (step if sector else copy) // parts)
        z += align - 1
        chunks = -(-z * parts // copy)
        pitch = _pitch(int(chunks) * copy, lanes, size, step)
        if lanes.in_turn:  # lanes go on in the next level, as if it were the next row
            y += (axes[1].support - y) % lanes.y
        level = y * pitch
        if apart:
            beyond = (z - axes[2].support) * parts + lanes.span - pitch
            level += max(0, -(-beyond // (_BANKS // size))) * _BANKS // size
        return cls((x, y, z), align, chunks, pitch, level, x * level + lanes.span, x * y * chunks * copy)


@functools.lru_cache(maxsize=4096)  # predictions try thousands of tiles
def _pitch(reals: int, lanes: Lanes, size: int, sector: int) -> int:
    """Return the reals from one row to the next, for rows of so many: in sectors, if banks allow that."""
    if lanes.y == 1:
        pitch = -(-reals // sector) * sector
        return pitch + sector if pitch * size % 64 == 0 else pitch
    # What is read of several rows at a time has banks of its own: they repeat every 128 bytes.
    if lanes.in_turn:
        bank = 128 // size
        return next(n for n in range(reals, reals + bank) if n % bank == 128 // lanes.y // size)
    width = lanes.z * lanes.reals * size
    for step in (sector, 16 // size):
        pitches = range(-(-reals // step) * step, reals + 128 // size + step, step)
        for pitch in pitches:
            if lanes.y * width > 128 or _nearest(lanes.y, lanes.rows * pitch * size) >= width:
                return pitch
    return -(-reals // sector) * sector


def _nearest(rows: int, stride: int) -> int:
    """Return the least distance of ``rows`` rows, ``stride`` bytes apart, on a circle of 128 bytes."""
    places = sorted(k * stride % 128 for k in range(rows))
    return min(b - a for a, b in itertools.pairwise([*places, places[0] + 128]))


def reading(
    problem: Problem, row: float, byte: float, far: float, *, shared: bool = False, latency: float = 1.9e-7
) -> float:
    """Return the seconds in which all stencils are read.

    Each row of a stencil takes ``row`` seconds, each of its bytes ``byte``. Memory beyond the second-level cache is
    read at ``far`` bytes per second, with 32 bytes more per row than the row has. If neighbours have ``shared`` rows,
    it is read once at most. The ``latency`` of the first stencil's rows is added.
    """
    size = problem.components * problem.dtype.itemsize
    rows, width = problem.stencil / problem.window.support, problem.window.support * size
    field = problem.nodes * problem.filled * size
    fetched = problem.count * rows * (32 + width)
    missed = problem.beyond_cache * (min(fetched, field) if shared else fetched)
    return latency * rows + problem.count * rows * (row + byte * width) + missed / far


def weightless(workspace: Workspace) -> tuple[int, Any, Any, Any]:
    """Return which of ``WEIGHTLESS`` hold, and the kernel's ``located``, ``node`` and ``fraction``.

    Sorted particles keep their stencils in their order: spelling them out would allocate memory.
    """
    if (order := workspace.particles.by_block) is not None:
        return 2, *(Unread(order.start),) * 3
    packed, located, fraction = workspace.particles.located()
    if packed:
        return 1, located, Unread(located), Unread(located)
    return 0, Unread(located), located, fraction
