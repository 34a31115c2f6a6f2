# SPDX-License-Identifier: BSD-3-Clause
"""`direct`: channels beyond those of one group come in one launch, and particles need not be spread evenly."""

import numpy as np
import pytest

import particlemesh as pm

COUNT = 50


@pytest.mark.backends("cuda", "opencl")
@pytest.mark.parametrize("layout", ["planar", "interleaved"])
def test_all_groups_of_channels_get_their_own_results(backend, layout):
    rng = np.random.default_rng(1)
    mesh = pm.Mesh((8, 9, 12), pm.Box((1.0, 1.0, 1.0), periodic=(True, False, True)))
    x = rng.random((COUNT, 3))
    x[7] = np.nan  # without weight: zero in every channel
    field = rng.normal(size=(11, *mesh.field_shape))
    given = backend.array(np.moveaxis(np.ascontiguousarray(np.moveaxis(field, 0, -1)), -1, 0))
    if layout == "planar":
        given = backend.array(field)
    options = {"backend": backend.name, "interpolation": "direct", "dtype": "float64"}
    with pm.Plan(mesh, "bspline4", **options) as plan:
        plan.reserve(COUNT)
        plan.set_positions(backend.array(x), check=False)
        values, slopes = map(backend.host, plan.value_and_gradient(given))
        batches = next(iter(plan._methods["interpolate"]._batches.values()))
    if layout == "planar":
        assert [batch[-1] for batch in batches] == [2, 1]  # twice four channels in a launch, and the three others
    with pm.Plan(mesh, "bspline4", **options) as plan:
        plan.reserve(COUNT)
        plan.set_positions(backend.array(x), check=False)
        for n in range(11):
            one, slope = map(backend.host, plan.value_and_gradient(backend.array(field[n])))
            np.testing.assert_allclose(values[n], one, rtol=0, atol=1e-13)
            np.testing.assert_allclose(slopes[n], slope, rtol=0, atol=1e-12)
    assert not values[:, 7].any() and not slopes[:, 7].any() and values[:, 8].all()


@pytest.mark.backends("cuda", "opencl")
@pytest.mark.parametrize("centre", [0.02, 0.3, 0.5, 0.97])
@pytest.mark.parametrize("ndim", [2, 3])
def test_lines_are_found_wherever_particles_are(backend, centre, ndim):
    """A line of a crowd is far from where an even spread has it: before, behind, or beside many others."""
    shape = (96, 96) if ndim == 2 else (8, 96, 96)
    rng = np.random.default_rng(2)
    crowd = (centre + 0.06 * rng.normal(size=(90, ndim))) % 1
    x = np.concatenate([crowd, rng.random((10, ndim))])
    field = rng.normal(size=shape)
    results = []
    for options in ({"backend": backend.name, "interpolation": "direct"}, {"backend": "cpu"}):
        with pm.Plan(pm.Mesh(shape, (1.0,) * ndim), "bspline4", dtype="float64", **options) as plan:
            native = backend.array if options["backend"] == backend.name else np.asarray
            plan.set_positions(native(x))
            results.append(plan.interpolate(native(field)))
    np.testing.assert_allclose(backend.host(results[0]), results[1], rtol=0, atol=1e-13)
