# SPDX-License-Identifier: BSD-3-Clause
"""Steps with dipoles by kernels: equal to the CPU's, without allocation and waits, in a CUDA graph."""

import dataclasses

import numpy as np
import pytest

from particlemesh.apps.pme import PME, DipoleResult
from pme_cases import TRICLINIC, close, random_charges
from quiet import quiet

COARSE = dict(cutoff=1.4, splitting=2.0, shape=(12, 15, 16), window="bspline5")
PAIRS = dict(exclusions=[(0, 1), (5, 7), (9, 3), (0, 2)], factors=[0.0, 0.5, 0.8333, 0.0])
NAMES = ("energy", "energies", "forces", "virial", "potentials", "fields", "torques")


def system(dtype="float64"):
    x, q = random_charges(50)
    mu = np.sin(np.arange(150.0)).reshape(50, 3) * 0.3
    return [a.astype(dtype) for a in (x, q, mu)]


@pytest.mark.backends("opencl", "cuda")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("pairs", [{}, PAIRS], ids=["all pairs", "excluded"])
def test_kernels_equal_the_cpu(backend, dtype, pairs):
    x, q, mu = system(dtype)
    if pairs:
        x[1] = x[0]  # an excluded pair may lie in one place
    expected = PME(TRICLINIC, **COARSE, **pairs, coulomb_constant=1.7)(x, q, dipoles=mu)
    pme = PME(TRICLINIC, **COARSE, **pairs, coulomb_constant=1.7, dtype=dtype, backend=backend.name)
    given = backend.array(x), backend.array(q)
    result = pme.reserve(50, dipoles=True)(*given, dipoles=backend.array(mu))
    assert isinstance(result, DipoleResult)
    tolerance = 2e-5 if dtype == "float32" else 1e-12
    close(result, expected, tolerance, backend.host)
    for name in NAMES:
        backend.library.clear(getattr(result, name))
    again = pme(*given, dipoles=backend.array(mu, "strided"), check=False, out=result)
    assert all(getattr(again, name) is getattr(result, name) for name in NAMES)
    close(result, expected, tolerance, backend.host)
    pme.check()
    less = pme(*given, dipoles=backend.array(mu), virial=False)
    close(less, dataclasses.replace(expected, virial=None), tolerance, backend.host)
    plain = PME(TRICLINIC, **COARSE, **pairs, coulomb_constant=1.7)(x, q)
    np.testing.assert_allclose(  # calls do not disturb each other
        backend.host(pme(*given).forces), plain.forces, rtol=0, atol=tolerance * abs(plain.forces).max()
    )


@pytest.mark.backends("opencl", "cuda")
def test_later_checks_name_the_particle(backend):
    x, q, mu = system()
    pme = PME(TRICLINIC, **COARSE, exclusions=[(2, 3)], factors=0.5, dtype="float64", backend=backend.name)
    bad = mu.copy()
    bad[[7, 11], 2] = np.nan
    twins, scaled = x.copy(), x.copy()
    twins[4], scaled[3] = twins[9], scaled[2]
    nan = np.where(np.arange(50) > 20, np.inf, q)
    for given, said in (
        ((x, q, bad), r"dipoles are not finite; the first is that of particle 7\."),
        ((x, nan, mu), r"charges are not finite; the first is that of particle 21\."),
        ((twins, q, mu), "on top of each other: 4 is"),
        ((scaled, q, mu), "on top of each other: 2 is"),
        ((x, q * 1e200, mu), "the energy is not finite"),
    ):
        arrays = [backend.array(a) for a in given]
        with pytest.raises(ValueError, match=said):
            pme(*arrays[:2], dipoles=arrays[2])
        pme(*arrays[:2], dipoles=arrays[2], check=False)
        with pytest.raises(ValueError, match=said):
            pme.check()
    moved = x.copy()
    moved[5] = np.nan
    pme(backend.array(moved), backend.array(q), dipoles=backend.array(mu), check=False)
    with pytest.raises(ValueError, match="5"):
        pme.check()
    result = pme(*(backend.array(a) for a in (x, q)), dipoles=backend.array(mu))
    close(result, PME(TRICLINIC, **COARSE, exclusions=[(2, 3)], factors=0.5)(x, q, dipoles=mu), 1e-12, backend.host)


@pytest.mark.backends("opencl", "cuda")
@pytest.mark.parametrize("virial", [True, False])
@pytest.mark.parametrize("pairs", [{}, PAIRS], ids=["all pairs", "excluded"])
def test_a_reserved_step_neither_allocates_nor_waits(backend, pairs, virial):
    x, q, mu = (backend.array(a) for a in system("float32"))
    pme = PME(TRICLINIC, **COARSE, **pairs, dtype="float32", backend=backend.name)
    pme.reserve(50, dipoles=True, virial=virial)
    memory = {name: array.size for name, array in pme._core._memory.items()}
    options = dict(dipoles=mu, virial=virial)
    out = pme(x, q, **options)
    pme(x, q, **options, check=False, out=out)  # results of an earlier call are the first dense ones
    assert {name: array.size for name, array in pme._core._memory.items()} == memory
    with quiet(backend):
        for _ in range(3):
            pme(x, q, **options, check=False, out=out)
    pme(x, q, **options, check=False, out=out)
    exact = PME(TRICLINIC, **COARSE, **pairs)(*system()[:2], dipoles=system()[2], virial=virial)
    close(out, exact, 2e-5, backend.host)


@pytest.mark.backends("cuda")
def test_a_cuda_graph_captures_a_step(backend):
    cupy = backend.cupy
    x, q, mu = system("float32")
    pme = PME(TRICLINIC, **COARSE, **PAIRS, dtype="float32", backend="cuda").reserve(50, dipoles=True)
    place, charges, dipoles = (cupy.asarray(a) for a in (x, q, mu))
    empty = cupy.empty
    out = DipoleResult(
        empty((), "f4"), empty(50, "f4"), empty((50, 3), "f4"), empty((3, 3), "f4"), empty(50, "f4"),
        empty((50, 3), "f4"), empty((50, 3), "f4"),
    )  # fmt: skip
    stream, pool = cupy.cuda.Stream(non_blocking=True), cupy.get_default_memory_pool()
    cupy.cuda.Device().synchronize()
    with stream:
        for _ in range(2):
            pme(place, charges, dipoles=dipoles, check=False, out=out)
        stream.synchronize()
        used = pool.used_bytes()
        stream.begin_capture()
        pme(place, charges, dipoles=dipoles, check=False, out=out)
        graph = stream.end_capture()
        assert pool.used_bytes() == used
        moved = x + np.sin(np.arange(150.0, dtype="f4")).reshape(50, 3) / 50
        place.set(moved, stream=stream)
        graph.launch(stream)
        stream.synchronize()
    close(out, PME(TRICLINIC, **COARSE, **PAIRS)(moved, q, dipoles=mu), 2e-5, lambda a: a.get())
    pme.check()
