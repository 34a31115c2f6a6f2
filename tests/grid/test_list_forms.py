# SPDX-License-Identifier: BSD-3-Clause
"""Lists in other forms: the nearest neighbours, orders, rows and matrices; systems with periodic axes of their own."""

import numpy as np
import pytest

import particlemesh as pm

RNG = np.random.default_rng(8)
X, BOX, RADIUS = RNG.random((70, 3)), (1.0, 0.9, 0.4), 0.3  # a particle's images are its neighbours, too
X[:10] = np.round(4 * X[:10]) / 4  # equal distances


def pairs_of(*arrays):
    return np.column_stack([a[:, None] if a.ndim == 1 else a for a in arrays])


def sorted_by(rows, *keys):
    return rows[np.lexsort(keys[::-1])]


@pytest.fixture
def plain(backend):
    """A list of the same device: others round distances otherwise, and order those that are nearly equal otherwise."""
    i, j, images, d = map(backend.host, pm.neighbour_list("ijSd", backend.array(X), BOX, RADIUS))
    assert len(i) > 500
    return pairs_of(i, j, images, d)


@pytest.mark.parametrize("most", [None, 0, 1, 7, 1000])
@pytest.mark.parametrize("sort", ["i", "j", "d"])
def test_orders_and_the_nearest(backend, plain, sort, most):
    letters = "ijSdn" if sort == "j" else "ijSdns"
    got = pm.neighbour_list(letters, backend.array(X), BOX, RADIUS, sort_by=sort, most=most)
    *arrays, numbers, starts = (backend.host(array) for array in (*got, got[4])[:6])
    got = pairs_of(*arrays)
    expected = sorted_by(plain, plain[:, 0], plain[:, 5], plain[:, 1], *plain.T[2:5])
    if most is not None:
        first = np.searchsorted(expected[:, 0], expected[:, 0])
        expected = expected[np.arange(len(expected)) - first < most]
    np.testing.assert_array_equal(numbers, np.bincount(expected[:, 0].astype(int), minlength=len(X)))
    if sort != "j":
        np.testing.assert_array_equal(starts, np.concatenate([[0], np.cumsum(numbers)]))
    if sort == "j":
        expected = sorted_by(expected, expected[:, 1], expected[:, 0], *expected.T[2:5])
    if sort == "i" and most is None:  # within a particle in any order
        got, expected = (sorted_by(rows, rows[:, 0], rows[:, 5], rows[:, 1], *rows.T[2:5]) for rows in (got, expected))
    np.testing.assert_array_equal(got[:, :5], expected[:, :5])
    np.testing.assert_allclose(got[:, 5], expected[:, 5], rtol=1e-14)


def test_counts_alone_and_of_no_pairs(backend):
    x = backend.array(X)
    numbers = backend.host(pm.neighbour_list("n", x, BOX, RADIUS))
    assert numbers.dtype == np.int32
    np.testing.assert_array_equal(numbers, np.bincount(pm.neighbour_list("i", X, BOX, RADIUS), minlength=len(X)))
    i, starts = pm.neighbour_list("is", x, BOX, 1e-9, most=2)
    assert backend.host(i).dtype == np.int32
    np.testing.assert_array_equal(backend.host(starts), np.zeros(len(X) + 1))
    for sort in ("i", "j", "d"):
        i, numbers = pm.neighbour_list("in", x, BOX, 1e-9, sort_by=sort)
        assert not backend.host(i).size
        assert not backend.host(numbers).any()
    assert backend.host(pm.neighbour_matrix(i, i, len(X), 2, fill=-1)).tolist() == [[-1, -1]] * len(X)


@pytest.mark.parametrize(("letter", "fill"), [("j", -1), ("S", 0), ("d", np.inf), ("D", 0.0)])
def test_a_matrix_has_the_list_by_rows(backend, letter, fill):
    i, values = pm.neighbour_list("i" + letter, backend.array(X), BOX, RADIUS)
    matrix = backend.host(pm.neighbour_matrix(i, values, len(X), fill=fill))
    first, values = backend.host(i), backend.host(values)
    assert matrix.dtype == values.dtype
    assert matrix.shape == (len(X), np.bincount(first).max(), *values.shape[1:])
    for particle, row in enumerate(matrix):
        right = values[first == particle]
        np.testing.assert_array_equal(row[: len(right)], right)
        assert (row[len(right) :] == fill).all()
    wide = backend.host(pm.neighbour_matrix(i, backend.array(values), len(X), matrix.shape[1] + 3, fill=fill))
    np.testing.assert_array_equal(wide[:, :-3], matrix)


def test_what_is_not_allowed_is_named():
    i, j = pm.neighbour_list("ij", X, BOX, RADIUS)
    with pytest.raises(ValueError, match=r"neighbours, more than columns = 2"):
        pm.neighbour_matrix(i, j, len(X), 2)
    with pytest.raises(ValueError, match="sorted by i"):
        pm.neighbour_matrix(i[::-1].copy(), j, len(X))
    with pytest.raises(ValueError, match="sorted by i"):
        pm.neighbour_matrix(i, j, 3)
    with pytest.raises(ValueError, match="one value a pair"):
        pm.neighbour_matrix(i, j[1:], len(X))
    with pytest.raises(ValueError, match="half=True"):
        pm.neighbour_list("ij", X, BOX, RADIUS, half=True, most=3)
    with pytest.raises(ValueError, match="sort_by"):
        pm.neighbour_list("ij", X, BOX, RADIUS, sort_by="S")
    with pytest.raises(ValueError, match="sort by 'i' or 'd'"):
        pm.neighbour_list("js", X, BOX, RADIUS, sort_by="j")
    with pytest.raises(ValueError, match="fill is 1.5"):
        pm.neighbour_matrix(i, j, len(X), fill=1.5)
    with pytest.raises(ValueError, match="fill is nan"):
        pm.neighbour_matrix(i, j, len(X), fill=np.nan)
    with pytest.raises(TypeError, match="integers i"):
        pm.neighbour_matrix(i > 0, j, len(X))
    with pytest.raises(ValueError, match="of no system"):
        pm.neighbour_list("ij", X[:0], BOX, RADIUS, periodic=np.zeros((0, 3), bool), system=np.zeros(0, int))
    with pytest.raises(ValueError, match="ijdDSns"):
        pm.neighbour_list("ik", X, BOX, RADIUS)
    with pytest.raises(TypeError, match="system is missing"):
        pm.neighbour_list("ij", X, BOX, RADIUS, periodic=[[True, True, False]])
    with pytest.raises(ValueError, match="periodic"):
        pm.neighbour_list("ij", X, BOX, RADIUS, periodic=[[True, True]], system=np.zeros(len(X), int), boxes=[BOX])
    with pytest.raises(ValueError, match=r"periodic has shape \(2, 3\); \(1, 3\)"):
        pm.neighbour_list("ij", X, BOX, RADIUS, periodic=[[True] * 3] * 2, system=np.zeros(len(X), int), boxes=[BOX])
    with pytest.raises(TypeError, match="give bools"):
        pm.neighbour_list("ij", X, BOX, RADIUS, periodic=[[1, 1, 0]], system=np.zeros(len(X), int))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("trial", range(12))
@pytest.mark.turns(3)
def test_systems_with_axes_of_their_own_are_lists_of_their_own(backend, trial, dtype):
    rng = np.random.default_rng(trial)
    axes, systems, count = rng.integers(1, 4), rng.integers(1, 6), rng.integers(0, 60)
    ids, periodic = rng.integers(0, systems, count), rng.random((systems, axes)) < 0.5
    boxes = np.eye(axes) * rng.uniform(0.6, 1.4, (systems, 1, 1)) + (trial % 2) * 0.1 * rng.random(
        (systems, axes, axes)
    )
    x, radius, half = rng.uniform(-1, 2, (count, axes)).astype(dtype), rng.uniform(0.05, 0.9), bool(trial % 3 == 0)
    given = dict(periodic=periodic, system=backend.array(ids), boxes=boxes, half=half)
    got = [backend.host(a) for a in pm.neighbour_list("ijS", backend.array(x), (1.0,) * axes, radius, **given)]
    expected = []
    for system, rows in enumerate(np.flatnonzero(ids == s) for s in range(systems)):
        flags = periodic[system].tolist()
        i, j, images = pm.neighbour_list("ijS", x[rows], boxes[system], radius, periodic=flags, half=half)
        expected += np.column_stack([rows[i], rows[j], images]).tolist()
    assert sorted(np.column_stack(got).tolist()) == sorted(expected)
