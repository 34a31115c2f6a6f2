# SPDX-License-Identifier: BSD-3-Clause
"""From a group of neighbouring points to all that may be within their reach.

Cells of the last axis follow each other in memory, so a row of cells is one strip of places. The strips that a
group can reach are copied one behind the other into a buffer. There each point of the group is compared with
vectors of candidates. Copying is shared by the group and leaves no short loops.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from particlemesh.backends.jit import compiled
from particlemesh.backends.simd import fuse, load, store
from particlemesh.grid.cpu.lanes import PAD
from particlemesh.grid.cpu.locate import level_shape, margins
from particlemesh.grid.cpu.queries.cloud import CpuCloud
from particlemesh.grid.limits import check_squares, square_within

UNIFORM, SPHERES, BOXES = 0, 1, 2  # what is near: closer than a number, than the sum of radii, boxes that overlap
MOST_POINTS = 8  # of a group: more share a copy, but their strips are longer
ROOM = 1024  # candidates of a buffer, so that it stays in the first cache
RUNS = 64  # strips of a buffer at most whose images differ
MOST_IMAGES = 2**20  # boxes that a reach may span
# Where a search is: level, image, cell along the first two axes, place; whether it is at its end.
_LEVEL, _IMAGE, _CELL, _PLACE, DONE, STATE = 0, 1, 4, 6, 7, 8


class Search(NamedTuple):
    """A cloud and what is near, as compiled functions see them."""

    x: np.ndarray  # (n + PAD,)
    y: np.ndarray
    z: np.ndarray
    sizes: np.ndarray  # (0, 1 or 3; n + PAD)
    numbers: np.ndarray  # (n + PAD,) int32: what a place is called in results
    start: np.ndarray
    occupied: np.ndarray  # (cells,) int64: ascending numbers of the cells in `start`; empty: all cells are there
    first: np.ndarray  # (levels + 1,): the first cell of each level
    shape: np.ndarray  # (levels, 3)
    most: np.ndarray  # (levels, 3): the largest radius (first column) or half extents of a level's particles
    inverse: np.ndarray
    rows: np.ndarray
    origin: np.ndarray
    per: np.ndarray  # (3,): fractions that a distance of one spans across the faces of each axis
    margin: np.ndarray  # (3,): what rounding may take from a difference of fractions
    limit: np.ndarray  # (3,): the largest extent of a group, in fractions
    periodic: np.ndarray  # (3,)
    criterion: int  # UNIFORM, SPHERES, BOXES
    radius: Any  # where it is uniform
    square: Any
    forward: int  # 1: only places from the group's first on
    spans: float  # boxes along a periodic axis within the farthest reach


def _index(occupied: np.ndarray, number: int) -> int:
    return int(np.searchsorted(occupied, number)) if len(occupied) else int(number)


def largest_by_level(cloud: CpuCloud, sizes: np.ndarray, first: np.ndarray, criterion: int, systems: int) -> np.ndarray:
    """Return the largest radius (first number) or half extents of the particles of each level, (systems, levels, 3)."""
    levels = len(first) - 1
    most = np.zeros((systems * levels, 3), sizes.dtype)
    if criterion != UNIFORM:
        if systems > 1:
            bounds = cloud.start[(np.arange(systems)[:, None] * first[-1] + first[:-1]).ravel()]
            bounds = np.append(bounds, cloud.start[-1])
        else:
            bounds = np.array([cloud.start[_index(cloud.occupied, number)] for number in first])
        held = np.flatnonzero(bounds[1:] > bounds[:-1])
        if len(held):
            most[held, : len(sizes)] = np.maximum.reduceat(sizes[:, : bounds[-1]], bounds[held], axis=1).T
    return most.reshape(systems, levels, 3)


def search_of(
    cloud: CpuCloud, numbers: np.ndarray, radius: float | None, *, forward: bool = False, points: bool = False
) -> Search:
    """Return a search over a cloud; ``numbers`` (n + PAD,) name its places in results.

    Neighbours are within ``radius``, or spheres or boxes that overlap (None). ``forward`` counts only places from each
    group's first on. ``points``: those that look for neighbours are anywhere, not in the cloud.
    """
    cells = cloud.cells
    real, levels = cells.dtype.type, cells.levels
    shape = np.array([level_shape(cells.shape, level) for level in range(levels)], np.int64)
    first = np.concatenate([np.zeros(1, np.int64), np.cumsum(shape.prod(1))])
    sizes = cloud.sizes if radius is None and cloud.sizes is not None else np.empty((0, PAD), real)
    criterion = UNIFORM if radius is not None else SPHERES if len(sizes) == 1 else BOXES
    systems = 1 if cloud.systems is None else cloud.systems.total
    most = largest_by_level(cloud, sizes, first, criterion, systems).max(0)
    rows = (cells if cloud.systems is None else cloud.systems).rows
    bounded = radius is not None and not (points or any(cells.periodic))
    check_squares(2 * float(most.max(initial=0)) if radius is None else radius, rows, cells.dtype, bounded=bounded)
    if criterion == SPHERES:
        least = float(np.min(sizes, where=sizes > 0, initial=np.inf))
        check_squares(least if least < np.inf else 0.0, rows, cells.dtype, bounded=True)
    cutoff = real(0 if radius is None else min(radius, float(np.finfo(real).max)))
    inverse = (cells if cloud.systems is None else cloud.systems).inverse.astype(float)
    # How far a search goes at most; half extents are not beyond a radius times the root of three.
    farthest = float(cutoff) if criterion == UNIFORM else 4 * float(most.max(initial=0))
    per = np.sqrt((inverse**2).sum(-1)).reshape(-1, 3).max(0)  # of systems the most
    spans = farthest * per[np.array(cells.periodic) != 0].max(initial=0)
    if not spans < MOST_IMAGES:
        raise ValueError(
            f"a search within {farthest:g} spans {spans:g} periodic boxes; fewer than {MOST_IMAGES:,} are searched: "
            "take smaller radii."
        )
    # Measured on an EPYC 9005: thin cells along the last axis would cut groups too short.
    limit = np.maximum(1 / shape[0], [0, 0, min(float(cutoff) * per[2], 2.0)]).astype(real)
    return Search(
        cloud.points[0], cloud.points[1], cloud.points[2], sizes, numbers, cloud.start, cloud.occupied, first, shape,
        most, cells.inverse, cells.rows, cells.origin, (per * (1 + 4 * np.finfo(real).eps)).astype(real),
        margins(cells, math.ceil(spans)), limit, np.array(cells.periodic, np.int64), criterion, cutoff,
        real(square_within(float(cutoff), cells.dtype)), int(forward), float(spans),
    )  # fmt: skip


@compiled(forceinline=True)
def image_shift(rows, t0, t1, t2, b):
    """Return one coordinate of the vector to an image, with the arithmetic of kernels on GPUs."""
    return fuse(t2, rows[2, b], fuse(t1, rows[1, b], t0 * rows[0, b]))


@compiled(forceinline=True)
def group_of(points, k, end, search, low, high):
    """Return how many points from place ``k`` on make a group, and write the least and largest of their fractions."""
    inverse, origin, limit = search.inverse, search.origin, search.limit
    most = min(end - k, MOST_POINTS)
    for n in range(most):
        x, y, z = points[0, k + n] - origin[0], points[1, k + n] - origin[1], points[2, k + n] - origin[2]
        s0 = inverse[0, 0] * x + inverse[0, 1] * y + inverse[0, 2] * z
        s1 = inverse[1, 0] * x + inverse[1, 1] * y + inverse[1, 2] * z
        s2 = inverse[2, 0] * x + inverse[2, 1] * y + inverse[2, 2] * z
        if n == 0:
            low[0], low[1], low[2] = s0, s1, s2
            high[0], high[1], high[2] = s0, s1, s2
            continue
        l0, l1, l2 = min(low[0], s0), min(low[1], s1), min(low[2], s2)
        h0, h1, h2 = max(high[0], s0), max(high[1], s1), max(high[2], s2)
        if not (h0 - l0 <= limit[0] and h1 - l1 <= limit[1] and h2 - l2 <= limit[2]):
            return n
        low[0], low[1], low[2] = l0, l1, l2
        high[0], high[1], high[2] = h0, h1, h2
    return most


@compiled(forceinline=True)
def begin_search(search, k, count, sizes, state, extent):
    """Begin with the first level, and write how far the group's largest point reaches."""
    state[:] = 0
    state[_LEVEL], state[_CELL] = -1, -1
    extent[:] = search.radius
    if search.criterion != UNIFORM:
        for b in range(sizes.shape[0]):
            extent[b] = sizes[b, k]
            for n in range(1, count):
                extent[b] = max(extent[b], sizes[b, k + n])


@compiled
def _first_from(occupied, number, low):
    """Return where the first number not below ``number`` is, from ``low`` on; a near one takes few steps."""
    step, high = 1, low
    while high < occupied.size and occupied[high] < number:
        low, high, step = high + 1, high + step, 2 * step
    high = min(high, occupied.size)
    while low < high:
        middle = (low + high) // 2
        if occupied[middle] < number:
            low = middle + 1
        else:
            high = middle
    return low


@compiled
def _places(start, occupied, first, strip):
    """Return where a strip of cells begins and ends."""
    if occupied.size == 0:
        return start[first], start[first + strip]
    begin = _first_from(occupied, first, 0)
    return start[begin], start[_first_from(occupied, first + strip, begin)]


@compiled(forceinline=True)
def _next_level(search, place, low, high, extent, state, reach):
    """Go to the next level that has particles; write the first and last cell in reach along each axis."""
    levels = search.shape.shape[0]
    real = low.dtype.type
    level = state[_LEVEL] + 1
    while level < levels:
        first, end = search.first[level], search.first[level + 1]
        begin, end = _places(search.start, search.occupied, first, end - first)
        if end > begin and not (search.forward and end <= place):
            break
        level += 1
    state[_LEVEL] = level
    if level == levels:
        state[DONE] = 1
        return
    for a in range(3):
        wide = search.margin[a]
        if search.criterion == BOXES:
            for b in range(3):
                wide += abs(search.inverse[a, b]) * (extent[b] + search.most[level, b])
        else:
            wide += (extent[0] + search.most[level, 0]) * search.per[a]
        size = real(search.shape[level, a])
        first, last = np.floor((low[a] - wide) * size), np.floor((high[a] + wide) * size)
        if not search.periodic[a]:
            first, last = min(max(first, real(0)), size - 1), min(max(last, real(0)), size - 1)
        reach[0, a], reach[1, a] = np.int64(first), np.int64(last)
        state[_IMAGE + a] = reach[0, a] // search.shape[level, a]
    state[_CELL] = -1


@compiled(forceinline=True)
def _next_image(search, state, reach):
    """Go to the next image whose cells are in reach; return whether there was one."""
    for a in range(2, -1, -1):
        size = search.shape[state[_LEVEL], a]
        state[_IMAGE + a] += 1
        if state[_IMAGE + a] * size <= reach[1, a]:
            return True
        state[_IMAGE + a] = reach[0, a] // size
    return False


@compiled(forceinline=True)
def gather(search, place, low, high, extent, state, reach, buffer, bx, by, bz, called, runs, shifts, width):
    """Fill the buffer with the next candidates of a group; return how many runs of images there are.

    ``low``, ``high`` and ``extent`` (3,) are the group's fractions and its largest radius or half extents. ``state``
    and ``reach`` hold where the search is; ``state[DONE]`` is set at its end. Results:

    - ``buffer``: coordinates ``bx``, ``by``, ``bz``, and sizes
    - ``called``: numbers
    - ``runs``: where each run begins, and the turns of its image; one more entry closes the last run
    - ``shifts``: vectors to the images
    """
    real = shifts.dtype.type
    lanes = len(width)
    start, x, y, z, numbers, sizes = search.start, search.x, search.y, search.z, search.numbers, search.sizes
    dense = search.occupied.size == 0
    least = place if search.forward else 0
    n = 0
    for r in range(RUNS):
        if state[_CELL] < 0 and (state[_LEVEL] < 0 or not _next_image(search, state, reach)):
            _next_level(search, place, low, high, extent, state, reach)
        runs[r, 0] = n
        if state[DONE]:
            return r
        level, t0, t1, t2 = state[_LEVEL], state[_IMAGE], state[_IMAGE + 1], state[_IMAGE + 2]
        n0, n1, n2 = search.shape[level, 0], search.shape[level, 1], search.shape[level, 2]
        # The cells of this image, counted from its corner.
        f0, f1, f2 = max(reach[0, 0] - t0 * n0, 0), max(reach[0, 1] - t1 * n1, 0), max(reach[0, 2] - t2 * n2, 0)
        l0, l1 = min(reach[1, 0] - t0 * n0, n0 - 1), min(reach[1, 1] - t1 * n1, n1 - 1)
        strip = min(reach[1, 2] - t2 * n2, n2 - 1) + 1 - f2
        runs[r, 1], runs[r, 2], runs[r, 3] = t0, t1, t2
        for b in range(3):
            shifts[r, b] = image_shift(search.rows, real(t0), real(t1), real(t2), b)
        c0, c1, done = f0, f1, least
        if state[_CELL] >= 0:
            c0, c1, done = state[_CELL], state[_CELL + 1], state[_PLACE]
        while c0 <= l0:
            first = search.first[level] + (c0 * n1 + c1) * n2 + f2
            if dense:
                begin, end = max(start[first], done), start[first + strip]
            else:
                begin, end = _places(start, search.occupied, first, strip)
                begin = max(begin, done)
            if begin < end:
                taken = min(end - begin, ROOM - n)
                for at in range(0, taken, lanes):
                    store(bx, n + at, load(x, begin + at, width))
                    store(by, n + at, load(y, begin + at, width))
                    store(bz, n + at, load(z, begin + at, width))
                    store(called, n + at, load(numbers, begin + at, width))
                for b in range(sizes.shape[0]):
                    for at in range(0, taken, lanes):
                        store(buffer[3 + b], n + at, load(sizes[b], begin + at, width))
                n += taken
                if taken < end - begin:
                    state[_CELL], state[_CELL + 1], state[_PLACE] = c0, c1, begin + taken
                    runs[r + 1, 0] = n
                    return r + 1
            done = least
            c1 += 1
            if c1 > l1:
                c0, c1 = c0 + 1, f1
        state[_CELL] = -1
    runs[RUNS, 0] = n
    return RUNS
