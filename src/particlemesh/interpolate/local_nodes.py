# SPDX-License-Identifier: BSD-3-Clause
"""How the nodes that ``tile`` and ``ring`` copy lie in local memory (``tile_box.h``)."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from particlemesh.interpolate.shares import Lanes
from particlemesh.particles.stencil import Axis

_SECTOR, _BANKS = 32, 128  # bytes: those of memory; of local memory, whose banks then repeat


@dataclass(frozen=True)
class Local:
    """The nodes of a tile in local memory.

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
        cls, axes: tuple[Axis, Axis, Axis], cells: tuple[int, ...], lanes: Lanes, parts: int, copy: int, size: int,
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
        pitch = _pitch(chunks * copy, lanes, size, step)
        if lanes.in_turn:  # lanes go on in the next level, as if it were the next row
            y += (axes[1].support - y) % lanes.y
        level = y * pitch
        if apart:
            beyond = (z - axes[2].support) * parts + lanes.span - pitch
            level += max(0, -(-beyond // (_BANKS // size))) * _BANKS // size
        return cls((x, y, z), align, chunks, pitch, level, x * level + lanes.span, x * y * chunks * copy)


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
