# SPDX-License-Identifier: BSD-3-Clause
"""Systems on the CPU: compiled loops over systems that call what locates and searches the particles of one box."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from particlemesh.backends.cpu import claimed, run, threads_for
from particlemesh.backends.jit import compiled
from particlemesh.grid.cpu.locate import SHARE, CpuCells, Faults, largest_extents, locate_shares
from particlemesh.grid.systems import FLAG, SystemBoxes
from particlemesh.sorting.cpu import counting_sort


class CpuBoxes(NamedTuple):
    """The boxes of S systems in the type of the positions, missing axes first."""

    origin: np.ndarray  # (S, 3)
    inverse: np.ndarray  # (S, 3, 3)
    rows: np.ndarray  # (S, 3, 3)
    tails: np.ndarray  # (S, 3, 3)
    lower: np.ndarray  # (S, 3)
    upper: np.ndarray  # (S, 3)
    orthorhombic: np.ndarray  # (S,) int64
    scale: np.ndarray  # (S,): edges of cubes of their volumes, relative to the grid's box

    @property
    def total(self) -> int:
        """Number of systems."""
        return len(self.origin)


def cpu_boxes(boxes: SystemBoxes, dtype: Any) -> CpuBoxes:
    """Return the boxes of systems as compiled functions need them."""
    table = boxes.table(np.dtype(dtype))

    def part(first: int, *shape: int) -> np.ndarray:
        return np.ascontiguousarray(table[:, first : first + int(np.prod(shape))]).reshape(boxes.count, *shape)

    return CpuBoxes(
        part(0, 3), part(3, 3, 3), part(12, 3, 3), part(21, 3, 3), part(30, 3), part(33, 3),
        table[:, FLAG].astype(np.int64), boxes.scale.astype(dtype),
    )  # fmt: skip


@compiled
def _locate_pieces(address, stride, pieces, radii, cells, boxes, each, keys, folded, turns, status, counter):
    """Locate pieces of systems until none is left; ``each`` is the number of cells of a system."""
    state = np.zeros(2, np.int64)
    for p in claimed(counter, pieces.shape[0]):
        begin, end, s = pieces[p, 0], pieces[p, 1], pieces[p, 2]
        here = CpuCells(
            cells.shape, cells.levels, cells.edge, boxes.origin[s], boxes.inverse[s], boxes.rows[s], boxes.tails[s],
            cells.periodic, boxes.lower[s], boxes.upper[s], boxes.orthorhombic[s], cells.missing,
        )  # fmt: skip
        state[0] = 0
        locate_shares(
            address + begin * stride, stride, end - begin, radii[begin:end], here, keys[begin:end], folded[begin:end],
            turns[begin:end], status[p : p + 1], state,
        )  # fmt: skip
        for k in range(begin, end):
            if keys[k] >= 0:
                keys[k] += np.int32(s * each)


def locate_systems(
    x: Sequence[np.ndarray], radii: ArrayLike | None, cells: CpuCells, boxes: CpuBoxes, system: np.ndarray,
    threads: int | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None, Faults]:  # fmt: skip
    """Return what ``locate`` returns, of particles in the boxes of their ``system`` (N,).

    Cells of a system come after those of the systems before; ``cells`` has the cells of one and the periodic axes.
    """
    real, count, systems = cells.dtype, len(x[0]), boxes.total
    order = None
    if count and (np.diff(system) < 0).any():  # particles of one system have to follow each other
        order = counting_sort(system, systems, threads).order
        x = [np.ascontiguousarray(column[order], real) for column in x]
        system = system[order]
    begins = np.searchsorted(system, np.arange(systems + 1)).astype(np.int64)
    columns = [column if column.dtype == real else column.astype(real) for column in x]
    address = np.array([column.ctypes.data for column in columns])
    stride = np.array([column.strides[0] for column in columns])
    sizes = largest_extents(radii, count, real)
    sizes = sizes if order is None or not len(sizes) else sizes[order]
    keys, folded = np.empty(count, np.int32), np.empty((count, 3), real)
    turns = np.zeros((count, 3), np.int32)
    pieces = pieces_of(begins, SHARE)
    status = np.zeros((len(pieces), 5), np.int64)
    status[:, 3] = -1
    used = max(1, min(threads_for(threads, count), len(pieces)))
    run(
        _locate_pieces, used, address, stride, pieces, sizes, cells, boxes, cells.total, keys, folded, turns, status,
        steps=20 * count,
    )  # fmt: skip
    far = int(status[:, 4].max(initial=0))
    bad = (pieces[:, 0] + status[:, 3])[status[:, 3] >= 0]
    if order is not None:
        # Particles of a system are in the caller's order, so the first bad one of a piece is the caller's first of it.
        bad = order[bad]
        keys, folded, turns = (_back(array, order) for array in (keys, folded, turns))
    faults = Faults(
        int(status[:, 0].sum()), int(status[:, 1].sum()), int(bad.min()) if len(bad) else -1, int(status[:, 2].sum()),
        far,
    )  # fmt: skip
    return keys, folded, turns if far else None, faults


def _back(array: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Return rows in the caller's order."""
    result = np.empty_like(array)
    result[order] = array
    return result


def pieces_of(begins: np.ndarray, size: int) -> np.ndarray:
    """Return ranges of up to ``size`` places of one system each, (P, 3): begin, end, system.

    ``begins`` (S + 1,) is where the places of each system begin.
    """
    counts = -(-np.diff(begins) // size)
    system = np.repeat(np.arange(len(counts)), counts)
    within = np.arange(len(system)) - np.repeat(np.cumsum(counts) - counts, counts)
    begin = begins[system] + within * size
    return np.ascontiguousarray(np.stack([begin, np.minimum(begin + size, begins[system + 1]), system], 1), np.int64)
