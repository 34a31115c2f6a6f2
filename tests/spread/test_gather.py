# SPDX-License-Identifier: BSD-3-Clause
"""Nodes that gather: one particle a cell and a list of the others, or lists of all."""

import numpy as np
import pytest

import oracle
import particlemesh as pm
from particlemesh.backends import opencl
from ptx import ATOMIC, kernels_of, ptx, without_nvrtc

WINDOW = pm.bspline(4)
METHODS = ("gather", "gather_list")
# Periodic and smaller than the support, open at the ends, with ghosts, one axis only, skewed.
MESHES = {
    "small": pm.Mesh((2, 3, 1), (1.0, 1.5, 2.0)),
    "open": pm.Mesh((6, 5, 3), pm.Box((1.0, 1.5, 2.0), periodic=(False, True, False)), offset=0.5),
    "ghosts": pm.Mesh((4, 5), (1.0, 1.5), ghosts=((2, 3), (3, 2))),
    "line": pm.Mesh((9,), (2.0,)),
    "skewed": pm.Mesh((5, 4, 6), pm.Box(np.array([[2.0, 0, 0], [0.3, 1.5, 0], [-0.4, 0.5, 2.5]]))),
}
CUBE = pm.Mesh((4, 5, 6), (4.0, 5.0, 6.0))


def everywhere(mesh, count, seed=1):
    return np.random.default_rng(seed).uniform(0.001, 0.999, (count, mesh.ndim)) @ np.asarray(mesh.box.matrix)


def near(came, wanted):
    np.testing.assert_allclose(came, wanted, rtol=0, atol=1e-13 * max(np.abs(wanted).max(initial=0), 1))


def listed(plan, device):
    """How many particles have no cell of their own."""
    return int(device.host(plan.workspace.scratch("gather.listed", (1,), np.uint32))[0])


@pytest.mark.backends("opencl", "cuda")
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", MESHES)
def test_awkward_meshes_equal_the_oracle(backend, method, name):
    mesh = MESHES[name]
    x = everywhere(mesh, 70)
    rng = np.random.default_rng(2)
    q, v = rng.normal(size=(2, 70)), rng.normal(size=(2, 70, mesh.ndim))
    with pm.Plan(mesh, WINDOW, method=method, components=2) as plan:
        plan.set_positions(backend.array(x))
        near(backend.host(plan.spread(backend.array(q))), oracle.spread(mesh, WINDOW, x, q))
        wanted = oracle.spread_gradient(mesh, WINDOW, x, v)
        near(backend.host(plan.spread_gradient(backend.array(v))), wanted)


def one_a_cell():
    return np.stack(np.meshgrid(*(np.arange(n) + 0.25 for n in CUBE.shape), indexing="ij"), -1).reshape(-1, 3)


@pytest.mark.backends("opencl", "cuda")
@pytest.mark.parametrize(
    ("x", "left"),
    [(one_a_cell(), 0), (one_a_cell()[::7], 0), (np.full((75, 3), 2.6), 74), (np.tile(one_a_cell(), (3, 1)), 240)],
    ids=["one in every cell", "few", "all in one cell", "three in every cell"],
)
def test_what_finds_its_cell_taken_is_listed(backend, x, left):
    q = np.random.default_rng(3).normal(size=len(x))
    with pm.Plan(CUBE, WINDOW, method="gather") as plan:
        plan.set_positions(backend.array(x))
        near(backend.host(plan.spread(backend.array(q))), oracle.spread(CUBE, WINDOW, x, q))
        assert listed(plan, backend) == left


@pytest.mark.backends("opencl", "cuda")
def test_particles_without_weight_are_nowhere(backend):
    mesh = MESHES["open"]
    x = everywhere(mesh, 40)
    q = np.random.default_rng(4).normal(size=40)
    wanted = oracle.spread(mesh, WINDOW, x[2:], q[2:])
    x[0], x[1] = np.nan, -7.0
    for method in METHODS:
        with pm.Plan(mesh, WINDOW, method=method) as plan:
            plan.set_positions(backend.array(x), check=False)
            near(backend.host(plan.spread(backend.array(q))), wanted)


@pytest.mark.backends("opencl", "cuda")
@pytest.mark.parametrize("method", METHODS)
def test_a_placement_serves_many_values_and_goes_with_its_positions(backend, method, monkeypatch):
    rng = np.random.default_rng(5)
    with pm.Plan(CUBE, WINDOW, method=method) as plan:
        for count in (90, 60):
            x = everywhere(CUBE, count, seed=count)
            plan.set_positions(backend.array(x))
            plan.spread(backend.array(np.zeros(count)))
            chosen = plan._method("spread")
            with monkeypatch.context() as patch:
                patch.setattr(chosen, "prepare", None)  # a second preparation would fail
                for _ in range(2):
                    q = rng.normal(size=count)
                    near(backend.host(plan.spread(backend.array(q))), oracle.spread(CUBE, WINDOW, x, q))


@pytest.mark.backends("opencl", "cuda")
def test_lists_give_the_same_bits_every_time(backend):
    x = np.concatenate([everywhere(CUBE, 300).astype(np.float32), np.full((40, 3), 1.25, np.float32)])
    q = np.random.default_rng(6).normal(size=340).astype(np.float32)
    fields = []
    for _ in range(5):
        with pm.Plan(CUBE, WINDOW, method="gather_list", deterministic=True) as plan:
            plan.set_positions(backend.array(x))
            fields.append(backend.host(plan.spread(backend.array(q))))
    for field in fields[1:]:
        np.testing.assert_array_equal(field, fields[0])
    with pytest.raises(pm.MethodNotSuitable, match="not deterministic"):
        with pm.Plan(CUBE, WINDOW, method="gather", deterministic=True) as plan:
            plan.set_positions(backend.array(x))
            plan.spread(backend.array(q))


@pytest.mark.opencl
@pytest.mark.skipif(opencl.available() is not None, reason="no OpenCL device")
@pytest.mark.skipif(without_nvrtc() is not None, reason=f"no NVRTC: {without_nvrtc()}")
def test_nodes_gather_without_atomics(monkeypatch):
    def spread():
        for method in METHODS:
            with pm.Plan(CUBE, WINDOW, method=method, backend="opencl") as plan:
                plan.set_positions(everywhere(CUBE, 20))
                plan.spread(np.ones(20))
                plan.spread_gradient(np.ones((20, 3)))

    atomic = {}
    for file, name, defines in kernels_of(monkeypatch, spread):
        if file.startswith("spread/"):
            atomic.setdefault(name, set()).add(bool(ATOMIC.search(ptx(file, name, defines))))
    assert atomic.pop("gather_place") == {True}  # the test sees atomics where there are some
    assert atomic.pop("spread_particle") == {True}
    assert set(atomic) == {"gather_fractions", "gather_values", "gather_nodes", "permute_values", "gather_runs"}
    assert all(found == {False} for found in atomic.values())
