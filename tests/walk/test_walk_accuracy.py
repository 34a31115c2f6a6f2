# SPDX-License-Identifier: BSD-3-Clause
"""Walks in float32 are as accurate as promised: sums do not stay in the matrix unit, which rounds towards zero."""

import numpy as np
import pytest

import particlemesh as pm
from particlemesh.backends import opencl
from test_walk_forms import key_of


@pytest.mark.opencl
@pytest.mark.skipif(opencl.available() is not None, reason="no OpenCL device")
@pytest.mark.parametrize("method", ["walk", "walk_fixed"])
@pytest.mark.parametrize("more", [{}, {"form": "matrix"}, {"patch": 16, "levels": 8}])
def test_sums_leave_the_matrix_unit_unless_options_say_otherwise(monkeypatch, method, more):
    # Where a device has such a unit, and a cell has enough particles that it is used.
    facts = {**opencl.current().facts(), "HAS_MMA": 1}
    monkeypatch.setattr(opencl.OpenClBackend, "facts", lambda self: facts)
    for chosen, fragments in (({}, 1), ({"fragments": False}, 0), ({"fragments": True}, 1)):
        file, _, defines = key_of(monkeypatch, "float32", 6, 2, method=method, count=10_000, **more, **chosen)
        assert file == f"spread/{method}.c"
        assert (defines["MATRIX"], defines["FRAGMENTS"]) == (1, fragments), chosen


def errors(backend, x, q, field, **options):
    """Relative errors in the l2 norm of spreading and interpolating by walks, against the particle method in double."""
    mesh, window = pm.Mesh(field.shape, (1.0, 1.0, 1.0)), pm.bspline(6)
    results = []
    for real, method in (("float64", "particle"), ("float32", "walk")):
        kind, chosen = np.result_type(real, np.complex64), {"walk": options}
        with pm.Plan(mesh, window, method=method, interpolation=method, dtype=real, options=chosen) as plan:
            plan.set_positions(backend.array(x.astype(real)))
            spread = backend.host(plan.spread(backend.array(q.astype(kind))))
            results.append((spread, backend.host(plan.interpolate(backend.array(field.astype(kind))))))
    expected, result = results
    return [np.linalg.norm((b - a).ravel()) / np.linalg.norm(a.ravel()) for a, b in zip(expected, result, strict=True)]


def normal(rng, *shape):
    return (rng.standard_normal((*shape, 2), np.float32) @ np.array([1, 1j])).astype(np.complex64)


@pytest.mark.backends("cuda")
@pytest.mark.parametrize("side", [1.0, 0.01 ** (1 / 3)], ids=["uniform", "clustered"])
def test_dense_clouds_are_within_the_bound(backend, side):
    # Of a sum that grows in the unit each step loses the same share: a hundred particles a cell show it.
    rng = np.random.default_rng(5)
    x = (0.5 - side / 2 + side * rng.random((2_000_000, 3), np.float32)).astype(np.float32)
    largest = errors(backend, x, normal(rng, len(x)), normal(rng, 128, 128, 128))
    assert max(largest) <= 1e-6, largest
