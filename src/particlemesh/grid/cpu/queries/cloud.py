# SPDX-License-Identifier: BSD-3-Clause
"""Particles in the order of their cells, as searches on the CPU read them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from particlemesh.backends.cpu import ranges, run, threads_for
from particlemesh.backends.jit import compiled
from particlemesh.grid.cpu.lanes import PAD
from particlemesh.grid.cpu.locate import CpuCells
from particlemesh.grid.cpu.shares import SHARE, shares_for
from particlemesh.grid.cpu.systems import CpuBoxes
from particlemesh.grid.limits import levels_of
from particlemesh.grid.sparse import numbers_of, uneven
from particlemesh.sorting.cpu import counting_sort


class CpuCloud(NamedTuple):
    """The particles by cell that a build leaves for searches."""

    cells: CpuCells
    start: np.ndarray  # (cells + 1,) int64: cell c holds places start[c] to start[c + 1]
    order: np.ndarray  # (n,) int32: the caller's index of the particle at each place
    points: np.ndarray  # (3, n + PAD): positions inside the box, by place; zeros follow
    particles: int  # given to the build; n of them take part
    turns: np.ndarray | None  # (count, 3) int32, in the caller's order
    sizes: np.ndarray | None  # (1, n + PAD) radii or (3, n + PAD) half extents, missing axes first, by place
    occupied: np.ndarray = np.empty(0, np.int64)  # numbers of the cells in `start`; empty: all cells are there
    by_sizes: bool = False  # levels are those of `sizes`
    systems: CpuBoxes | None = None  # the boxes of systems; `cells` has the cells of one of them


def on_levels(cloud: CpuCloud, order: str, threads: int | None) -> tuple[CpuCloud, str]:
    """Return a cloud for searches with its own radii, and the order that says how its particles are numbered.

    One large radius would set how far all particles of a level search. Where radii are that uneven, the build may
    not have put particles on levels by them. Then this is done here: O(N), far less than such a search.
    """
    cells, n = cloud.cells, len(cloud.order)
    if cloud.systems is not None:
        return cloud, order  # levels are those of the build
    assert cloud.sizes is not None
    radii = cloud.sizes[0, :n]
    levels = levels_of(cells.shape, float(cells.edge), 2 * float(radii.max(initial=0)))
    if levels == 1 or not uneven(radii, 3 - cells.missing) or (cloud.by_sizes and cells.levels >= levels):
        return cloud, order
    cells = cells._replace(levels=levels)
    placed = counting_sort(numbers_of(cloud.points[:, :n].T, radii, cells), cells.total, threads)
    again = np.concatenate([placed.order, np.arange(n, n + PAD, dtype=placed.order.dtype)])
    points, sizes = (np.take(array, again, axis=1) for array in (cloud.points, cloud.sizes))  # contiguous
    cloud = cloud._replace(cells=cells, start=placed.start, points=points, sizes=sizes, by_sizes=True)
    if order != "grid":
        return cloud._replace(order=cloud.order[placed.order]), order
    # Its input are the places of the grid.
    turns = None if cloud.turns is None else cloud.turns[cloud.order]
    return cloud._replace(order=placed.order, particles=n, turns=turns), "input"


@compiled
def _gather(folded, order, points, counter):
    """Copy shares of positions to their places."""
    for begin, end in ranges(counter, order.size, SHARE):
        for k in range(begin, end):
            i = order[k]
            points[0, k], points[1, k], points[2, k] = folded[i, 0], folded[i, 1], folded[i, 2]


def sorted_points(folded: np.ndarray, order: np.ndarray, threads: int | None = None) -> np.ndarray:
    """Return positions (count, 3) in an order (n,) as rows for axes, (3, n + PAD), zero behind."""
    points = np.empty((3, len(order) + PAD), folded.dtype)
    used = shares_for(len(order), threads_for(threads, len(order)))
    run(_gather, used, folded, order, points)
    points[:, len(order) :] = 0
    return points


def sorted_sizes(sizes: ArrayLike | None, order: np.ndarray, count: int, cells: CpuCells) -> np.ndarray | None:
    """Return the radii (1, n + PAD) or half extents (3, n + PAD) of ``count`` particles in an order (n,)."""
    if sizes is None:
        return None
    given = np.asarray(sizes, cells.dtype)
    result = np.zeros((1 if given.ndim < 2 else 3, len(order) + PAD), cells.dtype)
    if given.ndim < 2:
        result[0, : len(order)] = np.broadcast_to(given, (count,))[order]
    else:
        result[cells.missing :, : len(order)] = given[order].T
    return result


def cloud_of(
    cells: CpuCells,
    folded: np.ndarray,
    turns: np.ndarray | None,
    start: np.ndarray,
    order: np.ndarray,
    sizes: ArrayLike | None = None,
    threads: int | None = None,
    systems: CpuBoxes | None = None,
) -> CpuCloud:
    """Return a cloud of located and sorted particles.

    ``order`` from ``start[-1]`` on is ignored. ``sizes`` are radii or half extents in the caller's order.
    """
    order = order[: int(start[-1])]
    points = sorted_points(folded, order, threads)
    extents = sorted_sizes(sizes, order, len(folded), cells)
    return CpuCloud(cells, start, order, points, len(folded), turns, extents, systems=systems)
