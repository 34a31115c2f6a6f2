# SPDX-License-Identifier: BSD-3-Clause
"""Graphs with the functions of torch_cluster, against all pairs by brute force."""

import itertools

import numpy as np
import pytest

from images import near, nearest

torch = pytest.importorskip("torch", reason="torch is not installed")
from particlemesh.adapters import torch_cluster as ours  # noqa: E402 - torch decides

CELLS = {1: [[1.5]], 2: [[1.0, 0.0], [0.3, 1.2]], 3: [[1.0, 0.0, 0.0], [0.2, 1.1, 0.0], [-0.1, 0.3, 0.9]]}
BOXES = {"open": False, "periodic": True, "slab": (True, False, True)}
EXACT = torch.tensor([[0.0, 0.0], [3.0, 4.0], [-3.0, 4.0], [0.0, -5.0]])  # distances of 5 from the first


def points(n, axes, dtype=torch.float64, seed=0):
    return torch.tensor(np.random.default_rng(seed).random((n, axes)), dtype=dtype)


def box(axes, kind):
    """Return keyword arguments, rows and flags of a box."""
    flags = np.broadcast_to(BOXES[kind], 3)[:axes].copy()
    if kind == "open":
        return {}, np.eye(axes), flags
    rows = torch.tensor(CELLS[axes], dtype=torch.float64)
    return {"cell": rows, "pbc": torch.tensor(flags.tolist())}, rows.numpy(), flags


def edges(index):
    return sorted(map(tuple, index.T.tolist()))


@pytest.mark.parametrize(
    ("axes", "kind"),
    [(1, "open"), (2, "open"), (3, "open"), (1, "periodic"), (2, "slab"), (3, "periodic"), (3, "slab")],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("loop", [False, True])
def test_a_graph_has_all_edges_of_all_images(axes, kind, dtype, loop):
    x, (options, rows, flags) = points(25, axes, dtype), box(axes, kind)
    for r in (0.25, 0.9):
        pairs = near(x, x, r, rows, flags, strict=True)
        pairs = {p: d for p, d in pairs.items() if loop or p[0] != p[1] or any(p[2])}
        expected = sorted((i, j) for i, j, _ in pairs)
        for most in (128, 1000, None):  # a table, lists
            index = ours.radius_graph(x, r, loop=loop, max_num_neighbors=most, flow="target_to_source", **options)
            assert index.dtype == torch.int64 and edges(index) == expected
            assert (index[0].diff() >= 0).all()
            other = ours.radius_graph(x, r, loop=loop, max_num_neighbors=most, **options)
            assert edges(other.flip(0)) == expected
        index, shifts = ours.radius_graph(
            x, r, loop=loop, max_num_neighbors=1000, flow="target_to_source", return_shifts=True, **options
        )
        assert sorted((i, j, tuple(s)) for (i, j), s in zip(index.T.tolist(), shifts.tolist(), strict=True)) == sorted(
            pairs
        )


@pytest.mark.parametrize("kind", BOXES)
@pytest.mark.parametrize("most", [1, 3, 200])
def test_the_nearest_are_kept(kind, most):
    x, y, (options, rows, flags) = points(40, 3), points(15, 3, seed=1), box(3, kind)
    pairs = near(x, y, 0.8, rows, flags, strict=True)
    expected = sorted((i, j) for i, j, _ in nearest(pairs, most))
    assert edges(ours.radius(x, y, 0.8, max_num_neighbors=most, **options)) == expected
    index, shifts = ours.radius(x, y, 0.8, max_num_neighbors=most, return_shifts=True, **options)
    assert edges(index) == expected
    for (i, j), shift in zip(index.T.tolist(), shifts.tolist(), strict=True):
        assert (i, j, tuple(shift)) in pairs


@pytest.mark.parametrize("kind", BOXES)
@pytest.mark.parametrize("k", [1, 4, 12, 150])
def test_the_nearest_neighbours_come_by_distance(kind, k):
    x, y, (options, rows, flags) = points(12, 3), points(3, 3, seed=1) * 2 - 0.5, box(3, kind)
    turns, reach = (6, 2.8) if flags.any() else (0, 100.0)
    for queries, alone in ((y, False), (x, True)):
        pairs = {p: d for p, d in near(x, queries, reach, rows, flags, turns=turns).items()
                 if not alone or p[0] != p[1] or any(p[2])}  # fmt: skip
        if flags.any():
            assert min(np.bincount([i for i, *_ in pairs])) >= k
        expected = [(i, j) for i, j, _ in nearest(pairs, k)]
        index = ours.knn_graph(x, k, flow="target_to_source", **options) if alone else ours.knn(x, y, k, **options)
        if kind == "open":
            assert list(map(tuple, index.T.tolist())) == expected
        else:  # images at one distance but for rounding
            assert edges(index) == sorted(expected)


def test_edges_join_points_of_one_example_in_any_order():
    rng = np.random.default_rng(2)
    x, y = points(60, 2), points(30, 2, seed=3)
    batch, queries = torch.tensor(rng.integers(0, 4, 60)), torch.tensor(rng.integers(0, 6, 30))
    batch[batch == 2] = 3  # an example without points
    cells = torch.tensor(np.eye(2) * (1 + rng.random((6, 1, 1))))
    for options, size in (({}, 6), ({"cell": cells}, 6), ({}, None), ({"cell": cells[0]}, None)):
        for r, k in ((0.4, 3),):
            near_points, near_queries, some, few = [], [], [], []
            for b in range(6):
                rows = (cells[b] if len(options.get("cell", ())) == 6 else cells[0]).numpy()
                members, asks = np.flatnonzero(batch == b), np.flatnonzero(queries == b)
                names = lambda pairs, a, c: [(int(a[i]), int(c[j])) for i, j, _ in pairs]  # noqa: E731 - of this box
                given = rows, bool(options)
                at = x[members], x[members]
                pairs = {p: d for p, d in near(*at, r, *given, strict=True).items() if p[0] != p[1] or any(p[2])}
                near_points += names(pairs, members, members)
                near_queries += names(near(x[members], y[asks], r, *given, strict=True), asks, members)
                some += names(nearest(near(x[members], y[asks], 5.0, *given, turns=4), k), asks, members)
                pairs = {p: d for p, d in near(*at, 5.0, *given, turns=4).items() if p[0] != p[1] or any(p[2])}
                few += names(nearest(pairs, k), members, members)
            for most in (100, 1000):
                limits = {"max_num_neighbors": most, "batch_size": size}
                index = ours.radius_graph(x, r, batch, flow="target_to_source", **limits, **options)
                assert edges(index) == sorted(near_points)
                assert edges(ours.radius(x, y, r, batch, queries, **limits, **options)) == sorted(near_queries)
            assert edges(ours.knn(x, y, k, batch, queries, batch_size=size, **options)) == sorted(some)
            graph = ours.knn_graph(x, k, batch, flow="target_to_source", batch_size=size, **options)
            assert edges(graph) == sorted(few)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int64], ids=str)
def test_an_edge_is_shorter_than_the_radius(dtype):
    x = EXACT.to(dtype)
    for most in (8, 1000):
        at, above = (ours.radius(x, x[:1], r, max_num_neighbors=most) for r in (5, 5.001))
        assert at.tolist() == [[0], [0]] and sorted(above[1].tolist()) == [0, 1, 2, 3]
        assert ours.radius_graph(x, 0.0, loop=True, max_num_neighbors=most).shape == (2, 0)


def test_equal_distances_go_by_index():
    assert ours.knn(EXACT, EXACT[:1], 3).tolist() == [[0, 0, 0], [0, 1, 2]]
    assert ours.radius(EXACT, EXACT[:1], 6, max_num_neighbors=2).tolist() == [[0, 0], [0, 1]]
    same = torch.zeros(4, 3)
    assert ours.radius_graph(same, 1.0, max_num_neighbors=1).tolist() == [[1, 0, 0, 0], [0, 1, 2, 3]]
    assert edges(ours.knn_graph(same, 2, flow="target_to_source")) == edges(
        torch.tensor([[i, j] for i in range(4) for j in [n for n in range(4) if n != i][:2]]).T
    )


@pytest.mark.parametrize("most", [10, None])
def test_a_huge_radius_joins_all_points(most):
    index = ours.radius_graph(points(10, 3, torch.float32), 1e30, loop=True, max_num_neighbors=most)
    assert edges(index) == list(itertools.product(range(10), range(10)))


def test_a_point_of_the_same_index_is_ignored():
    x, y = points(20, 2), points(20, 2, seed=1)
    expected = sorted((i, j) for i, j, _ in near(x, y, 0.3, strict=True) if i != j)
    for most in (100, 1000):
        assert edges(ours.radius(x, y, 0.3, ignore_same_index=True, max_num_neighbors=most)) == expected


@pytest.mark.parametrize("n", [0, 1])
@pytest.mark.parametrize("options", [{}, {"cell": 0.5 * torch.eye(3)}], ids=["open", "periodic"])
def test_few_points(n, options):
    x, none = torch.ones(n, 3), torch.zeros(0, 3)
    images = 6 * n * bool(options)
    assert ours.radius_graph(x, 0.6, **options).shape == (2, images)
    assert ours.radius_graph(x, 0.6, max_num_neighbors=500, **options).shape == (2, images)
    assert ours.knn_graph(x, 2, **options).shape == (2, 2 * n * bool(options))
    assert ours.radius(x, none, 0.6, **options).shape == ours.knn(none, x, 2, **options).shape == (2, 0)
    index, shifts = ours.radius_graph(none, 0.6, return_shifts=True, **options)
    assert index.dtype == shifts.dtype == torch.int64 and shifts.shape == (0, 3)
    empty = torch.zeros(0, dtype=torch.int64)
    assert ours.radius_graph(none, 0.6, empty, batch_size=3).shape == (2, 0)


def test_gradients_do_not_pass_edges():
    x = points(10, 3).requires_grad_()
    index = ours.radius_graph(x, 0.5)
    (x[index[0]] - x[index[1]]).square().sum().backward()
    assert x.grad is not None and x.grad.abs().sum() > 0


MIXED = torch.tensor([[True] * 3, [False] * 3])
X = torch.zeros(4, 3)
ERRORS = [
    (lambda: ours.radius_graph(np.zeros((4, 3)), 1.0), TypeError, "x is of type ndarray; a torch.Tensor is needed"),
    (lambda: ours.knn(torch.zeros(4, 5), torch.zeros(4, 5), 1), ValueError, r"\(4, 5\); points of 1 to 3 axes"),
    (lambda: ours.knn_graph(X, 2, cosine=True), ValueError, "only Euclidean distances"),
    (lambda: ours.knn_graph(X, 0), ValueError, "k is 0; 1 to"),
    (lambda: ours.radius_graph(X, -1.0), ValueError, "radius is -1.0; a finite number of at least zero"),
    (lambda: ours.radius_graph(X, 1.0, flow="up"), ValueError, "flow is 'up'"),
    (lambda: ours.radius_graph(X, 1.0, torch.zeros(3, dtype=torch.int64)), ValueError, r"batch is .* \(3,\)"),
    (lambda: ours.radius_graph(X, 1.0, torch.tensor([0, 1, 2, -1])), ValueError, "has -1 to 2; allowed are 0 to 2"),
    (lambda: ours.radius_graph(X, 1.0, torch.tensor([0, 1, 2, 3]), batch_size=2), ValueError, "allowed are 0 to 1"),
    (lambda: ours.radius(X, X.double(), 1.0), ValueError, "give both the same axes, dtype and device"),
    (lambda: ours.radius_graph(X, 1.0, pbc=True), ValueError, "there is no cell"),
    (lambda: ours.radius_graph(X, 1.0, cell=torch.eye(2)), ValueError, r"cell has shape \(2, 2\); \(3, 3\) or"),
    (lambda: ours.radius_graph(X, 1.0, cell=torch.eye(3), pbc=torch.ones(3)), ValueError, "pbc has dtype float32"),
    (lambda: ours.radius_graph(X, 1.0, cell=torch.eye(3), pbc=MIXED), ValueError, "pbc differs between 2 examples"),
    (lambda: ours.radius_graph(X, 1.0, torch.tensor([0, 0, 1, 2]), cell=torch.eye(3), pbc=MIXED), ValueError,
     "allowed are 0 to 1"),
    (lambda: ours.radius(X, X, 1.0, *[torch.tensor([0, 0, 1, 1])] * 2, ignore_same_index=True, cell=torch.eye(3),
                         pbc=MIXED), ValueError, "give those of one pbc a call"),
    (lambda: ours.radius_graph(X * np.nan, 1.0), ValueError, "NaN or infinite"),
    (lambda: ours.radius_graph(X, 1.0, loop=1), TypeError, "loop is 1; give True or False"),
    (lambda: ours.radius_graph(X, 1.0, torch.tensor([0, 0, 1, 1]), pbc=[True, False, False], cell=torch.stack(
        [torch.eye(3), torch.tensor([[1.0, 1.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])])), ValueError,
     "open axes of systems have different directions"),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(ERRORS)))
def test_what_is_not_allowed_is_named(number):
    call, error, message = ERRORS[number]
    with pytest.raises(error, match=message):
        call()


def test_many_axes_and_batches_agree_with_single_calls():
    """Unlike clouds, far from each other."""
    clouds = [points(50, 3, torch.float32, seed) * scale + shift
              for seed, (scale, shift) in enumerate(itertools.product((0.1, 1.0), (0.0, 30.0)))]  # fmt: skip
    batch = torch.repeat_interleave(torch.arange(4), 50)
    together = ours.knn_graph(torch.cat(clouds), 5, batch)
    single = [ours.knn_graph(cloud, 5) + 50 * n for n, cloud in enumerate(clouds)]
    assert torch.equal(together, torch.cat(single, 1))


@pytest.mark.parametrize("graph", [True, False])
def test_examples_with_different_periodic_axes(graph):
    pbc = torch.tensor([[True] * 3, [False] * 3, [True, False, True], [False] * 3, [True] * 3])
    cell = torch.stack([(1.0 + 0.1 * k) * torch.eye(3, dtype=torch.float64) for k in range(5)])
    cell[1] = cell[3] = 0
    x, y = points(60, 3), points(31, 3, seed=1)
    generator = torch.Generator().manual_seed(1)
    of_x, of_y = (torch.randint(0, 5, (len(p),), generator=generator) for p in (x, y))

    def made(x, y, of_x, of_y, **box):
        if graph:
            index, shifts = ours.radius_graph(x, 0.6, of_x, False, 9, **box, return_shifts=True)
            return index.flip(0), shifts, ours.knn_graph(x, 4, of_x, **box).flip(0)
        return *ours.radius(x, y, 0.6, of_x, of_y, 9, **box, return_shifts=True), ours.knn(x, y, 4, of_x, of_y, **box)

    index, shifts, nearest = made(x, y, of_x, of_y, cell=cell, pbc=pbc)
    assert bool((index[0].diff() >= 0).all()) and bool((nearest[0].diff() >= 0).all())
    edges, few = [], []
    for k in range(5):
        neighbour = (of_x == k).nonzero()[:, 0]
        seeing = neighbour if graph else (of_y == k).nonzero()[:, 0]
        box = {"cell": cell[k], "pbc": pbc[k]} if bool(pbc[k].any()) else {}
        one, turns, near = made(x[neighbour], y[seeing] if not graph else None, None, None, **box)
        edges += zip(seeing[one[0]].tolist(), neighbour[one[1]].tolist(), map(tuple, turns.tolist()), strict=True)
        few += zip(seeing[near[0]].tolist(), neighbour[near[1]].tolist(), strict=True)
    assert len(edges) > 50
    assert sorted(edges) == sorted(zip(*index.tolist(), map(tuple, shifts.tolist()), strict=True))
    assert sorted(few) == sorted(zip(*nearest.tolist(), strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("most", [2, 64, 1000])
@pytest.mark.parametrize("loop", [False, True])
def test_outliers_change_no_edge(dtype, most, loop):
    x = points(300, 2, dtype)
    x[:3] *= 1000
    pairs = {p: d for p, d in near(x, x, 0.07, strict=True).items() if loop or p[0] != p[1]}
    expected = sorted((i, j) for i, j, _ in nearest(pairs, most))
    index, shifts = ours.radius_graph(
        x, 0.07, loop=loop, max_num_neighbors=most, flow="target_to_source", return_shifts=True
    )
    assert edges(index) == expected and not shifts.any()
    assert edges(ours.radius_graph(x, 0.07, loop=loop, max_num_neighbors=most, flow="target_to_source")) == expected
    crowd = torch.cat([x * 1e-3, torch.full((1, 2), 1000.0, dtype=dtype)])  # all but one see each other
    pairs = {p: d for p, d in near(crowd, crowd, 2.0, strict=True).items() if loop or p[0] != p[1]}
    index = ours.radius_graph(crowd, 2.0, loop=loop, max_num_neighbors=most, flow="target_to_source")
    assert edges(index) == sorted((i, j) for i, j, _ in nearest(pairs, most))


def test_many_neighbours_of_crowded_and_of_lonely_points():
    x = torch.cat([points(200, 3), torch.zeros(150, 3, dtype=torch.float64), 1e4 * points(5, 3, seed=1)])
    for k in (140, 200):
        expected = [(i, j) for i, j, _ in nearest(near(x, x[::5], 1e6), k)]
        assert list(map(tuple, ours.knn(x, x[::5], k).T.tolist())) == expected


@pytest.mark.skipif(not torch.cuda.is_available(), reason="this PyTorch has no CUDA device")
@pytest.mark.parametrize("kind", BOXES)
def test_results_on_a_gpu_are_those_of_the_cpu(kind):
    x, y, (options, _, _) = points(500, 3), points(200, 3, seed=1), box(3, kind)
    batch, queries = torch.arange(500) % 3, torch.arange(200) % 4

    def graphs(device):
        a, b, m, n = (tensor.to(device) for tensor in (x, y, batch, queries))
        yield ours.radius_graph(a, 0.2, m, **options)
        yield ours.radius_graph(a, 0.2, max_num_neighbors=500, loop=True, return_shifts=True, **options)[0]
        yield ours.radius(a, b, 0.3, m, n, 10, **options)
        yield ours.radius(a, b, 0.3, m, n, 10, ignore_same_index=True, **options)
        yield ours.knn_graph(a, 7, m, **options)
        yield ours.knn(a, b, 140, **options)

    for here, there in zip(graphs("cpu"), graphs("cuda"), strict=True):
        assert there.is_cuda and edges(there) == edges(here)
