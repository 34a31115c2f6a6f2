# SPDX-License-Identifier: BSD-3-Clause
"""Kernels give what the CPU gives, compile for CUDA, and take arrays of all kinds."""

import numpy as np
import pytest

from dem_cases import heap
from particlemesh.apps.dem import LinearSpring, Simulation
from particlemesh.backends import cuda
from ptx import without_nvrtc

SPRING = LinearSpring(stiffness=4e3, restitution=0.6, friction=0.3)


@pytest.mark.backends("opencl", "cuda")
@pytest.mark.parametrize(("dtype", "options"), [("float64", {}), ("float32", {"contact": SPRING})])
def test_kernels_equal_the_cpu(backend, dtype, options, request):
    if request.config.thins and dtype == "float32":
        pytest.skip("PoCL compiles slowly: float32 is for --thorough and GPUs")
    expected, pile = heap(dtype=dtype, **options), heap(dtype=dtype, backend=backend.name, **options)
    assert pile.backend == backend.name and pile.dtype == dtype
    for _ in range(3):
        for simulation in (expected, pile):
            simulation.run(25)
    tolerance = 1e-9 if dtype == "float64" else 2e-3
    for name in ("positions", "velocities", "spins"):
        result, exact = getattr(pile, name), getattr(expected, name)
        assert isinstance(result, np.ndarray) and result.dtype == dtype
        np.testing.assert_allclose(result, exact, rtol=0, atol=tolerance * abs(exact).max(), err_msg=name)
    if dtype == "float64":
        for result, exact in zip(pile.contacts, expected.contacts, strict=True):
            np.testing.assert_allclose(result, exact, rtol=0, atol=1e-6 * max(abs(exact).max(), 1))
    assert len(pile.contacts.i) > 50
    assert pile.energy.total == pytest.approx(expected.energy.total, rel=tolerance)


def test_arrays_of_a_device_come_back_as_such(backend):
    x = np.array([[0.0, 0.0, 0.0], [1.5, 0.0, 0.0], [5.0, 0.0, 0.0]])
    given = backend.array(x)
    three = Simulation(given, backend.array(np.array([1.0, 0.7, 1.0])), density=1.0, contact=SPRING)
    three.run(20)
    assert three.backend == backend.name
    for result in (three.positions, three.velocities, three.spins):
        assert type(result) is type(given)
        assert tuple(result.shape) == (3, 3)
    actual = backend.host(three.velocities)
    assert actual[0, 0] < 0 < actual[1, 0]
    assert (actual[2] == 0).all()
    np.testing.assert_array_equal(backend.host(given), x)


@pytest.mark.skipif(without_nvrtc() is not None, reason=f"no NVRTC: {without_nvrtc()}")
@pytest.mark.parametrize("hertz", [0, 1])
@pytest.mark.parametrize("double", [0, 1])
def test_the_kernels_compile_for_cuda(hertz, double):
    facts = {"REAL_IS_DOUBLE": double, "HERTZ": hertz, "IMAGES": hertz}
    cubin = cuda.compile_only("apps/dem/step.c", facts, 90)
    assert all(name in cubin for name in (b"begin", b"drift", b"forces", b"match", b"carry", b"unpack"))
