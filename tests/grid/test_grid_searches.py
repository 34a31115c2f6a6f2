# SPDX-License-Identifier: BSD-3-Clause
"""Neighbours of points, the nearest, overlaps, sums over pairs, against all images of all pairs."""

import numpy as np
import pytest

import particlemesh as pm
from grid_cases import CASES, Case, all_pairs, check_answer, check_counts, entries, oracle_of, rounding
from grid_checks import WALK, check_nearest, put
from particlemesh.grid.checks import FIELDS

ALL = "ijdDS"
WRAPPED = Case("mixed", (4, 3, 5), "wrapped", 130, "f4")
PLANE = Case("skewed plane", (5, 3), "wrapped", 150, "f8")
SKEWED = Case("left-handed", (3, 4, 2), "wrapped", 130, "f8")


def points_around(case, count=60):
    """Points anywhere: several boxes away along periodic axes, a good way outside open ones, some on particles."""
    box, x = case.domain, case.positions
    rng = np.random.default_rng(12)
    s = np.where(box.periodic, rng.uniform(-3, 4, (count, box.ndim)), rng.uniform(-0.7, 1.7, (count, box.ndim)))
    points = (s @ box.matrix + box.origin).astype(x.dtype)
    points[: min(9, len(x))] = x[:9]
    return points


# ---- points -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", [WRAPPED, PLANE, SKEWED, CASES[3], CASES[20]], ids=str)
def test_neighbours_of_points_anywhere(backend, case):
    box, x, points = case.domain, case.positions, points_around(case)
    for radius in (0.45, 0.0):
        with case.grid() as grid:
            put(backend, grid, x)
            pairs = grid.neighbours(backend.array(points), radius, quantities=ALL)
            assert pairs.start.shape == (61,) and pairs.count is None
            listed, oracle = entries(backend, pairs), all_pairs(box, x, radius, points)
            check_answer(box, x, radius, listed, oracle, points=points)
    by_axis = tuple(backend.array(points[:, a], "strided") for a in range(box.ndim))
    with case.grid() as grid:
        put(backend, grid, x)
        again = grid.neighbours(by_axis, 0.45, quantities=ALL)
        check_answer(box, x, 0.45, entries(backend, again), all_pairs(box, x, 0.45, points), points=points)


@pytest.mark.parametrize("case", [WRAPPED, PLANE], ids=str)
def test_cells_along_a_curve_are_searched_alike(backend, case):
    box, x, points = case.domain, case.positions, points_around(case)
    with case.grid(method="sort", curve="morton") as grid:
        put(backend, grid, x)
        pairs = grid.neighbours(backend.array(points), 0.45, quantities=ALL)
        check_answer(box, x, 0.45, entries(backend, pairs), all_pairs(box, x, 0.45, points), points=points)
        check_nearest(backend, grid, box, x, 5, 0.5)


@pytest.mark.parametrize("case", [WRAPPED, PLANE, SKEWED, CASES[9], CASES[19], CASES[21], CASES[23]], ids=str)
def test_the_nearest_of_particles_and_of_points(backend, case):
    with case.grid() as grid:
        put(backend, grid, case.positions)
        check_nearest(backend, grid, case.domain, case.positions, 5, 0.5)
        check_nearest(backend, grid, case.domain, case.positions, 5, 3.0)
        check_nearest(backend, grid, case.domain, case.positions, 5, 0.7, points_around(case))


@pytest.mark.parametrize("count", [0, 1, 2, 31, 32, 33, 128, 129])
def test_few_particles_or_points(backend, count):
    case = Case("plane", (3, 2), "uniform", count, "f8")
    box, x, points = case.domain, case.positions, points_around(case)[:count]
    with case.grid() as grid:
        put(backend, grid, x, np.full(count, 0.1))
        check_nearest(backend, grid, box, x, 5, 0.6)
        check_nearest(backend, grid, box, x, 5, 2.1, points)
        for some in (points, points[:0]):
            pairs = grid.neighbours(backend.array(some), 0.45, quantities=ALL)
            check_answer(box, x, 0.45, entries(backend, pairs), all_pairs(box, x, 0.45, some), points=some)
        listed = entries(backend, grid.overlaps(quantities=ALL))
        check_answer(box, x, 0.2, listed, all_pairs(box, x, 0.2), half=True)
        for form, half in (("csr", False), ("coo", True), ("dense", False)):
            pairs = grid.pairs(0.25, format=form, half=half, quantities=ALL)
            check_answer(box, x, 0.25, entries(backend, pairs), all_pairs(box, x, 0.25), half=half)
            assert form != "csr" or pairs.start.shape == (count + 1,)
        check_counts(backend.host(grid.count(0.25)), count, all_pairs(box, x, 0.25), 0.25, rounding(box, x))
        assert grid.stream(0.45, WALK, backend.array(np.ones((count, 2)))).shape == (count, 5)


# ---- overlaps ---------------------------------------------------------------------------------------------


def check_overlaps(backend, grid, box, x, radii, **options):
    """Spheres, or boxes if radii have axes."""
    boxes = options.get("shape") == "box" or radii.ndim == 2
    edges = np.broadcast_to(radii if radii.ndim == 2 else radii[:, None], (len(x), box.ndim)).astype(float)
    reach = 2 * (np.linalg.norm(edges, axis=1).max() if boxes else edges.max())
    oracle = all_pairs(box, x, reach)
    both = edges[oracle.i] + edges[oracle.j]
    listed = entries(backend, grid.overlaps(quantities=ALL, **options))
    if not boxes:
        check_answer(box, x, both[:, 0], listed, oracle, half=True)
    else:  # how far the closest faces are from touching
        apart = (np.abs(oracle.vector) - both).max(1, initial=-1)
        check_answer(box, x, np.zeros(len(apart)), listed, oracle, half=True, apart=apart)


@pytest.mark.parametrize("shape", [None, "sphere", "box", "edges"])
@pytest.mark.parametrize("case", [WRAPPED, PLANE, SKEWED, CASES[3], CASES[16], CASES[22]], ids=str)
def test_each_overlap_is_found_once(backend, case, shape):
    box, x, rng = case.domain, case.positions, np.random.default_rng(14)
    per = np.abs(box.inverse) if shape == "edges" else np.linalg.norm(box.inverse, axis=1)[:, None]
    # As wide as tight cells allow: boxes are measured along the axes of the cells.
    most = 0.49 / (per.sum(1) * case.cells).max()
    radii = (most * rng.random((len(x), box.ndim) if shape == "edges" else len(x)) ** 0.5).astype(x.dtype)
    with case.grid() as grid:
        put(backend, grid, x, radii)
        check_overlaps(backend, grid, box, x, radii, **({"shape": shape} if shape in ("sphere", "box") else {}))


@pytest.mark.parametrize("boxes", [False, True])
def test_overlaps_of_many_sizes_on_levels(backend, boxes):
    case = Case("mixed", (9, 8, 7), "wrapped", 130, "f4")
    box, x, rng = case.domain, case.positions, np.random.default_rng(15)
    radii = (0.6 * rng.random((130, 3) if boxes else 130) ** 5).astype("f4")
    for levels in (1, 4):
        with case.grid(levels=levels) as grid:
            put(backend, grid, x, radii)
            check_overlaps(backend, grid, box, x, radii)


def test_one_radius_for_all_and_touching_spheres(backend):
    # Exact numbers: spheres that just touch overlap, an ulp less and they do not.
    box = pm.Box((4.0, 4.0, 4.0), periodic=(True, False, True))
    x = np.stack(np.meshgrid(*[np.arange(4.0)] * 3, indexing="ij"), -1).reshape(-1, 3)
    for radius, pairs in ((0.5, 64 + 48 + 64), (np.nextafter(0.5, 0), 0), (0.25, 0)):
        with pm.UniformGrid(box, shape=(4, 4, 4)) as grid:
            grid.build(backend.array(x), radius)
            assert len(grid.overlaps().i) == pairs


@pytest.mark.parametrize("real", ["f4", "f8"])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_no_touch_is_lost_to_rounding(backend, axis, real):
    # Pairs that touch on the face of a cell as wide as they are, as far as the type of the positions can tell, in a
    # box whose fractions round much.
    box = pm.Box([[4.0, 0.0, 0.0], [3.0, 3.5, 0.0], [-2.5, 1.75, 3.0]], origin=(-2.0, -2.0, -1.5))
    count, rng, thickness = 1500, np.random.default_rng(7), 1 / np.linalg.norm(box.inverse, axis=1) / 6
    radius = np.dtype(real).type(thickness.min() / 2)
    s = rng.random((count, 3))
    s[:, axis] = rng.integers(1, 6, count) / 6
    face, normal = box.origin + s @ box.matrix, box.inverse[axis] / np.linalg.norm(box.inverse[axis])
    first, second = (face - normal * radius).astype(real), (face + normal * radius).astype(real)
    for n in range(200):
        d = second.astype(np.longdouble) - first.astype(np.longdouble)
        apart = (d**2).sum(1) > (2 * np.longdouble(radius)) ** 2 * (1 - 2 * np.finfo(real).eps)
        second[apart, n % 3] = np.nextafter(second[apart, n % 3], first[apart, n % 3])
    fractions = np.hstack([box.fractional(first.astype(float)), box.fractional(second.astype(float))])
    sure = np.flatnonzero(~apart & (fractions > 0).all(1) & (fractions < 1).all(1))
    assert len(sure) > count / 2
    x = np.stack([first, second], 1).reshape(-1, 3)
    with pm.UniformGrid(box, shape=(6, 6, 6)) as grid:
        put(backend, grid, x, np.full(2 * count, radius))
        overlaps = grid.overlaps()
        pairs = set(zip(backend.host(overlaps.i).tolist(), backend.host(overlaps.j).tolist(), strict=True))
    assert {(n, n + 1) for n in (2 * sure).tolist()} <= pairs


@pytest.mark.parametrize("cells", [1, 2, 3])
def test_large_and_small_spheres_all_around_a_periodic_axis(backend, cells):
    box, rng = pm.Box(5.0, -1.0), np.random.default_rng(11)
    x = box.origin + rng.permutation(np.arange(200.0))[:, None] / 200 * 5.0
    radii = np.where(rng.random(200) < 0.5, 2.5 / cells, 0.011)
    with pm.UniformGrid(box, shape=cells) as grid:
        put(backend, grid, x, radii)
        check_overlaps(backend, grid, box, x, radii)


def test_a_particle_that_overlaps_its_own_image_is_listed_once_a_direction(backend):
    # Exact numbers: spheres as wide as the only cell touch their own images, and those of the other.
    box, x = pm.Box((1.0, 1.0, 1.0)), np.array([[0.25, 0.5, 0.75], [0.5, 0.25, 0.25]])
    radii = np.full(2, 0.5)
    with pm.UniformGrid(box, shape=(1, 1, 1)) as grid:
        put(backend, grid, x, radii)
        overlaps = grid.overlaps(quantities="ij")
        check_overlaps(backend, grid, box, x, radii)
        assert (backend.host(overlaps.i) == backend.host(overlaps.j)).sum() == 6


def test_overlaps_need_radii(backend):
    with WRAPPED.grid() as grid:
        put(backend, grid, WRAPPED.positions)
        with pytest.raises(ValueError, match="these particles have no radii, so nothing overlaps: give them to build"):
            grid.overlaps()
        put(backend, grid, WRAPPED.positions, np.full((130, 3), 0.1, "f4"))
        with pytest.raises(ValueError, match="shape is 'sphere', but the radii are half the edges of boxes"):
            grid.overlaps(shape="sphere")
        with pytest.raises(ValueError, match="shape is 'ball'; choose from 'sphere', 'box'"):
            grid.overlaps(shape="ball")


# ---- sums -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"method": "sort", "curve": "morton"}], ids=str)
@pytest.mark.parametrize("case", [WRAPPED, PLANE], ids=str)
def test_sums_over_neighbours_are_those_of_a_list(backend, case, options):
    box, x, oracle = case.domain, case.positions, oracle_of(case)
    values = np.random.default_rng(16).normal(size=(len(x), 2)).astype(x.dtype)
    band = rounding(box, x, 0.5)
    radius = 0.5 - 2 * band * np.argmin(
        [((np.abs(oracle.distance - 0.5 + 2 * band * n)) < band).any() for n in range(40)]
    )  # that of no pair
    of = oracle.where(oracle.distance <= radius)
    weight = 0.5 + values[of.j, 1] * values[of.i, 0]
    columns = [np.ones(len(of.i)), *(weight * np.concatenate([np.zeros((3 - box.ndim, len(of.i))), of.vector.T]))]
    columns.append(of.distance**2 * (of.i - of.j))
    expected = np.stack([np.bincount(of.i, c, minlength=len(x)) for c in columns], -1)
    with case.grid(**options) as grid:
        put(backend, grid, x)
        for order in ("planar", "fortran"):
            sums = backend.host(grid.stream(radius, WALK, backend.array(values, order)))
            assert sums.dtype == x.dtype
            np.testing.assert_array_equal(sums[:, 0], expected[:, 0])
            np.testing.assert_allclose(sums, expected, rtol=0, atol=200 * len(x) * band)
        missing = (WALK.source, None) if backend.name == "cpu" else (None, WALK.function)
        with pytest.raises(TypeError, match="also give it"):
            grid.stream(radius, pm.PairFunction(*missing, WALK.results, 2, WALK.parameters), backend.array(values))
        with pytest.raises(
            TypeError, match=r"function is of type builtin_function_or_method; give a particlemesh\.PairFunction"
        ):
            grid.stream(radius, print)


@pytest.mark.backends("opencl", "cuda")
@pytest.mark.parametrize("case", [WRAPPED, SKEWED], ids=str)
@pytest.mark.parametrize("quantities", ["j", "ijdDS"])
def test_rows_of_some_particles(backend, case, quantities):
    """The rows of a half list are those of the whole list, and the others are empty."""
    grid = pm.UniformGrid(case.domain, shape=case.cells).build(backend.array(case.positions))
    least, most = 17, 90
    radius = float(0.3 / np.linalg.norm(case.domain.inverse, axis=1).max())
    for _ in range(2):  # the second search knows how many pairs to expect
        every = grid.pairs(radius, half=True, quantities=quantities)
        some = grid.rows_of(radius, quantities, least, most)
        start, starts = backend.host(every.start), backend.host(some.start)
        rows = np.diff(start)
        rows[:least] = rows[most + 1 :] = 0
        assert np.array_equal(np.diff(starts), rows)
        assert len(backend.host(some.j)) == rows.sum() > 0
        for row in range(least, most + 1):
            here, there = (slice(s[row], s[row + 1]) for s in (start, starts))
            assert sorted(backend.host(every.j)[here]) == sorted(backend.host(some.j)[there])


@pytest.mark.parametrize(("quantities", "form"), [("j", "csr"), ("ijdDS", "csr"), ("ijS", "coo")])
@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("periodic", [False, True])
def test_lists_of_moving_particles_are_those_of_a_new_grid(backend, quantities, form, half, periodic):
    """Searches repeat the one before while their lists fit; then they have more room, or less."""
    random, grid = np.random.default_rng(8), pm.UniformGrid((1.0,) * 3, cell_size=0.25, periodic=periodic)

    def entries_of(pairs):
        columns = [backend.host(getattr(pairs, name)) for letter, name in FIELDS.items() if letter in quantities]
        if form == "csr":
            columns.append(np.repeat(np.arange(400), np.diff(backend.host(pairs.start))))
        rows = np.column_stack(columns)
        return rows[np.lexsort(rows.T)]

    kept = []
    for turn, width in enumerate([1.0] * 5 + [0.35] * 4 + [1.0] * 4 + [0.02, 1.0, 1.0]):  # of the cloud
        x = backend.array((0.5 + (random.random((400, 3)) - 0.5) * width).astype("f4"))
        new = pm.UniformGrid((1.0,) * 3, cell_size=0.25, periodic=periodic)
        pairs, expected = (g.build(x).pairs(0.25, half=half, quantities=quantities, format=form) for g in (grid, new))
        kept.append((pairs, entries_of(expected)))
        np.testing.assert_array_equal(entries_of(pairs), kept[-1][1], err_msg=f"turn {turn}")
    for pairs, expected in kept:  # no later search wrote to them
        np.testing.assert_array_equal(entries_of(pairs), expected)
