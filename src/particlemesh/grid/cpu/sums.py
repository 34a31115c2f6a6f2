# SPDX-License-Identifier: BSD-3-Clause
"""Sums of a user's pair function over the neighbours of each particle, without a list.

The function is compiled into the loop, so the loop is compiled for each function anew. What it calls is not.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from particlemesh.backends.cpu import ranges, run
from particlemesh.backends.jit import compiled, loop_with
from particlemesh.backends.simd import fetch_add, unowned
from particlemesh.grid.cpu.search import (
    DONE,
    SHARE,
    CpuCloud,
    Query,
    Search,
    SearchBoxes,
    begin_search,
    gather,
    group_of,
    most_steps,
    room_of,
    rooms_for,
    search_in,
    search_run,
    squared,
    width_for,
)
from particlemesh.grid.queries.pair_function import PairFunction


@compiled
def _begin(query, search, room, k, last):
    """Begin a group at place ``k``; return how many members it has."""
    low, high, extent = room.bounds[0], room.bounds[1], room.bounds[2]
    members = group_of(query.points, k, last, search, low, high)
    begin_search(search, k, members, query.sizes, room.state, extent)
    return members


@compiled
def _candidates(search, room, k, width):
    """Fill the room with the next candidates; return how many runs there are."""
    low, high, extent = room.bounds[0], room.bounds[1], room.bounds[2]
    return gather(
        search, k, low, high, extent, room.state, room.reach, room.real, room.real[0], room.real[1], room.real[2],
        room.called, room.runs, room.shifts, width,
    )  # fmt: skip


@compiled
def _hits(room, r, x, y, z, sizes, criterion, square, k, width):
    """Write where in the room the neighbours of place ``k`` in one run are; return how many there are."""
    b, runs = room.real, room.runs
    return search_run(
        b[0], b[1], b[2], b[3], b[4], b[5], room.called, runs[r, 0], runs[r + 1, 0], x, y, z, sizes, k, room.shifts,
        r, criterion, square, k, -1, room.hits, 1, width,
    )  # fmt: skip


def pair_function(r2, d, i, j, a, b, p, sums):
    """Stand for the user's function, which takes this name when the loop is compiled."""
    raise NotImplementedError


def _sum_rows(query, search, boxes, order, values, parameters, totals, rooms, width, counter):
    """Add up over the neighbours of shares of particles until no share is left; ``pair_function`` is the user's.

    Without systems ``boxes`` is None, and nothing is compiled for them.
    """
    query, search, order = unowned(query), unowned(search), unowned(order)
    values, parameters, totals = unowned(values), unowned(parameters), unowned(totals)
    room = unowned(room_of(rooms, fetch_add(counter, 1, 1)))
    b, hits, called, shifts, points = room.real, room.hits, room.called, room.shifts, query.points
    vector = unowned(room.bounds[3])
    here, first_image, last_image = search, np.int64(0), np.int64(query.images.shape[0])
    for begin, last in ranges(counter, order.size, SHARE):
        k, end = begin, last
        while k < last:
            if boxes is not None and k in (begin, end):  # of the next system
                s = np.searchsorted(boxes.begins, k, side="right") - 1
                end = min(last, boxes.begins[s + 1])
                here = unowned(search_in(search, boxes, s))
                first_image, last_image = boxes.first[s], boxes.first[s + 1]
            members = _begin(query, here, room, k, end)
            while room.state[DONE] == 0:
                run_count = _candidates(here, room, k, width)
                for q in range(k, k + members):
                    x, y, z = points[0, q], points[1, q], points[2, q]
                    i = np.int64(order[q])
                    for r in range(run_count):
                        for h in range(_hits(room, r, x, y, z, query.sizes, search.criterion, search.square, q, width)):
                            p = hits[h]
                            vector[0] = (b[0, p] - x) + shifts[r, 0]
                            vector[1] = (b[1, p] - y) + shifts[r, 1]
                            vector[2] = (b[2, p] - z) + shifts[r, 2]
                            square = squared(vector[0], vector[1], vector[2])
                            j = called[p]
                            pair_function(
                                square, vector, i, np.int64(order[j]), values[q], values[j], parameters, totals[i]
                            )
            for q in range(k, k + members):
                i = np.int64(order[q])
                for m in range(first_image, last_image):
                    vector[:] = query.vectors[m]
                    square = squared(vector[0], vector[1], vector[2])
                    if square <= search.square:
                        pair_function(square, vector, i, i, values[q], values[q], parameters, totals[i])
            k += members


def sums(
    cloud: CpuCloud, search: Search, query: Query, boxes: SearchBoxes | None, function: PairFunction, values: Any,
    threads: int,
) -> np.ndarray:  # fmt: skip
    """Return the sums (count, results) of a pair function over the neighbours of the particles of a query."""
    real = search.x.dtype
    per_particle = np.empty((cloud.particles, 0), real) if values is None else values
    per_particle = per_particle if per_particle.ndim == 2 else per_particle[:, None]
    by_place = np.ascontiguousarray(per_particle[cloud.order], real)
    totals = np.zeros((cloud.particles, function.results), real)
    used = max(1, min(threads, -(-len(cloud.order) // SHARE)))
    run(
        loop_with(_sum_rows, "pair_function", function.on_cpu), used, query, search, boxes, cloud.order, by_place,
        np.array(function.parameters, real), totals, rooms_for(used, real), width_for(real),
        steps=most_steps(query, search),
    )  # fmt: skip
    return totals
