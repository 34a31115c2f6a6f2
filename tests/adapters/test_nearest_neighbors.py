# SPDX-License-Identifier: BSD-3-Clause
"""Neighbours with scikit-learn's methods, against brute force, and against scikit-learn where it is installed."""

import numpy as np
import pytest

from particlemesh.adapters.sklearn import NearestNeighbors

RNG = np.random.default_rng(7)
X, Y = RNG.random((40, 3)), 2 * RNG.random((15, 3)) - 0.5


def distances(y, boxsize):
    """Return the distance of each y, or of each sample, to each sample; infinity from a sample to itself."""
    d = (X if y is None else y)[:, None] - X[None]
    d = np.linalg.norm(d if boxsize is None else d - boxsize * np.rint(d / boxsize), axis=-1)
    return d + np.diag(np.full(len(X), np.inf)) if y is None else d


@pytest.mark.parametrize("boxsize", [None, 1.0])
@pytest.mark.parametrize("y", [None, Y], ids=["samples", "points"])
def test_results_are_those_of_brute_force(y, boxsize):
    neighbours, expected = NearestNeighbors(n_neighbors=4, radius=0.3, boxsize=boxsize).fit(X), distances(y, boxsize)
    assert neighbours.n_samples_fit_ == 40 and neighbours.n_features_in_ == 3
    for k in (None, 1, 39):
        d, i = neighbours.kneighbors(y, k)
        np.testing.assert_array_equal(i, np.argsort(expected, axis=1, kind="stable")[:, : k or 4])
        np.testing.assert_allclose(d, np.sort(expected, axis=1)[:, : k or 4])
        np.testing.assert_array_equal(neighbours.kneighbors(y, k, return_distance=False), i)
        graph = neighbours.kneighbors_graph(y, k, mode="distance").toarray()
        np.testing.assert_allclose(graph[np.arange(len(i))[:, None], i], d)
        assert (neighbours.kneighbors_graph(y, k) != 0).sum() == len(i) * (k or 4)
    for r in (None, 0.6):
        within = expected <= (r or 0.3)
        d, i = neighbours.radius_neighbors(y, r)
        assert d.dtype == i.dtype == object and i.shape == (len(within),)
        for row in range(len(within)):
            np.testing.assert_array_equal(i[row], np.flatnonzero(within[row]))
            np.testing.assert_allclose(d[row], expected[row][within[row]])
        ascending, _ = neighbours.radius_neighbors(y, r, sort_results=True)
        assert all((np.diff(row) >= 0).all() for row in ascending)
        np.testing.assert_array_equal(neighbours.radius_neighbors_graph(y, r).toarray(), within)
        graph = neighbours.radius_neighbors_graph(y, r, mode="distance", sort_results=True).toarray()
        np.testing.assert_allclose(graph, np.where(within, expected, 0))


@pytest.mark.parametrize("y", [None, Y], ids=["samples", "points"])
def test_results_are_scikit_learns(y):
    neighbors = pytest.importorskip("sklearn.neighbors", reason="scikit-learn is not installed")
    ours, theirs = (make(n_neighbors=3, radius=0.4).fit(X) for make in (NearestNeighbors, neighbors.NearestNeighbors))
    for a, b in zip(ours.kneighbors(y), theirs.kneighbors(y), strict=True):
        np.testing.assert_allclose(a, b)
        assert a.dtype == b.dtype
    results = (n.radius_neighbors(y, sort_results=True) for n in (ours, theirs))
    for a, b in zip(*results, strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype and a[0].dtype == b[0].dtype
        for one, two in zip(a, b, strict=True):
            np.testing.assert_allclose(one, two)
    for mode in ("connectivity", "distance"):
        for name in ("kneighbors_graph", "radius_neighbors_graph"):
            a, b = (getattr(n, name)(y, mode=mode) for n in (ours, theirs))
            assert type(a) is type(b) and a.dtype == b.dtype
            np.testing.assert_allclose(a.toarray(), b.toarray())


def test_samples_at_the_radius_and_in_one_place_are_neighbours():
    neighbours = NearestNeighbors().fit([[3.0, 4.0], [0.0, 0.0], [0.0, 0.0]])
    assert [row.tolist() for row in neighbours.radius_neighbors(radius=5.0)[1]] == [[1, 2], [0, 2], [0, 1]]
    assert [row.tolist() for row in neighbours.radius_neighbors(radius=0.0)[1]] == [[], [2], [1]]
    assert neighbours.kneighbors(n_neighbors=1)[1].tolist() == [[1], [2], [1]]
    alone = NearestNeighbors().fit([[1.0]])
    assert [row.tolist() for row in alone.radius_neighbors()[1]] == [[]]
    assert alone.radius_neighbors(np.zeros((0, 1)))[1].shape == (0,)
    assert alone.kneighbors_graph([[2.0]], 1, mode="distance").toarray().tolist() == [[1.0]]


def test_results_of_tensors_are_tensors():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    d, i = NearestNeighbors(n_neighbors=2).fit(torch.tensor(X)).kneighbors()
    assert d.dtype == torch.float64 and i.dtype == torch.int64
    np.testing.assert_array_equal(i.numpy(), NearestNeighbors(n_neighbors=2).fit(X).kneighbors()[1])


FITTED = NearestNeighbors().fit(X)
ERRORS = [
    (lambda: NearestNeighbors(metric="manhattan"), ValueError, "metric is 'manhattan'"),
    (lambda: NearestNeighbors(p=1), ValueError, "only Euclidean distances are searched, p=2"),
    (lambda: NearestNeighbors(n_neighbors=0), ValueError, "n_neighbors is 0; 1 to"),
    (lambda: NearestNeighbors().kneighbors(X), ValueError, "there are no samples yet: call fit first"),
    (lambda: NearestNeighbors().fit(np.zeros((0, 3))), ValueError, "at least one sample is needed"),
    (lambda: NearestNeighbors().fit(np.zeros((9, 4))), ValueError, "points .* of 1 to 3 axes"),
    (lambda: FITTED.kneighbors(n_neighbors=40), ValueError, "n_neighbors is 40; 39 samples can be neighbours"),
    (lambda: FITTED.kneighbors(X[:, :2]), ValueError, "points in 3-D are needed"),
    (lambda: FITTED.radius_neighbors(radius=-1.0), ValueError, "radius is -1.0"),
    (lambda: FITTED.radius_neighbors(return_distance=False, sort_results=True), ValueError, "ask for distances"),
    (lambda: FITTED.kneighbors_graph(mode="lengths"), ValueError, "mode is 'lengths'"),
]


@pytest.mark.parametrize("number", range(len(ERRORS)))
def test_what_is_not_allowed_is_named(number):
    call, error, message = ERRORS[number]
    with pytest.raises(error, match=message):
        call()
