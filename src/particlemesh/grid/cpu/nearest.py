# SPDX-License-Identifier: BSD-3-Clause
"""The nearest particles of each particle or point.

A first radius is guessed from how many particles the cell holds, and grows until it holds enough of them.
"""

from __future__ import annotations

import numpy as np

from particlemesh.backends.cpu import STOPPED, claimed, run
from particlemesh.backends.jit import compiled
from particlemesh.backends.simd import acquire, fetch_add, unowned
from particlemesh.grid import checks
from particlemesh.grid.cpu.search import (
    DONE,
    SHARE,
    UNIFORM,
    CpuCloud,
    Query,
    Search,
    SearchBoxes,
    begin_search,
    gather,
    group_of,
    most_steps,
    query_in,
    room_of,
    rooms_for,
    search_in,
    search_run,
    squared,
    threads_of,
    width_for,
)

_GROWTH = 1.5  # of the radius: three times the volume


@compiled(forceinline=True)
def _insert(squares, indices, row, length, square, index):
    """Put a neighbour into a sorted list, by square, then index; return the new length."""
    at = length
    if length == squares.shape[1]:
        at -= 1
        if square > squares[row, at] or (square == squares[row, at] and index >= indices[row, at]):
            return length
    while at > 0 and (
        square < squares[row, at - 1] or (square == squares[row, at - 1] and index < indices[row, at - 1])
    ):
        squares[row, at], indices[row, at] = squares[row, at - 1], indices[row, at - 1]
        at -= 1
    squares[row, at], indices[row, at] = square, index
    return min(length + 1, squares.shape[1])


@compiled
def _nearest_rows(query, search, guess, squares, indices, rooms, width, counter):
    """List the nearest particles of shares of points until no share is left."""
    query, search, squares, indices = unowned(query), unowned(search), unowned(squares), unowned(indices)
    room = unowned(room_of(rooms, fetch_add(counter, 1, 1)))
    low, high, extent = unowned(room.bounds[0]), unowned(room.bounds[1]), unowned(room.bounds[2])
    bx, by, bz = unowned(room.real[0]), unowned(room.real[1]), unowned(room.real[2])
    points, sizes, runs, shifts, hits, held = query.points, query.sizes, room.runs, room.shifts, room.hits, room.place
    called, numbers = room.called, query.numbers
    first, count, most = query.begin, query.end - query.begin, squares.shape[1]
    real = squares.dtype.type
    scale, mean, power = guess
    while True:  # measured: with ranges() a search takes up to a twentieth longer
        share = fetch_add(counter, 0, 1)
        if share * SHARE >= count:
            return
        k, last = first + share * SHARE, first + min(count, (share + 1) * SHARE)
        while k < last:
            if acquire(counter, 0) >= STOPPED:
                return
            members = group_of(points, k, last, search, low, high)
            cell = 0
            for a in range(3):
                size = search.shape[0, a]
                place = min(max(low[a] * real(size), real(0)), real(size - 1))
                cell = cell * size + np.int64(place)
            radius = scale * (real(search.start[cell + 1] - search.start[cell]) + mean) ** power
            while True:
                radius = min(search.radius, radius)
                begin_search(search, k, members, sizes, room.state, extent)
                extent[0] = radius
                reach = search.square if radius == search.radius else radius * radius
                held[:members] = 0
                while room.state[DONE] == 0:
                    run_count = gather(
                        search, k, low, high, extent, room.state, room.reach, room.real, bx, by, bz, called, runs,
                        shifts, width,
                    )  # fmt: skip
                    for n in range(members):
                        x, y, z = points[0, k + n], points[1, k + n], points[2, k + n]
                        number = np.int64(numbers[k + n])
                        mine = number if query.is_particle else np.int64(-1)
                        for r in range(run_count):
                            bound = min(reach, squares[number, most - 1]) if held[n] == most else reach
                            got = search_run(
                                bx, by, bz, bx, bx, bx, called, runs[r, 0], runs[r + 1, 0], x, y, z, sizes, k + n,
                                shifts, r, UNIFORM, bound, mine, -1, hits, 1, width,
                            )  # fmt: skip
                            for h in range(got):
                                p = hits[h]
                                dx, dy = (bx[p] - x) + shifts[r, 0], (by[p] - y) + shifts[r, 1]
                                square = squared(dx, dy, (bz[p] - z) + shifts[r, 2])
                                held[n] = _insert(squares, indices, number, held[n], square, called[p])
                full = True
                for n in range(members):
                    number = np.int64(numbers[k + n])
                    for m in range(query.images.shape[0]):
                        square = squared(query.vectors[m, 0], query.vectors[m, 1], query.vectors[m, 2])
                        if square <= reach:
                            held[n] = _insert(squares, indices, number, held[n], square, number)
                    full = full and held[n] == most
                if full or radius == search.radius:
                    break
                radius *= real(_GROWTH)
            for n in range(members):
                number = np.int64(numbers[k + n])
                for m in range(most):
                    inside = m < held[n]
                    squares[number, m] = np.sqrt(squares[number, m]) if inside else real(np.inf)
                    indices[number, m] = indices[number, m] if inside else -1
            k += members


@compiled
def _nearest_pieces(query, search, boxes, guess, squares, indices, rooms, width, counter):
    """List the nearest particles of pieces of systems until no piece is left."""
    state = np.array([0, fetch_add(counter, 1, 1)])
    scale, mean, power = guess
    for p in claimed(counter, boxes.pieces.shape[0]):
        begin, end, s = boxes.pieces[p, 0], boxes.pieces[p, 1], boxes.pieces[p, 2]
        state[0], thread = 0, state[1]
        _nearest_rows(
            query_in(query, boxes, begin, end, s), search_in(search, boxes, s), (scale * boxes.scale[s], mean, power),
            squares, indices, rooms, width, state,
        )  # fmt: skip
        state[1] = thread


def nearest(
    cloud: CpuCloud, search: Search, query: Query, boxes: SearchBoxes | None, k: int, rows: int, threads: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return indices and distances (rows, k) of the particles nearest to each point of a query."""
    real = search.x.dtype
    indices, distances = np.full((rows, k), -1, np.int32), np.full((rows, k), np.inf, real)
    used = threads_of(query, boxes, threads)
    missing = cloud.cells.missing
    volume = abs(np.linalg.det(cloud.cells.rows[missing:, missing:].astype(float)))
    first = checks.first_radius(k, volume, cloud.cells.shape[missing:], len(cloud.order) / cloud.boxes)
    guess = tuple(real.type(number) for number in first)
    results = guess, distances, indices, rooms_for(used, real), width_for(real)
    if boxes is None:
        run(_nearest_rows, used, query, search, *results, steps=most_steps(query, search))
    else:
        run(_nearest_pieces, used, query, search, boxes, *results, steps=most_steps(query, search))
    return indices, distances
