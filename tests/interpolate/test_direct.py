# SPDX-License-Identifier: BSD-3-Clause
"""`direct`: channels beyond those of one group come in one launch, and particles need not be spread evenly."""

import types

import numpy as np
import pytest

import particlemesh as pm
from particlemesh.interpolate.direct import Direct
from particlemesh.orders import block_order

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
        batches = next(iter(plan.methods.known["interpolate"]._batches.values()))
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


@pytest.mark.backends("cuda", "opencl")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("staged", [False, True])
@pytest.mark.parametrize("cells", [(1, 5, 13), (5, 1, 13), (8, 8, 4), (8, 3, 1)])
def test_lines_of_blocks_along_any_axis_have_the_same_particles(backend, monkeypatch, cells, staged, dtype):
    monkeypatch.setattr(Direct, "cells", classmethod(lambda cls, sizes, count: cells))
    if staged:
        monkeypatch.setattr(block_order, "STAGED_FROM", dict.fromkeys(block_order.STAGED_FROM, 0))
    shape, rng = (23, 18, 37), np.random.default_rng(3)
    box = pm.Box((1.0, 1.0, 1.0), periodic=(True, False, True))
    kinds = {"backend": backend.name, "interpolation": "direct"}, {"backend": "cpu"}
    results = []
    field = rng.normal(size=pm.Mesh(shape, box).field_shape).astype(dtype)
    clouds = rng.random((2, 2 * COUNT, 3)).astype(dtype)
    clouds[1, 7] = np.nan
    for options in kinds:
        native = backend.array if options["backend"] == backend.name else np.asarray
        with pm.Plan(pm.Mesh(shape, box), "bspline4", dtype=dtype, **options) as plan:
            for x in clouds:  # the second time they are counted while they are located
                plan.set_positions(native(x), check=False)
                results.append(plan.interpolate(native(field)))
            if options["backend"] == backend.name:
                assert block_order.blocks_of(plan.methods.problem().axes, cells).along == cells.index(min(cells))
    for mine, other in zip(results[:2], results[2:], strict=True):
        np.testing.assert_allclose(backend.host(mine), other, rtol=0, atol=1e-5 if dtype == "float32" else 1e-13)


@pytest.mark.parametrize(("nodes", "ndim", "far"), [(64**3, 3, False), (256**3, 3, True), (256**3, 2, False)])
def test_a_field_beyond_the_cache_is_read_column_by_column(monkeypatch, nodes, ndim, far):
    monkeypatch.setattr("particlemesh.walk.patch.cells_of", lambda sizes, count: (1, 5, 13))
    sizes = types.SimpleNamespace(
        nodes=nodes, components=2, dtype=np.dtype("float64"), mesh=types.SimpleNamespace(ndim=ndim)
    )
    assert Direct.cells(sizes, 100) == ((8, 8, 4) if far else (1, 5, 13))


@pytest.mark.backends("cuda", "opencl")
@pytest.mark.parametrize(("lanes", "along_z"), [(1, 1), (2, 2), (4, 2), (8, 2), (8, 8)])
@pytest.mark.parametrize(("ndim", "kind"), [(3, "complex128"), (3, "float64"), (2, "float64")])
def test_lanes_deal_every_number_of_results(backend, lanes, along_z, ndim, kind):
    """Three, four, six and eight results, with and without the value, of one to eight lanes."""
    shape, rng = (9, 8, 10)[:ndim], np.random.default_rng(4)
    x, field, parts = rng.random((COUNT, ndim)), rng.normal(size=shape), 1
    if kind == "complex128":
        field, parts = field + 1j * rng.normal(size=shape), 2
    dealt = {"interpolation": "direct", "options": {"direct": {"lanes": lanes, "row": along_z}}}
    results = []
    for name, method, native in ((backend.name, dealt, backend.array), ("cpu", {}, np.asarray)):
        options = {"components": parts, "dtype": "float64", "backend": name, **method}
        with pm.Plan(pm.Mesh(shape, (1.0,) * ndim), "bspline4", **options) as plan:
            plan.set_positions(native(x))
            results.append([plan.gradient(native(field)), *plan.value_and_gradient(native(field))])
    for mine, other in zip(*results, strict=True):
        np.testing.assert_allclose(backend.host(mine), other, rtol=0, atol=1e-12)
