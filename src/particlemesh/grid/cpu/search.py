# SPDX-License-Identifier: BSD-3-Clause
"""What is near each of some points, on the CPU: how many there are, and which.

Threads claim shares of points in the order of cells and deal with a group of neighbouring points at a time. Groups
do not depend on threads, so neither does the order within a row. Cells of the last axis follow each other in memory, so
a row of cells is one strip of places. The strips that a group can reach are copied one behind the other into a buffer.
There each point of the group is compared with vectors of candidates. Copying is shared by the group and leaves no short
loops.

What differs between systems has an axis for them, of length 1 without systems. A share has points of one system; its
search sees the cells and the lattice of this system only.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import numpy as np

from particlemesh.backends.cpu import STOPPED, run
from particlemesh.backends.jit import compiled
from particlemesh.backends.simd import (
    WIDTHS,
    acquire,
    add,
    apart,
    at_most,
    fetch_add,
    fma,
    fuse,
    load,
    mul,
    ones,
    size_at_most,
    splat,
    store,
    sub,
    unowned,
    unpack,
)
from particlemesh.grid.checks import check_squares, square_within
from particlemesh.grid.cpu.locate import CpuCells, margins
from particlemesh.sorting.keys import level_shapes

UNIFORM, SPHERES, BOXES = 0, 1, 2  # what is near: closer than a number, than the sum of radii, boxes that overlap
MOST_POINTS = 8  # of a group: more share a copy, but their strips are longer
PAD = 16  # numbers that may be read past the end of what vectors are loaded from: the widest vector's
ROOM = 1024  # candidates of a buffer, so that it stays in the first cache
RUNS = 64  # strips of a buffer at most whose images differ
MOST_IMAGES = 2**20  # boxes that a reach may span
POINTS = 256  # points that a thread claims at a time
# Where a search is: level, image, cell along the first two axes, place; whether it is at its end.
_LEVEL, _IMAGE, _CELL, _PLACE, DONE, STATE = 0, 1, 4, 6, 7, 8


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


class Search(NamedTuple):
    """A cloud and what is near, as compiled functions see them: in S systems or, from ``search_in``, in one of them."""

    x: np.ndarray  # (n + PAD,)
    y: np.ndarray
    z: np.ndarray
    numbers: np.ndarray  # (n + PAD,) int32: what a place is called in results
    start: np.ndarray
    occupied: np.ndarray  # (cells,) int64: ascending numbers of the cells in `start`; empty: all cells are there
    forward: int  # 1: only places from the group's first on
    # The others follow from cells and radius, unless particles have radii of their own.
    sizes: np.ndarray  # (0, 1 or 3; n + PAD)
    first: np.ndarray  # (levels + 1,): the first cell of each level
    shape: np.ndarray  # (levels, 3)
    most: np.ndarray  # (S, levels, 3): the largest radius (first column) or half extents of a level's particles
    inverse: np.ndarray  # (S, 3, 3)
    rows: np.ndarray
    origin: np.ndarray  # (S, 3)
    per: np.ndarray  # (S, 3): fractions that a distance of one spans across the faces of each axis
    margin: np.ndarray  # (S, 3): what rounding may take from a difference of fractions
    limit: np.ndarray  # (S, 3): the largest extent of a group, in fractions
    periodic: np.ndarray  # (3,)
    criterion: int  # UNIFORM, SPHERES, BOXES
    radius: Any  # where it is uniform
    square: Any
    spans: float  # boxes along a periodic axis within the farthest reach


class Query(NamedTuple):
    """Points that look for neighbours, in an order in which neighbours follow each other."""

    points: np.ndarray  # (3, M + PAD), folded
    sizes: np.ndarray  # (0, 1 or 3; M + PAD)
    numbers: np.ndarray  # (M + PAD,) int32: the row of each
    is_particle: int  # 1: the points are the cloud's particles, and no particle is its own neighbour except as an image
    half: int  # 1: of two particles only the one with the smaller number has the other in its row
    images: np.ndarray  # (images of all systems, 3): turns of the images of a particle that it may be a neighbour of
    vectors: np.ndarray  # (images of all systems, 3)
    first: np.ndarray  # (S + 1,): the first image of each system
    shares: np.ndarray  # (shares, 3): begin, end, system of the points that a thread claims at a time


class PairRows(NamedTuple):
    """Where neighbours are written. Arrays of quantities that are not requested are empty."""

    start: np.ndarray  # (rows,) int64: where each row begins
    i: np.ndarray  # (P,) int32: number of the point
    j: np.ndarray  # (P,) int32: number of its neighbour
    shift: np.ndarray  # (P, d) int32: boxes between the neighbour as it was given and its image, and the point's own
    distance: np.ndarray  # (P,)
    vector: np.ndarray  # (P, d): from the point to the image
    turns: np.ndarray  # (count, 3) of the cloud's particles, or empty
    turned: np.ndarray  # (points, 3) of the points, or empty
    order: np.ndarray  # (n,): the caller's index of what a number is; empty where they are the same
    named: int  # 1: write the caller's indices, the smaller one as i


class Room(NamedTuple):
    """Memory of one thread."""

    real: np.ndarray  # (6, ROOM + PAD): candidates
    called: np.ndarray  # (ROOM + PAD,) int32
    hits: np.ndarray  # (ROOM + PAD,) int32
    shifts: np.ndarray  # (RUNS, 3)
    runs: np.ndarray  # (RUNS + 1, 4)
    bounds: np.ndarray  # (4, 3): low, high, extent, a vector
    state: np.ndarray  # (STATE,)
    reach: np.ndarray  # (2, 3)
    place: np.ndarray  # (MOST_POINTS,): where each point's row goes on


def largest_by_level(cloud: CpuCloud, sizes: np.ndarray, first: np.ndarray) -> np.ndarray:
    """Return the largest radius (first number) or half extents of the particles of each level, (systems, levels, 3)."""
    systems = len(cloud.cells.origin)
    cells = (np.arange(systems)[:, None] * first[-1] + first[:-1]).ravel()
    places = np.searchsorted(cloud.occupied, cells) if len(cloud.occupied) else cells
    bounds = np.append(cloud.start[places], cloud.start[-1])
    most = np.zeros((len(cells), 3), sizes.dtype)
    held = np.flatnonzero(bounds[1:] > bounds[:-1])
    if len(held):
        most[held, : len(sizes)] = np.maximum.reduceat(sizes[:, : bounds[-1]], bounds[held], axis=1).T
    return most.reshape(systems, -1, 3)


def search_of(
    cloud: CpuCloud, numbers: np.ndarray, radius: float | None, *, forward: bool = False, points: bool = False
) -> Search:
    """Return a search over a cloud; ``numbers`` (n + PAD,) name its places in results.

    Neighbours are within ``radius``, or spheres or boxes that overlap (None). ``forward`` counts only places from each
    group's first on. ``points``: those that look for neighbours are anywhere, not in the cloud.
    """
    if radius is not None and len(cloud.cells.origin) == 1:
        rest = rest_within(Same(cloud.cells), radius, points)
    else:
        rest = _rest(cloud.cells, radius, points, cloud)
    x, y, z = cloud.points
    return Search(x, y, z, numbers, cloud.start, cloud.occupied, int(forward), *rest)


def _rest(cells: CpuCells, radius: float | None, points: bool, cloud: CpuCloud | None) -> tuple[Any, ...]:
    """Return the fields of a search from ``sizes`` on; in one box with a radius the cloud does not matter."""
    real, levels = cells.dtype.type, cells.levels
    shape = np.array(level_shapes(cells.shape, levels), np.int64)
    first = np.concatenate([np.zeros(1, np.int64), np.cumsum(shape.prod(1))])
    origin, inverse, rows = cells.origin, cells.inverse, cells.rows
    sizes, most = np.empty((0, PAD), real), np.zeros((len(rows), levels, 3), real)
    criterion = UNIFORM if radius is not None else BOXES
    if radius is None and cloud is not None:
        sizes = sizes if cloud.sizes is None else cloud.sizes
        criterion = SPHERES if len(sizes) == 1 else BOXES
        most = largest_by_level(cloud, sizes, first)
    bounded = radius is not None and not (points or any(cells.periodic))
    check_squares(2 * float(most.max(initial=0)) if radius is None else radius, rows, cells.dtype, bounded=bounded)
    if criterion == SPHERES:
        least = float(np.min(sizes, where=sizes > 0, initial=np.inf))
        check_squares(least if least < np.inf else 0.0, rows, cells.dtype, bounded=True)
    cutoff = real(0 if radius is None else min(radius, float(np.finfo(real).max)))
    # How far a search goes at most; half extents are not beyond a radius times the root of three.
    farthest = np.full(len(rows), float(cutoff)) if criterion == UNIFORM else 4 * most.max((1, 2)).astype(float)
    periodic, per = np.array(cells.periodic, np.int64), np.sqrt((inverse.astype(float) ** 2).sum(2))
    spans = farthest * np.where(periodic != 0, per, 0).max(1)
    if not (widest := spans.max(initial=0)) < MOST_IMAGES:
        raise ValueError(
            f"a search within {farthest.max():g} spans {widest:g} periodic boxes; fewer than {MOST_IMAGES:,} are "
            "searched: take smaller radii."
        )
    # Measured on an EPYC 9005: thin cells along the last axis would cut groups too short.
    limit = np.broadcast_to(1 / shape[0], per.shape).astype(real)
    limit[:, 2] = np.maximum(limit[:, 2], np.minimum(float(cutoff) * per[:, 2], 2.0))
    return (
        sizes, first, shape, most, inverse, rows, origin, (per * (1 + 4 * np.finfo(real).eps)).astype(real),
        margins(origin, inverse, rows, np.ceil(spans)), limit, periodic, criterion, cutoff,
        real(square_within(float(cutoff), cells.dtype)), float(widest),
    )  # fmt: skip


class Same:
    """Something as the key of a memo: equal to itself only. It is kept, so that nothing else takes its place."""

    __slots__ = ("thing",)

    def __init__(self, thing: Any) -> None:
        self.thing = thing

    def __hash__(self) -> int:
        return id(self.thing)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.thing is other.thing


@functools.lru_cache(maxsize=64)
def rest_within(cells: Same, radius: float, points: bool = False) -> tuple[Any, ...]:
    """Return what searches of one box within one radius share, whatever the particles; errors as of ``search_of``."""
    return _rest(cells.thing, radius, points, None)


@functools.lru_cache(maxsize=64)
def images_within(
    cells: Same, radius: float, half: bool, k: int | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return ``images_of`` such a search."""
    fields: Any = [np.empty(0)] * 6 + [0, *rest_within(cells, radius)]  # without a cloud
    return images_of(Search(*fields), half=half, k=k)


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


@compiled
def rooms_for(threads, like):
    """Return memory for each thread, threads along the first axis, for reals of the type of an array."""
    real = like.dtype
    return Room(
        np.empty((threads, 6, ROOM + PAD), real), np.empty((threads, ROOM + PAD), np.int32),
        np.empty((threads, ROOM + PAD), np.int32), np.empty((threads, RUNS, 3), real),
        np.empty((threads, RUNS + 1, 4), np.int64), np.empty((threads, 4, 3), real),
        np.empty((threads, STATE), np.int64), np.empty((threads, 2, 3), np.int64),
        np.empty((threads, MOST_POINTS), np.int64),
    )  # fmt: skip


def width_for(real: np.dtype) -> tuple[int, ...]:
    """Return the lanes of 64 bytes of reals: a tuple of that length, see `particlemesh.backends.simd`."""
    return WIDTHS[64 // real.itemsize]


@compiled(forceinline=True)
def room_of(rooms, thread):
    """Return the memory of a thread."""
    return Room(
        rooms.real[thread], rooms.called[thread], rooms.hits[thread], rooms.shifts[thread], rooms.runs[thread],
        rooms.bounds[thread], rooms.state[thread], rooms.reach[thread], rooms.place[thread],
    )  # fmt: skip


def images_of(search: Search, *, half: bool, k: int | None = None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return turns and vectors of the images that particles may be neighbours of, and the first of each system.

    For ``half`` only positive ones. With ``k`` only those that may be among the ``k`` nearest.
    """
    real, sizes = search.rows.dtype, 2 * search.most.max(1).astype(float)
    distance = np.sqrt((sizes**2).sum(1)) if search.criterion == BOXES else sizes[:, 0]
    distance = distance + float(search.radius)  # one of the two is zero
    if k is not None:  # images along the shortest lattice vector are nearer than those beyond this
        lengths = np.linalg.norm(search.rows.astype(float), axis=2)[:, search.periodic != 0]
        distance = np.minimum(distance, (k // 2 + 1) * lengths.min(1, initial=math.inf))
    along = np.floor(distance[:, None] * search.per.astype(float) + 0.001)
    most = np.where(search.periodic != 0, along, 0).astype(int)
    turns, vectors, first = [np.empty((0, 3), np.int64)], [np.empty((0, 3), real)], np.zeros(len(sizes) + 1, np.int64)
    for s in np.flatnonzero(most.any(1)):  # those that are smaller than the search reaches
        here = np.stack(np.meshgrid(*(np.arange(-m, m + 1) for m in most[s]), indexing="ij"), -1).reshape(-1, 3)
        middle = len(here) // 2  # they are in lexicographic order
        here = np.ascontiguousarray(here[middle + 1 :] if half else np.delete(here, middle, axis=0), np.int64)
        shifts = np.empty(here.shape, real)
        _vectors(search.rows[s], here, shifts)
        near = (shifts.astype(float) ** 2).sum(1) <= (distance[s] * 1.001) ** 2
        turns.append(here[near])
        vectors.append(shifts[near])
        first[s + 1] = np.count_nonzero(near)
    return np.concatenate(turns), np.concatenate(vectors), np.cumsum(first)


@compiled(forceinline=True)
def squared(dx, dy, dz):
    """Return the square of a vector, rounded the same way in every search."""
    return fuse(dx, dx, fuse(dy, dy, dz * dz))


@compiled
def _vectors(rows, turns, vectors):
    """Write the vectors to images."""
    real = rows.dtype.type
    for m in range(turns.shape[0]):
        for b in range(3):
            vectors[m, b] = image_shift(rows, real(turns[m, 0]), real(turns[m, 1]), real(turns[m, 2]), b)


@compiled(forceinline=True)
def is_near(dx, dy, dz, criterion, square, sizes, k, other, p):
    """Return whether a vector is between neighbours, with the arithmetic of vectors."""
    if criterion == BOXES:
        near = abs(dx) <= other[0, p] + sizes[0, k] and abs(dy) <= other[1, p] + sizes[1, k]
        return near and abs(dz) <= other[2, p] + sizes[2, k]
    if criterion == SPHERES:
        return np.sqrt(squared(dx, dy, dz)) <= other[0, p] + sizes[0, k]
    return squared(dx, dy, dz) <= square


@compiled(forceinline=True)
def search_run(bx, by, bz, b3, b4, b5, called, begin, end, x, y, z, sizes, k, shifts, r, criterion, square, mine, full,
               hits, keep, width):  # fmt: skip
    """Return how many candidates of one run are neighbours of point ``k``; write their places in the buffer."""
    lanes = len(width)
    px, py, pz = splat(x, width), splat(y, width), splat(z, width)
    sx, sy, sz = splat(shifts[r, 0], width), splat(shifts[r, 1], width), splat(shifts[r, 2], width)
    real = shifts.dtype.type
    half = 2.0**-24 if shifts.itemsize == 4 else 2.0**-53  # step of numbers near 1/2
    zero, step = splat(real(0), width), splat(real(half + 4 * half * half), width)
    limit, times = splat(square, width), splat(real(1), width)
    hit_count = 0
    for at in range(begin, end, lanes):
        dx = add(sub(load(bx, at, width), px), sx)
        dy = add(sub(load(by, at, width), py), sy)
        dz = add(sub(load(bz, at, width), pz), sz)
        if criterion == BOXES:
            bits = size_at_most(dx, add(load(b3, at, width), splat(sizes[0, k], width)))
            bits &= size_at_most(dy, add(load(b4, at, width), splat(sizes[1, k], width)))
            bits &= size_at_most(dz, add(load(b5, at, width), splat(sizes[2, k], width)))
        else:
            if criterion == SPHERES:
                # A root rounds to no more than `limit` if its square is at most `limit` times the next number.
                limit = add(load(b3, at, width), splat(sizes[0, k], width))
                times = fma(limit, step, limit)
            # One comparison for both criteria: with one each, compilers make slower loops (1.4 times, streams).
            bits = at_most(zero, fma(limit, times, sub(zero, fma(dx, dx, fma(dy, dy, mul(dz, dz))))))
        bits &= apart(load(called, at, width), mine, full)
        if end - at < lanes:
            bits &= (1 << (end - at)) - 1
        if keep:
            hit_count = unpack(hits, hit_count, at, bits, width)
        else:
            hit_count += ones(bits)
    return hit_count


@compiled(forceinline=True)
def _write_image(rows, at, mine, vector, turn):
    """Write a particle as the neighbour of itself, by an image; its turns in the caller's positions cancel."""
    name = np.int64(rows.order[mine]) if rows.named else mine
    if rows.i.size > 0:
        rows.i[at] = name
    if rows.j.size > 0:
        rows.j[at] = name
    if rows.distance.size > 0:
        rows.distance[at] = np.sqrt(squared(vector[0], vector[1], vector[2]))
    if rows.vector.size > 0:
        for b in range(rows.vector.shape[1]):
            rows.vector[at, b] = vector[3 - rows.vector.shape[1] + b]
    if rows.shift.size > 0:
        for b in range(rows.shift.shape[1]):
            rows.shift[at, b] = turn[3 - rows.shift.shape[1] + b]


@compiled(forceinline=True)
def _write_run(rows, at, got, mine, hits, called, bx, by, bz, x, y, z, shifts, runs, r):
    """Write the neighbours of one run: one array after the other, so that each loop is a short one."""
    named, ordered = rows.named, rows.order.size > 0
    ours = np.int64(rows.order[mine]) if ordered else mine
    sx, sy, sz = shifts[r, 0], shifts[r, 1], shifts[r, 2]
    if rows.i.size > 0:
        for h in range(got):
            rows.i[at + h] = min(ours, np.int64(rows.order[called[hits[h]]])) if named else mine
    if rows.j.size > 0:
        for h in range(got):
            other = np.int64(called[hits[h]])
            rows.j[at + h] = max(ours, np.int64(rows.order[other])) if named else other
    if rows.distance.size > 0:
        for h in range(got):
            p = hits[h]
            rows.distance[at + h] = np.sqrt(squared((bx[p] - x) + sx, (by[p] - y) + sy, (bz[p] - z) + sz))
    axes = rows.vector.shape[1]
    if rows.vector.size > 0:
        for h in range(got):
            p = hits[h]
            sign = rows.vector.dtype.type(-1 if named and ours > rows.order[called[p]] else 1)
            rows.vector[at + h, axes - 1] = sign * ((bz[p] - z) + sz)
            if axes > 1:
                rows.vector[at + h, axes - 2] = sign * ((by[p] - y) + sy)
            if axes > 2:
                rows.vector[at + h, 0] = sign * ((bx[p] - x) + sx)
    axes = rows.shift.shape[1]
    if rows.shift.size > 0:
        for h in range(got):
            theirs = np.int64(called[hits[h]])
            theirs = np.int64(rows.order[theirs]) if ordered else theirs
            sign = -1 if named and ours > theirs else 1
            for b in range(3 - axes, 3):
                turn = runs[r, 1 + b]
                if rows.turns.size > 0:
                    turn -= rows.turns[theirs, b]
                if rows.turned.size > 0:
                    turn += rows.turned[ours, b]
                rows.shift[at + h, axes - 3 + b] = sign * turn


@compiled
def search_in(search, s):
    """Return the search of one system."""
    each = search.first[-1]
    return Search(
        search.x, search.y, search.z, search.numbers, search.start[s * each : (s + 1) * each + 1], search.occupied,
        search.forward, search.sizes, search.first, search.shape, search.most[s], search.inverse[s], search.rows[s],
        search.origin[s], search.per[s], search.margin[s], search.limit[s], search.periodic, search.criterion,
        search.radius, search.square, search.spans,
    )  # fmt: skip


@compiled
def search_rows(query, systems, counts, rows, keep, rooms, width, counter):
    """Count the neighbours of shares of points, or write them, until no share is left."""
    query, systems, rows, counts = unowned(query), unowned(systems), unowned(rows), unowned(counts)
    room = unowned(room_of(rooms, fetch_add(counter, 1, 1)))
    low, high, extent = unowned(room.bounds[0]), unowned(room.bounds[1]), unowned(room.bounds[2])
    bx, by, bz = unowned(room.real[0]), unowned(room.real[1]), unowned(room.real[2])
    b3, b4, b5 = unowned(room.real[3]), unowned(room.real[4]), unowned(room.real[5])
    points, sizes, runs, shifts, hits, place = query.points, query.sizes, room.runs, room.shifts, room.hits, room.place
    called, criterion, square = room.called, systems.criterion, systems.square
    full = -1 if query.half == 0 else 0
    # Only j of every neighbour: the usual case, and a loop that does nothing else.
    plain = rows.i.size + rows.distance.size + rows.vector.size + rows.shift.size + rows.named == 0
    while True:  # measured: with claimed() a search takes up to a twentieth longer
        share = fetch_add(counter, 0, 1)
        if share >= query.shares.shape[0]:
            return
        k, last, s = query.shares[share, 0], query.shares[share, 1], query.shares[share, 2]
        search = unowned(search_in(systems, s))
        while k < last:
            if acquire(counter, 0) >= STOPPED:  # a share of dense points may take seconds
                return
            members = group_of(points, k, last, search, low, high)
            begin_search(search, k, members, sizes, room.state, extent)
            for n in range(members):
                place[n] = rows.start[query.numbers[k + n]] if keep else 0
            while room.state[DONE] == 0:
                run_count = gather(
                    search, k, low, high, extent, room.state, room.reach, room.real, bx, by, bz, called, runs, shifts,
                    width,
                )  # fmt: skip
                for n in range(members):
                    x, y, z = points[0, k + n], points[1, k + n], points[2, k + n]
                    number = np.int64(query.numbers[k + n])
                    mine = number if query.is_particle else np.int64(-1)
                    for r in range(run_count):
                        got = search_run(
                            bx, by, bz, b3, b4, b5, called, runs[r, 0], runs[r + 1, 0], x, y, z, sizes, k + n,
                            shifts, r, criterion, square, mine, full, hits, keep, width,
                        )  # fmt: skip
                        at = place[n]
                        place[n] += got
                        if not keep:
                            continue
                        if plain:
                            for h in range(got):
                                rows.j[at + h] = called[hits[h]]
                        else:
                            _write_run(rows, at, got, number, hits, called, bx, by, bz, x, y, z, shifts, runs, r)
            for n in range(members):
                number = np.int64(query.numbers[k + n])
                for m in range(query.first[s], query.first[s + 1]):
                    dx, dy, dz = query.vectors[m, 0], query.vectors[m, 1], query.vectors[m, 2]
                    if is_near(dx, dy, dz, criterion, square, sizes, k + n, sizes, k + n):
                        if keep:
                            _write_image(rows, place[n], number, query.vectors[m], query.images[m])
                        place[n] += 1
                if not keep:
                    counts[number] = place[n]
            k += members


@compiled
def list_few(query, search, count, want, axes, turns, turned, order, named, width):
    """List the neighbours of few points by one thread, in ``count`` rows; return the fields of `PairRows` up to vector.

    Those that are wanted have a bit of ``want``, by their place there.
    """
    real, none = search.x.dtype, np.empty(0, np.int32)
    rooms, counts, start = rooms_for(1, search.x), np.zeros(count, np.int64), np.zeros(count + 1, np.int64)
    shift, distance, vector = np.empty((0, axes), np.int32), np.empty(0, real), np.empty((0, axes), real)
    rows = PairRows(start, none, none, shift, distance, vector, turns, turned, order, named)
    search_rows(query, search, counts, rows, 0, rooms, width, np.zeros(2, np.int64))
    for row in range(count):
        start[row + 1] = start[row] + counts[row]
    total = start[count]
    i, j = np.empty(total if want & 2 else 0, np.int32), np.empty(total if want & 4 else 0, np.int32)
    shift = np.empty((total if want & 8 else 0, axes), np.int32)
    distance, vector = np.empty(total if want & 16 else 0, real), np.empty((total if want & 32 else 0, axes), real)
    rows = PairRows(start, i, j, shift, distance, vector, turns, turned, order, named)
    if total > 0 and want != 0:
        search_rows(query, search, counts, rows, 1, rooms, width, np.zeros(2, np.int64))
    return start, i, j, shift, distance, vector


def no_rows(real: np.dtype, axes: int = 1) -> PairRows:
    """Return rows that nothing is written to."""
    nothing, turns = np.empty(0, np.int32), np.empty((0, 3), np.int32)
    some = np.empty(0, real)
    return PairRows(
        start=np.empty(0, np.int64), i=nothing, j=nothing, shift=np.empty((0, axes), np.int32), distance=some,
        vector=some.reshape(0, axes), turns=turns, turned=turns, order=nothing, named=0,
    )  # fmt: skip


def most_steps(query: Query, search: Search) -> float:
    """Return how many pairs of a point and an image of a particle a search compares at most."""
    steps = float(query.points.shape[1]) * search.x.shape[0]
    if search.spans < 0.5:
        return steps
    reach = float(search.radius) if search.criterion == UNIFORM else 4 * float(search.most.max(initial=0))
    return steps * float(np.prod(2 * reach * search.per.max(0)[search.periodic != 0].astype(float) + 1))


def search_for(
    query: Query, search: Search, threads: int, *, counts: np.ndarray | None = None, rows: PairRows | None = None
) -> None:
    """Write how many neighbours each point has to ``counts`` (rows,) int64, or the neighbours to ``rows``.

    Those of a point go from ``rows.start`` of its number on.
    """
    real, used = search.x.dtype, threads_of(query, threads)
    counts = np.empty(0, np.int64) if counts is None else counts
    filled = no_rows(real) if rows is None else rows
    run(
        search_rows, used, query, search, counts, filled, int(rows is not None), rooms_for(used, search.x),
        width_for(real), steps=most_steps(query, search),
    )  # fmt: skip


def threads_of(query: Query, threads: int) -> int:
    """Return how many threads find work."""
    return max(1, min(threads, len(query.shares)))
