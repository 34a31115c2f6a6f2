# SPDX-License-Identifier: BSD-3-Clause
"""Builds of grids on any backend, and what a grid says of its particles checked against NumPy."""

import itertools

import numpy as np

import particlemesh as pm
from grid_cases import all_pairs, check_answer, check_cells, level_shape, rounding, touched, walk


def own_radii(builder, case, x=None):
    """Radii for the builder that needs some: up to half a cell, in the type of the positions."""
    if builder.name != "linked_list_tight":
        return None
    box, count = case.domain, len(case.positions if x is None else x)
    thickness = (1 / np.linalg.norm(box.inverse, axis=1) / case.cells).min()
    return (np.random.default_rng(3).random(count) * 0.499 * thickness).astype(case.dtype)


def put(backend, grid, x, radii=None, **options):
    return grid.build(backend.array(x), None if radii is None else backend.array(radii), **options)


def stored(backend, grid):
    """The storage on the host."""
    storage = grid.storage
    return type(storage)(*(backend.host(a) if hasattr(a, "strides") else a for a in storage))


def order_of(backend, grid):
    return tuple(backend.host(a) for a in (grid.cell_start, grid.order, grid.rank))


def check_order(start, ends, order, rank, count):
    """Places, particles and their ranks are three sides of one thing; return the cell of each particle."""
    assert (start.dtype, order.dtype, rank.dtype) == (np.int32,) * 3
    assert len(rank) == count
    keys = np.full(count, -1)
    places = np.zeros(len(order), int)
    for cell, (first, last) in enumerate(zip(start, ends, strict=True)):
        keys[order[first:last]] = cell
        places[first:last] += 1
    np.testing.assert_array_equal(places, 1)  # every place is of one cell
    np.testing.assert_array_equal(np.sort(order), np.flatnonzero(keys >= 0))
    np.testing.assert_array_equal(rank[order], np.arange(len(order)))
    np.testing.assert_array_equal(rank[keys < 0], -1)
    return keys


def check_tight(storage, box, cells, x, radii):
    """A particle is listed where its bounding box is, and two that share cells meet in one."""
    lists = walk(storage, int(np.prod(cells)))
    entries = np.array([(i, mask, cell) for cell, held in enumerate(lists) for i, mask in held], int).reshape(-1, 3)
    assert len(np.unique(entries, axis=0)) == len(entries)
    i, mask, cell = entries.T
    place = np.stack(np.unravel_index(cell, cells), -1)
    first, wide = np.full((len(x), box.ndim), -1), np.zeros((len(x), box.ndim), int)
    first[i[mask == 0]] = place[mask == 0]
    np.testing.assert_array_equal(np.sort(i[mask == 0]), np.arange(len(x)))
    for a, bit in enumerate(storage.bits):  # set where the particle is in the cell before, too
        wide[i[mask & bit > 0], a] = 1
        np.testing.assert_array_equal(place[:, a], (first[i, a] + (mask & bit > 0)) % cells[a])
    np.testing.assert_array_equal(np.bincount(i, minlength=len(x)), 2 ** wide.sum(1))  # every corner of the block
    (low, high), (least, most) = touched(box, cells, x, radii), touched(box, cells, x, radii, slack=40)
    for shift in (0, 1):  # the block reaches no further than rounding, and what is touched is in it
        at = first + shift * wide
        assert ((at == least % cells) | (at % cells == most % cells) | (at == low % cells) | (at == high % cells)).all()
    for side in (low, high):
        assert ((side % cells == first) | (side % cells == (first + wide) % cells)).all()
    if min(cells) > 2:  # with fewer, images meet too
        meetings = {}
        for held in lists:
            for (i, m), (j, n) in itertools.combinations(held, 2):
                if i != j:
                    meetings.setdefault((min(i, j), max(i, j)), []).append(m & n == 0)
        assert all(sum(met) == 1 for met in meetings.values())


def check_grid(backend, grid, box, cells, x, radii=None, levels=1):
    """All that a grid shows: cells, order, ranks, positions, storage."""
    storage, (start, order, rank) = stored(backend, grid), order_of(backend, grid)
    count, total = len(x), sum(int(np.prod(level_shape(cells, n))) for n in range(levels))
    assert (grid.cells, grid.shape) == (total, cells)
    ends = start[1:]
    if getattr(storage, "ends", None) is not None:
        ends = storage.ends.astype(np.int64)[:total]
        assert start[total] == count
    keys = check_order(start[:total], ends, order, rank, count)
    assert (keys >= 0).all()
    check_cells(box, cells, x, keys, levels, radii)
    if grid.queries:
        positions = backend.host(grid.positions)
        assert positions.dtype == x.dtype
        s = (positions.astype(float) - box.origin) @ box.inverse.T
        slack = rounding(box, x) * np.abs(box.inverse).sum(1).max()
        assert (s > -slack).all() and (s < 1 + slack).all()
        turns = (x[order].astype(float) - positions) @ box.inverse.T
        np.testing.assert_allclose(turns, np.rint(turns) * box.periodic, atol=slack)
        s = (x[order].astype(float) - box.origin) @ box.inverse.T
        inside = ((s > slack) & (s < 1 - slack) | ~np.array(box.periodic)).all(1)
        np.testing.assert_array_equal(positions[inside], x[order][inside])
    if type(storage).__name__ == "TightLists":
        check_tight(storage, box, cells, x, radii)
        return
    lists = walk(storage, total)
    if type(storage).__name__ == "SortedCells":
        assert lists == [order[a:b].tolist() for a, b in zip(start, ends, strict=False)]
    else:
        assert [sorted(held) for held in lists] == [sorted(order[a:b].tolist()) for a, b in itertools.pairwise(start)]


def _walk(r2, d, i, j, a, b, p, sum):
    weight = p[0] + b[1] * a[0]
    sum[0] += 1
    sum[1] += weight * d[0]
    sum[2] += weight * d[1]
    sum[3] += weight * d[2]
    sum[4] += r2 * (i - j)


WALK = pm.PairFunction(
    """
    real weight = p[0] + b[1] * a[0];
    sum[0] += 1;
    for (int axis = 0; axis < 3; axis++) sum[1 + axis] += weight * d[axis];
    sum[4] += r2 * (real)(i - j);
    """,
    _walk, results=5, values=2, parameters=(0.5,),
)  # fmt: skip


def check_nearest(backend, grid, box, x, k, radius, points=None):
    """The distances are the least there are, and each is that of the particle beside it."""
    indices, distances = grid.nearest(k, radius, None if points is None else backend.array(points))
    indices, distances = backend.host(indices), backend.host(distances)
    rows = len(x if points is None else points)
    assert indices.shape == distances.shape == (rows, k)
    assert indices.dtype == np.int32 and distances.dtype == x.dtype
    np.testing.assert_array_equal(indices < 0, np.isinf(distances))
    assert (distances[:, 1:] >= distances[:, :-1]).all()
    band = rounding(box, x if points is None else np.concatenate([x, points]), radius)
    oracle = all_pairs(box, x, radius + 2 * band, points)
    by_row = np.lexsort((oracle.distance, oracle.i))
    i, j, d = oracle.i[by_row], oracle.j[by_row], oracle.distance[by_row]
    for row, (first, last) in enumerate(itertools.pairwise(np.searchsorted(i, np.arange(rows + 1)))):
        there, whose = d[first:last], j[first:last]
        filled = np.isfinite(distances[row]).sum()
        assert min(k, (there <= radius - band).sum()) <= filled <= min(k, (there <= radius + band).sum())
        np.testing.assert_allclose(distances[row, :filled], there[:filled], rtol=0, atol=band)
        for index, distance in zip(indices[row, :filled], distances[row, :filled], strict=True):
            images = (indices[row, :filled] == index) & (np.abs(distances[row, :filled] - distance) <= band)
            assert ((whose == index) & (np.abs(there - distance) <= 2 * band)).sum() >= images.sum()


def check_list(backend, box, x, radius, *, oracle=None, half=False, widths=None):
    """Ask ``neighbour_list`` for everything and compare with all pairs; return how many there are."""
    given = radius if widths is None else backend.array(widths)
    i, j, shift, vector, distance = (
        backend.host(a) for a in pm.neighbour_list("ijSDd", backend.array(x), box, given, half=half)
    )
    assert (np.diff(i) >= 0).all()
    oracle = all_pairs(box, x, np.max(radius, initial=0)) if oracle is None else oracle
    check_answer(box, x, radius, (i, j, shift, distance, vector), oracle, half=half)
    return len(i)


def cloud(box, count, real="f8", *, beyond=0.0, seed=3):
    """Positions over some boxes along periodic axes, and over as many beyond the ends of open ones."""
    rng = np.random.default_rng(seed)
    s = rng.random((count, box.ndim))
    turns = rng.integers(-2, 3, s.shape)
    s = np.where(box.periodic, s + turns, s + beyond * (rng.random(s.shape) * 2 - 1))
    return (s @ box.matrix + box.origin).astype(real)
