# SPDX-License-Identifier: BSD-3-Clause
"""Positions that rounding moves, on or beyond edges, far away or not finite; taken when they are set."""

import itertools
import math

import numpy as np
import pytest

import exact
import oracle
import particlemesh as pm
from particlemesh import checks
from particlemesh.particles.locate import SKIP
from particlemesh.particles.located import Status

REALS = [np.float32, np.float64]
LIMIT = {np.float32: 2.0**-22, np.float64: 2.0**-51}  # of a node spacing: a fraction is rounded a few times
BOXES = {
    "0.7": pm.Box(0.7),
    "1/3 from -2.1": pm.Box(1 / 3, origin=-2.1),
    "2-D": pm.Box((0.7, 6.2), origin=(0.1, -0.2)),
    "triclinic 2-D": pm.Box([[0.3, 0.6], [-0.5, 0.4]]),
    "3-D": pm.Box((0.7, 1e-3, 49.0)),
    "triclinic 3-D": pm.Box([[0.7, 0, 0], [0.1, 0.8, 0], [0.2, -0.3, 0.9]], origin=(0.1, 0.2, 0.3)),
}


def cloud(box, count, real, away, seed=0):
    """Random positions up to ``away`` boxes off; the first are on corners, or next to them."""
    rng = np.random.default_rng(seed)
    s = rng.random((count, box.ndim))
    s[:4] = [[0], [1], [np.finfo(real).eps], [0.5]]
    turns = rng.integers(-away, away + 1, s.shape) * np.array(box.periodic)
    return ((s + turns) @ box.matrix + box.origin).astype(real)


def located(plan):
    """First nodes and fractions of a plan's particles, along the axes that its mesh has."""
    axes, count = slice(3 - plan.mesh.ndim, None), plan.count
    node, fraction = (plan.backend.download(a) for a in (plan.particles.node, plan.particles.fraction))
    return node[axes, :count], fraction[axes, :count]


@pytest.mark.parametrize("away", [0, 1, 1000, 10**5, 2**24])
@pytest.mark.parametrize("box", BOXES.values(), ids=BOXES)
@pytest.mark.parametrize("real", REALS)
def test_rounding_moves_no_particle_on_a_fine_mesh_or_far_away(backend, real, box, away):
    meshes = [(30,), (101,), (1000,), (4093,), (4096,), (2**20 + 7,), (1,), (2,)]
    if box.ndim > 1:
        meshes = [(30, 101, 97), (5, 4, 128), (128, 1, 3)]
    x = cloud(box, 50, real, away)
    for nodes, window in itertools.product(meshes, ("bspline3", "bspline6")):
        mesh = pm.Mesh(nodes[: box.ndim], box)
        with pm.Plan(mesh, window, dtype=real) as plan:
            plan.set_positions(backend.array(x))
            node, fraction = located(plan)
            assert exact.distances(mesh, plan.window.support, x, node, fraction).max() < LIMIT[real]
            assert ((node >= 0) & (node < np.array(mesh.shape)[:, None])).all()
            assert ((fraction >= -0.5) & (fraction < 0.5)).all()


@pytest.mark.parametrize("box", [box for box in BOXES.values() if box.ndim < 3], ids=str)
@pytest.mark.parametrize("offset", [0.0, 0.5])
@pytest.mark.parametrize("real", REALS)
def test_rounding_moves_no_particle_of_an_open_box(backend, real, offset, box):
    box = pm.Box(box.matrix if box.ndim > 1 else box.lengths, box.origin, periodic=False)
    x = cloud(box, 50, real, 0)
    for nodes, window in itertools.product((30, 101, 4093), ("bspline3", "bspline6")):
        mesh = pm.Mesh((nodes, 7)[: box.ndim], box, offset=offset)
        with pm.Plan(mesh, window, dtype=real) as plan:
            plan.set_positions(backend.array(x), check=False)
            node, fraction = located(plan)
            taken = node[-1] != -(2**31)
            assert taken[4:].all()
            moved = exact.distances(mesh, plan.window.support, x[taken], node[:, taken], fraction[:, taken])
            at_a_corner = np.flatnonzero(taken) < 4  # those beyond it by rounding are put on it
            assert moved[:, ~at_a_corner].max() < LIMIT[real]
            assert (moved[:, at_a_corner] < nodes * 4 * np.finfo(real).eps).all()


def test_float32_interpolates_as_exactly_on_fine_meshes_and_far_away_as_on_coarse_ones(backend):
    box, window = pm.Box(0.7), pm.bspline(6)
    for nodes, away in itertools.product((30, 100, 500, 1000, 4096), (0, 1000, 10**5)):
        mesh, x = pm.Mesh(nodes, box), cloud(box, 300, np.float32, away)
        field = np.random.default_rng(nodes).uniform(-1, 1, nodes).astype(np.float32)
        with pm.Plan(mesh, window, dtype="float32") as plan:
            plan.set_positions(backend.array(x))
            values = backend.host(plan.interpolate(backend.array(field)))
        assert np.abs(values - exact.interpolate(mesh, window, x, field)).max() < 3e-7


@pytest.mark.backends("cpu")
def test_a_far_particle_changes_nothing_for_those_beside_it(backend):
    mesh = pm.Mesh((4096, 30), (0.7, 0.9))
    x = cloud(mesh.box, 3000, np.float32, 0)
    bits = set()
    for far in ((), (100,), (100, 2900), range(0, 3000, 7)):
        moved = x.copy()
        moved[list(far)] += np.float32(1e4)
        rest = np.setdiff1d(np.arange(3000), range(0, 3000, 7))
        rest = rest[(rest != 100) & (rest != 2900)]
        with pm.Plan(mesh, "bspline4", dtype="float32") as plan:
            plan.set_positions(moved)
            node, fraction = located(plan)
            bits.add(node[:, rest].tobytes() + fraction[:, rest].tobytes())
    assert len(bits) == 1


@pytest.mark.parametrize("window", ["bspline3", "bspline4"])
@pytest.mark.parametrize("real", REALS)
@pytest.mark.parametrize("box", BOXES.values(), ids=BOXES)
def test_ghosts_move_no_particle(backend, real, box, window):
    shape = (30, 13, 20)[: box.ndim]
    x = cloud(box, 200, real, 2)
    for offset in (0.0, 0.5, 0.1, -0.3):
        fields = []
        for ghosts in ((3, 4), (0, 0)):
            mesh = pm.Mesh(shape, box, offset=offset, ghosts=[ghosts] * box.ndim)
            with pm.Plan(mesh, window, dtype=real) as plan:
                plan.set_positions(backend.array(x))
                fields.append(located(plan))
        (node, fraction), (plain_node, plain_fraction) = fields
        assert (fraction == plain_fraction).all()
        assert ((node - 3) % np.array(shape)[:, None] == plain_node).all()


@pytest.mark.parametrize("offset", [1e10, 3e9, -3e9, 1e15, -1e15, 2.0**53, 1e300, 6e4 + 0.25, -6e4 - 0.75])
@pytest.mark.parametrize("real", REALS)
@pytest.mark.parametrize("ghosts", [0, 10])
def test_an_offset_of_many_turns_is_that_of_what_is_left_of_them(backend, offset, real, ghosts):
    shape = (7, 6)
    left = [math.fmod(offset, nodes) for nodes in shape]
    mesh, reduced = (pm.Mesh(shape, (0.7, 1.0), offset=o, ghosts=ghosts) for o in (offset, left))
    x = cloud(mesh.box, 40, real, 3)
    q = np.random.default_rng(1).normal(size=40).astype(real)
    with pm.Plan(mesh, "bspline4", dtype=real) as plan:
        plan.set_positions(backend.array(x))
        field = backend.host(plan.spread(backend.array(q)))
    expected = oracle.spread(reduced, pm.bspline(4), x, q)
    np.testing.assert_allclose(field, expected, rtol=0, atol=2e-5 if real == np.float32 else 1e-13)


@pytest.mark.parametrize("length", [1e-30, 1e-37, 1e30])
def test_boxes_near_the_ends_of_float32_are_located_as_others(backend, length):
    mesh = pm.Mesh(4096, length)
    x = (np.random.default_rng(0).random(50) * length).astype(np.float32)
    with pm.Plan(mesh, "bspline4", dtype="float64") as plan:
        plan.set_positions(backend.array(x))
        node, fraction = located(plan)
        assert exact.distances(mesh, 4, x, node, fraction).max() < LIMIT[np.float32]


@pytest.mark.parametrize("away", [1, 1000, 10**5])
@pytest.mark.parametrize("box", BOXES.values(), ids=BOXES)
@pytest.mark.parametrize("real", REALS)
def test_a_grid_folds_far_positions_as_exactly_as_near_ones(backend, real, box, away):
    x = cloud(box, 60, real, away)
    grid = pm.UniformGrid(box, shape=(3, 4, 5)[: box.ndim])
    grid.build(backend.array(x))
    given = x[backend.host(grid.order).astype(int)]
    moved, turns = exact.unfolded(box, given, backend.host(grid.positions))
    size = np.abs(box.matrix).sum(0) + np.abs(box.origin)
    assert (moved <= 2 * np.finfo(real).eps * size).all()
    assert np.abs(turns).max() > away / 2


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("real", [np.float32, np.float64])
def test_not_finite_positions_are_named(backend, bad, real):
    mesh = pm.Mesh((6, 5, 4), (1.0, 2.0, 3.0), periodic=(True, False, True), offset=(0, 0.5, 0))
    good = np.random.default_rng(1).random((70, 3)).astype(real)
    with pm.Plan(mesh, "cic") as plan:
        plan.set_positions(backend.array(good))
        before = backend.host(plan.spread(backend.array(np.ones(70, real))))
        for axis in range(3):
            x = good.copy()
            x[37, axis] = x[64, axis] = bad
            with pytest.raises(ValueError, match=r"positions: 2 not finite of 70; the first is particle 37"):
                plan.set_positions(backend.array(x))
        after = backend.host(plan.spread(backend.array(np.ones(70, real))))
        np.testing.assert_allclose(after, before, rtol=1e-6)  # the plan kept its positions


def test_the_error_says_what_has_become_of_the_particles():
    mesh, status = pm.Mesh(6, 1.0), Status(40, 1, 0, 7)
    assert "The plan is unchanged; check=False" in str(checks.bad_positions(status, None, mesh))
    text = str(checks.bad_positions(status, None, mesh, unchecked=True))
    assert text.endswith("In the plan such particles have zero weight.")
    assert "as it was" not in text


def test_the_range_of_a_triclinic_box_is_in_fractions():
    box = pm.Box([[2.0, 0.0], [1.0, 3.0]], origin=(5.0, 5.0), periodic=(True, False))
    plan = pm.Plan(pm.Mesh((7, 6), box), "cic")
    plan.set_positions(np.array([[6.0, 7.9]]))  # fractions 0.017 and 0.97
    text = r"finite numbers whose fractions along lattice vector 1, from the origin on, are within \[0, 1\]\."
    with pytest.raises(ValueError, match=text):
        plan.set_positions(np.array([[6.0, 8.1]]))
    plan = pm.Plan(pm.Mesh((7, 6), box.lengths, origin=5.0, periodic=(True, False)), "cic")
    with pytest.raises(ValueError, match=r"within axis 1: \[5, 8\.16228\]\."):
        plan.set_positions(np.array([[6.0, 8.3]]))


def test_a_million_boxes_away_stays_within_its_field(backend):
    mesh = pm.Mesh((8, 8, 8), (2.0, 2.0, 2.0))
    x = np.array([[2e6, -2e6, 1.0], [0.5 + 2e6, 1.25 - 4e6, 2e6 + 0.125]])
    with pm.Plan(mesh, "cic") as plan:
        plan.set_positions(backend.array(x))
        guarded = np.full(8**3 + 64, 7.0)
        store = backend.flat(guarded)
        field = backend.view(store, (8, 8, 8), np.float64, 32 * 8, (512, 64, 8))
        plan.spread(backend.array(np.ones(2)), out=field)
        result = backend.host(backend.view(store, guarded.shape, np.float64, 0, (8,)))
    assert np.all(result[:32] == 7)
    assert np.all(result[-32:] == 7)
    expected = oracle.spread(mesh, pm.bspline(2), np.mod(x, 2.0), np.ones(2))
    np.testing.assert_allclose(result[32:-32].reshape(8, 8, 8), expected, atol=1e-8)


def test_float32_cells_on_a_fine_mesh(backend, law):
    # N * eps32 > 1/8: cells are decided by rounding, and a kernel that decides twice writes past its tile.
    mesh = pm.Mesh((2**21 + 7,), 1.0)
    x = np.random.default_rng(5).random(2000, dtype=np.float32)
    x[:4] = [0, np.nextafter(np.float32(1), np.float32(0)), 0.5, np.float32(1) - np.float32(2**-20)]
    if reason := law.declines(backend, mesh, "bspline4", np.float32, len(x)):
        pytest.skip(reason)
    with law.plan(mesh, "bspline4") as plan:
        plan.set_positions(backend.array(x))
        q = np.ones(2000, np.float32)
        field = backend.host(plan.spread(backend.array(q)))
        assert field.sum(dtype=np.float64) == pytest.approx(2000, rel=1e-5)
        reached, k = np.flatnonzero(field), mesh.shape[0]
        places = np.sort(x.astype(float) * k)
        places = np.concatenate([places[-4:] - k, places, places[:4] + k])  # and images beyond both borders
        after = np.searchsorted(places, reached)  # no point is nearer than the places beside
        distance = np.minimum(places[after] - reached, reached - places[after - 1])
        assert distance.max() < 3  # 2, and what float32 moves a particle
        f = np.ones(mesh.shape, np.float32)
        np.testing.assert_allclose(backend.host(plan.interpolate(backend.array(f))), 1, rtol=1e-5)


def test_positions_are_taken_when_they_are_set():
    rng = np.random.default_rng(2)
    mesh, x, q = pm.Mesh((20, 21, 22), (1.0, 2.0, 3.0)), rng.random((5000, 3)), rng.standard_normal(5000)
    with pm.Plan(mesh, "bspline4", threads=3) as plan:
        plan.set_positions(x)
        expected = plan.spread(q)
    with pm.Plan(mesh, "bspline4", threads=3) as plan:
        ours = x.copy()
        plan.set_positions(ours)
        ours[:] = np.nan
        assert (plan.spread(q) == expected).all()
        with pytest.raises(ValueError, match="5000 not finite of 5000; the first is particle 0"):
            plan.set_positions(ours)
        assert (plan.spread(q) == expected).all()
        assert plan.status == (5000, 0, 0, -1, 0)
        plan.reserve(20000)  # what is there moves into new memory
        assert (plan.spread(q) == expected).all()
        ours[:] = x
        ours[[77, 4321]] = np.inf
        plan.set_positions(ours, check=False)
        assert plan.status == (5000, 2, 0, 77, 0)
        assert np.flatnonzero(plan.particles.node[2] == SKIP).tolist() == [77, 4321]
        assert plan.capacity == 20000
        plan.set_positions(x)
        assert (plan.spread(q) == expected).all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_record_lies_within_one_line_of_the_cache(dtype):
    for count in (1, 7, 100, 100001):
        with pm.Plan(pm.Mesh(8, 1.0), "cic", dtype=dtype) as plan:
            plan.set_positions(np.linspace(0, 1, count))
            records = plan.particles.ordering.records
            assert len(records) == 4 * count
            assert records.ctypes.data % 64 == 0


@pytest.mark.backends("cpu")
def test_double_positions_keep_their_cell_with_single_values(backend):
    with pm.Plan(pm.Mesh(16, 1.0), "bspline4", dtype="float32") as plan:
        plan.set_positions(np.array([np.nextafter(0.5, 0), 0.5]))
        assert plan.particles.node[2].tolist() == [6, 7]
        assert plan.particles.fraction[2].tolist() == [0.5, -0.5]
