# SPDX-License-Identifier: BSD-3-Clause
"""Many systems in one grid: each as if it were alone."""

import pickle

import numpy as np
import pytest

import particlemesh as pm
from devices import Device
from grid_cases import SKEWED
from particlemesh.backends import cuda
from particlemesh.grid.builders import METHODS
from ptx import kernels_of, without_nvrtc

SYSTEMS, COUNT, RADIUS = 5, 230, 0.45
EMPTY = 3


def _mass(r2, d, i, j, a, b, p, sum):
    sum[0] += b[0] * (p[0] - r2)
    sum[1] += d[0]


MASS = pm.PairFunction("sum[0] += b[0] * (p[0] - r2); sum[1] += d[0];", _mass, results=2, values=1, parameters=(1.0,))


class Cloud:
    """Particles of systems in no order, one system empty and one far smaller than a search reaches."""

    def __init__(self, d, periodic, *, lattice="own", real="f8"):
        rng = np.random.default_rng(d)
        self.box = pm.Box(np.diag((1.8, 2.0, 2.2)[:d]), origin=(0.3, -1.1, 5.0)[:d], periodic=periodic)
        self.boxes = {
            "shared": None, "own": rng.uniform(1.0, 2.5, (SYSTEMS, d)),
            "skewed": SKEWED[:d, :d] * rng.uniform(0.7, 1.2, (SYSTEMS, 1, 1)),
        }[lattice]  # fmt: skip
        if self.boxes is not None:
            self.boxes[1] *= 0.2
        rows = np.broadcast_to(self.box.matrix, (SYSTEMS, d, d)) if self.boxes is None else self.boxes
        self.rows = rows if rows.ndim == 3 else np.stack([np.diag(lengths) for lengths in rows])
        self.shape = (4, 3, 5)[:d]
        system = rng.integers(0, SYSTEMS, COUNT)
        self.system = np.where(system == EMPTY, 2, system)
        self.x = self.inside(rng, self.system).astype(real)
        self.points = self.inside(rng, self.system[:40]).astype(real)
        self.radii = rng.uniform(0.01, 0.14, COUNT).astype(real)
        self.mass = rng.random(COUNT).astype(real)

    def inside(self, rng, system):
        """Places in the boxes of systems, along periodic axes also in images of them."""
        fractions = rng.random((len(system), self.box.ndim))
        fractions += rng.integers(-2, 3, fractions.shape) * np.array(self.box.periodic)
        return np.einsum("nd,nde->ne", fractions, self.rows[system]) + self.box.origin

    def built(self, backend="cpu", radii=True, **options):
        device = Device.of(backend)
        grid = pm.UniformGrid(self.box, shape=self.shape, systems=SYSTEMS, deterministic=True, **options)
        extents = device.array(self.radii) if radii is True else radii
        return grid.build(device.array(self.x), extents, system=device.array(self.system), boxes=self.boxes)

    def alone(self, s, radii=True, **options):
        """The grid of one system, and the numbers of its particles."""
        mine = np.flatnonzero(self.system == s)
        box = pm.Box(self.rows[s], self.box.origin, self.box.periodic)
        grid = pm.UniformGrid(box, shape=self.shape, deterministic=True, **options)
        return grid.build(self.x[mine], self.radii[mine] if radii is True else radii), mine


CLOUDS = {
    "line": (1, True), "open line": (1, False), "plane": (2, (False, True)), "skewed plane": (2, True, "skewed"),
    "periodic": (3, True), "open": (3, False), "triclinic": (3, True, "skewed"),
    "triclinic mixed": (3, (False, True, True), "skewed"), "one box": (3, (True, True, False), "shared"),
}  # fmt: skip


def cloud_of(name, real="f8"):
    d, periodic, *lattice = CLOUDS[name]
    return Cloud(d, periodic, lattice=lattice[0] if lattice else "own", real=real)


def rows_of(pairs, names=None, points=None):
    """Pairs as sorted rows of i, j, S, d, D, in the numbering ``names``, and ``points`` if i is one."""
    i, j = (np.asarray(a) if names is None else names[a] for a in (pairs.i, pairs.j))
    i = i if points is None else points[pairs.i]
    table = np.column_stack([i, j, pairs.shift, pairs.distance, pairs.vector]).astype(np.float64)
    return table[np.lexsort(table.T[::-1])]


def answers(grid, cloud, mine=None):
    """What every query says, as arrays by particle or pair in the numbering of the whole cloud."""
    at = slice(None) if mine is None else mine
    some = np.arange(len(cloud.points)) if mine is None else mine[mine < len(cloud.points)]
    of = {} if grid.systems is None else {"system": cloud.system[some]}
    pairs = {
        "full": grid.pairs(RADIUS, format="coo", quantities="ijdDS"),
        "half": grid.pairs(RADIUS, half=True, format="coo", quantities="ijdDS"),
        "rows": grid.pairs(RADIUS, half=True, quantities="ijdDS"),
        "radii": grid.pairs(cloud.radii[at], half=True, quantities="ijdDS"),
        "spheres": grid.overlaps(shape="sphere", quantities="ijdDS"),
        "boxes": grid.overlaps(shape="box", quantities="ijdDS"),
    }
    near = rows_of(grid.neighbours(cloud.points[some], RADIUS, quantities="ijdDS", **of), mine, some)
    rows = {
        "count": grid.count(RADIUS), "radii": grid.count(cloud.radii[at]),
        "nearest": grid.nearest(3, RADIUS)[1], "sums": grid.stream(RADIUS, MASS, cloud.mass[at]),
        "points": grid.nearest(2, RADIUS, cloud.points[some], **of)[1],
    }  # fmt: skip
    return {"points": near, **{k: rows_of(p, mine) for k, p in pairs.items()}}, rows


def check_against_separate(grid, cloud, **options):
    pairs, rows = answers(grid, cloud)
    for s in range(SYSTEMS):
        one, mine = cloud.alone(s, **options)
        alone, by_row = answers(one, cloud, mine)
        for name, table in alone.items():
            in_system = cloud.system[pairs[name][:, 0].astype(int)] == s
            np.testing.assert_array_equal(cloud.system[pairs[name][in_system, 1].astype(int)], s)
            np.testing.assert_array_equal(pairs[name][in_system], table, err_msg=f"{name} of system {s}")
        for name, values in by_row.items():
            of_system = rows[name][mine[mine < len(cloud.points)] if name == "points" else mine]
            if name == "sums":  # of the same terms, in an order that follows from levels of cells
                np.testing.assert_allclose(of_system, values, rtol=1e-4, atol=1e-4)
            else:
                np.testing.assert_array_equal(of_system, values, err_msg=name)
    assert len(pairs["full"]) == 2 * len(pairs["half"]) > COUNT


@pytest.mark.turns(6)
@pytest.mark.parametrize("real", ["f4", "f8"])
@pytest.mark.parametrize("name", CLOUDS)
def test_each_system_is_as_if_it_were_alone(name, real):
    cloud = cloud_of(name, real)
    check_against_separate(cloud.built(), cloud)


@pytest.mark.turns(4)
@pytest.mark.parametrize("levels", [1, 3])
@pytest.mark.parametrize("method", METHODS, ids=lambda m: m.name)
def test_every_builder_takes_systems_or_says_why_not(method, levels):
    cloud = cloud_of("triclinic mixed")
    options = {"method": method.name, "levels": levels}
    if method.name == "linked_list_tight":
        with pytest.raises(pm.MethodNotSuitable, match="takes no systems"):
            cloud.built(method=method.name)
        return
    grid = cloud.built(**options)
    check_against_separate(grid, cloud, **options)
    cells = grid.cells // SYSTEMS
    order, start, rank = grid.order, grid.cell_start, grid.rank
    np.testing.assert_array_equal(cloud.system[order], np.repeat(np.arange(SYSTEMS), np.diff(start[::cells])))
    np.testing.assert_array_equal(rank[order], np.arange(COUNT))
    with pytest.raises(pm.MethodNotSuitable, match="takes no systems"):
        cloud.built(method="sort", curve="morton", radii=None)


def test_one_system_equals_no_systems_to_the_last_bit():
    cloud = cloud_of("triclinic")
    grids = [pm.UniformGrid(cloud.box, shape=cloud.shape, systems=n) for n in (None, 1)]
    x = np.concatenate([cloud.x] * 4)  # several shares of a thread's work
    grids[0].build(x)
    grids[1].build(x, system=np.zeros(len(x), int))
    pairs, same = (grid.pairs(0.3, quantities="ijdDS") for grid in grids)
    for name in ("start", "i", "j", "shift", "distance", "vector"):
        np.testing.assert_array_equal(getattr(same, name), getattr(pairs, name))
    for k in (0, 1):
        np.testing.assert_array_equal(*(grid.nearest(4, 0.5)[k] for grid in grids))
    sums, others = (grid.stream(0.3, MASS, np.arange(len(x)) * 0.1) for grid in grids)
    np.testing.assert_array_equal(sums, others)
    np.testing.assert_array_equal(grids[0].cell_start, grids[1].cell_start)


def test_systems_without_particles_and_no_particles_at_all():
    grid = pm.UniformGrid(1.0, shape=4, systems=3)
    empty = grid.build(np.empty(0), system=np.empty(0, int))
    assert len(empty.pairs(0.3)) == 0 and empty.count(0.3).shape == (0,) and empty.nearest(2, 0.3)[0].shape == (0, 2)
    grid.build(np.array([0.1, 0.2, 0.1]), system=[2, 2, 0])
    assert grid.count(0.15).tolist() == [1, 1, 0]
    near = grid.neighbours(np.array([0.1, 0.1, 0.1]), 0.15, system=[0, 1, 2])
    assert near.start.tolist() == [0, 1, 1, 3] and near.j[0] == 2
    assert grid.cell_start[[0, 4, 8, 12]].tolist() == [0, 1, 1, 3]


def test_threads_do_not_change_results():
    cloud = cloud_of("periodic")
    one, two = (cloud.built(threads=threads).pairs(RADIUS, quantities="jdD") for threads in (1, 2))
    for name in ("start", "j", "distance", "vector"):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name))


def test_boxes_change_with_each_build_and_a_copy_has_as_many_systems():
    cloud = cloud_of("open")
    grid = cloud.built()
    cloud.boxes = 1.3 * cloud.boxes
    cloud.rows = 1.3 * cloud.rows
    grid.build(cloud.x, cloud.radii, system=cloud.system, boxes=cloud.boxes)
    check_against_separate(grid, cloud)
    assert pickle.loads(pickle.dumps(grid)).systems == SYSTEMS
    assert "in each of 5 systems" in repr(grid)


def test_what_is_wrong_with_systems_is_named_and_changes_nothing():
    cloud = cloud_of("open")
    grid = cloud.built()
    before = grid.count(RADIUS)
    x, system = cloud.x, cloud.system

    def wrong(error, match, **options):
        with pytest.raises(error, match=match):
            grid.build(x, **options)

    bad = system.copy()
    bad[7], bad[9] = SYSTEMS, -1
    wrong(ValueError, "2 of 230 are no index of a system; the first is that of particle 7, 5", system=bad)
    wrong(ValueError, r"system has shape \(229,\); one index per particle", system=system[1:])
    wrong(TypeError, "system has dtype float64; integers", system=system * 1.0)
    wrong(TypeError, "this grid has 5 systems: give system=")
    wrong(ValueError, r"boxes has shape \(4, 3\)", system=system, boxes=np.ones((4, 3)))
    wrong(
        ValueError,
        r"boxes\[2\] is \[1.0, 0.0, 1.0\]",
        system=system,
        boxes=np.where(np.arange(5)[:, None] == 2, [1.0, 0.0, 1.0], 1.0),
    )
    with pytest.raises(ValueError, match=r"boxes\[0\] is beyond the range of float32"):
        grid.build(x.astype("f4"), system=system, boxes=np.full((5, 3), 1e38))
    wrong(ValueError, "outside the box of their system", system=system, boxes=cloud.boxes * 0.5)
    np.testing.assert_array_equal(grid.count(RADIUS), before)
    with pytest.raises(TypeError, match="this grid has 5 systems: give system="):
        grid.neighbours(cloud.points, RADIUS)
    with pytest.raises(ValueError, match="the first is that of point 3, 9"):
        grid.nearest(1, RADIUS, cloud.points, system=np.where(np.arange(40) == 3, 9, 0))
    with pytest.raises(TypeError, match="no points"):
        grid.nearest(1, RADIUS, system=system)
    plain = pm.UniformGrid(cloud.box, shape=cloud.shape)
    with pytest.raises(TypeError, match="this grid has no systems"):
        plain.build(x, system=system)
    with pytest.raises(ValueError, match="systems"):
        pm.UniformGrid(cloud.box, shape=cloud.shape, systems=0)
    with pytest.raises(ValueError, match="cells"):
        pm.UniformGrid(cloud.box, shape=(1000, 1000, 1000), systems=3)
    with pytest.raises(ValueError, match="images of every particle"):
        grid_of_small = cloud_of("periodic").built()
        grid_of_small.count(40.0)


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("name", ["line", "skewed plane", "open", "triclinic mixed"])
def test_a_list_in_one_call(name, half):
    cloud = cloud_of(name)
    apart = np.outer(cloud.system, 40.0 * ~np.array(cloud.box.periodic))  # open axes have any length
    x = cloud.x + apart
    i, j, shift, d = pm.neighbour_list("ijSd", x, cloud.box, RADIUS, half=half, system=cloud.system, boxes=cloud.boxes)
    assert (np.diff(i) >= 0).all()
    got = np.column_stack([i, j, shift, d])
    got = got[np.lexsort(got.T[::-1])]
    expected = []
    for s in range(SYSTEMS):
        mine = np.flatnonzero(cloud.system == s)
        box = pm.Box(cloud.rows[s], cloud.box.origin, cloud.box.periodic)
        i, j, shift, d = pm.neighbour_list("ijSd", x[mine], box, RADIUS, half=half)
        expected.append(np.column_stack([mine[i], mine[j], shift, d]))
    expected = np.concatenate(expected)
    np.testing.assert_array_equal(got, expected[np.lexsort(expected.T[::-1])])


def test_a_list_names_what_is_missing():
    x = np.array([0.1, 0.2, 0.3])
    assert pm.neighbour_list("j", x, 1.0, 0.15, system=[1, 0, 1]).size == 0
    assert pm.neighbour_list("j", x[:0], 1.0, 0.15, system=np.empty(0, int)).size == 0
    reach = np.array([0.1, 0.3, 0.1])
    assert pm.neighbour_list("ij", x, 1.0, reach, system=[1, 0, 1], half=True)[0].tolist() == [0]
    with pytest.raises(TypeError, match="boxes is given, but not system"):
        pm.neighbour_list("j", x, 1.0, 0.15, boxes=np.ones((2, 1)))
    with pytest.raises(ValueError, match=r"the first is that of particle 1, 2. Allowed are 0 to 1"):
        pm.neighbour_list("j", x, 1.0, 0.15, system=[0, 2, 1], boxes=np.ones((2, 1)))
    with pytest.raises(ValueError, match=r"boxes has shape \(\)"):
        pm.neighbour_list("j", x, 1.0, 0.15, system=[0, 0, 0], boxes=1.0)


def on_opencl(cloud, opencl):
    """Compare what OpenCL says with what the CPU says; kernels compile slowly, so queries are few."""
    host, there = cloud.built(), cloud.built("opencl", levels=2)
    expected = host.pairs(RADIUS, half=True, format="coo", quantities="ijdDS")
    pairs = there.pairs(RADIUS, half=True, format="coo", quantities="ijdDS")
    table = pm.grid.results.Pairs(
        **{f: opencl.host(getattr(pairs, f)) for f in ("i", "j", "shift", "distance", "vector")}
    )
    np.testing.assert_allclose(rows_of(table), rows_of(expected), atol=1e-5)
    np.testing.assert_array_equal(opencl.host(there.count(RADIUS)), host.count(RADIUS))
    system = opencl.array(cloud.system[:40].astype(np.int32))
    near = there.nearest(2, RADIUS, opencl.array(cloud.points), system=system)
    np.testing.assert_allclose(
        opencl.host(near[1]), host.nearest(2, RADIUS, cloud.points, system=cloud.system[:40])[1], atol=1e-5
    )
    near = there.neighbours(opencl.array(cloud.points), RADIUS, quantities="jS", system=system)
    start = host.neighbours(cloud.points, RADIUS, system=cloud.system[:40]).start
    np.testing.assert_array_equal(opencl.host(near.start), start)
    sums = there.stream(RADIUS, MASS, opencl.array(cloud.mass))
    np.testing.assert_allclose(opencl.host(sums), host.stream(RADIUS, MASS, cloud.mass), atol=1e-3)
    overlaps = there.overlaps()
    assert len(overlaps) == len(host.overlaps())


@pytest.mark.opencl
def test_kernels_of_systems_say_what_the_cpu_says_and_compile_for_cuda(monkeypatch):
    opencl, cloud = Device.of("opencl"), cloud_of("triclinic mixed", "f4")
    kernels = kernels_of(monkeypatch, lambda: on_opencl(cloud, opencl))
    assert any(("SYSTEMS", 1) in defines for _, _, defines in kernels)
    if without_nvrtc() is not None:
        pytest.skip(f"no NVRTC: {without_nvrtc()}")
    for file, name, defines in kernels:
        if ("SYSTEMS", 1) in defines:
            texts = [{"pair function": MASS.source}] if file == "grid/queries/sums.c" else []
            assert name.encode() in cuda.compile_only(file, dict(defines), 90, *texts), (file, name)


@pytest.mark.opencl
def test_a_device_finds_systems_that_are_none():
    opencl, cloud = Device.of("opencl"), cloud_of("line", "f4")
    grid = cloud.built("opencl", radii=None)
    counts = opencl.host(grid.count(RADIUS))
    bad = cloud.system.astype(np.int32)
    bad[11] = SYSTEMS
    x, ids = opencl.array(cloud.x), opencl.array(bad)
    with pytest.raises(ValueError, match=r"1 outside the box of their system, or in no system of 230 .* first is 11"):
        grid.build(x, system=ids, boxes=cloud.boxes)
    np.testing.assert_array_equal(opencl.host(grid.count(RADIUS)), counts)
    grid.reserve(COUNT)
    grid.build(x, system=ids, boxes=cloud.boxes, check=False)
    assert grid.status.outside == 1 and grid.status.first_bad == 11
    assert opencl.host(grid.count(RADIUS))[11] == 0
    with pytest.raises(ValueError, match="in no system"):
        grid.check()
    with pytest.raises(ValueError, match="points"):
        grid.neighbours(x[:20], RADIUS, system=ids[:20])
