# SPDX-License-Identifier: BSD-3-Clause
"""Searches of systems: compiled loops over pieces of systems that call the search of one box.

A piece is a range of points of one system. Its search sees the cells of this system only, and its lattice.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from particlemesh.backends.cpu import claimed, run
from particlemesh.backends.jit import compiled
from particlemesh.backends.simd import fetch_add
from particlemesh.grid.cpu.lanes import width_for
from particlemesh.grid.cpu.queries.candidates import UNIFORM, Search, largest_by_level
from particlemesh.grid.cpu.queries.cloud import CpuCloud
from particlemesh.grid.cpu.queries.rows import (
    SHARE,
    PairRows,
    Query,
    images_of,
    most_steps,
    no_rows,
    rooms_for,
    search_rows,
)
from particlemesh.grid.cpu.systems import pieces_of

_PIECE = 16 * SHARE  # points
_COMPARED = 1e8  # pairs compared in a piece where points meet many images


class SearchBoxes(NamedTuple):
    """What differs between the searches of S systems, and which points belong to which."""

    each: int  # cells of a system
    most: np.ndarray  # (S, levels, 3)
    inverse: np.ndarray  # (S, 3, 3)
    rows: np.ndarray  # (S, 3, 3)
    origin: np.ndarray  # (S, 3)
    per: np.ndarray  # (S, 3)
    margin: np.ndarray  # (S, 3)
    limit: np.ndarray  # (S, 3)
    scale: np.ndarray  # (S,)
    images: np.ndarray  # (images of all systems, 3): turns, as in `Query`
    vectors: np.ndarray  # (images of all systems, 3)
    first: np.ndarray  # (S + 1,): the first image of each system
    begins: np.ndarray  # (S + 1,): the first point of each system
    pieces: np.ndarray  # (P, 3): begin, end, system


def search_boxes(
    cloud: CpuCloud, search: Search, begins: np.ndarray | None = None, *, half: bool | None = None,
    reach: np.ndarray | None = None,
) -> SearchBoxes:  # fmt: skip
    """Return the boxes of a search, as for one box in ``search_of`` and ``images_of``.

    Points of a system begin at ``begins`` (S + 1,). By default they are its particles. These see images of themselves,
    all or ``half`` of them, within ``reach`` (S,).
    """
    boxes, real = cloud.systems, search.x.dtype
    assert boxes is not None
    each = int(search.first[-1])
    begins = np.ascontiguousarray(cloud.start[::each] if begins is None else begins, np.int64)
    most = largest_by_level(cloud, search.sizes, search.first, search.criterion, boxes.total)
    inverse = boxes.inverse.astype(float)
    per = np.sqrt((inverse**2).sum(2))
    farthest = np.full(boxes.total, float(search.radius))
    if search.criterion != UNIFORM:
        farthest = 4 * most.max((1, 2)).astype(float)
    spans = farthest * np.where(search.periodic != 0, per, 0).max(1)
    # As `margins` of candidates in one box.
    size = np.abs(boxes.origin.astype(float)) + (2 + np.ceil(spans))[:, None] * np.abs(boxes.rows.astype(float)).sum(1)
    margin = 8 * np.finfo(real).eps * np.einsum("sab,sb->sa", np.abs(inverse), size)
    limit = np.broadcast_to(1 / search.shape[0], per.shape).copy()
    limit[:, 2] = np.maximum(limit[:, 2], np.minimum(float(search.radius) * per[:, 2], 2.0))
    piece = _PIECE
    if spans.max(initial=0) > 0.5:  # every point meets many images of a system's particles: Ctrl-C waits for a piece
        images = np.prod(2 * farthest[:, None] * np.where(search.periodic != 0, per, 0) + 1, axis=1)
        piece = int(np.clip(_COMPARED / max(1.0, (np.diff(cloud.start[::each]) * images).max()), 1, _PIECE))
    per = per * (1 + 4 * np.finfo(real).eps)
    result = SearchBoxes(
        each, most, boxes.inverse, boxes.rows, boxes.origin, per.astype(real), margin.astype(real),
        limit.astype(real), boxes.scale, np.empty((0, 3), np.int64), np.empty((0, 3), real),
        np.zeros(boxes.total + 1, np.int64), begins, pieces_of(begins, piece),
    )  # fmt: skip
    return result if half is None else _with_images(result, search, farthest, half, reach)


def _with_images(
    boxes: SearchBoxes, search: Search, farthest: np.ndarray, half: bool, reach: np.ndarray | None
) -> SearchBoxes:
    """Return boxes with the images of themselves that particles may be neighbours of."""
    near = np.asarray(np.floor(farthest[:, None] * np.where(search.periodic != 0, boxes.per, 0) + 0.001).any(axis=1))
    first = np.zeros(len(near) + 1, np.int64)
    turns, vectors = [boxes.images], [boxes.vectors]
    for s in np.flatnonzero(near):  # those that are smaller than the search reaches
        here = search._replace(rows=boxes.rows[s], per=boxes.per[s], most=boxes.most[s])
        of_system, shifts = images_of(here, half=half, reach=math.inf if reach is None else float(reach[s]))
        turns.append(of_system)
        vectors.append(shifts)
        first[s + 1] = len(of_system)
    return boxes._replace(images=np.concatenate(turns), vectors=np.concatenate(vectors), first=np.cumsum(first))


@compiled
def search_in(search, boxes, s):
    """Return the search of a system."""
    return Search(
        search.x, search.y, search.z, search.sizes, search.numbers,
        search.start[s * boxes.each : (s + 1) * boxes.each + 1], search.occupied, search.first, search.shape,
        boxes.most[s], boxes.inverse[s], boxes.rows[s], boxes.origin[s], boxes.per[s], boxes.margin[s], boxes.limit[s],
        search.periodic, search.criterion, search.radius, search.square, search.forward, search.spans,
    )  # fmt: skip


@compiled
def query_in(query, boxes, begin, end, s):
    """Return the query of a range of places of a system."""
    first, last = boxes.first[s], boxes.first[s + 1]
    return Query(
        query.points, query.sizes, query.numbers, query.is_particle, query.half, boxes.images[first:last],
        boxes.vectors[first:last], begin, end,
    )  # fmt: skip


@compiled
def _search_pieces(query, search, boxes, counts, rows, keep, rooms, width, counter):
    """Count the neighbours of pieces of systems, or write them, until no piece is left."""
    state = np.array([0, fetch_add(counter, 1, 1)])
    for p in claimed(counter, boxes.pieces.shape[0]):
        begin, end, s = boxes.pieces[p, 0], boxes.pieces[p, 1], boxes.pieces[p, 2]
        state[0], thread = 0, state[1]
        search_rows(
            query_in(query, boxes, begin, end, s), search_in(search, boxes, s), counts, rows, keep, rooms, width, state
        )
        state[1] = thread


def count_rows(
    query: Query, search: Search, counts: np.ndarray, threads: int, boxes: SearchBoxes | None = None
) -> None:
    """Write how many neighbours each point has to ``counts`` (rows,) int64."""
    _run(query, search, boxes, counts, no_rows(search.x.dtype), 0, threads)


def fill_rows(query: Query, search: Search, rows: PairRows, threads: int, boxes: SearchBoxes | None = None) -> None:
    """Write the neighbours of each point from ``rows.start`` of its number on."""
    _run(query, search, boxes, np.empty(0, np.int64), rows, 1, threads)


def _run(
    query: Query, search: Search, boxes: SearchBoxes | None, counts: np.ndarray, rows: PairRows, keep: int, threads: int
) -> None:
    real = search.x.dtype
    used = threads_of(query, boxes, threads)
    results = counts, rows, keep, rooms_for(used, real), width_for(real.itemsize)
    if boxes is None:
        run(search_rows, used, query, search, *results, steps=most_steps(query, search))
    else:
        run(_search_pieces, used, query, search, boxes, *results, steps=most_steps(query, search))


def threads_of(query: Query, boxes: SearchBoxes | None, threads: int) -> int:
    """Return how many threads find work."""
    shares = -(-(query.end - query.begin) // SHARE) if boxes is None else len(boxes.pieces)
    return max(1, min(threads, shares))
