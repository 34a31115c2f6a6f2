# SPDX-License-Identifier: BSD-3-Clause
"""The matrix in two factors: what it holds, how lanes share it, that nothing is added atomically."""

import numpy as np
import pytest

import oracle
import particlemesh as pm
import ptx
from particlemesh.orders import node_order
from particlemesh.spread import line_mesh

MESHES = {
    "odd": pm.Mesh((5, 7, 9), (1.0, 2.0, 3.0)),
    "open": pm.Mesh((5, 4, 6), pm.Box((1.0, 2.0, 3.0), periodic=False), offset=0.5),
    "longer than a tile": pm.Mesh((3, 150), (1.0, 2.0)),
    "small": pm.Mesh((3, 2), (1.0, 2.0)),
}
pytestmark = pytest.mark.backends("cuda", "opencl")


def problem(backend, mesh, count=60, **options):
    rng = np.random.default_rng(count)
    x = mesh.box.origin + rng.random((count, mesh.ndim)) * mesh.box.lengths
    x[: count // 3] = x[0]
    plan = pm.Plan(mesh, "bspline4", method="line_mesh", options={"line_mesh": options})
    plan.set_positions(backend.array(x))
    return plan, x, rng.normal(size=count), rng.normal(size=(count, mesh.ndim))


@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("wide", [False, True])
def test_entries_in_32_and_64_bits_give_the_oracle(backend, mesh, wide, monkeypatch):
    if wide:
        monkeypatch.setattr(line_mesh.LineMesh, "narrow", 10)
    mesh = MESHES[mesh]
    plan, x, q, v = problem(backend, mesh)
    field = backend.host(plan.spread(backend.array(q)))
    assert plan.workspace.memory.arrays["line_mesh.start"].dtype == (np.uint64 if wide else np.uint32)
    np.testing.assert_allclose(field, oracle.spread(mesh, pm.bspline(4), x, q), atol=1e-12)
    field = backend.host(plan.spread_gradient(backend.array(v)))
    np.testing.assert_allclose(field, oracle.spread_gradient(mesh, pm.bspline(4), x, v), atol=1e-11)


@pytest.mark.parametrize("lanes", [1, 4, 32])
def test_lanes_change_nothing_but_rounding(backend, lanes):
    mesh = MESHES["odd"]
    plan, x, q, _ = problem(backend, mesh, lanes_per_cell=lanes)
    field = backend.host(plan.spread(backend.array(q)))
    np.testing.assert_allclose(field, oracle.spread(mesh, pm.bspline(4), x, q), atol=1e-12)


def test_entries_are_products_of_the_weights_across_the_line(backend):
    mesh = MESHES["odd"]
    plan, x, q, _ = problem(backend, mesh)
    plan.spread(backend.array(q))
    held = plan.workspace.memory.arrays
    start, place, weight = (plan.backend.download(held[f"line_mesh.{n}"]) for n in ("start", "place", "weight"))
    order = plan.backend.download(node_order.node_order(plan.workspace).order)
    nx, ny, nz = mesh.shape
    assert start[nx * ny * nz] == len(q) * 16
    dense = np.zeros((nx, ny, len(q)))
    for line in np.ndindex(nx, ny):
        first = (line[0] * ny + line[1]) * nz
        for cell in range(nz):
            for e in range(start[first + cell], start[first + cell + 1]):
                dense[line][order[place[e]]] += weight[e]
    # The weights along the line sum to one: what is left is the window across it.
    for p in range(len(q)):
        one = np.zeros(len(q))
        one[p] = 1.0
        across = oracle.spread(mesh, pm.bspline(4), x, one).sum(axis=2)
        np.testing.assert_allclose(dense[:, :, p], across, atol=1e-13)


@pytest.mark.backends("opencl")
def test_nothing_is_added_atomically(backend, monkeypatch):
    def spread():
        plan, _, q, v = problem(backend, MESHES["odd"])
        plan.spread(backend.array(q))
        plan.spread_gradient(backend.array(v))

    kernels = ptx.kernels_of(monkeypatch, spread)
    mine = [k for k in kernels if k[0] == "spread/line_mesh.c"]
    assert {name for _, name, _ in mine} == {"line_records", "line_spread"}
    for file, name, defines in mine:
        assert not ptx.ATOMIC.search(ptx.ptx(file, name, defines)), name


def test_more_particles_than_32_bits_is_declined(backend):
    from particlemesh.methods.contract import Problem

    huge = Problem(MESHES["odd"], pm.bspline(4), np.dtype("float32"), 1, 1, 2**31, False, backend.library)
    assert line_mesh.LineMesh.declines(huge) == "2**31 particles or more"
    assert line_mesh.LineMesh.scratch_bytes(huge) > 2**31 * 16 * 8
