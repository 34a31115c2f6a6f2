# SPDX-License-Identifier: BSD-3-Clause
"""Pairs and counts of grids on every backend, from every builder, in every form, against all images of all pairs."""

import inspect
import itertools

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import particlemesh as pm
from grid_cases import (
    CASES,
    SKEWED,
    Case,
    all_pairs,
    check_answer,
    check_counts,
    entries,
    forward,
    oracle_of,
    radius_of,
    rounding,
    turned,
)
from grid_checks import WALK, order_of, own_radii, put
from particlemesh.grid.cpu.queries import CpuQueries
from particlemesh.grid.queries.device_queries import DeviceQueries

ALL = "ijdDS"
WRAPPED = Case("mixed", (4, 3, 5), "wrapped", 130, "f4")
PLANE = Case("skewed plane", (5, 3), "wrapped", 150, "f8")


def questions(side):
    """The public methods of a class, and what they take."""
    return {
        name: [*inspect.signature(f).parameters] for name, f in vars(side).items() if name[0] != "_" and callable(f)
    }


def test_a_query_is_a_method_of_both_sides_and_of_grids():
    host, device = questions(CpuQueries), questions(DeviceQueries)
    of_unchecked = {"asked_again", "check", "rows_of"}  # lists of GPUs, and of parts
    host["pairs"].remove("of")  # rows of some particles: the CPU searches for no others
    assert {name: host.get(name) for name in device.keys() - of_unchecked} == {
        name: device.get(name) for name in host.keys() - of_unchecked
    }
    assert host.keys() - of_unchecked - questions(pm.UniformGrid).keys() == set()
    assert {"pairs", "nearest"} <= host.keys()


def check_pairs_of(backend, grid, box, x, radius, oracle=None, form="coo", half=True):
    """Pairs with all that there is to ask for, and counts."""
    oracle = all_pairs(box, x, radius) if oracle is None else oracle
    pairs = grid.pairs(radius, format=form, quantities=ALL, half=half)
    check_answer(box, x, radius, entries(backend, pairs), oracle, half=half)
    check_counts(backend.host(grid.count(radius)), len(x), oracle, radius, rounding(box, x, radius))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_pairs_of_every_cloud(backend, case):
    with case.grid() as grid:
        put(backend, grid, case.positions)
        check_pairs_of(backend, grid, case.domain, case.positions, radius_of(case), oracle_of(case))


@pytest.mark.parametrize("case", [WRAPPED, PLANE, CASES[22]], ids=str)
def test_every_builder_finds_the_same(backend, builder, case):
    choices = {"fixed": [{"layout": "row"}, {"layout": "column"}], "sort": [{}, {"curve": "morton"}]}
    for options in choices.get(builder.name, [{}]):
        with case.grid(method=builder.name, **options) as grid:
            put(backend, grid, case.positions, own_radii(builder, case))
            check_pairs_of(backend, grid, case.domain, case.positions, radius_of(case), oracle_of(case))


@pytest.mark.parametrize("half", [True, False])
@pytest.mark.parametrize("form", ["csr", "coo", "dense"])
@pytest.mark.parametrize("order", ["input", "grid"])
def test_forms_and_orders_tell_the_same(backend, order, form, half):
    box, x, oracle, radius = WRAPPED.domain, WRAPPED.positions, oracle_of(WRAPPED), radius_of(WRAPPED)
    with WRAPPED.grid() as grid:
        put(backend, grid, x)
        pairs = grid.pairs(radius, half=half, order=order, format=form, quantities=ALL)
        assert (pairs.start is not None) == (form == "csr") and (pairs.count is not None) == (form == "dense")
        entries_of = entries(backend, pairs)
        if half:
            assert forward(*entries_of[:3]).all()  # in the numbering that was asked for
        if order == "grid":
            held = order_of(backend, grid)[1]
            i, j, shift, distance, vector = entries_of
            i, j = held[i], held[j]
            if half:  # whichever of two comes first in the grid: turn those that the input has the other way round
                a, b, turned_shift = turned(i, j, shift)
                vector = np.where((turned_shift == shift).all(1)[:, None] & (a == i)[:, None], vector, -vector)
                i, j, shift = a, b, turned_shift.astype(np.int32)
            entries_of = i, j.astype(np.int32), shift, distance, vector
        check_answer(box, x, radius, entries_of, oracle, half=half)
        counts = backend.host(grid.count(radius, order=order))
        ranks = np.arange(len(x)) if order == "input" else order_of(backend, grid)[1]
        np.testing.assert_array_equal(counts, backend.host(grid.count(radius))[ranks])


@pytest.mark.parametrize(("form", "quantities"), [("csr", "j"), ("csr", "dS"), ("coo", "Di"), ("dense", "Sj")])
def test_only_what_was_asked_for_comes(backend, form, quantities):
    names = {"i": "i", "j": "j", "S": "shift", "d": "distance", "D": "vector"}
    with WRAPPED.grid(deterministic=True) as grid:
        put(backend, grid, WRAPPED.positions)
        whole = grid.pairs(0.5, format=form, quantities=ALL)
        some = grid.pairs(0.5, format=form, quantities=quantities)
        asked = {names[letter] for letter in quantities}
        for name in names.values():
            result = getattr(some, name)
            assert (result is not None) == (name in asked) or (form == "coo" and name in "ij")
            if name in asked:
                rows = getattr(whole, name)
                result, rows = (backend.host(a).reshape(-1, *a.shape[1 + (form == "dense") :]) for a in (result, rows))
                np.testing.assert_array_equal(np.sort(result, axis=0), np.sort(rows, axis=0))


def test_what_was_learned_of_sparse_particles_serves_dense_ones(backend):
    box, rng = WRAPPED.domain, np.random.default_rng(5)
    sparse, dense = (box.origin + rng.random((130, 3)) * box.lengths * size for size in (1.0, 0.5))
    with WRAPPED.grid() as grid:
        for x in (sparse, sparse, dense, dense, sparse):
            x = x.astype("f4")
            put(backend, grid, x)
            check_pairs_of(backend, grid, box, x, 0.5)


# ---- where others failed ----------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("cells", [(1, 1, 1), (100, 2, 3), (80, 1, 1)])
def test_a_box_a_hundred_times_longer(backend, axis, cells):
    turn = np.roll([0, 1, 2], axis)
    box = pm.Box(np.array([100.0, 1.0, 1.0])[turn], origin=np.array([-50.0, 3.0, 0.0])[turn])
    rng = np.random.default_rng(9)
    x = (rng.random((150, 3)) * box.lengths + box.origin).astype("f4")
    x[75:] = box.origin + [0.5] * 3 + rng.normal(0, 0.3, (75, 3)) + rng.integers(-1, 2, (75, 3)) * box.lengths
    with pm.UniformGrid(box, shape=tuple(np.array(cells)[turn])) as grid:
        put(backend, grid, x)
        for radius in (0.3, 1.2):
            check_pairs_of(backend, grid, box, x, radius)


@pytest.mark.parametrize("n", [3, 4])
def test_a_lattice_keeps_its_shells_whatever_the_last_digit(backend, n):
    # Face-centred cubic from its triclinic primitive cell: 12, 6, 24 neighbours at sqrt(1/2), 1, sqrt(3/2).
    primitive = 0.5 * np.array([[0.0, 1.0, 1.0], [1.0, 0.0, 1.0], [1.0, 1.0, 0.0]])
    places = np.array(list(itertools.product(range(n), repeat=3)))
    rng = np.random.default_rng(10)
    for tilt, move in itertools.product((0.0, 1e-15, -1e-15), (0.0, 1e-15, -1e-15, "random")):
        matrix = n * primitive + tilt * np.array([[0.0, 1.0, 2.0], [1.0, 0.0, 1.0], [2.0, -1.0, 0.0]])
        x = places @ primitive + (rng.choice([-1e-15, 1e-15], (n**3, 3)) if move == "random" else move)
        for cells in ((n, n, n), (2 * n, 1, n + 1)):
            with pm.UniformGrid(pm.Box(matrix), shape=cells) as grid:
                put(backend, grid, x)
                for radius, neighbours in ((0.8, 12), (1.1, 18), (1.3, 42)):
                    np.testing.assert_array_equal(backend.host(grid.count(radius)), neighbours)


@pytest.mark.parametrize("real", ["f4", "f8"])
@pytest.mark.parametrize("d", [1, 2, 3])
def test_the_radius_itself_is_within_it(backend, d, real):
    # Particles on every corner of the cells of an exact box: neighbours at exactly 1, on the far faces of cells.
    box = pm.Box((4.0, 8.0, 4.0)[:d], origin=(-2.0, 16.0, 0.5)[:d])
    axes = [np.arange(n) for n in (4, 8, 4)[:d]]
    x = (np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, d) + box.origin).astype(real)
    for cells in ((4, 8, 4), (1, 1, 1), (8, 4, 2)):
        with pm.UniformGrid(box, shape=cells[:d]) as grid:
            put(backend, grid, x)
            np.testing.assert_array_equal(backend.host(grid.count(1.0)), 2 * d)
            below = float(np.nextafter(np.dtype(real).type(1), np.dtype(real).type(0)))
            np.testing.assert_array_equal(backend.host(grid.count(below)), 0)
            assert len(grid.pairs(1.0, half=True).j) == d * len(x)
            assert len(grid.pairs(0.0).j) == 0
            np.testing.assert_array_equal(backend.host(grid.count(0.0)), 0)
            values = backend.array(np.zeros((len(x), 2), real))
            for radius, neighbours in ((1.0, 2 * d), (below, 0)):
                indices, distances = map(backend.host, grid.nearest(5, radius))
                np.testing.assert_array_equal((indices >= 0).sum(1), min(5, neighbours))
                assert (distances[:, : min(5, neighbours)] == 1).all()
                start = backend.host(grid.neighbours(backend.array(x), radius, quantities=ALL).start)
                np.testing.assert_array_equal(np.diff(start), neighbours + 1)
                np.testing.assert_array_equal(backend.host(grid.stream(radius, WALK, values))[:, 0], neighbours)


@pytest.mark.parametrize("real", ["f4", "f8"])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_no_pair_is_lost_between_a_face_and_the_radius(backend, axis, real):
    # One of each two is on the face of a cell, or an ulp beside it, the other as far away as the radius lets it:
    # where rounding puts the end of the search below the face, the pair is lost.
    number, rng = np.dtype(real).type, np.random.default_rng(77)
    length, cells, lanes = 6.2, 700, 40
    shape = tuple(np.insert([5, 5], axis, cells))
    for origin in (0.0, -3.1, 100.3):
        lengths, corner = np.insert([80.0, 80.0], axis, length), np.insert([0.0, 0.0], axis, origin)
        radius = number(rng.uniform(0.9, 2.2) * length / cells)
        face = (origin + length / cells * rng.integers(3, cells - 3, lanes**2)).astype(real)
        on = np.choose(rng.integers(0, 3, len(face)), [np.nextafter(face, number(w * 999)) for w in (-1, 1)] + [face])
        off = on + rng.choice([-1, 1], len(face)).astype(real) * radius
        for _ in range(3):  # no farther than the radius, in exact numbers
            far = np.abs(off.astype(np.longdouble) - on) > radius
            off = np.where(far, np.nextafter(off, on), off)
        place = np.stack(np.meshgrid(*[np.arange(lanes) * 2.0 + 1] * 2, indexing="ij"), -1).reshape(-1, 2)
        x = np.concatenate([np.insert(place, axis, along, axis=1) for along in (on, off)]).astype(real)
        for periodic in (True, False):
            with pm.UniformGrid(pm.Box(lengths, corner, periodic=periodic), shape=shape) as grid:
                put(backend, grid, x)
                np.testing.assert_array_equal(backend.host(grid.count(float(radius))), 1)


def test_particles_in_one_place_are_pairs(backend):
    x = np.repeat(np.array([[0.25, 0.5], [0.75, 0.5]]), 5, axis=0)
    with pm.UniformGrid((1.0, 1.0), shape=(4, 4)) as grid:
        put(backend, grid, x)
        for radius in (0.0, 0.1):
            pairs = grid.pairs(radius, half=True, format="coo", quantities=ALL)
            assert len(pairs.j) == 20
            assert not backend.host(pairs.distance).any() and not backend.host(pairs.shift).any()
            np.testing.assert_array_equal(backend.host(grid.count(radius)), 4)


@pytest.mark.parametrize("name", ["cube", "mixed", "skewed", "plane", "line"])
def test_radii_beyond_half_the_box_and_beyond_the_box(backend, name):
    box = {
        "cube": pm.Box((1.0, 1.0, 1.0)), "mixed": pm.Box((1.0, 1.5, 0.75), periodic=(True, False, True)),
        "skewed": pm.Box(SKEWED / 2), "plane": pm.Box([[1.0, 0.0], [0.7, 0.8]]), "line": pm.Box(1.0, origin=0.3),
    }[name]  # fmt: skip
    d = box.ndim
    rng = np.random.default_rng(51)
    s = rng.random((7, d)) + rng.integers(-2, 3, (7, d)) * np.array(box.periodic)
    x = s @ box.matrix + box.origin
    for cells in ((1, 1, 1), (2, 3, 1), (5, 4, 6)):
        with pm.UniformGrid(box, shape=cells[:d]) as grid:
            for count in (7, 1):
                put(backend, grid, x[:count])
                for radius in (0.55, 1.1, 2.3):
                    check_pairs_of(backend, grid, box, x[:count], radius, half=count == 7)


def test_one_particle_sees_its_own_images(backend):
    with pm.UniformGrid((1.0, 1.0, 1.0), shape=(3, 2, 1)) as grid:
        put(backend, grid, np.array([[0.1, -7.2, 0.99]], np.float32))
        for radius, images in ((0.99, 0), (1.01, 6), (1.42, 18), (1.74, 26), (2.01, 32)):
            assert backend.host(grid.count(radius)).tolist() == [images]
            i, j, shift, *_ = entries(backend, grid.pairs(radius, half=True, format="coo", quantities=ALL))
            assert len(j) == images / 2 and forward(i, j, shift).all()


# ---- cutoffs of each particle, particles left out ---------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"method": "sort", "curve": "morton"}], ids=str)
@pytest.mark.parametrize("case", [WRAPPED, PLANE], ids=str)
def test_cutoffs_of_each_particle_add_up(backend, case, options):
    box, x = case.domain, case.positions
    cutoffs = (np.random.default_rng(6).random(len(x)) ** 3 * 0.6).astype(x.dtype)
    cutoffs[::7] = 0
    oracle = all_pairs(box, x, 2 * float(cutoffs.max()))
    radius = cutoffs[oracle.i].astype(float) + cutoffs[oracle.j]
    with case.grid(**options) as grid:
        put(backend, grid, x)
        for half in (True, False):
            pairs = grid.pairs(backend.array(cutoffs), half=half, format="coo", quantities=ALL)
            check_answer(box, x, radius, entries(backend, pairs), oracle, half=half)
        check_counts(backend.host(grid.count(backend.array(cutoffs))), len(x), oracle, radius, rounding(box, x, 1.2))


def test_levels_change_nothing(backend):
    case = Case("mixed", (9, 8, 7), "wrapped", 130, "f4")
    radii = (np.random.default_rng(2).random(130) ** 4 * 0.7).astype("f4")
    with case.grid(levels=3) as grid:
        put(backend, grid, case.positions, radii)
        assert len(np.unique(np.searchsorted([504, 504 + 48], order_of(backend, grid)[0].nonzero()[0]))) == 3
        for half in (True, False):
            check_pairs_of(backend, grid, case.domain, case.positions, 0.5, oracle_of(case), half=half)


def test_particles_that_were_left_out_are_no_neighbours(backend, builder):
    box, good = WRAPPED.domain, WRAPPED.positions
    x, radii = good.copy(), own_radii(builder, WRAPPED)
    bad = [0, 17, 64, 128]
    x[bad[:2]], x[bad[2:], 1] = np.nan, 50.0  # axis 1 is open
    left = np.setdiff1d(np.arange(130), bad)
    oracle = oracle_of(WRAPPED)
    oracle = oracle.where(~np.isin(oracle.i, bad) & ~np.isin(oracle.j, bad))
    with WRAPPED.grid(method=builder.name) as grid:
        put(backend, grid, x, radii, check=False)
        for form in ("coo", "csr", "dense"):
            entries_of = entries(backend, grid.pairs(0.5, half=False, format=form, quantities=ALL))
            check_answer(box, good, 0.5, entries_of, oracle)
        counts = backend.host(grid.count(0.5))
        check_counts(counts, 130, oracle, 0.5, rounding(box, good))
        assert not counts[bad].any()
        assert len(backend.host(grid.order)) == len(left)


# ---- the same bits, and any box ---------------------------------------------------------------------------


def test_deterministic_lists_have_the_same_bits(backend):
    seen = set()
    for _ in range(5):
        with WRAPPED.grid(deterministic=True) as grid:
            put(backend, grid, WRAPPED.positions)
            parts = []
            for order, form in itertools.product(("input", "grid"), ("csr", "dense")):
                pairs = grid.pairs(0.5, half=False, order=order, format=form, quantities=ALL)
                parts += [backend.host(getattr(pairs, n)).tobytes() for n in ("i", "j", "shift", "distance", "vector")]
            seen.add(b"".join(parts))
    assert len(seen) == 1


@settings(max_examples=40)
@given(
    seed=st.integers(0, 2**31), d=st.integers(2, 3), skew=st.floats(0, 0.6), count=st.integers(0, 60),
    radius=st.floats(0.05, 1.4), periodic=st.tuples(*[st.booleans()] * 3), cells=st.tuples(*[st.integers(1, 7)] * 3),
)  # fmt: skip
def test_any_box_any_boundaries(backend, seed, d, skew, count, radius, periodic, cells):
    rng = np.random.default_rng(seed)
    matrix = np.diag(rng.uniform(0.6, 2.0, d)) + skew * rng.uniform(-1, 1, (d, d))
    if abs(np.linalg.det(matrix)) < 0.1:
        return
    box = pm.Box(matrix, origin=rng.normal(size=d), periodic=periodic[:d])
    s = rng.random((count, d)) + rng.integers(-2, 3, (count, d)) * np.array(box.periodic)
    x = s @ box.matrix + box.origin
    with pm.UniformGrid(box, shape=cells[:d]) as grid:
        put(backend, grid, x)
        check_pairs_of(backend, grid, box, x, radius)
