# SPDX-License-Identifier: BSD-3-Clause
"""A tree with SciPy's methods, against brute force and against SciPy's own tree."""

import functools
import itertools
import pickle

import numpy as np
import pytest
import scipy.spatial

from kinds import KINDS
from particlemesh import backends
from particlemesh.adapters.scipy import KDTree

BOXES = {"open": None, "periodic": 1.0, "slab": (1.0, 0.0, 1.5)}
RNG = np.random.default_rng(5)
DATA, POINTS = RNG.random((60, 3)), 3 * RNG.random((25, 3)) - 1


def distances(x, y, boxsize, once=True):
    """Return the distance of each x to each y, the nearest image of it."""
    d = x[:, None] - y[None]
    if boxsize is not None:
        lengths = np.broadcast_to(boxsize, 3)[: x.shape[1]]
        d -= np.where(lengths > 0, lengths, 0) * np.rint(d / np.where(lengths > 0, lengths, 1))
    return np.linalg.norm(d, axis=-1)


def cut(boxsize, axes):
    return boxsize[:axes] if isinstance(boxsize, tuple) else boxsize


CASES = [(name, dtype) for name in KINDS for dtype in ("float32", "float64") if name != "pyopencl"]


@pytest.mark.parametrize(("library", "dtype"), [case for case in CASES if case[0][:3] != "jax" or case[1] == "float32"])
@pytest.mark.parametrize("box", BOXES)
def test_results_are_those_of_brute_force_in_every_kind(library, dtype, box):
    kind = KINDS[library]
    reason = backends.module(kind.home).available()
    if reason is not None:
        pytest.skip(f"{kind.home} does not work here: {reason}")
    data, points = (kind.make(x.astype(dtype)) for x in (DATA, POINTS))
    x, y = (kind.host(a).astype(np.float64) for a in (data, points))
    tree, expected = KDTree(data, boxsize=BOXES[box]), distances(y, x, BOXES[box])
    order = np.argsort(expected, axis=1, kind="stable")
    tolerance = 1e-12 if kind.host(tree.data).dtype == np.float64 else 2e-6
    for k in (3, 130):
        d, i = tree.query(points, k)
        assert type(d) is type(data) and type(i) is type(data) and tuple(d.shape) == ((25, k) if k > 1 else (25,))
        d, i = kind.host(d).reshape(25, k), kind.host(i).reshape(25, k)
        few = min(k, 60)
        np.testing.assert_allclose(d[:, :few], np.sort(expected, axis=1)[:, :few], atol=tolerance)
        np.testing.assert_array_equal(i[:, :few], order[:, :few])
        assert (i[:, few:] == 60).all() and np.isinf(d[:, few:]).all()
    for r in (0.3, 0.77):  # the second sees images
        within = expected <= r
        counts = tree.query_ball_point(points, r, return_length=True)
        assert type(counts) is type(data)
        np.testing.assert_array_equal(kind.host(counts), within.sum(1))
        assert tree.query_ball_point(points, r).tolist() == [np.flatnonzero(row).tolist() for row in within]
        alone = distances(x, x, BOXES[box]) <= r
        pairs = tree.query_pairs(r, output_type="ndarray")
        assert type(pairs) is type(data)
        assert sorted(map(tuple, kind.host(pairs).tolist())) == list(zip(*np.nonzero(np.triu(alone, 1)), strict=True))
        assert tree.count_neighbors(tree, r) == alone.sum()


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("box", BOXES)
def test_results_are_scipys(axes, box):
    boxsize = cut(BOXES[box], axes)
    one, two = DATA[:, :axes], DATA[::-1, :axes] * 0.7 + 0.1
    points = POINTS[:, :axes].reshape(5, 5, axes)
    ours, theirs = ([make(x, boxsize=boxsize) for x in (one, two)] for make in (KDTree, scipy.spatial.KDTree))
    for k, bound in itertools.product((1, 4, [1], [2, 5], 70), (np.inf, 0.3, 0.0)):
        for x in (points, points[0, 0]):
            for a, b in zip(*(t[0].query(x, k, distance_upper_bound=bound) for t in (ours, theirs)), strict=True):
                np.testing.assert_allclose(a, b)
                assert np.shape(a) == np.shape(b) and np.asarray(a).dtype == np.asarray(b).dtype
    radii = RNG.random((5, 5))
    for r in (0.3, radii, radii[0]):
        assert ours[0].query_ball_point(points, r).tolist() == theirs[0].query_ball_point(points, r).tolist()
    alone = ours[0].query_ball_point(points[0, 0], 0.4)
    assert isinstance(alone, list) and sorted(alone) == sorted(theirs[0].query_ball_point(points[0, 0], 0.4))
    for r in (0.3, 3.0):
        assert ours[0].query_ball_tree(ours[1], r) == [sorted(row) for row in theirs[0].query_ball_tree(theirs[1], r)]
        assert ours[0].query_pairs(r) == theirs[0].query_pairs(r)
        for output in ("dok_matrix", "coo_matrix", "dict", "ndarray"):
            a, b = (t[0].sparse_distance_matrix(t[1], r, output_type=output) for t in (ours, theirs))
            if output == "dict":
                assert a.keys() == b.keys() and all(abs(a[key] - b[key]) < 1e-12 for key in a)
            elif output == "ndarray":
                a, b = np.sort(a), np.sort(b)
                assert a.dtype == b.dtype and (a["i"] == b["i"]).all() and (a["j"] == b["j"]).all()
                np.testing.assert_allclose(a["v"], b["v"])
            else:
                assert type(a) is type(b)
                np.testing.assert_allclose(a.toarray(), b.toarray())
    weights = RNG.random(60), None
    for r, w, cumulative in itertools.product((0.4, [0.1, 0.4, 0.4, 9.0]), (None, weights), (True, False)):
        a, b = (t[0].count_neighbors(t[1], r, weights=w, cumulative=cumulative) for t in (ours, theirs))
        np.testing.assert_allclose(a, b)
        assert np.shape(a) == np.shape(b) and np.asarray(a).dtype == np.asarray(b).dtype
    assert (
        ours[0].count_neighbors(ours[0], [0.5, 0.2]).tolist()
        == theirs[0].count_neighbors(theirs[0], [0.5, 0.2]).tolist()
    )


def test_lists_and_integers_are_taken_and_kinds_are_not_mixed():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    tree = KDTree(torch.tensor(DATA, dtype=torch.float32))
    d, i = tree.query([0.5, 0.5, 0.5], 2)
    assert d.dtype == torch.float32 and i.tolist() == KDTree(DATA).query([0.5, 0.5, 0.5], 2)[1].tolist()
    assert KDTree(torch.arange(12).reshape(4, 3)).query(torch.tensor([3, 4, 6]))[1] == 1
    for data, x in ((tree, DATA), (KDTree(DATA), torch.tensor(DATA))):
        with pytest.raises(TypeError, match="give both in one kind"):
            data.query(x)
    with pytest.raises(TypeError, match="give both in one kind"):
        tree.query_ball_tree(KDTree(DATA), 1.0)
    with pytest.raises(TypeError, match="more than the float32"):
        tree.query(torch.tensor(DATA))


def test_pairs_at_half_a_box_count_once():
    """On a lattice with rounded coordinates both images are at one distance, or differ by rounding."""
    for n in (2, 4, 6, 10):
        x = np.stack(np.meshgrid(*[np.arange(n) / n * 0.7] * 2, indexing="ij"), -1).reshape(-1, 2)
        for tree in (KDTree(x, boxsize=0.7), KDTree(x.astype(np.float32), boxsize=0.7)):
            assert tree.query_ball_tree(tree, 5.0) == [list(range(n * n))] * n * n
            assert sorted(tree.query(x[:1], n * n)[1][0].tolist()) == list(range(n * n))


def test_equal_distances_count_up_to_the_radius_and_go_by_index():
    tree = KDTree([[3.0, 4.0], [-3.0, 4.0], [0.0, -5.0], [0.0, 0.0]])
    assert tree.query_ball_point([0.0, 0.0], 5.0) == [0, 1, 2, 3] or sorted(tree.query_ball_point([0, 0], 5.0)) == [
        0,
        1,
        2,
        3,
    ]
    assert sorted(tree.query_ball_point([0.0, 0.0], np.nextafter(5.0, 0))) == [3]
    assert tree.query([0.0, 0.0], 3)[1].tolist() == [3, 0, 1]
    assert tree.query([0.0, 0.0], 2, distance_upper_bound=5.0)[1].tolist() == [3, 4]


@pytest.mark.parametrize("boxsize", [None, 1.0])
def test_few_points(boxsize):
    none, one = KDTree(np.zeros((0, 2)), boxsize=boxsize), KDTree([[0.5, 0.25]], boxsize=boxsize)
    assert none.query([[0.1, 0.2]], 2)[1].tolist() == [[0, 0]] and one.query([0.5, 0.25]) == (0.0, 0)
    assert none.query_pairs(1.0) == one.query_pairs(1.0) == set()
    assert none.count_neighbors(one, [1.0, 2.0]).tolist() == [0, 0]
    assert one.query_ball_point(np.zeros((0, 2)), 0.5).shape == (0,)
    assert [a.shape for a in one.query(np.zeros((0, 2)), 3)] == [(0, 3)] * 2
    assert one.query_ball_tree(none, 1.0) == [[]] and none.query_ball_tree(one, 1.0) == []
    same = KDTree(np.full((5, 2), 0.5), boxsize=boxsize)
    assert same.query([0.5, 0.5], 5)[1].tolist() == [0, 1, 2, 3, 4]
    assert same.query_ball_point([0.5, 0.5], 0.0) == [0, 1, 2, 3, 4]


def test_a_tree_is_copied_with_its_points():
    tree = KDTree(DATA, boxsize=1.0)
    again = pickle.loads(pickle.dumps(tree))
    assert again.query_pairs(0.2) == tree.query_pairs(0.2)
    with pytest.raises(AttributeError):
        tree.data = DATA


@functools.cache
def tree():
    return KDTree(DATA)


ERRORS = [
    (lambda: KDTree(np.zeros((3, 4))), ValueError, r"data has shape \(3, 4\); points \(n, m\) of 1 to 3 axes"),
    (lambda: KDTree(np.zeros((3, 2), complex)), TypeError, "does not work with complex data"),
    (lambda: KDTree([[np.nan]]), ValueError, "data has a coordinate that is NaN or infinite"),
    (lambda: KDTree([[1.0]], boxsize=1.0), ValueError, r"they must lie in \[0, \[1.\]\)"),
    (lambda: KDTree([[0.0]], boxsize=-1.0), ValueError, "boxsize is -1.0; finite lengths are needed"),
    (lambda: tree().query(DATA, p=1), ValueError, "only Euclidean distances are searched, p=2"),
    (lambda: tree().query(DATA, k=0), ValueError, "k must be an integer or"),
    (lambda: tree().query(DATA, k=None), ValueError, "k must be an integer or"),
    (lambda: tree().query(DATA, eps=-1), ValueError, "eps is -1"),
    (lambda: tree().query(DATA, distance_upper_bound=-1), ValueError, "distance_upper_bound is -1"),
    (lambda: tree().query([0.0, np.inf, 0.0]), ValueError, "NaN or infinite"),
    (lambda: tree().query([0.0, 0.0]), ValueError, r"x has shape \(2,\); points in 3-D are needed: \(..., 3\)"),
    (lambda: tree().query_ball_point(DATA, [1.0, 2.0]), ValueError, r"r has shape \(2,\); a number, or one for each"),
    (lambda: tree().query_ball_point(DATA, -1.0), ValueError, "r is -1.0; distances of at least zero"),
    (lambda: tree().query_ball_tree(DATA, 1.0), TypeError, "other is of type ndarray"),
    (lambda: tree().query_ball_tree(KDTree(DATA, boxsize=1.0), 1.0), ValueError, "give both the same boxsize"),
    (lambda: tree().query_pairs(1.0, output_type="list"), ValueError, "output_type is 'list'"),
    (lambda: tree().count_neighbors(tree(), [2.0, 1.0], cumulative=False), ValueError, "which does not fall"),
    (lambda: tree().count_neighbors(KDTree(DATA), 1.0, weights=np.ones(60)), ValueError, "give a tuple of two"),
    (lambda: tree().count_neighbors(tree(), 1.0, weights=np.ones(3)), ValueError, r"weights have shape \(3,\)"),
]


@pytest.mark.parametrize("number", range(len(ERRORS)))
def test_what_is_not_allowed_is_named(number):
    call, error, message = ERRORS[number]
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("scale", [1e200, 1e120, 1e-110, 1e-300])
def test_lengths_beyond_float64s_squares_are_refused(scale):
    x = np.array([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [2.0, 1.0, 0.0]])
    for call in (
        lambda: KDTree(x * scale),
        lambda: KDTree(x / 4, boxsize=scale) if scale > 1 else KDTree(x * scale, boxsize=3 * scale),
        lambda: KDTree(x).query(x * 1e200),
    ):
        with pytest.raises(ValueError, match="Use another unit of length"):
            call()
    for fit in (1e95, 1e-85):
        assert KDTree(x * fit).query_pairs(1.1 * fit) == {(0, 1)}
