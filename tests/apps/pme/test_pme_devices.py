# SPDX-License-Identifier: BSD-3-Clause
"""Kernels equal the CPU, compile for CUDA, and are captured; arrays of all kinds."""

import numpy as np
import pytest

from particlemesh.apps.pme import PME, Result
from particlemesh.apps.pme.direct import pair_function
from particlemesh.apps.pme.split import Gaussian, polynomials
from particlemesh.backends import cuda
from pme_cases import TRICLINIC, random_charges
from ptx import without_nvrtc

COARSE = dict(cutoff=1.4, splitting=2.0, shape=(12, 15, 16), window="bspline5")
OPTIONS = dict(COARSE, exclusions=[(0, 1), (5, 7), (9, 3), (0, 2)], factors=[0.0, 0.5, 0.8333, 0.0])
NAMES = ("energy", "energies", "forces", "virial")


def sets_of_charges(dtype):
    x, q = random_charges(50)
    return x.astype(dtype), np.stack([q, np.sin(np.arange(50.0))]).astype(dtype)


@pytest.mark.backends("opencl", "cuda")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_kernels_equal_the_cpu(backend, dtype):
    x, q = sets_of_charges(dtype)
    expected = PME(TRICLINIC, **OPTIONS)(x, q)
    pme = PME(TRICLINIC, **OPTIONS, dtype=dtype, backend=backend.name).reserve(50, 2)
    given = backend.array(x), backend.array(q)
    result = pme(*given)
    tolerance = 3e-6 if dtype == "float32" else 1e-12
    for name in NAMES:
        actual, exact = backend.host(getattr(result, name)), getattr(expected, name)
        assert actual.dtype == exact.dtype
        np.testing.assert_allclose(actual, exact, rtol=0, atol=tolerance * abs(exact).max(), err_msg=name)
    again = pme(*given, check=False, out=result)
    assert all(getattr(again, name) is getattr(result, name) for name in NAMES)
    pme.check()
    np.testing.assert_array_equal(backend.host(again.forces).shape, (2, 50, 3))
    x[1] = x[30]
    with pytest.raises(ValueError, match="on top of each other: 1 is"):
        pme(backend.array(x), given[1])
    pme(backend.array(x), given[1], check=False)
    with pytest.raises(ValueError, match="on top of each other"):
        pme.check()
    with pytest.raises(ValueError, match="skin is for the CPU"):
        PME(TRICLINIC, **COARSE, skin=0.1, backend=backend.name)(x, q)


@pytest.mark.backends("cuda")
@pytest.mark.parametrize("virial", [False, True])
def test_a_cuda_graph_captures_a_step(backend, virial):
    cupy = backend.cupy
    x, q = sets_of_charges("float32")
    pme = PME(TRICLINIC, **OPTIONS, dtype="float32", backend="cuda").reserve(50, 1, virial=virial)
    place, charges = cupy.asarray(x), cupy.asarray(q[0])
    out = Result(cupy.empty((), "f4"), cupy.empty(50, "f4"), cupy.empty((50, 3), "f4"), cupy.empty((3, 3), "f4"))
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        for _ in range(2):
            pme(place, charges, virial=virial, check=False, out=out)
        stream.synchronize()
        stream.begin_capture()
        pme(place, charges, virial=virial, check=False, out=out)
        graph = stream.end_capture()
        moved = x + np.sin(np.arange(150.0, dtype="f4")).reshape(50, 3) / 20
        place[...] = cupy.asarray(moved)
        graph.launch(stream)
        stream.synchronize()
    expected = PME(TRICLINIC, **OPTIONS)(moved, q[0])
    for name in NAMES[: 3 + virial]:
        exact = getattr(expected, name)
        np.testing.assert_allclose(getattr(out, name).get(), exact, rtol=0, atol=1e-5 * np.abs(exact).max())
    pme.check()


def test_tensors_and_host_arrays_of_a_named_backend():
    x, q = sets_of_charges("float64")
    expected = PME(TRICLINIC, **OPTIONS)(x, q)
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    result = PME(TRICLINIC, **OPTIONS)(torch.as_tensor(x), torch.as_tensor(q))
    for name in NAMES:
        assert isinstance(getattr(result, name), torch.Tensor)
        np.testing.assert_allclose(getattr(result, name).numpy(), getattr(expected, name), rtol=0, atol=1e-12)


@pytest.mark.opencl
def test_host_arrays_go_to_a_named_backend_and_back():
    from particlemesh import backends

    if backends.module("opencl").available() is not None:
        pytest.skip("OpenCL does not work here")
    x, q = sets_of_charges("float64")
    expected, result = PME(TRICLINIC, **OPTIONS)(x, q), PME(TRICLINIC, **OPTIONS, backend="opencl")(x, q)
    for name in NAMES:
        assert isinstance(getattr(result, name), np.ndarray)
        np.testing.assert_allclose(getattr(result, name), getattr(expected, name), rtol=0, atol=1e-11)


@pytest.mark.turns(2)
@pytest.mark.skipif(without_nvrtc() is not None, reason=f"no NVRTC: {without_nvrtc()}")
@pytest.mark.parametrize("double", [0, 1])
@pytest.mark.parametrize("width", [4, 10, 13])
def test_kernels_compile_for_cuda(double, width):
    for file, names in (
        ("exclusions", ("exclusions", "exclusions_of_systems")), ("assemble", ("assemble", "totals")),
        ("lennard_jones", ("coefficients", "without_pairs")), ("dipoles", ("pack", "without_pairs", "assemble")),
        ("batch", ("assemble", "totals_of_systems")),
    ):  # fmt: skip
        cubin = cuda.compile_only(
            f"apps/pme/{file}.c",
            {
                "REAL_IS_DOUBLE": int(double or file == "batch"), "COORDINATE_IS_DOUBLE": double, "WIDTH": width,
                "WEIGHTED": int(width == 4), "VIRIAL": int(width > 4),
            },
            90,
        )  # fmt: skip
        assert all(name.encode() in cubin for name in names)


@pytest.mark.parametrize(("single", "gpu"), [(False, False), (True, False), (True, True)])
def test_the_smooth_part_is_exact_to_rounding(single, gpu):
    from scipy.special import erf

    for product in (1.5, 3.0, 5.0):
        smooth = polynomials(Gaussian(2.0), product / 2, single, gpu)
        r = np.linspace(0.2, product / 2, 2001)
        value, slope = smooth(r**2)
        exact = erf(2 * r) / r
        derivative = (4 / np.sqrt(np.pi) * np.exp(-4 * r**2) - exact) / (2 * r**2)
        tolerance = 3e-7 if single else 1e-12
        assert abs(value - exact).max() <= tolerance
        assert abs(slope - derivative).max() <= 10 * tolerance
        assert smooth(0.0)[0] == pytest.approx(4 / np.sqrt(np.pi), abs=tolerance)
        if single and gpu and product < 5:
            assert len(smooth.coefficients) == 1
        assert pair_function(smooth, 2, True).results == 21
