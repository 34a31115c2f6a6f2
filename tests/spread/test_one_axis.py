# SPDX-License-Identifier: BSD-3-Clause
"""The loops that the CPU's methods have for one axis give what loops over three axes would."""

import numpy as np
import pytest

import oracle
import particlemesh as pm
from particlemesh.spread import colouring
from particlemesh.window import window_of

MESHES = {
    "one tile": pm.Mesh(7, 2.0),
    "many tiles": pm.Mesh(1201, 2.0, origin=-0.7),
    "open": pm.Mesh(1500, 2.0, periodic=False, offset=0.5),
    "ghosts": pm.Mesh(11, 2.0, ghosts=9),
}


def plan_on(mesh, window, x, dtype, order="caller", **more):
    options = {"method": "colouring", "interpolation": "tiles", "dtype": dtype, "order": order, **more}
    return pm.Plan(mesh, window, **options).set_positions(x)


def inside(mesh, count):
    return mesh.box.origin[0] + 2 * np.random.default_rng(count).random(count)


def numbers(rng, shape, dtype):
    real = rng.normal(size=shape)
    return (real + 1j * rng.normal(size=shape) if np.dtype(dtype).kind == "c" else real).astype(dtype)


@pytest.mark.parametrize("name", MESHES)
@pytest.mark.parametrize("window", ["ngp", "cic", "tsc", "bspline6"])
@pytest.mark.parametrize("dtype", [np.float64, np.complex64])
@pytest.mark.parametrize("count", [3, 300])  # a box for each particle, and one for each tile
@pytest.mark.parametrize("order", ["caller", "sorted"])
def test_one_axis_is_what_the_oracle_says(name, window, dtype, count, order):
    mesh, rng = MESHES[name], np.random.default_rng(3)
    real = np.zeros((), dtype).real.dtype
    x = inside(mesh, count)
    values, field = (numbers(rng, (2, *shape), dtype) for shape in ((count,), mesh.field_shape))
    plan, window = plan_on(mesh, window, x, real, order), window_of(window)
    if order == "sorted":
        values, x = values[:, plan.order], x[plan.order]
    close = {"rtol": 0, "atol": 300 * np.finfo(real).eps + 3e-12}  # the oracle rounds node coordinates
    np.testing.assert_allclose(plan.spread(values), oracle.spread(mesh, window, x[:, None], values), **close)
    np.testing.assert_allclose(plan.interpolate(field), oracle.interpolate(mesh, window, x[:, None], field), **close)


@pytest.mark.parametrize("window", ["cic", "tsc", "bspline6"])
@pytest.mark.parametrize("dtype", [np.float64, np.complex64])
@pytest.mark.parametrize("order", ["caller", "sorted"])
def test_on_one_axis_infinities_stay_within_their_stencil(window, dtype, order):
    mesh, support = MESHES["many tiles"], window_of(window).support
    x = inside(mesh, 5000)
    plan = plan_on(mesh, window, x, np.zeros((), dtype).real.dtype, order)
    values = np.ones(5000, dtype)
    values[17] = np.inf
    spoilt = ~np.isfinite(plan.spread(values))
    assert 0 < spoilt.sum() <= support
    field = np.ones(mesh.field_shape, dtype)
    field[1000] = np.inf
    u = oracle.node_coordinates(mesh, x[:, None] if order == "caller" else x[plan.order, None])[:, 0]
    far = np.abs(u - 1000) > support / 2 + 1e-3
    read = plan.interpolate(field)
    assert np.isfinite(read[far]).all() and not np.isfinite(read[~far]).all()


@pytest.mark.parametrize("name", MESHES)
def test_shares_of_many_particles_are_what_one_share_is(name, monkeypatch):
    mesh = MESHES[name]
    x = inside(mesh, 500)
    values = numbers(np.random.default_rng(1), (500,), np.float64)
    plan = plan_on(mesh, "cic", x, np.float64, threads=2)
    expected = plan.spread(values)
    monkeypatch.setattr(colouring, "_LEAST", 10)
    monkeypatch.setattr(colouring, "_PER_NODE", 0)
    for window in ("cic", "bspline4"):
        plans = [plan_on(mesh, window, x, np.float64, threads=n) for n in (1, 2)]
        fields = [p.spread(values) for p in plans for _ in range(3)]
        assert all((field == fields[0]).all() for field in fields)
        if window == "cic":
            np.testing.assert_allclose(fields[0], expected, atol=1e-12)


@pytest.mark.parametrize("name", MESHES)
@pytest.mark.parametrize("window", ["ngp", "cic", "tsc", "bspline6"])
@pytest.mark.parametrize("dtype", [np.float32, np.complex128])
@pytest.mark.parametrize("verb", ["spread", "spread_gradient"])
def test_pieces_of_the_nodes_have_the_bits_of_one(name, window, dtype, verb, monkeypatch):
    mesh, rng = MESHES[name], np.random.default_rng(4)
    count = 3000
    x, values = inside(mesh, count), numbers(rng, (count,), dtype)
    values[7] = 0  # a particle that is left out
    plan = plan_on(mesh, window, x, np.zeros((), dtype).real.dtype, threads=64)
    values = values[:, None] if verb == "spread_gradient" else values
    monkeypatch.setattr(colouring, "_LEAST", 10 * count)  # one share
    expected = getattr(plan, verb)(values)
    asked = []
    monkeypatch.setattr(colouring, "threads_for", lambda threads, work: asked.append(threads) or threads)
    monkeypatch.setattr(colouring, "_PICKED", 256)
    for least in (1, 2, 5, 300):  # nodes of a piece: some are shorter than a stencil
        monkeypatch.setattr(colouring, "_PIECE", least)
        assert (getattr(plan, verb)(values) == expected).all()
    assert asked


@pytest.mark.parametrize("name", MESHES)
def test_unsorted_particles_are_sorted_as_positions_are(name):
    mesh = MESHES[name]
    x = inside(mesh, 9000)
    caller, by_tile = (pm.Plan(mesh, "tsc", order=order).set_positions(x) for order in ("caller", "sorted"))
    ordering, expected = caller.particles.ordering, by_tile.particles.ordering
    assert (ordering.order == by_tile.particles.order).all() and (ordering.packed[3::4] == expected.packed[3::4]).all()
    for attribute in ("records", "tile", "begin", "end", "ready"):
        np.testing.assert_array_equal(getattr(ordering, attribute), getattr(expected, attribute))


def test_refused_positions_leave_those_of_one_axis():
    mesh = MESHES["open"]
    x, values = inside(mesh, 100), np.ones(100)
    plan = plan_on(mesh, "cic", x, np.float64)
    plan.set_positions(x[::-1].copy())
    expected = plan.spread(values)
    for bad in (np.nan, 99.0):
        spoilt = x.copy()
        spoilt[3] = bad
        with pytest.raises(ValueError, match="particle 3|position 3|index 3"):
            plan.set_positions(spoilt)
        assert (plan.spread(values) == expected).all()
    plan.set_positions(spoilt, check=False)
    assert plan.status.outside == 1 and plan.status.first_bad == 3
    np.testing.assert_allclose(plan.spread(values).sum() + plan.lost(values).sum(), 99)
