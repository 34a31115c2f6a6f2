# SPDX-License-Identifier: BSD-3-Clause
"""Excluded pairs of dipoles at any distance: what they do not have costs the other fields no digits."""

import itertools

import numpy as np
import pytest

from particlemesh.apps.pme import PME, InducedDipoles, close
from particlemesh.apps.pme.exclusions import Exclusions

CUTOFF, LENGTH = 1.2, 4.0
SPLITS = {"gaussian": dict(splitting=2.8), "prolate": dict(bandwidth=12.0)}


def system(distance):
    """Moments on a loose lattice; 0 and 1 are so near each other, as numbers of float32."""
    rng = np.random.default_rng(3)
    x = np.stack(np.meshgrid(*[np.arange(4)] * 3, indexing="ij"), -1).reshape(-1, 3) + 0.25 + 0.3 * rng.random((64, 3))
    x[:4] = np.round(x[:4] * 2**10) / 2**10
    x[1] = x[0] + distance * np.array([0.6, 0.64, 0.48])
    if 0 < distance < 1e-7:
        x[1] = np.nextafter(x[0].astype("f4"), np.float32(LENGTH))
    return x.astype("f4").astype("f8"), rng.normal(size=64), 0.3 * rng.normal(size=(64, 3))


def step(backend, dtype, split, x, q, m, pairs=((0, 1),), factors=0.0, tolerance=1e-10):
    """Return the results with permanent and with induced dipoles, as arrays of float64."""
    pme = PME(
        (LENGTH,) * 3, cutoff=CUTOFF, shape=24, window="bspline6", exclusions=pairs, factors=factors, **SPLITS[split]
    )
    given = [backend.array(a.astype(dtype)) for a in (x, q, m)]
    plain = pme(*given[:2], dipoles=given[2])
    induced = InducedDipoles(pme, tolerance, thole=0.39)(*given[:2], 0.03, dipoles=given[2])
    names = ("energies", "forces", "virial", "potentials", "fields")
    results = {f"{name} {n}": getattr(r, name) for n, r in enumerate((plain, induced)) for name in names}
    return {n: np.asarray(backend.host(a), np.float64) for n, a in (results | {"induced": induced.induced}).items()}


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("distance", [0.0, 1e-8, 3e-7, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 0.3, 0.37, 0.9, 1.19])
@pytest.mark.backends("cpu", "opencl", "cuda")
@pytest.mark.turns(9)
def test_float32_has_the_digits_of_float64(backend, distance, split):
    given = system(distance)
    single = step(backend, "float32", split, *given, tolerance=1e-6)
    double = step(backend, "float64", split, *given)
    for name, expected in double.items():
        size = np.sqrt((expected**2).mean()) if expected.ndim > 1 and "virial" not in name else abs(expected).max()
        assert abs(single[name] - expected).max() <= 1.5e-5 * size, name
        if "fields" in name or name == "induced":
            assert abs(single[name] - expected).max() <= 6e-6 * size, name


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.backends("cpu", "opencl")
def test_results_do_not_depend_on_what_is_close(backend, split, monkeypatch):
    """Which sum leaves pairs out, all of them, some or none, or parts of them, is not seen."""
    x, q, m = system(0.2)
    pairs = np.array(list(itertools.combinations(range(20), 2)))
    factors = np.linspace(-0.5, 1.0, len(pairs))
    results = []
    for far in (1e-6, 0.3, 0.7, 1.0):
        monkeypatch.setattr(close, "FAR", far)
        results.append(step(backend, "float64", split, x, q, m, pairs, factors))
    for result, name in itertools.product(results[1:], results[0]):
        size = abs(results[0][name]).max()
        np.testing.assert_allclose(result[name], results[0][name], rtol=0, atol=1e-9 * size, err_msg=name)


def test_dipoles_in_one_place_are_the_limit_of_near_ones():
    x, q, m = system(0.0)
    for split in SPLITS:
        gap = 1e-5 * np.eye(64)[1][:, None] * np.ones(3)
        before, at, after = (step(_Host, "float64", split, x + sign * gap, q, m) for sign in (-1, 0, 1))
        for name in before:
            mean = (before[name] + after[name]) / 2
            np.testing.assert_allclose(at[name], mean, rtol=0, atol=1e-7 * abs(mean).max(), err_msg=name)


class _Host:
    """Arrays of NumPy."""

    array = host = staticmethod(np.asarray)


def test_tables_find_partners_of_large_numbers():
    pairs, factors = [[3, 9000], [4095, 4096], [9000, 8191], [3, 5]], [0.0, 0.25, 0.5, 2.0]
    parameters = (7.0, 1.0, 0.5, 4.0, 0.0, 6.0, *close._table(Exclusions(pairs, factors), 9001, 6))
    p = np.array(parameters, np.float32)
    whole = close.compiled(close.NEIGHBOURS, 1)
    for (i, j), factor in zip(pairs, factors, strict=True):
        for first, second in ((i, j), (j, i)):
            assert whole(np.float32(0.1), first, second, p) == factor
            assert whole(np.float32(0.375), first, second, p) == 1 + (factor - 1) / 2  # half of it
            assert whole(np.float32(0.5), first, second, p) == 1
    assert whole(np.float32(0.1), 9000, 9, p) == whole(np.float32(0.1), 0, 3, p) == 1
