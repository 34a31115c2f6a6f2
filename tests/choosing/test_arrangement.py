# SPDX-License-Identifier: BSD-3-Clause
"""How particles lie, clustered and in order, is seen from a few of them."""

import numpy as np
import pytest

import particlemesh as pm

MESH = pm.Mesh((16, 15, 14), (1.0, 1.0, 1.0))


@pytest.mark.parametrize("order", ["planar", "strided", "fortran"])
@pytest.mark.parametrize(("share", "low", "high"), [(1.0, 0.9, 1.0), (0.25, 0.2, 0.5), (0.01, 0.005, 0.03)])
def test_clusters_are_seen(backend, order, share, low, high):
    box = pm.Box([[2.0, 0.0, 0.0], [0.3, 1.5, 0.0], [-0.4, 0.5, 2.5]], origin=(1.0, 2.0, 3.0))
    x = np.random.default_rng(4).random((20_000, 3)) * share ** (1 / 3)
    x = (np.sort(x, axis=0) if order == "fortran" else x) + 5.0  # elsewhere by whole boxes
    if order == "fortran":
        x[:, 1:] = np.random.default_rng(5).random((20_000, 2)) * share ** (1 / 3)  # sorted along one axis only
    mesh = pm.Mesh((8, 8, 8), box)
    plan = pm.Plan(mesh, "cic", applications=1000)
    plan.set_positions(backend.array((box.origin + x @ box.matrix).astype(np.float32), order))
    assert low <= plan.methods.problem().filled <= high


@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_few_particles_anywhere_are_no_cluster(ndim):
    mesh = pm.Mesh((8,) * ndim, (1.0,) * ndim)
    for count in (1, 2, 100):
        plan = pm.Plan(mesh, "cic", applications=10**6)
        plan.set_positions(np.random.default_rng(count).random((count, ndim)))
        assert 0.5 < plan.methods.problem().filled <= 1.0
    plan.set_positions(np.full((100, ndim), 0.25))
    plan.set_positions(np.full((1000, ndim), 0.25))
    assert plan.methods.problem().filled < 0.005


def in_rows(count, ndim, rng):
    """Sites of a lattice, along its rows."""
    edge = round(count ** (1 / ndim))
    return (np.stack(np.unravel_index(np.arange(edge**ndim), (edge,) * ndim), axis=-1) + 0.5) / edge


def in_cells(count, ndim, rng):
    """Anywhere, sorted by cells of a grid."""
    x = rng.random((count, ndim))
    return x[np.lexsort((x * 6).astype(int).T)]


def along_a_walk(count, ndim, rng):
    """Each a step from the one before, through all of a periodic box."""
    return np.cumsum(rng.normal(0, 0.02, (count, ndim)), axis=0) % 1


@pytest.mark.parametrize("cloud", [in_rows, in_cells, along_a_walk])
@pytest.mark.parametrize("ndim", [1, 2, 3])
@pytest.mark.parametrize("count", [4096, 20_000, 262_144])
@pytest.mark.parametrize("side", [1.0, 0.01])
def test_particles_in_order_are_seen(cloud, ndim, count, side):
    rng = np.random.default_rng(count)
    x = side * cloud(count, ndim, rng)
    plan = pm.Plan(pm.Mesh((8,) * ndim, (1.0,) * ndim), "cic", applications=1000)
    plan.set_positions(x)
    assert plan.methods.problem().in_order
    plan.set_positions(rng.permutation(np.tile(x, (3, 1))))  # so many that it looks anew
    assert not plan.methods.problem().in_order


def test_molecules_in_any_order_are_not_in_order():
    rng = np.random.default_rng(5)
    for sites in (2, 3, 4):
        x = np.repeat(rng.random((60_000 // sites, 3)), sites, axis=0)
        plan = pm.Plan(MESH, "cic", applications=1000)
        plan.set_positions((x + rng.normal(0, 0.002, x.shape)) % 1)
        assert not plan.methods.problem().in_order


def test_order_is_of_lengths():
    slab = pm.Mesh((64, 64, 4), (256.0, 256.0, 4.0))
    x = np.random.default_rng(6).random((64_000, 3)) * (256.0, 256.0, 4.0)
    cells = np.floor(x[:, 0] / 8) * 32 + np.floor(x[:, 1] / 8)
    plan = pm.Plan(slab, "cic", applications=1000)
    plan.set_positions(x[np.argsort(cells)])  # anywhere along z
    assert plan.methods.problem().in_order


def test_kinds_on_the_same_lattice_are_in_order():
    x = in_rows(32_768, 3, None)
    plan = pm.Plan(MESH, "cic", applications=1000)
    plan.set_positions(np.concatenate([x, x]))
    assert plan.methods.problem().in_order


@pytest.mark.parametrize(
    ("ndim", "edge"), [(3, 32), (3, 40), (3, 64), (3, 96), (2, 512), (2, 1000), (2, 1024), (1, 4096)]
)
def test_a_lattice_is_no_cluster(ndim, edge):
    plan = pm.Plan(pm.Mesh((8,) * ndim, (1.0,) * ndim), "cic", applications=1000)
    plan.set_positions(in_rows(edge**ndim, ndim, None))
    assert plan.methods.problem().filled > 0.5 and plan.methods.problem().in_order


@pytest.mark.parametrize(("edge", "nodes"), [(20, 50), (31, 96), (9, 200), (40, 300), (64, 65)])
@pytest.mark.parametrize("shuffled", [False, True])
def test_layers_of_a_lattice_are_seen(edge, nodes, shuffled):
    seen = pytest.approx(edge / nodes, rel=0.05 if edge > 10 else 0.3)  # few sites look like a cluster, a little
    x = in_rows(edge**3, 3, None)
    if shuffled:
        x = np.random.default_rng(2).permutation(x)
    plan = pm.Plan(pm.Mesh((nodes,) * 3, (1.0,) * 3), "cic", applications=10**6)
    plan.set_positions(x)
    assert plan.methods.problem().occupied == seen
    plan.set_positions(np.tile(x, (3, 1)))  # so many that it looks anew, at sites that are taken three times
    assert plan.methods.problem().occupied == seen


@pytest.mark.parametrize("share", [1.0, 0.03])
@pytest.mark.parametrize("shape", [(300, 300, 300), (5, 6, 7), (40_000,), (60, 2000)])
@pytest.mark.parametrize("count", [2, 300, 20_000])
def test_particles_anywhere_are_in_all_layers(shape, count, share):
    x = np.random.default_rng(8).random((count, len(shape))) * share ** (1 / len(shape))
    plan = pm.Plan(pm.Mesh(shape, (1.0,) * len(shape)), "cic", applications=10**6)
    plan.set_positions(x)
    assert plan.methods.problem().occupied > (0.85 if count > 300 else 0.4)


def test_finer_lattices_are_in_all_layers():
    plan = pm.Plan(pm.Mesh((16, 20, 24), (1.0,) * 3), "cic", applications=10**6)
    plan.set_positions(in_rows(40**3, 3, None))
    assert plan.methods.problem().occupied == 1.0


@pytest.mark.parametrize("order", ["planar", "strided", "fortran"])
def test_order_is_seen_in_every_layout(backend, order):
    x = in_rows(8000, 3, None).astype(np.float32)
    plan = pm.Plan(MESH, "cic", applications=1000)
    plan.set_positions(backend.array(x, order))
    assert plan.methods.problem().in_order


@pytest.mark.parametrize("count", [0, 1, 2, 3, 1000])
def test_particles_in_one_place_are_in_no_order(count):
    plan = pm.Plan(MESH, "cic", applications=10**6)
    plan.set_positions(np.full((count, 3), 0.25))
    assert not plan.methods.problem().in_order


def test_it_is_looked_at_only_where_it_decides(monkeypatch):
    crowd = np.full((1000, 3), 0.5)
    for options, looked in (
        (dict(applications=9), False), (dict(applications=10), True),
        (dict(applications=10, method="colouring"), True), (dict(applications=10**6, method="measure"), True),
        (dict(applications=10**6, method="colouring", interpolation="tiles"), False),
    ):  # fmt: skip
        plan = pm.Plan(MESH, "cic", **options)
        plan.set_positions(crowd)
        assert (plan.methods.problem().filled < 1) == looked, options
    plan = pm.Plan(MESH, "cic", applications=100)
    plan.set_positions(crowd, check=False)  # never waits
    assert plan.methods.problem().filled == 1.0
    plan.set_positions(np.tile(crowd, (3, 1)))
    assert plan.methods.problem().filled < 0.005
    others = np.random.default_rng(3).random((9000, 3))  # so many more that methods are chosen anew
    plan.set_positions(others, check=False)
    assert plan.methods.problem().filled == 1.0
