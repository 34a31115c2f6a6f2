# SPDX-License-Identifier: BSD-3-Clause
"""Charges, dipoles and quadrupoles with Gaussian widths, against plain sums over images and wave vectors."""

import math

import numpy as np
import pytest
from scipy.spatial.transform import Rotation
from scipy.special import erf

from multipole_ewald import energy, gaussian, pair, point, system
from particlemesh.apps.pme import PME, multipoles
from particlemesh.apps.pme.split import Gaussian, Prolate, with_derivatives
from pme_cases import close, image

BOX = np.array([[2.0, 0.0, 0.0], [0.3, 2.2, 0.0], [-0.4, 0.5, 1.9]])
FINE = dict(cutoff=1.7, splitting=3.5, shape=(48, 54, 48), window="bspline12")
NAMES = "dipoles", "quadrupoles", "widths"


def call(pme, x, q, *rest, **options):
    return pme(x, q, **dict(zip(NAMES, rest, strict=True)), **options)


def slope(function, h=1e-4):
    return (8 * (function(h) - function(-h)) - (function(2 * h) - function(-2 * h))) / (12 * h)


def directions(x):
    """Steps of positions, charges, dipoles, quadrupoles (symmetric), rotations."""
    rng = np.random.default_rng(1)
    turn = rng.normal(size=(*x.shape, 3))
    return (
        rng.normal(size=x.shape),
        rng.normal(size=len(x)),
        rng.normal(size=x.shape),
        turn + turn.swapaxes(1, 2),
        x[::-1],
    )


def check_slopes(result, energy, x, q, mu, quad, s):
    """Every result is a slope of the energy."""
    by_x, by_q, by_mu, by_quad, axis = directions(x)

    def turned(t):
        turn = Rotation.from_rotvec(t * axis).as_matrix()
        return energy(x, q, (turn @ mu[:, :, None])[:, :, 0], turn @ quad @ turn.swapaxes(1, 2), s)

    for expected, mine in (
        (slope(lambda t: energy(x + t * by_x, q, mu, quad, s)), -(result.forces * by_x).sum()),
        (slope(lambda t: energy(x, q + t * by_q, mu, quad, s)), (result.potentials * by_q).sum()),
        (slope(lambda t: energy(x, q, mu + t * by_mu, quad, s)), -(result.fields * by_mu).sum()),
        (slope(lambda t: energy(x, q, mu, quad + t * by_quad, s)), -(result.field_gradients * by_quad).sum() / 2),
        (slope(turned), -(result.torques * axis).sum()),
    ):
        assert math.isclose(mine, expected, rel_tol=1e-8)
    np.testing.assert_allclose(result.energies.sum(), result.energy, rtol=1e-12)


def test_energy_and_its_slopes_are_those_of_plain_sums():
    given = system(BOX)
    result = call(PME(BOX, **FINE, coulomb_constant=2.0), *given)
    assert math.isclose(result.energy, 2 * energy(BOX, *given), rel_tol=1e-9)
    check_slopes(result, lambda *g: 2 * energy(BOX, *g), *given)
    strain = np.random.default_rng(2).uniform(-1, 1, (3, 3))

    def strained(t):
        turn = (np.eye(3) + t * strain).T
        return 2 * energy(BOX @ turn, given[0] @ turn, *given[1:])

    assert math.isclose((result.virial * strain).sum(), slope(strained), rel_tol=1e-8)


def test_pairs_that_are_excluded_or_scaled_are_those_of_nearest_images():
    x, q, mu, quad, s = system(BOX)
    x[1] = x[0] + 0.02  # so near that the sum over neighbours leaves it out itself
    pairs, factors = np.array([[0, 1], [0, 3], [5, 1], [2, 4]]), np.array([0.0, 0.3, 0.5, -1.2])
    result = call(PME(BOX, **FINE, exclusions=pairs, factors=factors), x, q, mu, quad, s)

    def whole(x, q, mu, quad, s):
        total = energy(BOX, x, q, mu, quad, s)
        for (i, j), factor in zip(pairs, factors, strict=True):
            width = 2 * (s[i] ** 2 + s[j] ** 2)
            beta = np.inf if width == 0 else width**-0.5
            d = image(x[j] - x[i], BOX)
            total += (factor - 1) * pair(
                d, (q[i], mu[i], quad[i]), (q[j], mu[j], quad[j]), lambda r2, n, b=beta: gaussian(r2, b, n)
            )
        return total

    # Differences of the plain sums lose what the near pair has.
    assert math.isclose(result.energy, whole(x, q, mu, quad, s), rel_tol=1e-4)
    far = call(PME(BOX, **FINE, exclusions=pairs[1:], factors=factors[1:]), *system(BOX))
    pairs, factors = pairs[1:], factors[1:]
    check_slopes(far, whole, *system(BOX))


def test_an_excluded_pair_has_no_energy_at_any_distance():
    x, q, mu, quad, s = system(BOX)
    pme = PME(BOX, **FINE, exclusions=[[0, 1]])
    results = []
    for gap in (-1e-4, 0.0, 1e-4):
        x[1] = x[0] + gap
        results.append(call(pme, x, q, mu, quad, s))
    for name in ("energy", "forces", "fields", "field_gradients", "virial"):
        before, at, after = (getattr(r, name) for r in results)
        np.testing.assert_allclose(at, (before + after) / 2, rtol=0, atol=1e-5 * abs(at).max(), err_msg=name)
    with pytest.raises(ValueError, match="on top of each other"):
        call(PME(BOX, **FINE), x * 0 + x[0], q, mu, quad, s)


@pytest.mark.backends("cpu", "opencl", "cuda")
@pytest.mark.parametrize("distance", [1e-4, 1e-2, 0.3])
def test_an_excluded_pair_costs_float32_no_digits(backend, distance):
    x, q, mu, quad, s = system(BOX)
    x[1] = x[0] + distance * np.array([0.6, 0.64, 0.48])
    given = [a.astype("f4") for a in (x, q, mu, quad, s)]
    exact = call(PME(BOX, **FINE, exclusions=[[0, 1]]), *(a.astype("f8") for a in given))
    single = call(PME(BOX, **FINE, exclusions=[[0, 1]]), *map(backend.array, given))
    close(single, exact, 1e-5, backend.host)


def test_without_quadrupoles_and_widths_it_is_the_result_of_dipoles():
    x, q, mu, quad, s = system(BOX)
    pme = PME(BOX, **FINE)
    plain, result = pme(x, q, dipoles=mu), call(pme, x, q, mu, 0 * quad, 0 * s)
    for name in ("energies", "forces", "virial", "potentials", "fields", "torques"):
        exact = getattr(plain, name)
        np.testing.assert_allclose(getattr(result, name), exact, rtol=0, atol=1e-9 * abs(exact).max(), err_msg=name)
    close(pme(x, q, quadrupoles=quad), call(pme, x, q, 0 * mu, quad, 0 * s), 1e-12)
    close(pme(x, q, widths=s), call(pme, x, q, 0 * mu, 0 * quad, s), 1e-12)
    assert pme(x, q, widths=s, virial=False).virial is None
    close(call(pme, x, q, mu, quad, s), call(pme, x + BOX[1], q, mu, quad, s), 1e-9)


def test_a_quadrupole_is_the_limit_of_charges():
    x, q, _, quad, _ = system(BOX)
    step, pme = 0.02, PME(BOX, **FINE)
    values, axes = np.linalg.eigh(quad[0])
    ends = step * axes.T
    points = np.concatenate([x, x[0] + ends, x[0] - ends])
    charges = np.concatenate([q, np.tile(values / (2 * step**2), 2)])
    charges[0] -= values.sum() / step**2
    by_charges = pme(points, charges, fields=True)
    only = np.zeros_like(quad)
    only[0] = quad[0]
    result = pme(x, q, quadrupoles=only)
    np.testing.assert_allclose(result.forces[1:], by_charges.forces[1:6], rtol=2e-3, atol=2e-3)
    np.testing.assert_allclose(result.potentials[1:], by_charges.potentials[1:6], rtol=2e-3, atol=2e-3)


def test_a_trace_raises_the_potential_of_all_others_alike():
    x, q, _, quad, _ = system(BOX)
    quad = 0 * quad
    quad[2] = 0.3 * np.eye(3)
    result = PME(BOX, **FINE)(x, 0 * q, quadrupoles=quad)
    shift = 2 * np.pi * 0.9 / (3 * np.linalg.det(BOX))
    np.testing.assert_allclose(np.delete(result.potentials, 2), shift, rtol=1e-6)


def test_everything_turns_with_box_and_particles():
    x, q, mu, quad, s = system(BOX)
    turn = Rotation.from_rotvec([0.3, -0.2, 0.5]).as_matrix()
    result = call(PME(BOX, **FINE), x, q, mu, quad, s)
    other = call(PME(BOX @ turn.T, **FINE), x @ turn.T, q, mu @ turn.T, turn @ quad @ turn.T, s)
    for name in ("forces", "fields", "torques"):
        np.testing.assert_allclose(getattr(other, name), getattr(result, name) @ turn.T, atol=1e-8)
    for name in ("field_gradients", "virial"):
        exact = turn @ getattr(result, name) @ turn.T
        np.testing.assert_allclose(getattr(other, name), exact, atol=1e-9 * abs(exact).max())
    # Nothing changes if moments turn with positions and box: the virial is symmetric but for torques.
    lean = result.virial.T - result.virial
    torque = np.array([lean[1, 2], lean[2, 0], lean[0, 1]])
    np.testing.assert_allclose(torque, result.torques.sum(0), rtol=1e-7)


@pytest.mark.parametrize("distance", [1e-3, 0.05, 0.3, 0.9])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_gaussians_that_overlap_have_the_energy_of_erf(distance, dtype):
    """Of a pair in a large box images have little: two unlike charges, dipoles and quadrupoles."""
    pme = PME((24.0,) * 3, cutoff=4.0, splitting=1.1, shape=(72,) * 3, window="bspline8", dtype=dtype)
    x = np.array([[12.0, 12.0, 12.0]] * 2).astype(dtype)
    x[1] += np.array([0.6, 0.64, 0.48]) * distance
    _, _, mu, quad, _ = (a[:2] for a in system(BOX))
    s, q = np.array([0.3, 0.2]), np.array([1.0, -1.0])
    quad = quad - np.trace(quad, axis1=1, axis2=2)[:, None, None] / 3 * np.eye(3)
    given = [a.astype(dtype) for a in (x, q, mu, quad, s)]
    result = call(pme, *given)
    beta = 1 / math.sqrt(2 * (s**2).sum())

    def both(x, q, mu, quad, s):
        i, j = (tuple(a[k] for a in (q, mu, quad)) for k in (0, 1))
        return pair(x[1] - x[0], i, j, lambda r2, n: gaussian(r2, beta, n))

    exact = both(*(a.astype(float) for a in given))
    assert math.isclose(result.energy, exact, rel_tol=4e-4)  # images have the rest
    if distance > 0.04:
        plain = call(pme, *given[:2], 0 * given[2], 0 * given[3], given[4])
        r = math.dist(*given[0].astype(float))
        assert math.isclose(plain.energy, -erf(beta * r) / r, rel_tol=4e-4)
        by_x = directions(x)[0]
        force = slope(lambda t: both(x + t * by_x, q, mu, quad, s))
        assert math.isclose(-(result.forces * by_x).sum(), force, rel_tol=1e-3)


@pytest.mark.parametrize("count", [0, 1])
def test_few_particles(count):
    x, q, mu, quad, s = (a[:count] for a in system(BOX))
    result = call(PME(BOX, **FINE), x, q, mu, quad, s)
    assert result.energies.shape == (count,) and result.field_gradients.shape == (count, 3, 3)
    expected = energy(BOX, x, q, mu, quad, s) if count else 0.0
    assert math.isclose(result.energy, expected, rel_tol=1e-9)
    assert abs(result.forces).max(initial=0) < 1e-7  # its images pull from all sides


@pytest.mark.parametrize("split", [dict(bandwidth=16.0), dict()])
def test_parameters_follow_from_the_accuracy(split):
    given = system(BOX)
    result, exact = call(PME(BOX, 1e-6, **split), *given), call(PME(BOX, **FINE), *given)
    np.testing.assert_allclose(result.forces, exact.forces, rtol=0, atol=1e-4 * abs(exact.forces).max())
    np.testing.assert_allclose(result.energy, exact.energy, rtol=1e-4)


@pytest.mark.backends("cpu", "opencl", "cuda")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("pairs", [{}, dict(exclusions=[[0, 1], [2, 5]], factors=0.3)], ids=["all", "excluded"])
def test_every_backend_and_type(backend, dtype, pairs):
    given = system(BOX)
    exact = call(PME(BOX, **FINE, **pairs), *given)
    pme = PME(BOX, **FINE, **pairs)
    arrays = [backend.array(a.astype(dtype)) for a in given]
    result = call(pme, *arrays)
    close(result, exact, 1e-12 if dtype == "float64" else 6e-6, backend.host)
    if backend.name == "cpu":
        result.energy = np.array(result.energy)
    again = call(pme, *arrays, out=result, check=False)
    assert again.forces is result.forces
    close(again, exact, 1e-12 if dtype == "float64" else 6e-6, backend.host)
    pme.check()


def test_bad_arguments_are_explained():
    x, q, _, quad, s = system(BOX)
    pme = PME(BOX, **FINE)
    with pytest.raises(ValueError, match=r"quadrupoles has shape \(6, 9\)"):
        pme(x, q, quadrupoles=quad.reshape(6, 9))
    with pytest.raises(ValueError, match=r"one set \(6,\) is needed with quadrupoles, widths"):
        pme(x, np.stack([q, q]), quadrupoles=quad, widths=s)
    with pytest.raises(TypeError, match="give a MultipoleResult"):
        pme(x, q, widths=s, out=pme(x, q))
    with pytest.raises(ValueError, match="gradient is 'ik', and widths"):
        PME(BOX, **FINE, gradient="ik")(x, q, widths=s)


def changed(array, index, value):
    array = array.copy()
    array[index] = value
    return array


@pytest.mark.backends("cpu", "opencl")
@pytest.mark.parametrize(
    ("place", "index", "value", "message"),
    [
        (1, 2, np.inf, "charges are not finite; the first is that of particle 2"),
        (2, (1, 0), np.nan, "widths are not finite; the first is that of particle 1"),
        (3, (4, 2, 2), np.inf, "widths are not finite; the first is that of particle 4"),
        (3, (3, 0, 1), 9.0, "quadrupoles are not symmetric; the first is that of particle 3"),
        (4, 5, -0.1, "widths are negative; the first is that of particle 5"),
        (4, 1, 0.2, "widths are larger than 0.137.*particle 1. Give a cutoff of 12.4 times the largest width"),
    ],
)
def test_bad_numbers_name_the_first_particle(backend, place, index, value, message):
    given = list(system(BOX))
    given[place] = changed(given[place], index, value)
    pme, arrays = PME(BOX, **FINE), [backend.array(a) for a in given]
    with pytest.raises(ValueError, match=message):
        call(pme, *arrays)
    call(pme, *arrays, check=False)
    with pytest.raises(ValueError, match=message):
        pme.check()


@pytest.mark.parametrize("split", [Gaussian(2.4), Prolate(14.0, 1.7)], ids=["gaussian", "prolate"])
@pytest.mark.parametrize("single", [False, True])
def test_polynomials_have_five_derivatives(split, single):
    smooth, cutoff = with_derivatives(split, 1.7, single, 5), 1.7
    r2 = np.linspace(0.01, 0.99, 50) * cutoff**2
    k = (r2 * smooth.scale).astype(int)
    for order in range(6):
        rows = [
            np.polynomial.Polynomial(row).deriv(order) if order else np.polynomial.Polynomial(row)
            for row in smooth.coefficients
        ]
        mine = np.array([rows[n](r * smooth.scale - n - 0.5) for n, r in zip(k, r2, strict=True)]) * smooth.scale**order
        exact = split.bent(r2, order) if order else split.smooth(r2)
        np.testing.assert_allclose(mine, exact, rtol=0, atol=(1e-6 if single else 1e-9) * abs(exact).max())
        if order > 2:
            continue
        at_zero = (-2) ** order * (rows[0](-0.5) * smooth.scale**order)
        assert math.isclose(at_zero, split.at_zero(order), rel_tol=1e-4 if isinstance(split, Prolate) else 1e-6)


def test_a_free_cutoff_is_long_enough_for_the_widths():
    x, q, mu, quad, s = system(BOX, width=0.5)
    pme, points = PME(BOX, 1e-5), PME(BOX, 1e-5)
    points(x, q, quadrupoles=quad)
    result = call(pme, x, q, mu, quad, s)
    assert pme.parameters.cutoff > points.parameters.cutoff
    assert math.isclose(result.energy, energy(BOX, x, q, mu, quad, s), rel_tol=1e-4)


@pytest.mark.parametrize("given", [{}, {"shape": 32}, {"splitting": 2.0}])
@pytest.mark.parametrize("width", [0.6, 1.0])
def test_a_free_cutoff_becomes_long_enough(given, width):
    """Its smaller error asks for a longer one yet."""
    x, q = np.random.default_rng(0).random((8, 3)) * 3, np.where(np.arange(8) % 2, 1.0, -1.0)
    widths = np.full(8, width)
    result = PME((3.0, 3.0, 3.0), 1e-4, **given)(x, q, widths=widths)
    zeros = np.zeros((8, 3)), np.zeros((8, 3, 3))
    exact = energy(np.diag([3.0] * 3), x, q, *zeros, widths)
    assert abs(result.energy - exact) < 1e-3 * abs(q).sum()


def test_points_are_gaussians_without_width():
    assert point(2.0, 3) == gaussian(2.0, np.inf, 3)
    assert multipoles.widest(10.0, 1e-6) == 2 * multipoles.widest(5.0, 1e-6)
