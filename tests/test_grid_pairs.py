# SPDX-License-Identifier: BSD-3-Clause
"""Pairs within reach on GPUs, against all images of all particles by NumPy."""

import itertools

import numpy as np
import pytest

import particlemesh as pm
from particlemesh.binning import device
from particlemesh.binning.keys import Cells
from particlemesh.geometry import Coordinates
from particlemesh.grid.cloud import Cloud
from particlemesh.grid.pairs import Extents, Searcher

pytestmark = pytest.mark.backends("cuda", "opencl")


def columns(backend, x):
    """Coordinates (N, d) as kernels take them, an axis an array."""
    arrays = tuple(backend.array(np.ascontiguousarray(x[:, a])) for a in range(x.shape[1]))
    if len(x) == 0:
        arrays = tuple(backend.array(np.zeros(1, x.dtype)) for _ in arrays)
    return Coordinates(arrays, (0,) * len(arrays), (1,) * len(arrays), x.dtype, len(x))


def cloud_of(backend, box, shape, x, extents=None, levels=1):
    """Particles by cell, and their radii (N,) or half edges (N, d) as a search takes them."""
    library, x = backend.library, np.asarray(x)
    thickness = 1 / np.linalg.norm(box.inverse, axis=1) / np.array(shape)
    cells = Cells(box, tuple(shape), levels, float(thickness.min()), x.dtype)
    given, axes = None, 0
    if extents is not None:
        extents = np.asarray(extents, x.dtype)
        axes = 1 if extents.ndim == 1 else 3
        if axes == 3:
            extents = np.concatenate([np.zeros((len(x), 3 - box.ndim), x.dtype), extents], 1)
        given = backend.array(extents if len(x) else np.zeros((1, 3), x.dtype))
    items = cells.keys(columns(backend, x), given, axes)
    status, start, rank = device.count_items(library, items, lambda name, shape, dtype: library.empty(shape, dtype))
    records = library.empty((max(len(x), 1), 4), x.dtype)
    turns = library.empty((max(len(x), 1),), np.uint64)
    device.place_items(library, items, status, start, rank, records=records, turns=turns)
    cloud = Cloud(library, cells, len(x), records, start, None, turns, status, given, axes)
    return cloud, None if given is None else Extents(given, axes)


def order_of(backend, cloud):
    """The particle at each place."""
    records = backend.host(cloud.records)
    held = int(backend.host(cloud.start)[cloud.cells.count])
    kind = np.int32 if records.dtype == np.float32 else np.int64
    return np.ascontiguousarray(records[:held, 3]).view(kind).astype(int)


def images(box, x, y, reach):
    """Turns (T, d) that may bring any x within ``reach`` of any y."""
    if not len(x) or not len(y):
        return np.zeros((0, box.ndim), int)
    s, t = (p @ box.inverse.T for p in (x.astype(float), y.astype(float)))
    per = reach * np.linalg.norm(box.inverse, axis=1)
    ranges = []
    for a in range(box.ndim):
        low, high = (t[:, a].min() - s[:, a].max() - per[a]), (t[:, a].max() - s[:, a].min() + per[a])
        ranges.append(range(int(np.floor(low)), int(np.ceil(high)) + 1) if box.periodic[a] else [0])
    return np.array(list(itertools.product(*ranges))).reshape(-1, box.ndim)


def brute(box, x, radius, y=None, boxes=None):
    """All pairs (i, j, S) with d <= radius (a number, or (N, N)), D as given, and how far each is from the limit.

    Comes with those that are so near the limit that rounding may decide.
    """
    own = y is None
    y = x if own else y
    x, y = x.astype(float), y.astype(float)
    limit = np.broadcast_to(np.asarray(radius, float), (len(y), len(x)))
    reach = limit.max(initial=0) if boxes is None else np.linalg.norm(boxes, axis=1).max(initial=0) * 2
    found = []
    for turn in images(box, x, y, reach):
        d = x[None, :, :] + turn @ box.matrix - y[:, None, :]
        if boxes is None:
            size = np.linalg.norm(d, axis=2)
            excess = size - limit
        else:
            excess = (np.abs(d) - (boxes[None] + boxes[:, None])).max(2)
            size = np.linalg.norm(d, axis=2)
        near = excess <= 1e-3
        if own and not turn.any():
            np.fill_diagonal(near, False)
        i, j = np.nonzero(near)
        found += zip(i, j, map(tuple, np.broadcast_to(turn, (len(i), box.ndim)).tolist()), excess[i, j], size[i, j],
                     d[i, j], strict=True)  # fmt: skip
    return {(int(i), int(j), s): (e, size, d) for i, j, s, e, size, d in found}


def forward(shift):
    return next((s > 0 for s in shift if s), False)


def check_set(got, wanted, tolerance, keep=lambda i, j, s: True):
    """Compare pairs (i, j, S) with those of brute force; within the tolerance of the limit either is right."""
    assert len(set(got)) == len(got), "a pair came twice"
    got = set(got)
    must = {key for key, (excess, _, _) in wanted.items() if excess <= -tolerance and keep(*key)}
    may = {key for key, (excess, _, _) in wanted.items() if excess <= tolerance and keep(*key)}
    assert not must - got, f"missing {sorted(must - got)[:5]} of {len(must)}"
    assert not got - may, f"too many: {sorted(got - may)[:5]}"


def rows_of(backend, found, form, rows):
    """Host arrays i, j, S, d, D of a list in any format."""
    p = found.pairs
    host = {n: backend.host(a) for n in ("start", "i", "j", "shift", "distance", "vector", "count")
            if (a := getattr(p, n)) is not None}  # fmt: skip
    if form == "csr":
        start = host["start"]
        assert start.dtype == np.int64 and start.shape == (rows + 1,)
        assert start[0] == 0 and start[-1] == found.total == len(host["j"])
        i = np.repeat(np.arange(rows), np.diff(start))
        if "i" in host:
            return {**host, "row": i}
        return {**host, "i": i}
    if form == "dense":
        j, count = host["j"], host["count"]
        width = j.shape[1]
        taken = np.arange(width)[None] < count[:, None]
        assert (j[~taken] == -1).all() and (j[taken] >= 0).all()
        i = np.broadcast_to(np.arange(rows)[:, None], j.shape)[taken]
        return {n: a[taken] for n, a in host.items() if n != "count"} | {"i": i}
    return host


def check_pairs(backend, box, shape, x, radius, extents=None, levels=1, **options):
    """Search and compare with brute force."""
    x = np.asarray(x)
    cloud, given = cloud_of(backend, box, shape, x, extents, levels)
    searcher = Searcher(backend.library)
    half, order, form = (options.get(n, v) for n, v in (("half", True), ("order", "input"), ("form", "csr")))
    found = searcher.find(cloud, radius if given is None else given, **{"quantities": "ijdDS", **options})
    host = rows_of(backend, found, form, len(x))
    limit, boxes = radius, None
    if extents is not None:
        extents = np.asarray(extents, float)
        if extents.ndim == 1:
            limit = extents[:, None] + extents[None, :]
        else:
            boxes = extents
    wanted = brute(box, x, limit if boxes is None else 0, boxes=boxes)
    places = order_of(backend, cloud)
    i, j = host["i"], host["j"]
    if order == "grid":
        if half:
            assert all(a < b or (a == b and forward(s)) for a, b, s in zip(i, j, host["shift"].tolist(), strict=True))
        i, j = places[i], places[j]
    got = list(zip(i.tolist(), j.tolist(), map(tuple, host["shift"].tolist()), strict=True))
    tolerance = (1e-5 if x.dtype == np.float32 else 1e-12) * max(1.0, np.abs(x).max(initial=0), box.matrix.max())
    if half and order == "grid":
        number = np.empty(len(x), int)
        number[places] = np.arange(len(places))
        keep = lambda i, j, s: number[i] < number[j] or (i == j and forward(s))  # noqa: E731
    elif half:
        keep = lambda i, j, s: i < j or (i == j and forward(s))  # noqa: E731
    else:
        keep = lambda i, j, s: True  # noqa: E731
    check_set(got, wanted, tolerance, keep)
    for n, key in enumerate(got):
        _, size, d = wanted[key]
        assert abs(host["distance"][n] - size) <= 4 * tolerance
        np.testing.assert_allclose(host["vector"][n], d, atol=4 * tolerance)
    assert host["distance"].dtype == host["vector"].dtype == x.dtype
    if "row" in host:
        np.testing.assert_array_equal(host["i"], host["row"])
    return found, host, searcher, cloud


def uniform(n, box, dtype=np.float32, seed=0):
    s = np.random.default_rng(seed).random((n, box.ndim))
    return (box.origin + s @ box.matrix).astype(dtype)


@pytest.mark.parametrize("form", ["csr", "coo", "dense"])
@pytest.mark.parametrize("order", ["input", "grid"])
@pytest.mark.parametrize("half", [True, False])
def test_formats_and_orders(backend, half, order, form):
    box = pm.Box((1.0, 1.2, 0.9), periodic=(True, False, True))
    check_pairs(backend, box, (4, 5, 12), uniform(400, box), 0.23, half=half, order=order, form=form)
