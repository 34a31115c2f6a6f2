# SPDX-License-Identifier: BSD-3-Clause
"""The loops that the CPU's methods have for one axis give what loops over three axes would."""

import numpy as np
import pytest

import oracle
import particlemesh as pm
from particlemesh.window import window_of

MESHES = {
    "one tile": pm.Mesh(7, 2.0),
    "many tiles": pm.Mesh(1201, 2.0, origin=-0.7),
    "open": pm.Mesh(1500, 2.0, periodic=False, offset=0.5),
    "ghosts": pm.Mesh(11, 2.0, ghosts=9),
}


def plan_on(mesh, window, x, dtype):
    return pm.Plan(mesh, window, method="colouring", interpolation="tiles", dtype=dtype).set_positions(x)


def inside(mesh, count):
    return mesh.box.origin[0] + 2 * np.random.default_rng(count).random(count)


def numbers(rng, shape, dtype):
    real = rng.normal(size=shape)
    return (real + 1j * rng.normal(size=shape) if np.dtype(dtype).kind == "c" else real).astype(dtype)


@pytest.mark.parametrize("name", MESHES)
@pytest.mark.parametrize("window", ["ngp", "cic", "tsc", "bspline6"])
@pytest.mark.parametrize("dtype", [np.float64, np.complex64])
@pytest.mark.parametrize("count", [3, 300])  # a box for each particle, and one for each tile
def test_one_axis_is_what_the_oracle_says(name, window, dtype, count):
    mesh, rng = MESHES[name], np.random.default_rng(3)
    real = np.zeros((), dtype).real.dtype
    x = inside(mesh, count)
    values, field = (numbers(rng, (2, *shape), dtype) for shape in ((count,), mesh.field_shape))
    plan, window = plan_on(mesh, window, x, real), window_of(window)
    close = {"rtol": 0, "atol": 300 * np.finfo(real).eps + 3e-12}  # the oracle rounds node coordinates
    np.testing.assert_allclose(plan.spread(values), oracle.spread(mesh, window, x[:, None], values), **close)
    np.testing.assert_allclose(plan.interpolate(field), oracle.interpolate(mesh, window, x[:, None], field), **close)


@pytest.mark.parametrize("window", ["cic", "tsc", "bspline6"])
@pytest.mark.parametrize("dtype", [np.float64, np.complex64])
def test_on_one_axis_infinities_stay_within_their_stencil(window, dtype):
    mesh, support = MESHES["many tiles"], window_of(window).support
    x = inside(mesh, 5000)
    plan = plan_on(mesh, window, x, np.zeros((), dtype).real.dtype)
    values = np.ones(5000, dtype)
    values[17] = np.inf
    spoilt = ~np.isfinite(plan.spread(values))
    assert 0 < spoilt.sum() <= support
    field = np.ones(mesh.field_shape, dtype)
    field[1000] = np.inf
    u = oracle.node_coordinates(mesh, x[:, None])[:, 0]
    far = np.abs(u - 1000) > support / 2 + 1e-3
    read = plan.interpolate(field)
    assert np.isfinite(read[far]).all() and not np.isfinite(read[~far]).all()
