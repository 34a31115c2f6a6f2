# SPDX-License-Identifier: BSD-3-Clause
"""Channels beyond those of one group: `direct` reads all of them in one launch."""

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
