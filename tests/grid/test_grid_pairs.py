# SPDX-License-Identifier: BSD-3-Clause
"""Pairs within reach on GPUs, against all images of all particles by NumPy."""

import numpy as np
import pytest

import particlemesh as pm
from devices import Device
from pairs_by_hand import (
    BOXES,
    brute,
    check_found,
    check_pairs,
    cloud_of,
    columns,
    forward,
    order_of,
    rows_of,
    tolerance_of,
    uniform,
)  # fmt: skip
from particlemesh.backends import cuda, opencl
from particlemesh.grid.queries.pairs import Extents, Searcher
from ptx import without_nvrtc

pytestmark = pytest.mark.backends("cuda", "opencl")


@pytest.mark.parametrize(
    ("half", "order", "form"),
    [(True, "input", "csr"), (False, "grid", "csr"), (True, "input", "coo"), (False, "input", "dense")],
)
def test_formats_and_orders(backend, half, order, form):
    box = pm.Box((1.0, 1.2, 0.9), periodic=(True, False, True))
    check_pairs(backend, box, (4, 5, 12), uniform(400, box), 0.23, half=half, order=order, form=form)


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
