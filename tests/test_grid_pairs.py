# SPDX-License-Identifier: BSD-3-Clause
"""Pairs within reach on GPUs, against all images of all particles by NumPy."""

import itertools

import numpy as np
import pytest

import particlemesh as pm
from devices import Device
from particlemesh.backends import cuda, opencl
from particlemesh.binning import device
from particlemesh.binning.keys import Cells
from particlemesh.geometry import Coordinates
from particlemesh.grid.cloud import Cloud
from particlemesh.grid.pairs import Extents, Searcher
from test_nvrtc import without_nvrtc

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


@pytest.mark.parametrize(
    ("half", "order", "form"),
    [(True, "input", "csr"), (False, "grid", "csr"), (True, "input", "coo"), (False, "input", "dense")],
)
def test_formats_and_orders(backend, half, order, form):
    box = pm.Box((1.0, 1.2, 0.9), periodic=(True, False, True))
    check_pairs(backend, box, (4, 5, 12), uniform(400, box), 0.23, half=half, order=order, form=form)


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


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", BOXES)
def test_boxes_and_positions_far_outside_them(backend, name, dtype):
    box, shape = BOXES[name]
    x = uniform(300 if name != "long" else 900, box, seed=2)
    rng = np.random.default_rng(3)
    x += (rng.integers(-5, 6, x.shape) * np.array(box.periodic)) @ box.matrix
    x = x.astype(dtype)
    radius = {1: 0.03, 2: 0.1, 3: 0.2}[box.ndim] if name != "long" else 0.4
    _, host, *_ = check_pairs(backend, box, shape, x, radius)
    assert len(host["j"]) > 100


@pytest.mark.parametrize(("radius", "count", "half"), [(0.8, 25, True), (2.3, 7, False), (17.5, 1, True)])
def test_a_reach_past_half_the_box_and_past_the_box(backend, radius, count, half):
    # 17.5: images more than 15 boxes away, whose turns have no code.
    box = pm.Box((1.0, 1.1), periodic=(True, count != 1))
    _, host, *_ = check_pairs(backend, box, (3, 5), uniform(count, box, seed=4), radius, half=half)
    assert len(host["j"]) > (4 if count == 1 else 100)
    if count == 1:
        assert host["shift"][:, 0].max() == 17


def test_a_lattice_at_exactly_the_radius(backend):
    # Everything is a multiple of 1/8: nothing rounds, 6 neighbours lie at the radius and 12 at its square root of 2.
    n = 8
    x = (np.stack(np.meshgrid(*[np.arange(n)] * 3, indexing="ij"), -1).reshape(-1, 3) / n).astype(np.float32)
    box = pm.Box((1.0, 1.0, 1.0))
    for shape in ((8, 8, 8), (8, 8, 32), (3, 5, 7), (1, 1, 1)):
        cloud, _ = cloud_of(backend, box, shape, x)
        searcher = Searcher(backend.library)
        for radius, count in (
            (0.125, 6),
            (float(np.nextafter(np.float32(0.125), np.float32(0))), 0),
            (0.25, 32),
            (0.1768, 18),
        ):
            assert (backend.host(searcher.count(cloud, radius)) == count).all()
            found = searcher.find(cloud, radius, half=True, order="grid")
            assert found.total == n**3 * count // 2


@pytest.mark.parametrize("n", [0, 1, 33, 129])
def test_any_number_of_particles(backend, n):
    box = pm.Box((1.0, 1.0, 1.0))
    x = uniform(n, box, seed=n)
    searcher = Searcher(backend.library)
    for options in ({}, {"order": "grid"}, {"form": "dense", "half": False}):
        for _ in range(2):  # the second time with what was learned
            check_pairs(backend, box, (2, 2, 4), x, 0.4, searcher=searcher, **options)
    cloud, _ = cloud_of(backend, box, (2, 2, 4), x)
    counts = backend.host(searcher.count(cloud, 0.4))
    assert counts.shape == (n,) and counts.dtype == np.int32


@pytest.mark.parametrize(("half", "order"), [(True, "grid"), (True, "input"), (False, "input")])
def test_counts(backend, half, order):
    for box, shape in (BOXES["triclinic"], BOXES["2-D"], BOXES["3-D open"], (BOXES["triclinic"][0], (1, 1, 1))):
        x = uniform(333, box, np.float64, seed=5)
        cloud, _ = cloud_of(backend, box, shape, x)
        counts = backend.host(Searcher(backend.library).count(cloud, 0.23, half=half, order=order))
        name = np.arange(len(x))
        if order == "grid":
            name[order_of(backend, cloud)] = np.arange(len(x))
        wanted = np.zeros(len(x), int)
        for i, j, s in brute(box, x, 0.23, slack=0):
            wanted[name[i]] += not half or name[i] < name[j] or (i == j and forward(s))
        np.testing.assert_array_equal(counts, wanted)


@pytest.mark.parametrize(("order", "form"), [("input", "csr"), ("grid", "dense")])
def test_crowds(backend, order, form):
    # All in one cell, or in clusters: rows are far longer than what is collected, and than their mean.
    box = pm.Box((1.0, 1.0, 1.0))
    rng = np.random.default_rng(6)
    crowd = (0.5 + 0.01 * rng.random((150, 3))).astype(np.float32)
    check_pairs(backend, box, (4, 4, 16), crowd, 0.1, half=False, order=order, form=form)
    mixed = np.concatenate([crowd[:60], uniform(240, box, seed=7)])
    check_pairs(backend, box, (4, 4, 16), mixed, 0.1, half=False, order=order, form=form)


def test_what_was_learned_may_be_wrong(backend):
    # Fewer pairs than there are, fewer than the rows have, and far more.
    box, shape = BOXES["triclinic"]
    x = uniform(300, box, seed=8)
    for order in ("input", "grid"):
        searcher = Searcher(backend.library)
        _, host, *_ = check_pairs(backend, box, shape, x, 0.4, half=False, order=order, searcher=searcher)
        (key,) = searcher.means
        for mean in (0.001, 5.0, 60.0, 200.0):
            searcher.means[key] = mean
            _, again, *_ = check_pairs(backend, box, shape, x, 0.4, half=False, order=order, searcher=searcher)
            assert len(again["j"]) == len(host["j"])
            assert searcher.means[key] == pytest.approx(len(host["j"]) / 300)


def test_nobody_waits(backend):
    box, shape = BOXES["triclinic"]
    x = uniform(300, box, seed=9)
    cloud, _ = cloud_of(backend, box, shape, x)
    rooms = {}

    def room(name, size, dtype):
        if name not in rooms or rooms[name].shape != size:
            rooms[name] = backend.library.empty(size, dtype)
        return rooms[name]

    searcher = Searcher(backend.library, room)
    total = Searcher(backend.library).find(cloud, 0.3).total
    for options in ({"order": "grid"}, {"order": "input"}, {"form": "coo"}):
        with pytest.raises(ValueError, match="capacity"):
            searcher.find(cloud, 0.3, check=False, **options)
        found = searcher.find(cloud, 0.3, check=False, capacity=total + 7, **options)
        held = len(rooms)
        assert found.total is None and found.pairs.j.shape == (total + 7,)
        assert searcher.verdict(found.words, capacity=total + 7) == (total, 0)
        j = backend.host(found.pairs.j)[:total]
        assert ((j >= 0) & (j < 300)).all()
        found = searcher.find(cloud, 0.3, check=False, capacity=total + 7, **options)
        assert len(rooms) == held
        short = searcher.find(cloud, 0.3, check=False, capacity=total // 3, **options)
        if short.pairs.start is not None:
            assert backend.host(short.pairs.start)[-1] == total
        with pytest.raises(OverflowError, match=f"capacity={total}"):
            searcher.verdict(short.words, capacity=total // 3)
        again = backend.host(found.pairs.j)
        assert again.shape == (total + 7,)
    with pytest.raises(ValueError, match="width"):
        searcher.find(cloud, 0.3, form="dense", check=False)
    dense = searcher.find(cloud, 0.3, form="dense", width=3, check=False)
    assert dense.pairs.j.shape == (300, 3)
    counts = backend.host(dense.pairs.count)
    assert counts.sum() == total
    with pytest.raises(OverflowError, match=f"width={counts.max()}"):
        searcher.verdict(dense.words, width=3)
    with pytest.raises(OverflowError, match=f"width={counts.max()}"):
        searcher.find(cloud, 0.3, form="dense", width=3)


@pytest.mark.parametrize(("name", "dtype"), [("triclinic", np.float64), ("2-D mixed", np.float32)])
def test_neighbours_of_points(backend, name, dtype):
    box, shape = BOXES[name]
    x = uniform(300, box, dtype, seed=10)
    rng = np.random.default_rng(11)
    x += ((rng.integers(-2, 3, x.shape) * np.array(box.periodic)) @ box.matrix).astype(dtype)
    points = (uniform(77, box, float, seed=12) + (rng.integers(-3, 4, (77, box.ndim))) @ box.matrix).astype(dtype)
    points[40:] = points[40:] * 0.1
    points[70:] = x[:7]
    cloud, _ = cloud_of(backend, box, shape, x)
    searcher = Searcher(backend.library)
    for _ in range(2):
        found = searcher.find(cloud, 0.3, points=columns(backend, points), half=False, quantities="ijdDS")
        host = rows_of(backend, found, "csr", 77)
        tolerance = tolerance_of(box, np.concatenate([x, points]))
        wanted = brute(box, x, 0.3, points, slack=2 * tolerance)
        check_found(backend, box, x, host, wanted, tolerance, half=None)
    assert (np.bincount(host["i"], minlength=77)[70:] > 0).all()  # nothing is left out, not even at no distance
    counts = backend.host(searcher.count(cloud, 0.3, points=columns(backend, points)))
    np.testing.assert_array_equal(counts, np.diff(host["start"]))


def test_bad_points(backend):
    box, shape = BOXES["2-D"]
    cloud, _ = cloud_of(backend, box, shape, uniform(50, box))
    points = uniform(40, box)
    points[7, 1], points[9, 0] = np.nan, 1e30
    searcher, given = Searcher(backend.library), columns(backend, points)
    for search in (searcher.find, searcher.count):
        options = {"half": False}
        with pytest.raises(ValueError, match="1 points are not finite and 1 are .* point 7"):
            search(cloud, 0.1, points=given, **options)
    counts = backend.host(searcher.count(cloud, 0.5, points=given, check=False))
    assert counts[7] == counts[9] == 0 < counts.max()
    with pytest.raises(ValueError, match="half"):
        searcher.find(cloud, 0.1, points=given)
    with pytest.raises(TypeError, match="float64"):
        searcher.find(cloud, 0.1, points=columns(backend, points.astype(float)), half=False)


def radii_of_many_sizes(n, seed=0):
    rng = np.random.default_rng(seed)
    return (0.02 * 10 ** rng.random(n) ** 2).astype(np.float32)


@pytest.mark.parametrize(("levels", "options"), [(1, {}), (2, {"form": "coo"}), (4, {"half": False})], ids=str)
def test_spheres_of_many_sizes_on_levels(backend, levels, options):
    box = pm.Box([[1.0, 0.0, 0.0], [0.2, 0.9, 0.0], [-0.1, 0.2, 1.1]], periodic=(True, False, True))
    _, host, *_ = check_pairs(
        backend, box, (16, 16, 16), uniform(250, box), extents=radii_of_many_sizes(250), levels=levels, **options
    )
    assert len(host["j"]) > 150


@pytest.mark.parametrize(("levels", "name"), [(3, "triclinic"), (1, "2-D")])
def test_boxes_of_many_sizes_on_levels(backend, name, levels):
    box, shape = BOXES[name]
    rng = np.random.default_rng(13)
    edges = (radii_of_many_sizes(200)[:, None] * (0.3 + rng.random((200, box.ndim)))).astype(np.float32)
    _, host, *_ = check_pairs(
        backend, box, tuple(2 * n for n in shape), uniform(200, box), extents=edges, levels=levels, form="coo"
    )
    assert len(host["j"]) > 50


def test_spheres_wider_than_the_box(backend):
    box = pm.Box((1.0, 1.0))
    check_pairs(backend, box, (4, 4), uniform(9, box), extents=np.linspace(0.0, 1.6, 9), levels=3, form="coo")


def test_bad_radii(backend):
    box, shape = BOXES["2-D"]
    x = uniform(60, box)
    radii = np.full(60, 0.05, np.float32)
    cloud, _ = cloud_of(backend, box, shape, x)
    searcher = Searcher(backend.library)
    whole = searcher.find(cloud, Extents(backend.array(radii), 1), quantities="ij")
    for bad in (-0.1, np.nan, np.inf, 1e9):
        radii[[20, 30]] = bad
        given = Extents(backend.array(radii), 1)
        with pytest.raises(ValueError, match="2 radii .* particle 20"):
            searcher.find(cloud, given)
        with pytest.raises(ValueError, match="2 radii .* particle 20"):
            searcher.count(cloud, given)
        counts = backend.host(searcher.count(cloud, given, check=False))
        assert counts[20] == counts[30] == 0
        i, j = (backend.host(getattr(whole.pairs, n)) for n in "ij")
        others = ~np.isin(i, [20, 30]) & ~np.isin(j, [20, 30])
        assert counts.sum() == 2 * others.sum()


@pytest.mark.parametrize("radius", [-1.0, np.nan, np.inf, 1e10])
def test_bad_radius(backend, radius):
    cloud, _ = cloud_of(backend, pm.Box((1.0, 1.0)), (4, 4), np.zeros((3, 2), np.float32))
    with pytest.raises(ValueError, match="radius"):
        Searcher(backend.library).count(cloud, radius)


def test_a_radius_beyond_all_numbers_of_an_open_box(backend):
    cloud, _ = cloud_of(backend, pm.Box((1.0, 1.0), periodic=False), (4, 4), uniform(20, pm.Box((1.0, 1.0))))
    assert (backend.host(Searcher(backend.library).count(cloud, 1e300)) == 19).all()


def test_particles_that_were_left_out_have_empty_rows(backend):
    box, shape = BOXES["3-D open"]
    x = uniform(200, box, seed=14)
    bad = np.array([0, 7, 100, 199])
    x[bad[:2]], x[bad[2:]] = np.nan, 99.0
    cloud, _ = cloud_of(backend, box, shape, x)
    good = np.delete(x, bad, axis=0)
    names = np.delete(np.arange(200), bad)
    wanted = {(names[i], names[j]) for i, j, _ in brute(box, good, 0.2, slack=0)}
    searcher = Searcher(backend.library)
    for form in ("csr", "dense", "coo"):
        for _ in range(2):
            host = rows_of(backend, searcher.find(cloud, 0.2, half=False, form=form), form, 200)
            assert set(zip(host["i"].tolist(), host["j"].tolist(), strict=True)) == wanted
        found = searcher.find(cloud, 0.2, half=False, form=form, order="grid")
        assert len(rows_of(backend, found, form, 200)["j"]) == len(wanted)
    counts = backend.host(searcher.count(cloud, 0.2))
    assert (counts[bad] == 0).all() and counts.sum() == len(wanted)
    assert backend.host(searcher.count(cloud, 0.2, order="grid")).sum() == len(wanted)


@pytest.mark.opencl
@pytest.mark.skipif(opencl.available() is not None, reason="no OpenCL device to ask for kernels")
@pytest.mark.skipif(without_nvrtc() is not None, reason=f"no NVRTC: {without_nvrtc()}")
@pytest.mark.parametrize(("dtype", "compute"), [(np.float32, 90)])
def test_the_kernels_compile_for_cuda(monkeypatch, dtype, compute):
    asked = {}
    plain = opencl.OpenClBackend.kernel

    def kernel(self, file, name, defines):
        asked.setdefault((file, tuple(defines.items())), set()).add(name)
        return plain(self, file, name, defines)

    monkeypatch.setattr(opencl.OpenClBackend, "kernel", kernel)
    backend = Device.of("opencl")
    box, shape = BOXES["triclinic"]
    x = uniform(100, box, dtype)
    searcher = Searcher(backend.library)
    cloud, radii = cloud_of(backend, box, shape, x, radii_of_many_sizes(100), levels=2)
    searcher.find(cloud, radii, form="coo", quantities="ij")
    cloud, edges = cloud_of(backend, box, shape, x, np.full((100, 3), 0.1))
    searcher.find(cloud, edges, form="coo", quantities="ijdDS")
    searcher.find(cloud, 0.2, points=columns(backend, x), half=False, quantities="jS")
    for _ in range(2):
        searcher.find(cloud, 0.2, half=False, order="grid", quantities="jdDS")
    searcher.find(cloud, 0.2, half=False, form="dense")
    cloud, _ = cloud_of(backend, *BOXES["3-D open"], x)
    searcher.find(cloud, 0.2, order="grid", capacity=100)
    assert len({file for file, _ in asked}) >= 4
    for (file, defines), names in asked.items():
        if file.startswith("grid/"):
            cubin = cuda.compile_only(file, dict(defines), compute)
            assert all(name.encode() in cubin for name in names)
