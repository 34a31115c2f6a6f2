# SPDX-License-Identifier: BSD-3-Clause
"""Clouds of particles made without a grid, and lists of pairs checked against all images of all particles."""

import itertools

import numpy as np

import particlemesh as pm
from particlemesh.arrays.positions import Coordinates
from particlemesh.grid.queries.cloud import Cloud
from particlemesh.grid.queries.pairs import Extents, Searcher
from particlemesh.sorting import counting
from particlemesh.sorting.keys import Cells

BOXES = {
    "1-D": (pm.Box(2.0), (8,)),
    "1-D open": (pm.Box(2.0, -1.0, periodic=False), (8,)),
    "2-D": (pm.Box((1.5, 1.0), (0.5, -3.0)), (5, 8)),
    "2-D mixed": (pm.Box([[1.5, 0.0], [0.4, 1.0]], periodic=(False, True)), (5, 8)),
    "3-D open": (pm.Box((1.0, 1.2, 0.9), periodic=False), (4, 5, 9)),
    "triclinic": (pm.Box([[1.0, 0.0, 0.0], [0.4, 0.9, 0.0], [-0.3, 0.2, 1.1]]), (4, 3, 8)),
    "left": (pm.Box([[0.4, 0.9, 0.0], [1.0, 0.1, 0.0], [0.0, 0.2, 1.1]], periodic=(True, True, False)), (3, 4, 2)),
    "long": (pm.Box((100.0, 1.0, 1.0), (-40.0, 0.0, 0.0)), (200, 2, 2)),
}  # fmt: skip


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
    status, start, rank = counting.count_items(library, items, lambda name, shape, dtype: library.empty(shape, dtype))
    records = library.empty((max(len(x), 1), 4), x.dtype)
    turns = library.empty((max(len(x), 1),), np.uint64)
    counting.place_items(library, items, status, start, rank, records=records, turns=turns)
    cloud = Cloud(library, cells, len(x), records, start, None, turns, status, given, axes)
    return cloud, None if given is None else Extents(given, axes)


def order_of(backend, cloud):
    """The particle at each place."""
    records = backend.host(cloud.records)
    held = int(backend.host(cloud.start)[cloud.cells.count])
    kind = np.int32 if records.dtype == np.float32 else np.int64
    return np.ascontiguousarray(records[:held, 3]).view(kind).astype(int)


def turns_of(box, x):
    """Whole turns that take positions into the box."""
    return np.floor((x - box.origin) @ box.inverse.T).astype(int) * np.array(box.periodic)


def brute(box, x, reach, points=None, slack=1e-3):
    """All (i, j, S) within ``reach`` or nearly so; with how far apart, and D. ``reach`` is (rows, N), or half edges."""
    own = points is None
    x, y = x.astype(float), (x if own else points).astype(float)
    boxes = isinstance(reach, tuple)
    most = 2 * np.linalg.norm(reach[0], axis=1).max(initial=0) if boxes else np.max(reach, initial=0)
    turns, own_turns = turns_of(box, x), turns_of(box, y)
    x, y = x - turns @ box.matrix, y - own_turns @ box.matrix
    wide = np.floor((most + slack) * np.linalg.norm(box.inverse, axis=1) + 1).astype(int) * np.array(box.periodic)
    found = {}
    for image in itertools.product(*(range(-w, w + 1) for w in wide)):
        d = x[None, :, :] + np.array(image) @ box.matrix - y[:, None, :]
        size = np.linalg.norm(d, axis=2)
        excess = (np.abs(d) - (reach[0][None] + reach[0][:, None])).max(2) if boxes else size - reach
        near = excess <= slack
        if own and not any(image):
            np.fill_diagonal(near, False)
        for i, j in np.argwhere(near).tolist():
            shift = np.array(image) - turns[j] + own_turns[i]
            found[i, j, tuple(shift.tolist())] = excess[i, j], size[i, j], d[i, j]
    return found


def forward(shift):
    return next((s > 0 for s in shift if s), False)


def rows_of(backend, found, form, rows):
    """Host arrays i, j, shift, distance, vector of a list in any form."""
    names = ("start", "i", "j", "shift", "distance", "vector", "count")
    host = {n: backend.host(a) for n in names if (a := getattr(found.pairs, n)) is not None}
    if form == "csr":
        start = host["start"]
        assert start.dtype == np.int64 and start.shape == (rows + 1,)
        assert start[0] == 0 and start[-1] == found.total == len(host["j"])
        i = np.repeat(np.arange(rows), np.diff(start))
        np.testing.assert_array_equal(host.get("i", i), i)
        return {**host, "i": i}
    if form == "dense":
        j, count = host["j"], host["count"]
        taken = np.arange(j.shape[1]) < count[:, None]
        assert (j[~taken] == -1).all() and (j[taken] >= 0).all()
        i = np.broadcast_to(np.arange(rows)[:, None], j.shape)[taken]
        return {n: a[taken] for n, a in host.items() if n != "count"} | {"i": i}
    return host


def check_found(backend, box, x, host, wanted, tolerance, number=None, half=True):
    """Compare a list with brute force; within the tolerance of the limit either is right. ``number`` names rows."""
    i, j = host["i"], host["j"]
    shift = [tuple(s) for s in host["shift"].tolist()]
    if half:
        assert all(a < b or (a == b and forward(s)) for a, b, s in zip(i, j, shift, strict=True))
    names = np.arange(max(len(x), 1)) if number is None else number  # of particles, in the list
    place = np.argsort(names)
    got = list(zip((place[i] if half is not None else i).tolist(), place[j].tolist(), shift, strict=True))
    assert len(set(got)) == len(got), "a pair came twice"

    def keep(i, j, s):
        return not half or names[i] < names[j] or (i == j and forward(s))

    must = {key for key, (excess, _, _) in wanted.items() if excess <= -tolerance and keep(*key)}
    may = {key for key, (excess, _, _) in wanted.items() if excess <= tolerance and keep(*key)}
    assert not must - set(got), f"missing {sorted(must - set(got))[:5]} of {len(must)}"
    assert not set(got) - may, f"too many: {sorted(set(got) - may)[:5]}"
    for n, key in enumerate(got):
        assert abs(host["distance"][n] - wanted[key][1]) <= 4 * tolerance
        assert np.abs(host["vector"][n] - wanted[key][2]).max() <= 4 * tolerance
    assert host["distance"].dtype == host["vector"].dtype == x.dtype


def tolerance_of(box, x):
    size = np.abs(x).max(initial=0) + np.abs(box.matrix).max()
    return 30 * np.finfo(x.dtype).eps * size


def check_pairs(backend, box, shape, x, radius=None, extents=None, levels=1, searcher=None, **options):
    """Search for everything there is to ask, and compare with brute force."""
    x = np.asarray(x)
    cloud, given = cloud_of(backend, box, shape, x, extents, levels)
    searcher = searcher or Searcher(backend.library)
    half, order, form = (options.get(n, v) for n, v in (("half", True), ("order", "input"), ("form", "csr")))
    found = searcher.find(cloud, radius if given is None else given, **{"quantities": "ijdDS", **options})
    host = rows_of(backend, found, form, len(x))
    reach = np.full((len(x), len(x)), radius, float) if extents is None else np.asarray(extents, float)
    if extents is not None:
        reach = reach[:, None] + reach if reach.ndim == 1 else (reach,)
    tolerance = tolerance_of(box, x)
    wanted = brute(box, x, reach, slack=2 * tolerance)
    number = None
    if order == "grid":
        number = np.empty(len(x), int)
        number[order_of(backend, cloud)] = np.arange(len(x))
    check_found(backend, box, x, host, wanted, tolerance, number, half)
    return found, host, wanted, searcher, cloud


def uniform(n, box, dtype=np.float32, seed=0):
    s = np.random.default_rng(seed).random((n, box.ndim))
    return (box.origin + s @ box.matrix).astype(dtype)
