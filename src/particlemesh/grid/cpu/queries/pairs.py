# SPDX-License-Identifier: BSD-3-Clause
"""Neighbours of particles and of points: lists, counts, overlaps.

Distances are those of positions inside the box, computed in their type: ``(x_j - x_i) + shift``, in that order, so
that both ends of a pair agree. Two passes: the first counts, so that no list is too short, the second writes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from particlemesh.backends.cpu import threads_for
from particlemesh.backends.memory import check_room
from particlemesh.grid import checks
from particlemesh.grid.cpu.lanes import PAD
from particlemesh.grid.cpu.locate import Faults, locate
from particlemesh.grid.cpu.queries.candidates import UNIFORM, Search, search_of
from particlemesh.grid.cpu.queries.cloud import CpuCloud, on_levels, sorted_points, sorted_sizes
from particlemesh.grid.cpu.queries.listing import pairs_of, rows_for
from particlemesh.grid.cpu.queries.rows import Query, images_of
from particlemesh.grid.cpu.queries.systems import SearchBoxes, count_rows, fill_rows, search_boxes
from particlemesh.grid.cpu.systems import locate_systems
from particlemesh.grid.limits import MOST_COUNTED, bytes_per_pair, least_images, too_many
from particlemesh.grid.results import Pairs
from particlemesh.sorting.cpu import counting_sort


def names_of(cloud: CpuCloud, order: str) -> np.ndarray:
    """Return what places are called: the caller's indices, or places."""
    if order == "grid":
        return np.arange(len(cloud.order) + PAD, dtype=np.int32)
    return np.concatenate([cloud.order, np.zeros(PAD, np.int32)])


def _sized(cloud: CpuCloud, radius: ArrayLike) -> tuple[CpuCloud, float | None]:
    """Return a cloud with the sizes that a search wants, and the radius if it is one number."""
    if np.ndim(radius) == 0:
        return cloud, float(np.asarray(radius))
    given = np.asarray(radius)[cloud.order]
    wrong = cloud.order[~((given >= 0) & (given < np.inf))]
    if len(wrong):
        raise ValueError(f"{len(wrong)} radii are negative or not finite; the first is that of particle {wrong.min()}.")
    sizes = sorted_sizes(radius, cloud.order, cloud.particles, cloud.cells)
    return cloud._replace(sizes=sizes, by_sizes=_same(sizes, cloud.sizes)), None


def _same(sizes: np.ndarray | None, others: np.ndarray | None) -> bool:
    return sizes is not None and others is not None and np.array_equal(sizes, others)


def _least_pairs(cloud: CpuCloud, search: Search, rows: int, query: Query) -> int:
    """Return how many pairs so many rows have at least."""
    if search.spans < 1 or cloud.systems is not None:
        return 0  # some particles may have none
    images = least_images(float(search.radius), search.rows, search.periodic.tolist())
    return rows * images * (len(cloud.order) - query.is_particle) // (1 + query.half)


def _own_query(cloud: CpuCloud, search: Search, *, half: bool) -> tuple[Query, SearchBoxes | None]:
    """Return particles as points that look for neighbours, and the boxes of their systems."""
    if cloud.systems is None:
        images, boxes = images_of(search, half=half), None
    else:
        boxes = search_boxes(cloud, search, half=half)
        images = boxes.images, boxes.vectors
    return Query(cloud.points, search.sizes, search.numbers, 1, int(half), *images, 0, len(cloud.order)), boxes


def _list(
    query: Query,
    boxes: SearchBoxes | None,
    search: Search,
    cloud: CpuCloud,
    turned: np.ndarray | None,
    rows: int,
    quantities: str,
    form: str,
    threads: int,
    *,
    by_place: bool = False,
    named: bool = False,
    width: int | None = None,
) -> Pairs:
    """Count, make room and write."""
    counts = np.zeros(rows, np.int64)
    if search.criterion == UNIFORM and search.spans >= 1:
        pair = bytes_per_pair(quantities, 3 - cloud.cells.missing, cloud.cells.dtype.itemsize)
        least = _least_pairs(cloud, search, rows, query) * pair
        check_room(least, f"pairs within {float(search.radius):g} (a lower bound)")
    count_rows(query, search, counts, threads, boxes)
    start = np.zeros(rows + 1, np.int64)
    if form == "dense":
        longest = int(counts.max(initial=0))
        if longest > MOST_COUNTED:
            raise too_many(longest)
        counts = counts.astype(np.int32)
        checks.wide_enough(longest, width)
        width = longest if width is None else int(width)
        start[:] = np.arange(rows + 1) * width
    else:
        np.cumsum(counts, out=start[1:])
    total = int(start[-1])
    empty = np.empty((0, 3), np.int32)
    filled = rows_for(quantities, cloud.cells, total, blank=form == "dense")._replace(
        start=start,
        turns=empty if cloud.turns is None else cloud.turns,
        turned=empty if turned is None else turned,
        order=cloud.order if by_place or named else np.empty(0, np.int32),
        named=int(named),
    )
    if total and quantities:
        fill_rows(query, search, filled, threads, boxes)
    if form == "dense":
        return pairs_of(filled, quantities, counts=counts, width=width or 0)
    return pairs_of(filled, quantities, start=start if form == "csr" else None)


def pairs(
    cloud: CpuCloud,
    radius: ArrayLike,
    *,
    half: bool = True,
    order: str = "input",
    form: str = "csr",
    quantities: str = "j",
    width: int | None = None,
    threads: int | None = None,
) -> Pairs:
    """Return the neighbours of each particle; see `UniformGrid.pairs`.

    Neighbours are within one ``radius``, or the sum of both. With ``order="grid"`` numbers are places in the cloud.
    """
    threads = threads_for(threads, len(cloud.order))
    if form == "coo" and "i" not in quantities:
        quantities += "i"
    cloud, uniform = _sized(cloud, radius)
    if uniform is None and not cloud.occupied.size:
        cloud, order = on_levels(cloud, order, threads)
    # A list of pairs without rows is made from each pair once, wherever its particles are in the caller's order.
    named = half and form == "coo" and order == "input"
    by_place = order == "grid"
    numbers = names_of(cloud, "grid" if named else order)
    search = search_of(cloud, numbers, uniform, forward=half and (by_place or named))
    rows = len(cloud.order) if by_place or named else cloud.particles
    query, boxes = _own_query(cloud, search, half=half)
    return _list(
        query, boxes, search, cloud, cloud.turns, rows, quantities, form, threads, by_place=by_place, named=named,
        width=width,
    )  # fmt: skip


def count(cloud: CpuCloud, radius: ArrayLike, *, order: str = "input", threads: int | None = None) -> np.ndarray:
    """Return the number of neighbours of each particle, (rows,) int32, images included. See `pairs`."""
    threads = threads_for(threads, len(cloud.order))
    cloud, uniform = _sized(cloud, radius)
    if uniform is None:
        cloud, order = on_levels(cloud, order, threads)
    search = search_of(cloud, names_of(cloud, order), uniform)
    counts = np.zeros(len(cloud.order) if order == "grid" else cloud.particles, np.int64)
    query, boxes = _own_query(cloud, search, half=False)
    if search.criterion == UNIFORM and (least := _least_pairs(cloud, search, 1, query)) > MOST_COUNTED:
        raise too_many(least, at_least=True)
    count_rows(query, search, counts, threads, boxes)
    if (longest := int(counts.max(initial=0))) > MOST_COUNTED:
        raise too_many(longest)
    return counts.astype(np.int32)


def point_query(
    cloud: CpuCloud, x: Sequence[np.ndarray], system: np.ndarray | None, threads: int
) -> tuple[Query, np.ndarray | None, Faults, np.ndarray | None]:
    """Return points as a query in the order of cells, their turns, what is wrong with them.

    The last result is where the points of each system begin, if there are systems.
    """
    cells, boxes = cloud.cells, cloud.systems
    everywhere, periodic = cells.dtype.type(np.inf), np.array(cells.periodic, bool)
    anywhere = cells._replace(
        lower=np.where(periodic, cells.lower, -everywhere), upper=np.where(periodic, cells.upper, everywhere), levels=1
    )
    if boxes is None:
        keys, folded, turns, faults = locate(x, None, anywhere, threads)
        bins = anywhere.total
    else:
        assert system is not None
        boxes = boxes._replace(
            lower=np.where(periodic, boxes.lower, -everywhere), upper=np.where(periodic, boxes.upper, everywhere)
        )
        keys, folded, turns, faults = locate_systems(x, None, anywhere, boxes, system, threads)
        bins = anywhere.total * boxes.total
    ordered = counting_sort(keys, bins, threads)
    order = ordered.order[: int(ordered.start[-1])]
    none = np.empty((0, 3), np.int64)
    query = Query(
        sorted_points(folded, order, threads), np.empty((0, PAD), cells.dtype),
        np.concatenate([order, np.zeros(PAD, np.int32)]), 0, 0, none, none.astype(cells.dtype), 0, len(order),
    )  # fmt: skip
    return query, turns, faults, None if boxes is None else ordered.start[:: anywhere.total]


def neighbours(
    cloud: CpuCloud, x: Sequence[np.ndarray], radius: float, system: np.ndarray | None = None, *,
    quantities: str = "j", threads: int | None = None,
) -> tuple[Pairs, Faults]:  # fmt: skip
    """Return the particles near each of the points ``x`` as a csr list, and what is wrong with points.

    Points have a ``system`` (M,) each, if particles have one.
    """
    threads = threads_for(threads, len(x[0]))
    query, turned, faults, begins = point_query(cloud, x, system, threads)
    search = search_of(cloud, names_of(cloud, "input"), radius, points=True)
    boxes = None if begins is None else search_boxes(cloud, search, begins)
    return _list(query, boxes, search, cloud, turned, len(x[0]), quantities, "csr", threads), faults


def overlaps(cloud: CpuCloud, *, shape: str | None = None, quantities: str = "ij", threads: int | None = None) -> Pairs:
    """Return the pairs of particles that overlap as a coo list, each once, ``i < j``; a radius as a box is a cube."""
    cloud, threads = shaped(cloud, shape), threads_for(threads, len(cloud.order))
    search = search_of(cloud, names_of(cloud, "grid"), None, forward=True)
    query, boxes = _own_query(cloud, search, half=True)
    return _list(query, boxes, search, cloud, cloud.turns, len(cloud.order), quantities, "coo", threads, named=True)


def shaped(cloud: CpuCloud, shape: str | None) -> CpuCloud:
    """Return a cloud whose sizes are those of a shape."""
    sizes = np.empty((0, 0)) if cloud.sizes is None else cloud.sizes
    if checks.compares_boxes(len(sizes), shape) and len(sizes) == 1:
        cubes = np.zeros((3, sizes.shape[1]), sizes.dtype)
        cubes[cloud.cells.missing :] = sizes
        return cloud._replace(sizes=cubes)
    return cloud
