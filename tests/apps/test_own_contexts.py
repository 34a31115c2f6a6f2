# SPDX-License-Identifier: BSD-3-Clause
"""Arrays of a PyOpenCL context that the user has made go into every class, and come back in this context."""

import numpy as np
import pytest

import particlemesh as pm
from particlemesh import backends
from particlemesh.apps import brownian, nufft, pme
from particlemesh.fourier import Solver

BOX, MESH, COUNT = (1.0, 1.0, 1.0), pm.Mesh((12, 12, 12), (1.0, 1.0, 1.0)), 60
COARSE = dict(cutoff=0.4, splitting=6.0, shape=12, window="bspline4")


def transformed(x, q, v):
    plan = nufft.Plan(1, (6, 6, 6))
    plan.setpts(q, q, q)
    return plan.execute(q.astype("c16"))


CALLS = {
    "plan": lambda x, q, v: pm.Plan(MESH, "bspline4").set_positions(x).spread(q),
    "grid": lambda x, q, v: pm.UniformGrid(BOX, cell_size=0.2).build(x).count(0.2),
    "list": lambda x, q, v: pm.neighbour_list("d", x, BOX, 0.2),
    "solver": lambda x, q, v: Solver(MESH, "bspline4").set_positions(x).potential(q),
    "nufft": transformed,
    "PME": lambda x, q, v: pme.PME(BOX, **COARSE)(x, q).forces,
    "PME with dipoles": lambda x, q, v: pme.PME(BOX, **COARSE)(x, q, dipoles=v).torques,
    "Dispersion": lambda x, q, v: pme.Dispersion(BOX, **COARSE)(x, q).forces,
    "PMEBatch": lambda x, q, v: pme.PMEBatch(BOX, systems=1, **COARSE)(x, q, np.zeros(COUNT, int)).forces,
    "ChargeEquilibration": lambda x, q, v: pme.ChargeEquilibration(pme.PME(BOX, **COARSE))(x, q, 80.0).charges,
    "RPY": lambda x, q, v: brownian.RPY(BOX, 0.02, accuracy=1e-2).set_positions(x).velocity(v),
}


@pytest.mark.opencl
@pytest.mark.skipif(backends.module("opencl").available() is not None, reason="no OpenCL device")
@pytest.mark.parametrize("name", CALLS)
def test_results_are_those_of_the_cpu_in_the_context_of_the_arrays(name):
    import pyopencl
    import pyopencl.array

    random = np.random.default_rng(1)
    given = random.random((COUNT, 3)), random.normal(size=COUNT), random.normal(size=(COUNT, 3))
    context = pyopencl.Context([backends.current("opencl").queue.device])
    queue = pyopencl.CommandQueue(context)
    result = CALLS[name](*(pyopencl.array.to_device(queue, array) for array in given))
    assert result.context == context
    mine, right = result.get(), CALLS[name](*given)
    if name == "list":  # pairs come in any order
        mine, right = np.sort(mine), np.sort(right)
    np.testing.assert_allclose(mine, right, rtol=1e-6, atol=1e-9 * abs(right).max())
