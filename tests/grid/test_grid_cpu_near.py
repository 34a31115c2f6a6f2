# SPDX-License-Identifier: BSD-3-Clause
"""The CPU's nearest particles, sums over neighbours and overlaps from tight lists, against NumPy."""

import numpy as np
import pytest
from numba import njit

from particlemesh import Box
from particlemesh.grid.cpu.queries.nearest import nearest
from particlemesh.grid.cpu.queries.pairs import overlaps
from particlemesh.grid.cpu.queries.sums import sums
from test_grid_cpu import BOXES, columns, points
from test_grid_cpu_search import as_set, brute, built, is_half, listed


def nearest_of(found, rows, k):
    """Indices and distances of the k nearest of each row, by distance, then index."""
    indices, distances = np.full((rows, k), -1), np.full((rows, k), np.inf)
    for row in range(rows):
        entries = sorted(((e[-1] ** 2).sum(), e[1]) for e in found if e[0] == row)[:k]
        for n, (square, j) in enumerate(entries):
            indices[row, n], distances[row, n] = j, np.sqrt(square)
    return indices, distances


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", BOXES)
def test_the_nearest_of_particles_and_points(name, dtype):
    box = BOXES[name]
    x = points(box, 60, dtype, seed=21, turns=1)
    thickness = (1 / np.linalg.norm(box.inverse, axis=1)).min()
    cloud, folded, turns = built(x, box, (4, 3, 5)[: box.ndim])
    radius = dtype(0.9 * thickness)
    found = brute(folded, folded, box, turns, turns, radius, own=True)
    asked = points(box, 20, dtype, seed=22)
    found_asked = brute(asked, folded, box, None, turns, radius, own=False)
    for k in (1, 4, 40):
        indices, distances = nearest_of(found, 60, k)
        for threads in (1, 3):
            result = nearest(cloud, k, float(radius), threads=threads)
            np.testing.assert_array_equal(result[0], indices)
            np.testing.assert_allclose(result[1], distances, rtol=1e-4, atol=1e-6)
            assert result[2] is None
        indices, distances = nearest_of(found_asked, 20, k)
        result = nearest(cloud, k, float(radius), columns(asked))
        np.testing.assert_array_equal(result[0], indices)
        np.testing.assert_allclose(result[1], distances, rtol=1e-4, atol=1e-6)


def test_the_nearest_on_a_lattice_go_by_index():
    grid = np.stack(np.meshgrid(*[np.arange(4.0)] * 3, indexing="ij"), -1).reshape(-1, 3)
    box = Box((4.0, 4.0, 4.0))
    cloud, _, _ = built(grid, box, (4, 4, 4))
    found = brute(grid, grid, box, None, None, 2.0, own=True)
    for k in (3, 6, 10):
        np.testing.assert_array_equal(nearest(cloud, k, 2.0)[0], nearest_of(found, 64, k)[0])


def test_the_nearest_in_a_crowd_and_far_from_it():
    rng = np.random.default_rng(23)
    x = np.vstack([0.1 + 1e-4 * rng.random((500, 3)), rng.random((5, 3))])
    cloud, _, _ = built(x, BOXES["cube"], (6, 6, 6))
    from scipy.spatial import cKDTree

    distances, _ = cKDTree(x, boxsize=1).query(x, 9, distance_upper_bound=0.49)
    np.testing.assert_allclose(nearest(cloud, 8, 0.49)[1], distances[:, 1:], rtol=1e-9)
    asked = rng.random((100, 3))
    distances, _ = cKDTree(x, boxsize=1).query(asked, 8, distance_upper_bound=0.49)
    np.testing.assert_allclose(nearest(cloud, 8, 0.49, columns(asked))[1], distances, rtol=1e-9)


def test_the_nearest_of_one_particle_are_its_images():
    cloud, _, _ = built(np.array([[0.3, 0.4]]), Box((1.0, 2.0)), (1, 1))
    indices, distances = nearest(cloud, 5, 1000.0)[:2]
    np.testing.assert_array_equal(indices, [[0] * 5])
    np.testing.assert_allclose(distances, [[1, 1, 2, 2, 2]])
    empty, _, _ = built(np.empty((0, 2)), Box((1.0, 2.0)), (2, 2))
    assert nearest(empty, 3, 1.0)[0].shape == (0, 3)
    indices, distances, found = nearest(empty, 3, 1.0, columns(np.array([[0.5, np.nan], [0.5, 0.5]])))
    assert np.all(indices == -1)
    assert np.all(distances == np.inf)
    assert found.not_finite == 1


@njit
def spring(r2, d, i, j, a, b, p, sum):
    sum[0] += p[0] * a[0] * b[0]
    sum[1] += b[1] * (r2 + j)
    for axis in range(3):
        sum[2 + axis] += d[axis] * a[1]
    sum[5] += i == j


@njit
def one(r2, d, i, j, a, b, p, sum):
    sum[0] += 1


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", ["cube", "open", "skewed, mixed", "plane"])
def test_sums_over_neighbours(name, dtype):
    box = BOXES[name]
    x = points(box, 80, dtype, seed=24, turns=1)
    x[5] = np.nan
    rng = np.random.default_rng(25)
    values, parameters = rng.random((80, 2)).astype(dtype), [3.0]
    for radius in (0.4, 1.2):
        cloud, folded, turns = built(x, box, (4, 3, 5)[: box.ndim])
        folded = np.where(np.isnan(folded), 1e6, folded)
        found = brute(folded, folded, box, turns, turns, dtype(radius), own=True)
        found = [entry for entry in found if entry[0] != 5]
        expected, degree = np.zeros((80, 6)), np.zeros((80, 1))
        for i, j, *_, d in found:
            vector = np.pad(d, (3 - box.ndim, 0))
            products = 3 * values[i, 0] * values[j, 0], values[j, 1] * ((d * d).sum() + j)
            expected[i] += (*products, *(vector * values[i, 1]), i == j)
            degree[i] += 1
        for threads in (1, 3):
            totals = sums(cloud, radius, spring, 6, values, parameters, threads=threads)
            np.testing.assert_allclose(totals, expected, rtol=1e-3, atol=1e-3)
        np.testing.assert_array_equal(sums(cloud, radius, one, 1), degree)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_touching_spheres_as_wide_as_a_cell(dtype):
    for step, corner in ((1.0, 0.0), (0.1, 0.03), (1 / 3, -7.7)):
        n = 7
        grid = np.stack(np.meshgrid(*[np.arange(n)] * 3, indexing="ij"), -1).reshape(-1, 3)
        box = Box((n * step,) * 3, origin=(corner,) * 3)
        x = (grid * step + corner).astype(dtype)
        half = np.full(len(x), 0.5 * step, dtype)
        cloud, folded, turns = built(x, box, (n, n, n), half)
        expected = brute(folded, folded, box, turns, turns, half[:, None] + half, own=True)
        loose = overlaps(cloud, quantities="ijS")
        if step == 1.0:
            assert listed(loose) == {e for e in as_set(expected) if is_half(e)}
