# SPDX-License-Identifier: BSD-3-Clause
"""Lengths of any size: pairs are those whose returned distance is at most the radius, and the unit does not matter."""

import itertools
import math

import numpy as np
import pytest

import particlemesh as pm
from grid_checks import put
from particlemesh.grid.checks import square_within


def counted(r2, d, i, j, a, b, p, sum):
    sum[0] += 1
    sum[1] += r2


COUNTED = pm.PairFunction("sum[0] += 1; sum[1] += r2;", counted, results=2)
BOXES = {
    "cubic": pm.Box((4.0, 4.0, 4.0)),
    "mixed": pm.Box((4.0, 5.0, 3.0), periodic=(True, False, True)),
    "triclinic": pm.Box([[4.0, 0.0, 0.0], [1.5, 4.0, 0.0], [-1.0, 0.5, 5.0]]),
    "open": pm.Box((4.0, 4.0, 4.0), periodic=False),
    "plane": pm.Box((4.0, 3.0), periodic=(False, True)),
}


def scaled(box, factor):
    return pm.Box(box.matrix * factor, box.origin * factor, box.periodic)


# ---- ties -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("real", ["f4", "f8"])
def test_the_bound_of_squares_is_that_of_their_roots(real):
    dtype = np.dtype(real)
    one = dtype.type(1)
    for radius in np.concatenate([10 ** np.random.default_rng(1).uniform(-9, 9, 500), np.sqrt(np.arange(1, 500))]):
        square = dtype.type(square_within(radius, dtype))
        assert np.sqrt(square) <= dtype.type(radius) < np.sqrt(np.nextafter(square, one * np.inf))
    assert square_within(0.0, dtype) == 0.0


@pytest.mark.turns(2)
@pytest.mark.parametrize("real", ["f4", "f8"])
def test_every_search_has_the_neighbours_at_exactly_the_radius(backend, real):
    """A lattice has them at all roots of sums of three squares; many roots round to less than themselves."""
    dtype, n = np.dtype(real), 4
    x = np.stack(np.meshgrid(*[np.arange(n)] * 3, indexing="ij"), -1).reshape(-1, 3).astype(dtype)
    steps = np.array(list(itertools.product(range(-4, 5), repeat=3)))
    away = np.sqrt((steps**2).sum(1)).astype(dtype)
    grid = put(backend, pm.UniformGrid((float(n),) * 3, shape=(2, 2, 2)), x)
    for squared in (1, 2, 3, 5, 6, 8, 11, 14):
        radius = math.sqrt(squared)
        each = int((away <= dtype.type(radius)).sum()) - 1
        assert (backend.host(grid.count(radius)) == each).all()
        distance = backend.host(grid.pairs(radius, half=False, quantities="d").distance)
        assert len(distance) == each * len(x) and distance.max() <= dtype.type(radius)
        assert len(backend.host(grid.pairs(radius, half=True, quantities="j").j)) == each * len(x) // 2
        halves = backend.array(np.full(len(x), dtype.type(radius) / 2))
        assert len(backend.host(grid.pairs(halves, half=False, quantities="d").distance)) == each * len(x)
        assert (backend.host(grid.count(halves)) == each).all()
        assert len(backend.host(grid.neighbours(backend.array(x + 4), radius).j)) == (each + 1) * len(x)
        if each <= 128:
            assert np.isfinite(backend.host(grid.nearest(each, radius)[1])).all()
        assert (backend.host(grid.stream(radius, COUNTED))[:, 0] == each).all()
        assert len(backend.host(pm.neighbour_list("i", backend.array(x), (4.0,) * 3, radius))) == each * len(x)
    for squared, shape, method in ((1, 4, "linked_list_tight"), (1, 4, "auto"), (3, 2, "auto"), (6, 2, "auto")):
        radii = np.full(len(x), dtype.type(math.sqrt(squared)) / 2)
        grid = put(backend, pm.UniformGrid((float(n),) * 3, shape=(shape,) * 3, method=method), x, radii)
        each = int((away <= dtype.type(math.sqrt(squared))).sum()) - 1
        assert len(backend.host(grid.overlaps().i)) == each * len(x) // 2


@pytest.mark.parametrize("real", ["f4", "f8"])
def test_spheres_touch_where_the_distance_is_the_sum_of_both_radii(backend, real):
    dtype = np.dtype(real)
    rng = np.random.default_rng(5)
    radii = rng.uniform(0.1, 1.0, 2000).astype(dtype)
    both = radii[::2] + radii[1::2]  # of neighbours, rounded as a search does
    x = np.zeros((2000, 3), dtype)
    x[:, 2] = np.repeat(np.arange(1000), 2) * 8  # pairs that no other sees
    apart = np.array([both * k for k in (1, 1 - np.finfo(dtype).eps, 1 + 2 * np.finfo(dtype).eps)])
    x[1::2, 0] = apart[np.arange(1000) % 3, np.arange(1000)].astype(dtype)
    touch = x[1::2, 0] <= both
    assert 100 < touch.sum() < 900
    i = backend.host(
        pm.neighbour_list("i", backend.array(x), (9.0,) * 3, backend.array(radii), periodic=False, half=True)
    )
    np.testing.assert_array_equal(np.sort(i), 2 * np.flatnonzero(touch))


# ---- units ------------------------------------------------------------------------------------------------


def answers(backend, box, x, radii, factor):
    """Everything a grid and a list return, lengths in units of ``factor``."""
    host, one = backend.host, x.dtype.type(factor)
    put(backend, grid := pm.UniformGrid(box, cell_size=0.9 * factor, levels=2, deterministic=True), x, radii)
    made, radius = [], 1.1 * factor
    pairs = grid.pairs(radius, half=True, quantities="ijdDS", format="coo")
    made += [host(pairs.i), host(pairs.j), host(pairs.shift), host(pairs.distance) / one, host(pairs.vector) / one]
    made.append(host(grid.count(radius)))
    pairs = grid.pairs(backend.array(radii), quantities="jd")
    made += [host(pairs.start), host(pairs.j), host(pairs.distance) / one]
    pairs = grid.overlaps(quantities="ijd")
    made += [host(pairs.i), host(pairs.j), host(pairs.distance) / one]
    made += [host(a) if n == 0 else host(a) / one for n, a in enumerate(grid.nearest(3, radius))]
    near = grid.neighbours(backend.array(x[::3]), radius, quantities="jd")
    made += [host(near.j), host(near.distance) / one]
    made.append(host(grid.stream(radius, COUNTED)) / np.array([1, one * one]))
    for reach in (radius, backend.array(radii)):
        i, j, d = map(host, pm.neighbour_list("ijd", backend.array(x), box, reach))
        order = np.lexsort((d, j, i))  # GPUs leave the order within a row open
        made += [i[order], j[order], d[order] / one]
    return made


@pytest.mark.turns(5)
@pytest.mark.parametrize("real", ["f4", "f8"])
@pytest.mark.parametrize("name", BOXES)
def test_a_unit_of_length_changes_nothing_or_is_refused(backend, name, real):
    box, dtype = BOXES[name], np.dtype(real)
    x = (np.random.default_rng(2).random((60, box.ndim)) @ box.matrix).astype(dtype)
    radii = np.random.default_rng(3).uniform(0.1, 0.6, 60).astype(dtype)
    expected = answers(backend, box, x, radii, 1.0)
    # In all units that squares leave room for, results are the same to the last bit.
    held = []
    for power in {"f4": (-126, -101, -75, -53, -45, 7, 45, 61, 64, 99), "f8": (-360, -320, -100, 99, 320, 360)}[real]:
        unit = 2.0**power
        try:
            result = answers(backend, scaled(box, unit), x * dtype.type(unit), radii * dtype.type(unit), unit)
        except ValueError as error:
            if "unit of length" not in str(error):
                raise
            continue
        held.append(power)
        for got, right in zip(result, expected, strict=True):
            np.testing.assert_array_equal(got, right)
    far = [-360, -320, -100, 99, 320, 360]  # of two axes; of three the volume leaves float64
    assert held == ([-53, -45, 7, 45, 61] if real == "f4" else far if box.ndim == 2 else far[1:-1])


def questions(backend, grid, box, x, radius, radii):
    """All queries, of one radius and of an array of them."""
    points = backend.array(x)
    return [
        lambda: grid.pairs(radius), lambda: grid.count(radius), lambda: grid.nearest(1, radius),
        lambda: grid.neighbours(points, radius), lambda: grid.stream(radius, COUNTED),
        lambda: grid.pairs(radii), lambda: grid.count(radii), lambda: grid.overlaps(),
        lambda: pm.neighbour_list("d", points, box, radius), lambda: pm.neighbour_list("d", points, box, radii),
    ]  # fmt: skip


@pytest.mark.parametrize(("real", "power"), [("f4", -75), ("f4", 70), ("f8", -495)])
def test_each_query_refuses_squares_that_its_type_does_not_hold(backend, real, power):
    unit, dtype = 2.0**power, np.dtype(real)
    box = pm.Box(4.0 * unit)  # of more axes the volume leaves float64 long before
    x = (np.random.default_rng(2).random((40, 1)) @ box.matrix).astype(dtype)
    radii = np.full(40, dtype.type(0.3 * unit))
    grid = put(backend, pm.UniformGrid(box, shape=3), x, radii)
    for ask in questions(backend, grid, box, x, 0.6 * unit, backend.array(radii)):
        with pytest.raises(ValueError, match="squares"):
            ask()
    assert grid.size == 40


@pytest.mark.parametrize("real", ["f4", "f8"])
def test_tiny_radii_near_the_origin_have_the_right_pairs_or_are_refused(backend, real):
    """There coordinates are so small that the squares of distances would vanish."""
    dtype = np.dtype(real)
    units = [1e-12, 1e-18, 1e-20, 1e-22, 1e-30, 1e-44] if real == "f4" else [1e-140, 1e-153, 1e-155, 1e-160, 1e-310]
    held = []
    for unit in units:
        x = np.full((6, 3), 2.0, dtype)
        x[:4] = 0
        x[[1, 2, 3], [0, 1, 2]] = np.array([0.5, 0.9, 3.0]) * unit
        radii = np.full(6, unit / 2, dtype)
        grid = put(backend, pm.UniformGrid((4.0,) * 3, shape=(4,) * 3), x)
        tight = put(backend, pm.UniformGrid((4.0,) * 3, shape=(4,) * 3, method="linked_list_tight"), x, radii)
        right = [(0, 1), (0, 2), (4, 5)]
        questions = [
            lambda grid=grid, unit=unit: grid.pairs(unit, half=True, quantities="ij", format="coo"),
            lambda grid=grid, radii=radii: grid.pairs(backend.array(radii), half=True, quantities="ij", format="coo"),
            lambda tight=tight: tight.overlaps(),
            lambda x=x, unit=unit: pm.neighbour_list("ij", backend.array(x), (4.0,) * 3, unit, half=True),
        ]
        for number, ask in enumerate(questions):
            try:
                made = ask()
            except ValueError as error:
                if "unit of length" not in str(error):
                    raise
                continue
            i, j = made if isinstance(made, tuple) else (made.i, made.j)
            pairs = np.sort([backend.host(i), backend.host(j)], axis=0).T
            assert sorted(map(tuple, pairs.tolist())) == right
            held.append((number, unit))
    assert held == [(number, unit) for unit in units[:2] for number in range(4)]


def test_overlaps_refuse_radii_whose_squares_the_type_does_not_hold(backend):
    """One cell along an open axis takes any radius."""
    x = np.array([[0.0], [1.0], [3.0], [7.0]], "f4")
    for unit in (1e15, 2.0**70):
        box = pm.Box(8.0 * unit, periodic=False)
        radii = np.full(4, 0.6 * unit, "f4")
        grid = put(backend, pm.UniformGrid(box, shape=1), x * np.float32(unit), radii)
        if unit < 1e18:
            assert backend.host(grid.overlaps().j).tolist() == [1]
            continue
        with pytest.raises(ValueError, match="square"):
            grid.overlaps()
