# SPDX-License-Identifier: BSD-3-Clause
"""Every builder of a grid on every backend: each particle once, in its cell, and what is told of it agrees."""

import itertools
import time

import numpy as np
import pytest

import particlemesh as pm
from grid_cases import BOXES, CASES, Case, check_cells, level_shape, levels_of, rounding, touched, walk
from particlemesh.grid.builders import METHODS

COUNTS = [0, 1, 31, 32, 33, 128, 129]


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


def told(backend, grid):
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
    found = np.array([(i, mask, cell) for cell, held in enumerate(lists) for i, mask in held], int).reshape(-1, 3)
    assert len(np.unique(found, axis=0)) == len(found)
    i, mask, cell = found.T
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
    """All that is told of a grid: cells, order, ranks, positions, storage."""
    storage, (start, order, rank) = stored(backend, grid), told(backend, grid)
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


@pytest.mark.parametrize("case", CASES, ids=str)
def test_each_particle_is_once_in_its_cell(backend, builder, case):
    x, radii = case.positions, own_radii(builder, case)
    with case.grid(method=builder.name) as grid:
        put(backend, grid, x, radii)
        check_grid(backend, grid, case.domain, case.cells, x, radii)
        assert grid.status == (len(x), 0, 0, 0, -1, 0, -1)
        grid.check()


@pytest.mark.parametrize("real", ["f4", "f8"])
def test_faces_belong_to_the_cell_above(backend, builder, real):
    # Where nothing rounds there is no excuse: halves, quarters and eighths, an ulp below, on and above each face.
    case = Case("exact", (8, 4, 2), "", 0, real)
    number = np.dtype(real).type
    x, keys = [], []
    for a, n in enumerate(case.cells):
        for face in range(1, n):
            for way, cell in ((-np.inf, face - 1), (face, face), (np.inf, face)):
                x.append([number(0.5)] * 3)
                x[-1][a] = np.nextafter(number(face), number(way))
                keys.append([0, 0, 0])
                keys[-1][a] = cell
    x, keys = np.array(x, number), np.ravel_multi_index(np.array(keys).T, case.cells)
    with case.grid(method=builder.name) as grid:
        put(backend, grid, x, own_radii(builder, case, x))
        start, order, rank = told(backend, grid)
        np.testing.assert_array_equal(check_order(start[:-1], start[1:], order, rank, len(x)), keys)


@pytest.mark.parametrize("extents", ["one", "radii", "boxes"])
@pytest.mark.parametrize("name", ["periodic", "left-handed", "skewed plane"])
def test_radii_choose_the_level(backend, builder, name, extents):
    case = Case(name, (9, 8, 7)[: BOXES[name].ndim], "wrapped", 150, "f4")
    box, x, rng = case.domain, case.positions, np.random.default_rng(5)
    thickness = (1 / np.linalg.norm(box.inverse, axis=1) / case.cells).min()
    sizes = thickness * rng.choice([0, 0.4, 0.49, 0.51, 0.99, 1.01, 30], len(x))  # of radii
    radii = {"one": 0.8 * thickness, "radii": sizes.astype(x.dtype)}.get(extents)
    if radii is None:
        radii = rng.random((len(x), box.ndim)).astype(x.dtype) * sizes[:, None].astype(x.dtype)
        radii[np.arange(len(x)), rng.integers(0, box.ndim, len(x))] = sizes
    given = radii if extents == "one" else backend.array(radii)
    with case.grid(method=builder.name, levels=3) as grid:
        if builder.name == "linked_list_tight":
            with pytest.raises(pm.MethodNotSuitable, match="'linked_list_tight' cannot .*: has one level"):
                grid.build(backend.array(x), given)
            return
        grid.build(backend.array(x), given)
        check_grid(backend, grid, box, case.cells, x, radii, levels=3)
        used = np.unique(levels_of(box, case.cells, 3, radii, len(x)))
        np.testing.assert_array_equal(used, [1] if extents == "one" else [0, 1, 2])
        put(backend, grid, x)  # without radii all are on the finest
        check_grid(backend, grid, box, case.cells, x, None, levels=3)


@pytest.mark.parametrize("kind", ["i4", "i8", "i2", "u4"])
@pytest.mark.parametrize(("n", "count"), [(1, 33), (7, 0), (7, 300), (1000, 129)])
def test_items_go_into_buckets_by_their_keys(backend, builder, n, count, kind):
    rng = np.random.default_rng(n)
    keys = rng.integers(0 if kind[0] == "u" else -2, n, count).astype(kind)
    grid = pm.UniformGrid(1.0, shape=1, method=builder.name)
    if builder.name in ("linked_list_tight", "linked_list_packed"):
        with pytest.raises(pm.MethodNotSuitable, match="needs positions"):
            grid.build_keys(backend.array(keys), n)
        return
    grid.build_keys(backend.array(keys), n)
    start, order, rank = told(backend, grid)
    assert len(start) == n + 1 and start[-1] == (keys >= 0).sum()
    np.testing.assert_array_equal(
        check_order(start[:-1], start[1:], order, rank, count), np.maximum(keys.astype(int), -1)
    )
    lists = walk(stored(backend, grid), n)
    assert [sorted(held) for held in lists] == [np.flatnonzero(keys == bucket).tolist() for bucket in range(n)]
    with pytest.raises(RuntimeError, match="this grid keeps no positions: they need build, not build_keys"):
        grid.positions  # noqa: B018
    if n < 2**15:
        bad = np.concatenate([keys, np.array([0, n, n + 5], kind)])
        with pytest.raises(ValueError, match=rf"2 outside.* of {count + 3} particles; the first is {count + 1}"):
            grid.build_keys(backend.array(bad), n)
        np.testing.assert_array_equal(backend.host(grid.order), order)  # as it was


def test_without_queries_only_the_storage_is_made(backend, builder):
    case = CASES[2]
    x, radii = case.positions, own_radii(builder, case)
    with case.grid(method=builder.name, queries=False) as grid, case.grid(method=builder.name) as full:
        put(backend, grid, x, radii)
        put(backend, full, x, radii)
        if builder.name != "linked_list_tight" or backend.name == "cpu":
            check_grid(backend, grid, case.domain, case.cells, x, radii)  # the order is made when it is asked for
        else:
            check_tight(stored(backend, grid), case.domain, case.cells, x, radii)
            with pytest.raises(RuntimeError, match="build with queries=True to have one"):
                grid.order  # noqa: B018
        with pytest.raises(RuntimeError, match="this grid keeps no positions: .* queries=True"):
            grid.positions  # noqa: B018


@pytest.mark.parametrize("layout", ["row", "column"])
def test_fixed_cells_row_by_row_or_slot_by_slot(backend, layout):
    case = CASES[0]
    with case.grid(method="fixed", layout=layout, capacity=40) as grid:
        put(backend, grid, case.positions)
        check_grid(backend, grid, case.domain, case.cells, case.positions)
        storage = grid.storage
        strides = (40, 1) if layout == "row" else (1, grid.cells)
        assert (storage.capacity, storage.cell_stride, storage.slot_stride) == (40, *strides)
        assert storage.slots.shape == (40 * grid.cells,)


@pytest.mark.parametrize("case", [CASES[0], CASES[10], CASES[15], CASES[20], Case("open", (1, 1, 9), "uniform", 99, "f8")], ids=str)  # noqa: E501  # fmt: skip
def test_cells_along_a_morton_curve(backend, case):
    x = case.positions
    with case.grid(method="sort", curve="morton") as grid:
        put(backend, grid, x)
        check_grid(backend, grid, case.domain, case.cells, x)
        storage, order = stored(backend, grid), backend.host(grid.order)
        held = np.flatnonzero(storage.ends[: grid.cells] > storage.start[: grid.cells])
        by_place = held[np.argsort(storage.start[held])]
        cells = np.stack(np.unravel_index(by_place, case.cells), -1)
        codes = [0] * len(cells)
        for k, cell in enumerate(cells):  # bits in turns, the last axis lowest; an axis of few cells drops out
            at = 0
            for bit in range(10):
                for a in reversed(range(len(cell))):
                    if bit < int(case.cells[a] - 1).bit_length():
                        codes[k] |= (int(cell[a]) >> bit & 1) << at
                        at += 1
        assert codes == sorted(codes)
        for cell in held:  # stable
            assert (np.diff(order[storage.start[cell] : storage.ends[cell]]) > 0).all()
    with pytest.raises(pm.MethodNotSuitable, match="one Morton curve goes through one level"):
        put(backend, case.grid(method="sort", curve="morton", levels=2), x)
    with pytest.raises(pm.MethodNotSuitable, match="keys lie along no curve"):
        case.grid(method="sort", curve="morton").build_keys(backend.array(np.zeros(3, np.int32)), 4)


def test_row_64_deterministic_builds_keep_the_order_of_indices(backend, builder):
    for case in (CASES[2], CASES[15], CASES[22]):
        x, radii = case.positions, own_radii(builder, case)
        grid, refused = case.grid(method=builder.name, deterministic=True), ""
        try:
            put(backend, grid, x, radii)
        except pm.MethodNotSuitable as error:
            refused = str(error)
        if refused:
            assert backend.name != "cpu"
            assert "atomics leave the order within a cell to chance" in refused
            return
        seen = set()
        for _ in range(20):
            put(backend, grid, x, radii)
            start, order, rank = told(backend, grid)
            seen.add((start.tobytes(), order.tobytes(), rank.tobytes(), backend.host(grid.positions).tobytes()))
        assert len(seen) == 1
        for first, last in itertools.pairwise(start):
            assert (np.diff(order[first:last]) > 0).all()


@pytest.mark.parametrize("method", ["auto", *(m.name for m in METHODS)])
def test_all_particles_in_one_cell_take_no_longer(backend, method):
    # An order that is made by looking at a cell's particles in pairs would take minutes here.
    count, rng = 50_000, np.random.default_rng(1)
    x = (0.4 + 0.05 * rng.random((count, 3))).astype(np.float32)
    deterministic = method in ("auto", "sort") or backend.name == "cpu"
    grid = pm.UniformGrid((1.0, 1.0, 1.0), shape=(8, 8, 8), method=method, deterministic=deterministic)
    radii = np.full(count, 0.001, np.float32) if method == "linked_list_tight" else None
    put(backend, grid, x[:100], None if radii is None else radii[:100])  # compiles
    started = time.monotonic()
    put(backend, grid, x, radii)
    start, order, _ = told(backend, grid)
    assert time.monotonic() - started < 10
    assert start[-1] == count == np.diff(start).max()
    if deterministic:
        np.testing.assert_array_equal(order, np.arange(count))


def test_row_17_a_grid_is_built_again_with_other_counts(backend, builder):
    # One grid, more particles, fewer, none: what is left of others must not show.
    case = Case("mixed", (4, 3, 5), "wrapped", 200, "f8")
    x, radii = case.positions, own_radii(builder, case)
    with case.grid(method=builder.name) as grid:
        for count in (129, 31, 0, 200, 1, 33, 128, 0, 32, 129):
            some = slice(count // 3, count // 3 + count)
            few, their = x[some], None if radii is None else radii[some]
            put(backend, grid, few, their, check=count % 2 == 0)
            check_grid(backend, grid, case.domain, case.cells, few, their)
            grid.check()


@pytest.mark.parametrize("count", COUNTS)
def test_row_16_few_particles_in_few_and_many_cells(backend, builder, count):
    for name, cells in (("plane", (1, 1)), ("triclinic", (1, 1, 1)), ("open", (12, 10, 8)), ("line", (2000,))):
        case = Case(name, cells, "uniform", count, "f4")
        x, radii = case.positions, own_radii(builder, case)
        with case.grid(method=builder.name) as grid:
            put(backend, grid, x, radii)
            check_grid(backend, grid, case.domain, case.cells, x, radii)


def test_without_a_name_the_cheapest_builder_serves(backend):
    case = CASES[2]
    for options in ({}, {"deterministic": True}, {"queries": False}, {"levels": 2}):
        with case.grid(**options) as grid:
            put(backend, grid, case.positions)
            check_grid(backend, grid, case.domain, case.cells, case.positions, levels=options.get("levels", 1))
            lines = grid.explain().splitlines()
            heads = [line[2:].split()[0] for line in lines[1:] if line[2] != " "]  # a long reason goes on below
            assert sorted(heads) == sorted(m.name for m in METHODS)
            assert sum(line.startswith("* ") for line in lines) == 1
            assert "declined: needs radii" in grid.explain()
