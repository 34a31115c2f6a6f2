# SPDX-License-Identifier: BSD-3-Clause
"""The nearest particles, against all pairs with all images."""

import numpy as np
import pytest

from clouds import BOXES, brute, cloud_of, coordinates, positions
from particlemesh import Box
from particlemesh.backends import cuda
from particlemesh.grid.queries.nearest import nearest
from ptx import without_nvrtc

pytestmark = pytest.mark.backends("cuda", "opencl")
EPS = {np.float32: 3e-6, np.float64: 1e-14}


def expected(x, box, k, radius, points=None):
    """Indices and distances in float64, and the distance of the last one left out or let in."""
    i, j, _, d = brute(x, box, radius, points)
    r = np.sqrt((d**2).sum(1))
    rows = len(x if points is None else points)
    order = np.lexsort((j, r, i))
    i, j, r = i[order], j[order], r[order]
    indices, distances = np.full((rows, k), -1), np.full((rows, k), np.inf)
    for row in range(rows):
        of = (i == row) & (r <= radius)
        n = min(k, of.sum())
        indices[row, :n], distances[row, :n] = j[of][:n], r[of][:n]
    return indices, distances


def found(backend, x, box, shape, k, radius, points=None, **options):
    cloud = cloud_of(backend, x, box, shape, **options)
    given = None if points is None else coordinates(backend, points, box)
    result = nearest(cloud, k, radius, given)
    return backend.host(result.indices), backend.host(result.distances)


def check(backend, x, box, shape, k, radius, points=None, **options):
    indices, distances = found(backend, x, box, shape, k, radius, points, **options)
    wanted = expected(x, box, k, radius, points)
    assert indices.dtype == np.int32 and distances.dtype == x.dtype
    if x.dtype == np.float64:  # random distances differ by more than rounding
        np.testing.assert_array_equal(indices, wanted[0])
    else:
        assert (indices == wanted[0]).mean() > 0.98 or indices.size < 50
    np.testing.assert_array_equal(indices < 0, np.isinf(distances))
    tolerance = 20 * EPS[x.dtype.type]
    np.testing.assert_allclose(distances, wanted[1], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", BOXES)
def test_of_particles(backend, name, dtype):
    box = BOXES[name]
    x = positions(box, 150, dtype, turns=2)
    check(backend, x, box, (4, 3, 5)[: box.ndim], 5, 1.3)
    check(backend, x, box, (2, 1, 3)[: box.ndim], 40, 2.0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", BOXES)
def test_of_points(backend, name, dtype):
    box = BOXES[name]
    x = positions(box, 120, dtype)
    points = positions(box, 70, dtype, seed=1, turns=3)
    away = np.where(np.array(box.periodic), 0.0, np.random.default_rng(2).normal(0, 1.5, (70, box.ndim)))
    check(backend, x, box, (3, 4, 2)[: box.ndim], 4, 1.5, (points + away @ box.matrix).astype(dtype))


@pytest.mark.parametrize("k", [1, 2, 16, 17, 64, 128])
def test_of_any_length(backend, k):
    box = BOXES["mixed 3-D"]
    x = positions(box, 90)
    check(backend, x, box, (4, 3, 5), k, 2.5)
    check(backend, x, box, (4, 3, 5), k, 0.4)


@pytest.mark.parametrize("count", [0, 1, 2, 33])
def test_of_few_particles(backend, count):
    for name in ("periodic 3-D", "open 3-D", "periodic 2-D"):
        box = BOXES[name]
        x = positions(box, count)
        check(backend, x, box, (3, 3, 3)[: box.ndim], 3, 1.5)
        check(backend, x, box, (1, 2, 1)[: box.ndim], 20, 5.5)  # images of itself
        check(backend, x, box, (2, 2, 2)[: box.ndim], 3, 1.5, positions(box, 5, seed=3))
        check(backend, x, box, (2, 2, 2)[: box.ndim], 3, 1.5, np.empty((0, box.ndim)))


@pytest.mark.parametrize("k", [6, 40])
def test_equal_distances_go_by_index(backend, k):
    # On a lattice of exact numbers there are six particles at a distance of 1, twelve at the square root of 2, ...
    box = Box((4.0, 4.0, 4.0))
    x = np.stack(np.meshgrid(*[np.arange(4.0)] * 3, indexing="ij"), -1).reshape(-1, 3)
    rng = np.random.default_rng(4)
    for dtype in (np.float32, np.float64):
        given = rng.permutation(x).astype(dtype)
        wanted = expected(given, box, k, 2.0)
        for shape in ((4, 4, 4), (2, 3, 1)):
            for scattered in (False, True):
                indices, distances = found(backend, given, box, shape, k, 2.0, scattered=scattered)
                np.testing.assert_array_equal(indices, wanted[0])
                np.testing.assert_array_equal(distances, wanted[1].astype(dtype))


def test_of_particles_in_one_place(backend):
    box = BOXES["periodic 3-D"]
    x = np.tile(box.origin + [0.5, 0.25, 0.125], (40, 1))
    indices, distances = found(backend, x, box, (4, 3, 5), 20, 1.0)
    for i in range(40):
        np.testing.assert_array_equal(indices[i], np.delete(np.arange(40), i)[:20])
    assert not distances.any()
    indices, distances = found(backend, x, box, (4, 3, 5), 20, 1.0, points=x[:1])
    np.testing.assert_array_equal(indices[0], np.arange(20))


def test_of_one_dense_cell(backend):
    # The first radius is a guess from the cell's particles: here it is far too large, and around it too small.
    box = BOXES["mixed 3-D"]
    rng = np.random.default_rng(6)
    x = np.concatenate([rng.normal([2.0, 1.5, 2.5], 0.02, (200, 3)), positions(box, 60)])
    check(backend, x, box, (8, 6, 10), 8, 3.0)


def test_with_cells_of_several_sizes(backend):
    box = BOXES["periodic 3-D"]
    x = positions(box, 200)
    radii = np.random.default_rng(7).choice([0.1, 0.4, 0.9, 2.0], 200)
    check(backend, x, box, (8, 6, 10), 6, 1.4, levels=3, radii=radii)
    check(backend, x, box, (8, 6, 10), 6, 1.4, positions(box, 50, seed=8), levels=3, radii=radii)


def test_particles_that_were_left_out_have_empty_rows(backend):
    box = BOXES["open 3-D"]
    x = positions(box, 60)
    x[7, 1], x[20], x[59, 0] = np.nan, 100.0, np.inf
    good = np.isfinite(x).all(1) & (x[:, 0] < 50)
    indices, distances = found(backend, x, box, (3, 3, 3), 4, 2.0)
    assert (indices[~good] == -1).all() and np.isinf(distances[~good]).all()
    among = np.append(np.flatnonzero(good), -1)
    wanted = expected(x[good], box, 4, 2.0)
    np.testing.assert_array_equal(indices[good], among[wanted[0]])
    np.testing.assert_allclose(distances[good], wanted[1], rtol=1e-13)


def test_points_that_are_no_numbers_are_told(backend):
    box = BOXES["mixed 3-D"]
    x, points = positions(box, 50), positions(box, 40, seed=1)
    points[3, 0], points[30, 1], points[31, 2] = np.nan, -np.inf, 1e30
    result = nearest(cloud_of(backend, x, box, (2, 2, 2)), 3, 9.0, coordinates(backend, points, box))
    status, indices = backend.host(result.status), backend.host(result.indices)
    assert status[:2].tolist() == [2, 1] and int(~status[2]) == 3
    assert (indices[[3, 30, 31]] == -1).all() and (np.delete(indices, [3, 30, 31], 0) >= 0).all()


def test_far_points(backend):
    for dtype in (np.float32, np.float64):
        box = Box((4.0, 3.0, 5.0), periodic=(True, False, False))
        x = positions(box, 50, dtype)
        points = np.array([[1.0, 3e38, 1.0], [4.0 * 2**15, 1.0, 1.0], [1.0, -1e30, 1e30]], dtype)
        check(backend, x, box, (3, 2, 1), 3, 1.5, points)


def test_of_any_radius(backend):
    for dtype in (np.float32, np.float64):
        for radius in (1e30, 1e300):
            x = positions(BOXES["open 3-D"], 40, dtype)
            cloud = cloud_of(backend, x, BOXES["open 3-D"], (3, 2, 2))
            assert (backend.host(nearest(cloud, 39, radius).indices) >= 0).all()
        cloud = cloud_of(backend, positions(BOXES["mixed 3-D"], 40, dtype), BOXES["mixed 3-D"], (3, 2, 2))
        for radius in (1e10, np.inf, np.nan, -1.0):
            with pytest.raises(ValueError, match="radius is"):
                nearest(cloud, 3, radius)


@pytest.mark.skipif(without_nvrtc() is not None, reason=f"no NVRTC: {without_nvrtc()}")
@pytest.mark.parametrize(("k", "double", "compute"), [(1, 0, 80), (16, 1, 90), (64, 0, 90), (128, 1, 100)])
@pytest.mark.parametrize("points", [0, 1])
@pytest.mark.parametrize("scattered", [0, 1])
def test_compiles_for_cuda(k, double, compute, points, scattered):
    defines = {
        "REAL_IS_DOUBLE": double, "COORDINATE_IS_DOUBLE": double, "KEYS_ARE_POSITIONS": 1,
        "CELLS_ARE_SCATTERED": scattered, "EXTENTS": 0, "K": k, "POINTS": points,
    }  # fmt: skip
    assert b"nearest" in cuda.compile_only("grid/queries/nearest.c", defines, compute)
