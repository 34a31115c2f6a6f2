# SPDX-License-Identifier: BSD-3-Clause
"""group_mesh: groups of every size, entries of 64 bits, all particles in one group."""

import numpy as np
import pytest

import oracle
import particlemesh as pm
from particlemesh.backends import cuda, opencl
from particlemesh.spread import group_mesh
from ptx import ATOMIC, kernels_of, ptx, without_nvrtc

# Groups end within lines, an axis that wraps is shorter than the support, and one is open.
MESH = pm.Mesh((3, 7, 11), pm.Box((1.0, 1.1, 1.3), (0.1, 0.2, 0.3), (True, False, True)))
WINDOW = pm.bspline(4)
RNG = np.random.default_rng(21)
X = (0.01 + 0.98 * RNG.random((70, 3))) * MESH.box.lengths + MESH.box.origin
Q, V = RNG.normal(size=(3, 70)), RNG.normal(size=(70, 3))


def plan_of(backend, dtype="float64", **options):
    return pm.Plan(MESH, WINDOW, method="group_mesh", dtype=dtype, backend=backend, options={"group_mesh": options})


def close(came, wanted, tolerance=1e-13):
    np.testing.assert_allclose(came, wanted, atol=tolerance * max(1.0, np.abs(wanted).max()))


@pytest.mark.parametrize("size", [16, 32, 64, 128, 256])
def test_groups_of_every_size(backend, size):
    with plan_of(backend.name, group_size=size, warps=2) as plan:
        plan.set_positions(backend.array(X))
        close(backend.host(plan.spread(backend.array(Q))), oracle.spread(MESH, WINDOW, X, Q))
        close(backend.host(plan.spread_gradient(backend.array(V))), oracle.spread_gradient(MESH, WINDOW, X, V))


@pytest.mark.backends("opencl", "cuda")
def test_wide_entries_and_counts(backend, monkeypatch):
    """What particles beyond 2^32 / group_size, and entries beyond 2^31, take."""
    with plan_of(backend.name) as plan:
        plan.set_positions(backend.array(X))
        plan.spread(backend.array(Q))
        monkeypatch.setattr(group_mesh, "_WIDE_ENTRY", 1000)
        monkeypatch.setattr(group_mesh.GroupMesh, "narrow", 1000)
        for x in (X, X[::-1]):  # the plan has kernels for narrow ones
            plan.set_positions(backend.array(x))
            close(backend.host(plan.spread(backend.array(Q))), oracle.spread(MESH, WINDOW, x, Q))
        close(backend.host(plan.spread_gradient(backend.array(V))), oracle.spread_gradient(MESH, WINDOW, X[::-1], V))
        entries = [array for name, array in plan.workspace.memory.arrays.items() if "entries" in name]
        assert {array.dtype for array in entries} == {np.dtype(np.uint64)}


def test_all_particles_on_one_node(backend):
    count = 2500
    x, q = np.tile(X[:1], (count, 1)), np.ones(count)
    with plan_of(backend.name) as plan:
        plan.set_positions(backend.array(x))
        came = backend.host(plan.spread(backend.array(q)))
        close(came, count * oracle.spread(MESH, WINDOW, X[:1], q[:1]), 1e-12)
        plan.set_positions(backend.array(x[:0]))
        assert not backend.host(plan.spread(backend.array(q[:0]))).any()


@pytest.mark.opencl
@pytest.mark.skipif(opencl.available() is not None, reason="no OpenCL device")
@pytest.mark.skipif(without_nvrtc() is not None, reason=f"no NVRTC: {without_nvrtc()}")
@pytest.mark.parametrize("warps", [1, 4])
def test_sums_are_made_in_local_memory(monkeypatch, warps):
    def call():
        with plan_of("opencl", "float32") as plan:
            plan.set_positions(X)
            plan.spread(Q.astype("float32"))

    assert cuda.CudaBackend.group_size == 128
    for file, name, defines in kernels_of(monkeypatch, call):
        if name == "group_apply":
            text = ptx(file, name, {**dict(defines), "TEAM": 32 * warps})
            atomics = [line for line in text.splitlines() if ATOMIC.search(line)]
            assert atomics
            assert all(".shared" in line for line in atomics)
