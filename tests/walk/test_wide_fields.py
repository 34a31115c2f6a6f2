# SPDX-License-Identifier: BSD-3-Clause
"""Walks on fields of more than 2^31 nodes: particles around the corner at which such a field ends and begins again."""

import numpy as np
import pytest

import oracle
import particlemesh as pm
from particlemesh.walk import patch as patches

WINDOW = pm.bspline(4)
NEAR = pm.Mesh((16, 16, 16), (16.0, 16.0, 16.0))  # the nodes around the corner, as a mesh of their own
LARGE = 1300  # nodes of an axis: 8.8 GB of float32, and as integers twice that
ROOM = 30e9
METHODS = [("walk", {"form": "matrix"}), ("walk", {"form": "multiply"}), ("walk_fixed", {})]


def drawn(nodes, seed):
    """Positions in a box of as many lengths as nodes, and in NEAR: half in the last cells, half around the corner."""
    rng = np.random.default_rng(seed)
    x = np.concatenate([-2 * rng.random((1000, 3)), 6 * rng.random((1000, 3)) - 4])
    return x % nodes, x % 16, rng


def plan_of(backend, nodes, x, **options):
    # Positions in double, of which nothing is lost to the size of the mesh.
    mesh = pm.Mesh((nodes,) * 3, (float(nodes),) * 3)
    plan = pm.Plan(mesh, WINDOW, dtype="float32", backend=backend.name, **options)
    plan.set_positions(backend.array(x))
    return plan


def near(nodes):
    """The places along an axis of the nodes of NEAR."""
    return [*range(8), *range(nodes - 8, nodes)]


def close(result, expected):
    np.testing.assert_allclose(result, expected, rtol=0, atol=2e-6 * np.abs(expected).max())


def spreads(backend, nodes, method, options):
    x, x_near, rng = drawn(nodes, 1)
    q = rng.normal(size=len(x)).astype(np.float32)
    with plan_of(backend, nodes, x, method=method, options={method: options}) as plan:
        field = plan.spread(backend.array(q))
    places, expected = near(nodes), oracle.spread(NEAR, WINDOW, x_near, q)
    result = np.stack([[backend.host(field[i, j]) for j in places] for i in places])[..., places]
    close(result, expected)
    # Plane by plane, since libraries also count in 32 bits. CuPy's arrays are counted where they are.
    planes = (field[i] if backend.name == "cuda" else backend.host(field[i]) for i in range(nodes))
    assert sum(int(np.count_nonzero(plane)) for plane in planes) == np.count_nonzero(result)


def interpolates(backend, nodes, options):
    x, x_near, rng = drawn(nodes, 2)
    corner = rng.normal(size=NEAR.shape).astype(np.float32)
    field, places = backend.library.empty((nodes,) * 3, np.float32), near(nodes)
    backend.library.clear(field)
    for i, plane in zip(places, corner, strict=True):
        for j, line in zip(places, plane, strict=True):
            row = np.zeros(nodes, np.float32)
            row[places] = line
            field[i, j] = backend.array(row)
    with plan_of(backend, nodes, x, interpolation="walk", options={"walk": options}) as plan:
        values = backend.host(plan.interpolate(field))
    close(values, oracle.interpolate(NEAR, WINDOW, x_near, corner))


@pytest.fixture
def wide(monkeypatch):
    """The kernels of large fields, whatever the field."""
    plain = patches.patch_defines
    monkeypatch.setattr(patches, "patch_defines", lambda *a, **k: {**plain(*a, **k), "FIELD_IS_WIDE": 1})


@pytest.fixture
def room(backend):
    """Memory for a large field, given back after the test."""
    free = backend.library.free_bytes()
    if free < ROOM:
        pytest.skip(f"fields of more than 2^31 nodes take up to {ROOM / 1e9:.0f} GB here, {free / 1e9:.0f} are free")
    yield
    backend.cupy.get_default_memory_pool().free_all_blocks()


@pytest.mark.backends("cuda", "opencl")
@pytest.mark.parametrize(("method", "options"), METHODS)
def test_spreading_around_the_corner(backend, wide, method, options):
    spreads(backend, 40, method, options)


@pytest.mark.backends("cuda", "opencl")
@pytest.mark.parametrize("form", ["matrix", "multiply"])
def test_interpolating_around_the_corner(backend, wide, form):
    interpolates(backend, 40, {"form": form})


@pytest.mark.backends("cuda")
@pytest.mark.parametrize(("method", "options"), METHODS)
def test_spreading_to_more_than_two_to_the_31_nodes(backend, room, method, options):
    spreads(backend, LARGE, method, options)


@pytest.mark.backends("cuda")
@pytest.mark.parametrize("form", ["matrix", "multiply"])
def test_interpolating_from_more_than_two_to_the_31_nodes(backend, room, form):
    interpolates(backend, LARGE, {"form": form})
