# SPDX-License-Identifier: BSD-3-Clause
"""Excluded neighbours at the distance of bonds: their huge interaction costs the other forces no digits."""

import numpy as np
import pytest

from particlemesh.apps.pme import Dispersion

LENGTH, SIGMA, EPSILON = 5.0, 0.5, 1.3
GIVEN = dict(cutoff=1.2, splitting=2.5, shape=(24, 24, 24), window="bspline6")
PAIRS, FACTORS = [[0, 1], [5, 6], [6, 7], [20, 30]], [0.0, 0.0, 0.5, 0.25]


def molecules(bond):
    """Particles on a loose lattice; a bond from 0 to 1 across a face, a chain 5, 6, 7, and the distant pair 20, 30."""
    rng = np.random.default_rng(8)
    lattice = np.stack(np.meshgrid(*[np.arange(4)] * 3), -1).reshape(-1, 3)[:40]
    x = (lattice + 0.25 * rng.random((40, 3))) * LENGTH / 4
    x[0] = 0.0, 1.0, 2.0
    x[1] = x[0] - np.array([0.6, 0.64, 0.48]) * bond
    x[6], x[7] = x[5] + [0, bond, 0], x[5] + [0.9 * bond, 1.1 * bond, 0]
    # Positions of float32 without a rounded distance across the face.
    x = np.round(x * 2**14) / 2**14 % LENGTH
    return x, np.full(40, SIGMA), np.full(40, EPSILON)


def step(backend, dtype, x, *numbers, pairs=PAIRS, factors=FACTORS):
    arrays = [backend.array(a.astype(dtype)) for a in (x, *numbers)]
    names = ("sigma", "epsilon") if len(numbers) == 2 else ("coefficients",)
    call = Dispersion((LENGTH,) * 3, **GIVEN)
    result = call(arrays[0], **dict(zip(names, arrays[1:], strict=True)), exclusions=pairs, factors=factors)
    return [backend.host(a).astype(np.float64) for a in (result.energies, result.forces, result.virial)]


@pytest.mark.parametrize(("wells", "bond"), [(True, 0.35), (True, 0.15), (True, 0.02), (False, 0.18), (False, 0.02)])
def test_float32_has_the_digits_of_float64(backend, wells, bond):
    x, sigma, epsilon = molecules(bond)
    numbers = (sigma, epsilon) if wells else (np.linspace(0.5, 1.5, 40),)
    pairs = [[0, 1], [5, 6], [6, 7], [5, 7], [20, 30]]
    factors = [0.0, 0.0, 0.0, 0.0, 0.25]
    single, double = (
        step(backend, dtype, x, *numbers, pairs=pairs, factors=factors) for dtype in ("float32", "float64")
    )
    for a, b in zip(single, double, strict=True):
        assert abs(a - b).max() < 3e-5 * abs(b).max()
    # The bond is gone: without it the forces are of the size of the others'.
    assert abs(double[1][[0, 1, 5, 6, 7]]).max() < 100 * abs(double[1][8:]).max()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_scaled_pairs_beside_close_ones_that_are_not_excluded(backend, dtype):
    """Of 5, 6 and 7 the pair 5, 7 is close and free, so that nothing is left out of their sums."""
    x, sigma, epsilon = molecules(0.3)
    whole, scaled = (
        step(backend, dtype, x, sigma, epsilon, pairs=p, factors=f) for p, f in (((), 0), (PAIRS, FACTORS))
    )
    change = np.zeros(40)
    forces = np.zeros((40, 3))
    for (i, j), factor in zip(PAIRS, FACTORS, strict=True):
        d = x[j] - x[i]
        d -= LENGTH * np.rint(d / LENGTH)
        r2 = d @ d
        s6 = (SIGMA**2 / r2) ** 3
        within = r2 <= GIVEN["cutoff"] ** 2
        change[[i, j]] += (factor - 1) * 2 * EPSILON * (within * s6**2 - s6)
        pull = (factor - 1) * 24 * EPSILON * (s6 - 2 * within * s6**2) / r2 * d
        forces[i] += pull
        forces[j] -= pull
    rounding = 2e-6 if dtype == "float32" else 1e-13
    assert abs(scaled[0] - whole[0] - change).max() < rounding * abs(whole[0]).max()
    assert abs(scaled[1] - whole[1] - forces).max() < rounding * abs(whole[1]).max()


@pytest.mark.backends("cpu", "opencl")
def test_states_that_alternate_keep_their_rows(backend):
    """Rows of captured graphs stay where they are: those of other numbers of particles, and of other pairs."""
    x, sigma, epsilon = molecules(0.3)
    call = Dispersion((LENGTH,) * 3, **GIVEN)

    def state(count, pairs):
        arrays = (backend.array(np.ascontiguousarray(a[:count])) for a in (x, sigma, epsilon))
        result = call(next(arrays), sigma=next(arrays), epsilon=next(arrays), exclusions=pairs)
        return backend.host(result.forces), call._core.exclusions.on(call._core.backend, count, call._core.dtype)

    states = [(40, [[0, 1]]), (40, [[5, 6], [6, 7]]), (33, [[0, 1]]), (40, [[0, 1], [20, 39]]), (8, [[5, 6], [6, 7]])]
    first = [state(*one) for one in states]
    again = [state(*one) for one in states]
    rounding = 0 if backend.name == "cpu" else 1e-12  # of atomic sums
    for (forces, rows), (later, kept) in zip(first, again, strict=True):
        np.testing.assert_allclose(forces, later, rtol=rounding, atol=rounding * abs(later).max())
        assert all(a is b for a, b in zip(rows, kept, strict=True))
    fresh = step(backend, "float64", x[:33], sigma[:33], epsilon[:33], pairs=[[0, 1]], factors=0.0)[1]
    np.testing.assert_allclose(first[2][0], fresh, rtol=1e-12, atol=1e-12 * abs(fresh).max())
    with pytest.raises(ValueError, match="there are 30 particles"):
        state(30, [[0, 1], [20, 39]])
    with pytest.raises(TypeError, match="indices of particles are integers"):
        state(40, [[0.0, 1.0]])  # as before them, the same numbers as integers
