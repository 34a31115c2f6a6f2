# SPDX-License-Identifier: BSD-3-Clause
"""Sums of very many values per node keep the digits of float32: the bound of the page on troubleshooting."""

import numpy as np
import pytest

import particlemesh as pm
from particlemesh.spread import METHODS

BOUND = 5e-6  # of the largest value


@pytest.mark.parametrize("method", [method.name for method in METHODS if "cpu" in method.backends])
@pytest.mark.parametrize("ndim", [1, 3])
def test_long_sums_keep_their_digits(method, ndim, request):
    count, nodes = (400_000, 4 if ndim == 1 else 2) if request.config.thins else (10_000_000, 4)
    rng = np.random.default_rng(0)
    x = rng.random((count, ndim), dtype="f4")
    mesh = pm.Mesh((nodes,) * ndim, (1.0,) * ndim)
    values, vectors = np.ones(count, "f4"), 1 + rng.random((count, ndim), dtype="f4")
    with pm.Plan(mesh, "cic", dtype="float64") as plan:
        plan.set_positions(x)
        field, slopes = plan.spread(values.astype("f8")), plan.spread_gradient(vectors.astype("f8"))
    with pm.Plan(mesh, "cic", dtype="float32", method=method, backend="cpu") as plan:
        plan.set_positions(x)
        error = abs(plan.spread(values) - field).max() / abs(field).max()
        assert error < BOUND
        # Slopes cancel: what is added up has a magnitude of 2 per length of a node, for each particle near it.
        size = np.abs(vectors).sum(0).max() * nodes / nodes**ndim
        assert abs(plan.spread_gradient(vectors) - slopes).max() / size < BOUND
        plan.spread(values, out=(out := field.astype("f4")), accumulate=True)
        assert abs(out - 2 * field).max() / abs(2 * field).max() < BOUND
