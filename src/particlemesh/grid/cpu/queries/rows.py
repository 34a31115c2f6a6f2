# SPDX-License-Identifier: BSD-3-Clause
"""A row of neighbours for each point: how many, and which.

Threads claim shares of points in the order of cells and deal with a group of neighbouring points at a time. Groups
do not depend on threads, so neither does the order within a row.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from particlemesh.backends.cpu import STOPPED
from particlemesh.backends.jit import compiled
from particlemesh.backends.simd import acquire, add, fetch_add, fma, fuse, load, mul, splat, sub, unowned
from particlemesh.grid.cpu.lanes import PAD, apart, at_most, ones, size_at_most, unpack
from particlemesh.grid.cpu.queries.candidates import (
    BOXES,
    DONE,
    MOST_POINTS,
    ROOM,
    RUNS,
    SPHERES,
    STATE,
    UNIFORM,
    Search,
    begin_search,
    gather,
    group_of,
    image_shift,
)

SHARE = 256  # points that a thread claims at a time


class Query(NamedTuple):
    """Points that look for neighbours, in an order in which neighbours follow each other."""

    points: np.ndarray  # (3, M + PAD), folded
    sizes: np.ndarray  # (0, 1 or 3; M + PAD)
    numbers: np.ndarray  # (M + PAD,) int32: the row of each
    is_particle: int  # 1: the points are the cloud's particles, and no particle is its own neighbour except as an image
    half: int  # 1: of two particles only the one with the smaller number has the other in its row
    images: np.ndarray  # (images, 3): turns of the images of a particle that it may be a neighbour of
    vectors: np.ndarray  # (images, 3)
    begin: int  # the points from this place on look for neighbours,
    end: int  # up to this one


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


def rooms_for(threads: int, real: np.dtype) -> Room:
    """Return memory for each thread, threads along the first axis."""
    return Room(
        np.zeros((threads, 6, ROOM + PAD), real), np.zeros((threads, ROOM + PAD), np.int32),
        np.zeros((threads, ROOM + PAD), np.int32), np.zeros((threads, RUNS, 3), real),
        np.zeros((threads, RUNS + 1, 4), np.int64), np.zeros((threads, 4, 3), real),
        np.zeros((threads, STATE), np.int64), np.zeros((threads, 2, 3), np.int64),
        np.zeros((threads, MOST_POINTS), np.int64),
    )  # fmt: skip


@compiled(forceinline=True)
def room_of(rooms, thread):
    """Return the memory of a thread."""
    return Room(
        rooms.real[thread], rooms.called[thread], rooms.hits[thread], rooms.shifts[thread], rooms.runs[thread],
        rooms.bounds[thread], rooms.state[thread], rooms.reach[thread], rooms.place[thread],
    )  # fmt: skip


def images_of(search: Search, *, half: bool, reach: float = math.inf) -> tuple[np.ndarray, np.ndarray]:
    """Return turns and vectors of the images that a particle may be a neighbour of, only positive ones for half.

    Those beyond ``reach`` do not matter.
    """
    real = search.rows.dtype
    sizes = np.full(3, float(search.radius)) if search.criterion == UNIFORM else 2 * search.most.max(0).astype(float)
    distance = min(reach, float(sizes[0]) if search.criterion != BOXES else math.sqrt((sizes**2).sum()))
    most = np.where(search.periodic != 0, np.floor(distance * search.per.astype(float) + 0.001), 0).astype(int)
    if not most.any():
        return np.empty((0, 3), np.int64), np.empty((0, 3), real)
    turns = np.stack(np.meshgrid(*(np.arange(-m, m + 1) for m in most), indexing="ij"), -1).reshape(-1, 3)
    middle = len(turns) // 2  # they are in lexicographic order
    turns = turns[middle + 1 :] if half else np.delete(turns, middle, axis=0)
    turns = np.ascontiguousarray(turns, np.int64)
    vectors = np.empty(turns.shape, real)
    _vectors(search.rows, turns, vectors)
    near = (vectors.astype(float) ** 2).sum(1) <= (distance * 1.001) ** 2
    return turns[near], vectors[near]


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
def search_rows(query, search, counts, rows, keep, rooms, width, counter):
    """Count the neighbours of shares of points, or write them, until no share is left."""
    query, search, rows, counts = unowned(query), unowned(search), unowned(rows), unowned(counts)
    room = unowned(room_of(rooms, fetch_add(counter, 1, 1)))
    low, high, extent = unowned(room.bounds[0]), unowned(room.bounds[1]), unowned(room.bounds[2])
    bx, by, bz = unowned(room.real[0]), unowned(room.real[1]), unowned(room.real[2])
    b3, b4, b5 = unowned(room.real[3]), unowned(room.real[4]), unowned(room.real[5])
    points, sizes, runs, shifts, hits, place = query.points, query.sizes, room.runs, room.shifts, room.hits, room.place
    called, criterion, square = room.called, search.criterion, search.square
    first, count = query.begin, query.end - query.begin
    full = -1 if query.half == 0 else 0
    # Only j of every neighbour: the usual case, and a loop that does nothing else.
    plain = rows.i.size + rows.distance.size + rows.vector.size + rows.shift.size + rows.named == 0
    while True:  # measured: with ranges() a search takes up to a twentieth longer
        share = fetch_add(counter, 0, 1)
        if share * SHARE >= count:
            return
        k, last = first + share * SHARE, first + min(count, (share + 1) * SHARE)
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
                for m in range(query.images.shape[0]):
                    dx, dy, dz = query.vectors[m, 0], query.vectors[m, 1], query.vectors[m, 2]
                    if is_near(dx, dy, dz, criterion, square, sizes, k + n, sizes, k + n):
                        if keep:
                            _write_image(rows, place[n], number, query.vectors[m], query.images[m])
                        place[n] += 1
                if not keep:
                    counts[number] = place[n]
            k += members


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
    return steps * float(np.prod(2 * reach * search.per[search.periodic != 0].astype(float) + 1))
