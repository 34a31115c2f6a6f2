# SPDX-License-Identifier: BSD-3-Clause
"""Ordered interpolation with other lanes: many neighbours are read by fewer, and nothing else changes."""

from types import SimpleNamespace

import numpy as np
import pytest

import particlemesh as pm
from particlemesh.interpolate import ordered
from particlemesh.interpolate.particle import LANES
from particlemesh.particles.stencil import axes_of

MESHES = [(17, 16, 19), (23, 16), (64,)]


@pytest.fixture
def lanes(request, monkeypatch):
    """So many lanes for each particle, however many there are; without a number as many as few get."""
    few = 0 if request.param else 2**62
    for name in ("NARROW", "WIDE"):
        monkeypatch.setattr(ordered, name, (request.param, few, 2**40))
    return request.param


@pytest.mark.whole
@pytest.mark.backends("cuda", "opencl")
@pytest.mark.parametrize("lanes", [None, 1, 2], indirect=True)
@pytest.mark.parametrize("kind", ["float32", "complex64", "float64", "complex128"])
@pytest.mark.parametrize("support", [3, 4, 6, 8])
@pytest.mark.parametrize("shape", MESHES, ids=str)
def test_any_lanes_read_the_same(backend, lanes, shape, support, kind, request):
    few = len(shape) == 3 and (support, kind) in {(4, "complex64"), (6, "float64")}
    if backend.name == "opencl" and request.config.thins and not few:
        pytest.skip("PoCL compiles slowly: two windows there, and --thorough and GPUs have all")
    rng = np.random.default_rng(7)
    mesh, dtype = pm.Mesh(shape, (1.0,) * len(shape)), np.dtype(kind)
    x = rng.random((300, len(shape))).astype(dtype.type(0).real.dtype)
    field = rng.standard_normal(shape).astype(kind)
    if dtype.kind == "c":
        field = field + dtype.type(1j) * rng.standard_normal(shape).astype(field.real.dtype)
    results = {}
    for method in ("ordered", "particle"):
        with pm.Plan(mesh, f"bspline{support}", dtype=x.dtype, backend=backend.name, interpolation=method) as plan:
            plan.set_positions(backend.array(x))
            if method == "ordered":
                given = plan.methods.of("interpolate").lanes(plan.workspace, 1)
                assert given == ({"LANES_ALL": lanes, "LANES_ROW": 1} if lanes else LANES)
            native = backend.array(field)
            results[method] = list(map(backend.host, (plan.interpolate(native), *plan.value_and_gradient(native))))
    tolerance = 1e-5 if x.dtype == np.float32 else 1e-13
    for a, b in zip(*results.values(), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * np.abs(b).max())


@pytest.mark.parametrize(
    ("support", "dtype", "count", "nodes", "lanes"),
    [
        (5, "float32", 2**16, 128, 1),
        (5, "float32", 2**16 - 1, 128, 4),
        (5, "float32", 2**16, 129, 4),  # more than 32 nodes each
        (6, "float32", 2**17, 80, 2),
        (6, "float32", 2**17 - 1, 80, 4),
        (6, "float32", 2**17, 81, 4),  # more than 4 nodes each
        (4, "float64", 2**17, 80, 2),
        (4, "float64", 0, 80, 4),
    ],
)
def test_many_neighbours_have_fewer_lanes(support, dtype, count, nodes, lanes):
    window, mesh = pm.bspline(support), pm.Mesh((nodes,) * 3, (1.0,) * 3)
    facts = dict(window=window, axes=axes_of(mesh, window), dtype=np.dtype(dtype), count=count)
    for in_parts, expected in ((False, lanes), (True, 2)):  # of parts of a mesh, always those of `particle`
        asked = SimpleNamespace(**facts, in_parts=in_parts)
        assert ordered.Ordered().lanes(asked, 1)["LANES_ALL"] == expected
