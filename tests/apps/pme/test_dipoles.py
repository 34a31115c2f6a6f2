# SPDX-License-Identifier: BSD-3-Clause
"""Charges and point dipoles against a dense Ewald sum, and against pairs of charges close together."""

import itertools
import math

import numpy as np
import pytest

import particlemesh as pm
from particlemesh.apps.pme import PME, PMEBatch, dipoles, direct, dispersion, multipoles, operators
from particlemesh.apps.pme.split import Gaussian, Prolate, SixthPower, polynomials, with_derivatives
from particlemesh.backends import cuda
from particlemesh.fourier.influence import Influence
from pme_cases import image, pair_of_dipoles
from ptx import without_nvrtc

BOX = np.array([[2.0, 0.0, 0.0], [0.3, 2.2, 0.0], [-0.4, 0.5, 1.9]])
FINE = dict(cutoff=1.7, splitting=3.5, shape=(48, 54, 48), window="bspline12")


def system(count=6):
    rng = np.random.default_rng(11)
    s = (np.array(list(itertools.product(range(2), repeat=3)))[:count] + rng.uniform(0.1, 0.6, (count, 3))) / 2
    return s @ BOX, rng.normal(size=count), rng.normal(size=(count, 3)) * 0.3


def dense(x, q, mu, alpha=2.2):
    """Return the energy by sums over image cells and wave vectors."""
    shifts = np.array(list(itertools.product(range(-2, 3), repeat=3))) @ BOX
    reciprocal = 2 * np.pi * np.linalg.inv(BOX).T
    volume, total = abs(np.linalg.det(BOX)), 0.0
    for shift in shifts:
        d = x[None] - x[:, None] + shift
        r = np.sqrt((d**2).sum(-1))
        r[r == 0] = np.inf
        fade = np.exp(-((alpha * r) ** 2)) * 2 * alpha / np.sqrt(np.pi)
        b0 = np.array([[math.erfc(alpha * y) for y in row] for row in r]) / r
        b1 = (b0 + fade) / r**2
        b2 = (3 * b1 + 2 * alpha**2 * fade) / r**2
        of_j, of_i = (d * mu[None]).sum(-1), (d * mu[:, None]).sum(-1)
        total += (q[:, None] * q * b0 - q[:, None] * of_j * b1 + q * of_i * b1).sum() / 2
        total += ((mu @ mu.T) * b1 - of_i * of_j * b2).sum() / 2
    for n in itertools.product(range(-9, 10), repeat=3):
        k = np.array(n) @ reciprocal
        k2 = k @ k
        if k2 > 0:
            structure = ((q + 1j * mu @ k) * np.exp(1j * x @ k)).sum()
            total += 2 * np.pi / volume * np.exp(-k2 / (4 * alpha**2)) / k2 * abs(structure) ** 2
    total -= alpha / np.sqrt(np.pi) * (q @ q + 2 / 3 * alpha**2 * (mu**2).sum())
    return total - np.pi * q.sum() ** 2 / (2 * alpha**2 * volume)


def check_slopes(result, energy, x, q, mu):
    """Forces, fields and potentials are slopes of an energy by positions, dipoles and charges."""
    h = 1e-4
    for particle, axis in ((0, 0), (3, 1), (5, 2)):
        step = np.zeros((6, 3))
        step[particle, axis] = h
        for sign, moved, values in (
            (-1, lambda s: (x + s, q, mu), result.forces),
            (-1, lambda s: (x, q, mu + s), result.fields),
            (1, lambda s: (x, q + s.sum(1), mu), np.repeat(result.potentials[:, None], 3, 1)),
        ):
            slope = (energy(*moved(step)) - energy(*moved(-step))) / (2 * h)
            np.testing.assert_allclose(values[particle, axis], sign * slope, rtol=1e-6, atol=1e-6)


def test_energy_and_its_derivatives_are_those_of_a_dense_sum():
    x, q, mu = system()
    pme = PME(BOX, **FINE, coulomb_constant=2.0)
    result = pme(x, q, dipoles=mu)
    np.testing.assert_allclose(result.energy, 2 * dense(x, q, mu), rtol=1e-10)
    np.testing.assert_allclose(result.energies.sum(), result.energy, rtol=1e-12)
    np.testing.assert_allclose(result.torques, np.cross(mu, result.fields), rtol=1e-12)
    check_slopes(result, lambda *given: 2 * dense(*given), x, q, mu)


def test_pairs_that_are_excluded_or_scaled_are_those_of_nearest_images():
    x, q, mu = system()
    pairs, factors = np.array([[0, 3], [5, 1], [2, 4]]), np.array([0.0, 0.5, -1.2])
    pme = PME(BOX, **FINE, coulomb_constant=2.0, exclusions=pairs, factors=factors)
    result = pme(x, q, dipoles=mu)

    def energy(x, q, mu):
        more = [
            (f - 1) * pair_of_dipoles(image(x[j] - x[i], BOX), q[i], mu[i], q[j], mu[j])
            for (i, j), f in zip(pairs, factors, strict=True)
        ]
        return 2 * (dense(x, q, mu) + sum(more))

    np.testing.assert_allclose(result.energy, energy(x, q, mu), rtol=1e-10)
    np.testing.assert_allclose(result.energies.sum(), result.energy, rtol=1e-12)
    check_slopes(result, energy, x, q, mu)


def test_an_excluded_pair_with_dipoles_may_lie_in_one_place():
    x, q, mu = system()
    x[1] = x[0]
    # An excluded pair has no energy, at whatever distance: the mean of two small gaps is that of none.
    pme, gap = PME(BOX, **FINE, exclusions=[[0, 1]]), 1e-3 * np.eye(6)[1][:, None] * np.ones(3)
    before, result, after = (pme(x + sign * gap, q, dipoles=mu) for sign in (-1, 0, 1))
    for name in ("energy", "forces", "fields", "potentials"):
        mean = (getattr(before, name) + getattr(after, name)) / 2
        np.testing.assert_allclose(getattr(result, name), mean, rtol=1e-4, atol=1e-4)
    with pytest.raises(ValueError, match="on top of each other"):
        PME(BOX, **FINE, exclusions=[[0, 1]], factors=0.5)(x, q, dipoles=mu)


def test_without_dipoles_it_is_the_result_of_charges():
    x, q, mu = system()
    pme = PME(BOX, **FINE)
    plain, result = pme(x, q), pme(x, q, dipoles=0 * mu)
    np.testing.assert_allclose(result.energies, plain.energies, rtol=1e-10)
    np.testing.assert_allclose(result.forces, plain.forces, atol=1e-10)
    np.testing.assert_allclose(pme(x, q).forces, plain.forces, atol=1e-12)  # calls do not disturb each other


def test_a_dipole_is_a_pair_of_charges_close_together():
    x, q, mu = system()
    pme, half, test_charge = PME(BOX, **FINE), 1e-3, np.array([[0.9, 1.3, 0.2]])
    size = np.linalg.norm(mu, axis=1, keepdims=True)
    points = np.concatenate([x, x + half * mu / size, x - half * mu / size, test_charge])
    ends = size[:, 0] / (2 * half)
    by_pairs = pme(points, np.concatenate([q, ends, -ends, [1.0]])).forces[-1]
    forces = pme(points[[*range(6), -1]], np.append(q, 1.0), dipoles=np.vstack([mu, np.zeros(3)])).forces
    np.testing.assert_allclose(forces[-1], by_pairs, rtol=1e-4, atol=1e-4)


def test_bad_arguments_are_explained():
    x, q, mu = system()
    pme = PME(BOX, **FINE)
    with pytest.raises(ValueError, match=r"dipoles has shape \(6, 2\)"):
        pme(x, q, dipoles=mu[:, :2])
    with pytest.raises(ValueError, match="one set"):
        pme(x, np.stack([q, q]), dipoles=mu)
    with pytest.raises(TypeError, match="give a DipoleResult"):
        pme(x, q, dipoles=mu, out=pme(x, q))
    with pytest.raises(ValueError, match="on top of each other: 0 is in the place"):
        pme(x[[0, 0]], q[:2], dipoles=mu[:2])


FUNCTIONS = {
    **{
        name: (
            dipoles.pair_function(with_derivatives(Prolate(12.0, 1.2), 1.2, True), virial),
            lambda q, mu: np.concatenate([q[:, None], mu], 1),
        )
        for name, virial in (("dipoles", False), ("dipoles with virial", True))
    },
    "multipoles": (
        multipoles.pair_function(with_derivatives(Prolate(12.0, 1.2), 1.2, True, 5)),
        lambda q, mu: np.concatenate([q[:, None], mu, mu, mu - q[:, None], abs(q[:, None]) / 50 * (q > 0)[:, None]], 1),
    ),
    **{
        name: (
            dispersion.pair_function(
                polynomials(SixthPower(2.0), 1.2, True), 2.0, 1.2, True, "lorentz-berthelot", True, apart
            ),
            lambda q, mu: np.stack([abs(q) + 0.2, 0.5 + abs(mu[:, 0])], 1),
        )
        for name, apart in (("dispersion", False), ("dispersion with close pairs apart", True))
    },
}


@pytest.mark.opencl
@pytest.mark.backends("opencl", "cuda")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_pairs_are_the_same_in_c(backend, name):
    x, q, mu = system()
    function, values = FUNCTIONS[name]
    arguments = x.astype(np.float32), values(q, mu).astype(np.float32)
    on_cpu = pm.UniformGrid(BOX, cell_size=0.6).build(arguments[0]).stream(1.2, function, arguments[1])
    grid = pm.UniformGrid(BOX, cell_size=0.6, backend=backend.name).build(arguments[0])
    sums = grid.stream(1.2, function, arguments[1])
    np.testing.assert_allclose(sums, on_cpu, rtol=2e-5, atol=2e-5 * abs(on_cpu).max())


@pytest.mark.skipif(without_nvrtc() is not None, reason=f"no NVRTC: {without_nvrtc()}")
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("double", [0, 1])
def test_functions_of_pairs_compile_for_cuda(name, double):
    function, _ = FUNCTIONS[name]
    defines = dict.fromkeys(("REAL_IS_DOUBLE", "COORDINATE_IS_DOUBLE"), double) | {
        "KEYS_ARE_POSITIONS": 1, "CELLS_ARE_SCATTERED": 0, "CELLS_ARE_SPARSE": 0, "EXTENTS": 0,
        "RESULTS": function.results, "VALUES": function.values,
    }  # fmt: skip
    assert cuda.compile_only("grid/queries/sums.c", defines, 90, {"pair function": function.text})


@pytest.mark.parametrize(
    "function",
    [
        lambda split: direct.pair_function(polynomials(split, 1.2, True), 2, True),
        lambda split: dipoles.pair_function(with_derivatives(split, 1.2, True), True),
        lambda split: multipoles.pair_function(with_derivatives(split, 1.2, True, 5)),
        lambda split: operators._slopes(split, 1.2, True, None),
        lambda split: operators._slopes(split, 1.2, True, 0.39),
    ],
    ids=["charges", "dipoles", "multipoles", "slopes", "damped slopes"],
)
def test_other_splittings_and_cutoffs_compile_nothing(function):
    """The code does not depend on how many polynomials a smooth part takes: a user tries many parameters."""
    one, other = function(Gaussian(2.0)), function(Gaussian(6.0))
    assert len(one.parameters) < len(other.parameters)
    assert one.text == other.text
    assert one.on_cpu is other.on_cpu


@pytest.mark.parametrize("what", ["dipoles", "batch"])
def test_tables_and_memory_are_kept_between_calls(what, monkeypatch):
    x, q, mu = system()
    fine, made = {**FINE, "shape": (16, 16, 16), "window": "bspline5"}, []
    if what == "dipoles":
        pme = PME(BOX, **fine)
        core, call = lambda: pme._core, lambda x, q, mu: pme(x, q, dipoles=mu)
    else:
        batch = PMEBatch(BOX, 2, **fine)
        core, call = lambda: batch._core, lambda x, q, mu: batch(x, q, np.arange(len(x)) % 2)
    first = call(x, q, mu)
    kept = {name: array.ctypes.data for name, array in core()._memory.items()}
    for module, name in ((Influence, "factors"), (pm.PairFunction, "__init__")):
        monkeypatch.setattr(module, name, lambda *arguments, **options: made.append(arguments))
    forces = first.forces.copy()
    for count in (4, 6):  # fewer particles fit
        later = call(x[:count], q[:count], mu[:count])
    assert {name: array.ctypes.data for name, array in core()._memory.items()} == kept
    assert not made
    np.testing.assert_array_equal(first.forces, forces)  # results are memory of their own
    np.testing.assert_allclose(later.forces, forces, rtol=1e-12, atol=1e-12)
