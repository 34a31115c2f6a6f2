# SPDX-License-Identifier: BSD-3-Clause
"""Kernels equal the CPU, compile for CUDA, and are captured; arrays of all kinds."""

import numpy as np
import pytest

from particlemesh.apps.pme import PME, close, dipoles, multipoles
from particlemesh.apps.pme.direct import pair_function
from particlemesh.apps.pme.split import Gaussian, polynomials, with_derivatives
from particlemesh.backends import cuda
from particlemesh.grid.queries import sums
from pme_cases import TRICLINIC, random_charges
from ptx import without_nvrtc

COARSE = dict(cutoff=1.4, splitting=2.0, shape=(12, 15, 16), window="bspline5")
OPTIONS = dict(COARSE, exclusions=[(0, 1), (5, 7), (9, 3), (0, 2)], factors=[0.0, 0.5, 0.8333, 0.0])
NAMES = ("energy", "energies", "forces", "virial")


def sets_of_charges(dtype):
    x, q = random_charges(50)
    return x.astype(dtype), np.stack([q, np.sin(np.arange(50.0))]).astype(dtype)


@pytest.mark.backends("opencl", "cuda")
def test_later_checks_name_the_particle(backend):
    x, q = sets_of_charges("float64")
    pme = PME(TRICLINIC, **OPTIONS, dtype="float64", backend=backend.name)
    x[1] = x[30]
    given = backend.array(x), backend.array(q)
    with pytest.raises(ValueError, match="on top of each other: 1 is"):
        pme(*given)
    pme(*given, check=False)
    with pytest.raises(ValueError, match="on top of each other"):
        pme.check()
    with pytest.raises(ValueError, match="skin is for the CPU"):
        PME(TRICLINIC, **COARSE, skin=0.1, backend=backend.name)(x, q)


def test_tensors_give_tensors():
    x, q = sets_of_charges("float64")
    expected = PME(TRICLINIC, **OPTIONS)(x, q)
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    result = PME(TRICLINIC, **OPTIONS)(torch.as_tensor(x), torch.as_tensor(q))
    for name in NAMES:
        assert isinstance(getattr(result, name), torch.Tensor)
        np.testing.assert_allclose(getattr(result, name).numpy(), getattr(expected, name), rtol=0, atol=1e-12)


@pytest.mark.backends("opencl", "cuda")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_charges_with_many_neighbours_are_summed_by_clusters(backend, monkeypatch, dtype):
    searches, plain = [], sums.members_of
    monkeypatch.setattr(sums, "members_of", lambda *a: searches.append(plain(*a)) or 4)
    rng, side = np.random.default_rng(4), 8
    lattice = np.stack(np.meshgrid(*[np.arange(side)] * 3), -1).reshape(-1, 3)
    x = ((lattice + rng.uniform(0.2, 0.8, lattice.shape)) * 3 / side).astype(dtype)
    q = rng.standard_normal(len(x)).astype(dtype)
    options = dict(cutoff=1.4, splitting=2.0, shape=16, window="bspline5")
    expected = PME((3.0, 3.0, 3.0), **options)(x, q)
    pme = PME((3.0, 3.0, 3.0), **options, backend=backend.name)
    result = pme(x, q)
    assert len(searches) == 1 and pme._core.grid.shape[2] > 2 * pme._core.grid.shape[1]
    for name in NAMES:
        right, size = getattr(expected, name), np.abs(getattr(expected, name)).max()
        np.testing.assert_allclose(
            getattr(result, name), right, rtol=0, atol=(1e-5 if dtype == "float32" else 1e-12) * size
        )


@pytest.mark.turns(2)
@pytest.mark.skipif(without_nvrtc() is not None, reason=f"no NVRTC: {without_nvrtc()}")
@pytest.mark.parametrize("double", [0, 1])
@pytest.mark.parametrize("width", [4, 10, 13])
def test_kernels_compile_for_cuda(double, width):
    for file, names in (
        ("assemble", ("assemble", "totals")), ("dispersion", ("coefficients", "without_pairs")),
        ("dipoles", ("pack", "assemble")), ("multipoles", ("pack", "assemble")),
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


@pytest.mark.turns(2)
@pytest.mark.skipif(without_nvrtc() is not None, reason=f"no NVRTC: {without_nvrtc()}")
@pytest.mark.parametrize("of", [dipoles, multipoles])
def test_pair_functions_of_named_particles_compile_for_cuda(of):
    smooth, numbers = with_derivatives(Gaussian(3.0), 1.0, True, 5), close.numbers(0.3, 50)
    function = close.by_names(of.pair_function(smooth, kind=close.NEIGHBOURS, numbers=numbers))
    sizes = dict(REAL_IS_DOUBLE=0, VALUES=function.values, RESULTS=function.results)
    assert b"listed" in cuda.compile_only("apps/pme/exclusions.c", sizes, 90, {"pair function": function.text})


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
