# SPDX-License-Identifier: BSD-3-Clause
"""Positions that rounding moves: fine meshes, far images, ghosts, large offsets."""

import itertools
import math

import numpy as np
import pytest

import exact
import oracle
import particlemesh as pm

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
