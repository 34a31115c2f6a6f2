# SPDX-License-Identifier: BSD-3-Clause
"""Particles in copies of the domain: what blocks hold of the mesh, the memory they take, and what they decline."""

from types import SimpleNamespace

import numpy as np
import pytest

import oracle
import particlemesh as pm
from devices import METHODS
from particlemesh.methods import by_copy
from particlemesh.methods.by_copy import blocks_of, fullest
from particlemesh.orders import node_order
from particlemesh.particles.stencil import axes_of

NAME = "domain_copies"
BOX = pm.Box((1.0, 2.0, 3.0), periodic=(True, False, True))
MESHES = {
    "periodic": pm.Mesh((6, 5, 40), (1.0, 2.0, 3.0)),
    "mixed": pm.Mesh((5, 4, 3), BOX, offset=0.5),
    "ghosts": pm.Mesh((4, 9), (1.0, 2.0), ghosts=3),
    "line": pm.Mesh((70,), (1.0,)),
    "small": pm.Mesh((1, 3, 2), (1.0, 2.0, 3.0)),
}
pytestmark = pytest.mark.backends("opencl", "cuda")


def sizes_of(mesh, window):
    backend = SimpleNamespace(group_size=128)
    return SimpleNamespace(mesh=mesh, window=window, axes=axes_of(mesh, window), backend=backend)


def plan_of(backend, mesh, window="bspline4", chosen=None, dtype="float64", **more):
    chosen = dict(chosen or {})
    if "block" in chosen:
        chosen["block"] = chosen["block"][3 - mesh.ndim :]
    return pm.Plan(
        mesh, window, method=NAME, interpolation=NAME, backend=backend.name, dtype=dtype, options={NAME: chosen}, **more
    )


def cloud(mesh, count):
    return np.random.default_rng(count).random((count, mesh.ndim)) * mesh.box.lengths + mesh.box.origin


@pytest.mark.parametrize("mesh", ["periodic", "ghosts"])
def test_blocks_that_do_not_fit_local_memory_add_where_they_lie(backend, monkeypatch, mesh):
    mesh, asked = MESHES[mesh], []
    x, q = cloud(mesh, 40), np.random.default_rng(4).normal(size=40) + 1j
    f = np.random.default_rng(5).normal(size=mesh.field_shape) * (1 - 2j)
    plain = by_copy.kernel

    def kernel(*arguments, **defines):
        asked.append(defines["WITHIN"])
        return plain(*arguments, **defines)

    monkeypatch.setattr(by_copy, "kernel", kernel)
    results = []
    for most in (by_copy._MOST_LOCAL, 1000):
        monkeypatch.setattr(by_copy, "_MOST_LOCAL", most)
        with plan_of(backend, mesh, chosen={"copies": 2, "block": (4, 4, 7)}) as plan:
            plan.set_positions(x)
            results.append((plan.spread(q), *plan.value_and_gradient(f)))
    assert set(asked[: len(asked) // 2]) == {1}
    assert set(asked[len(asked) // 2 :]) == {0}
    np.testing.assert_allclose(results[0][0], oracle.spread(mesh, pm.bspline(4), x, q), atol=1e-12)
    for here, there in zip(*results, strict=True):
        np.testing.assert_allclose(here, there, rtol=1e-13, atol=1e-13 * np.abs(there).max())


@pytest.mark.parametrize(("support", "ratio"), [(4, 3.3), (6, 5.9)])
def test_replicated_nodes_take_the_predicted_memory(support, ratio):
    asked = sizes_of(pm.Mesh((64, 64, 64), (1.0,) * 3), pm.bspline(support))
    blocks = blocks_of(asked, 64**3, None, None)
    assert (blocks.cells, blocks.blocks, blocks.chunks) == ((4, 4, 32), (16, 16, 2), 4)
    assert blocks.nodes / 64**3 == pytest.approx(ratio, abs=0.05)
    flat = sizes_of(pm.Mesh((64, 64), (1.0,) * 2), asked.window)
    assert blocks_of(flat, 64, None, None).cells == (1, 16, 32)


@pytest.mark.parametrize("mesh", ["periodic", "line"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_memory_is_as_predicted(backend, mesh, dtype):
    mesh = MESHES[mesh]
    with plan_of(backend, mesh, dtype=dtype, components=2) as plan:
        plan.set_positions(cloud(mesh, 300))
        plan.spread(np.ones((2, 300), dtype))
        plan.interpolate(np.ones((2, *mesh.field_shape), dtype))
        held = sum(array.nbytes for name, array in plan.workspace.memory.arrays.items() if name.startswith("copies."))
        for method in (plan.methods.of("spread"), plan.methods.of("interpolate")):
            assert held == method.scratch_bytes(plan.methods.problem()) - node_order.order_bytes(plan.methods.problem())


@pytest.mark.parametrize(("mean", "cells"), [(0.05, 20000), (1.0, 20000), (30.0, 5000)])
def test_a_uniform_cloud_has_copies_for_all(mean, cells):
    counts = np.random.default_rng(9).poisson(mean, (50, cells)).max(axis=1)
    assert np.mean(counts <= fullest(mean, cells)) > 0.8
    assert fullest(mean, cells) <= counts.max() + 3 + 0.3 * mean
    assert fullest(0.0, cells) == 1


def test_a_crowd_in_a_small_mesh_has_bounded_memory():
    asked = sizes_of(pm.Mesh((1,), (1.0,)), pm.bspline(4))
    blocks = blocks_of(asked, 10**6, None, None)
    assert blocks.copies * blocks.places <= 16 * 10**6 + 10 * blocks.places


@pytest.mark.parametrize(
    ("chosen", "words"),
    [
        ({"block": (4, 4)}, r"block \(4, 4\) for a 3-D mesh"),
        ({"ranks": "atomic"}, "ranks='atomic' is not deterministic"),
    ],
)
def test_what_cannot_be_served_is_declined(backend, chosen, words):
    plan = pm.Plan(
        MESHES["periodic"], "cic", method=NAME, backend=backend.name, options={NAME: chosen}, deterministic=True
    )
    plan.set_positions(cloud(MESHES["periodic"], 5))
    with pytest.raises(pm.MethodNotSuitable, match=words):
        plan.spread(np.ones(5))


def test_interpolation_is_the_same_however_ranks_are_counted(backend):
    mesh = MESHES["mixed"]
    x, f = cloud(mesh, 200), np.random.default_rng(7).normal(size=mesh.field_shape)
    results = []
    for ranks in ("stable", "atomic"):
        with plan_of(backend, mesh, chosen={"ranks": ranks, "copies": 2}) as plan:
            plan.set_positions(x)
            results.append(plan.interpolate(f))
    np.testing.assert_array_equal(*results)


def test_both_directions_have_the_same_options():
    both = [m for methods in METHODS.values() for m in methods if m.name == NAME]
    assert len(both) == 2
    assert both[0].options is both[1].options


@pytest.mark.backends("cuda", "opencl")
@pytest.mark.parametrize("ranks", ["stable", "atomic"])
def test_particles_without_weight_are_nowhere(backend, ranks):
    mesh, rng = pm.Mesh((6, 5, 7), (1.0, 1.0, 1.0)), np.random.default_rng(7)
    options = {"domain_copies": {"ranks": ranks}}
    x, q = rng.random((300, 3)), rng.normal(size=300)
    with pm.Plan(mesh, "bspline4", method="domain_copies", dtype="float64", options=options) as plan:
        plan.set_positions(backend.array(x))
        plan.spread(backend.array(q))
        x[::3] = np.nan
        plan.set_positions(backend.array(x), check=False)
        field = backend.host(plan.spread(backend.array(q)))
    kept = ~np.isnan(x[:, 0])
    np.testing.assert_allclose(field, oracle.spread(mesh, pm.bspline(4), x[kept], q[kept]), atol=1e-13)
