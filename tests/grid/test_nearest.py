# SPDX-License-Identifier: BSD-3-Clause
"""Nearest particles that a search could miss: long lists, ties, crowds, far points, particles left out."""

import numpy as np
import pytest

import particlemesh as pm
from grid_cases import Case, all_pairs
from grid_checks import check_nearest, put

CASE = Case("mixed", (4, 3, 5), "wrapped", 90, "f8")


@pytest.mark.parametrize("k", [1, 2, 16, 17, 64, 128])
def test_lists_of_any_length_are_complete(backend, k):
    with CASE.grid() as grid:
        put(backend, grid, CASE.positions)
        for radius in (2.5, 0.4):
            check_nearest(backend, grid, CASE.domain, CASE.positions, k, radius)


@pytest.mark.parametrize("k", [6, 40])
@pytest.mark.parametrize("real", ["f4", "f8"])
def test_equal_distances_are_in_the_order_of_indices(backend, k, real):
    # On a lattice of exact numbers six particles are at a distance of 1, twelve at the square root of 2, and so on.
    box = pm.Box((4.0, 4.0, 4.0))
    x = np.stack(np.meshgrid(*[np.arange(4.0)] * 3, indexing="ij"), -1).reshape(-1, 3)
    x = np.random.default_rng(4).permutation(x).astype(real)
    oracle = all_pairs(box, x, 2.0)
    by_row = np.lexsort((oracle.j, oracle.distance, oracle.i))
    i, j, d = oracle.i[by_row], oracle.j[by_row], oracle.distance[by_row]
    indices, distances = np.full((64, k), -1), np.full((64, k), np.inf)
    for row in range(64):
        of = np.flatnonzero((i == row) & (d <= 2))[:k]
        indices[row, : len(of)], distances[row, : len(of)] = j[of], d[of]
    for cells in ((4, 4, 4), (2, 3, 1)):
        for options in ({}, {"method": "fixed"}):
            with pm.UniformGrid(box, shape=cells, **options) as grid:
                put(backend, grid, x)
                result = grid.nearest(k, 2.0)
                np.testing.assert_array_equal(backend.host(result[0]), indices)
                np.testing.assert_array_equal(backend.host(result[1]), distances.astype(real))


def test_particles_in_one_place_are_in_the_order_of_indices(backend):
    box, x = CASE.domain, np.tile(CASE.domain.origin + [0.5, 0.25, 0.125], (40, 1))
    with CASE.grid() as grid:
        put(backend, grid, x)
        indices, distances = map(backend.host, grid.nearest(20, 0.4))
        np.testing.assert_array_equal(indices, [np.delete(np.arange(40), i)[:20] for i in range(40)])
        assert not distances.any()
        np.testing.assert_array_equal(backend.host(grid.nearest(20, 0.4, backend.array(x[:1]))[0])[0], np.arange(20))
        check_nearest(backend, grid, box, x, 20, 0.4)


def test_a_crowd_and_its_empty_surroundings_are_searched_alike(backend):
    # The first radius is estimated from a cell's particles: in the crowd it is far too large, around it too small.
    box, rng = CASE.domain, np.random.default_rng(6)
    crowd = box.origin + rng.normal([1.5, 1.0, 1.2], 0.01, (200, 3))
    x = np.concatenate([crowd, CASE.positions])
    with pm.UniformGrid(box, shape=(8, 6, 10)) as grid:
        put(backend, grid, x)
        check_nearest(backend, grid, box, x, 8, 2.0)


def test_particles_on_every_level_are_found(backend):
    radii = np.random.default_rng(7).choice([0.05, 0.2, 0.45, 0.9], 90)
    with pm.UniformGrid(CASE.domain, shape=(8, 6, 10), levels=3) as grid:
        put(backend, grid, CASE.positions, radii)
        check_nearest(backend, grid, CASE.domain, CASE.positions, 6, 0.9)
        check_nearest(backend, grid, CASE.domain, CASE.positions, 6, 0.9, CASE._replace(count=50).positions)


def test_particles_left_out_have_empty_rows_and_are_in_no_row(backend):
    case = Case("open", (3, 3, 3), "uniform", 60, "f8")
    x = case.positions.copy()
    x[7, 1], x[20], x[59, 0] = np.nan, 100.0, np.inf
    good = np.setdiff1d(np.arange(60), [7, 20, 59])
    answers = []
    for some in (x, x[good]):
        with case.grid() as grid:
            put(backend, grid, some, check=False)
            answers.append([backend.host(a) for a in grid.nearest(4, 1.0)])
    (indices, distances), (expected, far) = answers
    assert (indices[[7, 20, 59]] == -1).all() and np.isinf(distances[[7, 20, 59]]).all()
    np.testing.assert_array_equal(indices[good], np.append(good, -1)[expected])
    np.testing.assert_allclose(distances[good], far, rtol=1e-13)


@pytest.mark.parametrize("real", ["f4", "f8"])
def test_far_points_and_far_radii_are_taken(backend, real):
    box = pm.Box((4.0, 3.0, 5.0), periodic=(True, False, False))
    rng = np.random.default_rng(8)
    x = (rng.random((50, 3)) * box.lengths).astype(real)
    points = np.array([[1.0, 3e38, 1.0], [4.0 * 2**15, 1.0, 1.0], [1.0, -1e30, 1e30]], real)
    with pm.UniformGrid(box, shape=(3, 2, 1)) as grid:
        put(backend, grid, x)
        near = points[1:2] - np.array([4.0 * 2**15, 0, 0], real)
        far, close = (backend.host(grid.nearest(3, 1.5, backend.array(p))[0]) for p in (points, near))
        assert (far[[0, 2]] == -1).all()
        np.testing.assert_array_equal(far[1], close[0])
        for radius in (1e10, np.inf, np.nan, -1.0):
            with pytest.raises(ValueError, match="radius is"):
                grid.nearest(3, radius)
    with pm.UniformGrid(pm.Box((4.0, 3.0, 5.0), periodic=False), shape=(3, 2, 2)) as grid:
        put(backend, grid, x)
        for radius in (1e30, 1e300):
            assert (backend.host(grid.nearest(49, radius)[0]) >= 0).all()
            np.testing.assert_array_equal(backend.host(grid.count(radius)), 49)


@pytest.mark.backends("cpu")
def test_one_particle_sees_its_images_and_none_sees_nothing(backend):
    with pm.UniformGrid((1.0, 2.0), shape=(1, 1)) as grid:
        indices, distances = grid.build(np.array([[0.3, 0.4]])).nearest(5, 300.0)
        np.testing.assert_array_equal(indices, [[0] * 5])
        np.testing.assert_allclose(distances, [[1, 1, 2, 2, 2]])
        indices, distances = grid.build(np.empty((0, 2))).nearest(3, 0.5, np.array([[0.5, 0.5]]))
        assert indices.tolist() == [[-1] * 3] and np.isinf(distances).all()
