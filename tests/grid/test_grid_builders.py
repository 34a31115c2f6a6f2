# SPDX-License-Identifier: BSD-3-Clause
"""Every builder of a grid on every backend: each particle once, in its cell, and what is told of it agrees."""

import itertools
import time

import numpy as np
import pytest

import particlemesh as pm
from grid_cases import BOXES, CASES, Case, levels_of, walk
from grid_checks import check_grid, check_order, check_tight, order_of, own_radii, put, stored
from particlemesh.grid.builders import METHODS


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
        start, order, rank = order_of(backend, grid)
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
    start, order, rank = order_of(backend, grid)
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


def test_deterministic_builds_keep_the_order_of_indices(backend, builder):
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
            start, order, rank = order_of(backend, grid)
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
    start, order, _ = order_of(backend, grid)
    assert time.monotonic() - started < 100
    assert start[-1] == count == np.diff(start).max()
    if deterministic:
        np.testing.assert_array_equal(order, np.arange(count))


@pytest.mark.parametrize("name", ["mixed", "plane", "triclinic", "open", "line"])
def test_a_grid_is_built_again_with_other_counts(backend, builder, name):
    # One grid of some, few or many cells, more particles, fewer, none: what is left of others must not show.
    cells = {"mixed": (4, 3, 5), "plane": (1, 1), "triclinic": (1, 1, 1), "open": (12, 10, 8), "line": (2000,)}[name]
    case = Case(name, cells, "wrapped" if name == "mixed" else "uniform", 200, "f8" if name == "mixed" else "f4")
    x, radii = case.positions, own_radii(builder, case)
    with case.grid(method=builder.name) as grid:
        for count in (129, 31, 0, 200, 1, 33, 128, 0, 32, 129):
            some = slice(count // 3, count // 3 + count)
            few, their = x[some], None if radii is None else radii[some]
            put(backend, grid, few, their, check=count % 2 == 0)
            check_grid(backend, grid, case.domain, case.cells, few, their)
            grid.check()


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
