# SPDX-License-Identifier: BSD-3-Clause
"""Lattice sums of r**-6 against plain sums over images, and against lattice sums of crystals."""

import itertools

import numpy as np
import pytest
from scipy.integrate import quad

from particlemesh.apps.pme import Dispersion
from particlemesh.apps.pme.split import SixthPower
from pme_cases import image, random_charges

TRICLINIC = np.array([[3.0, 0.0, 0.0], [0.5, 3.2, 0.0], [-0.4, 0.7, 2.9]])
FINE = dict(cutoff=2.9, splitting=2.1, shape=(40, 40, 40), window="bspline12")
COARSE = dict(cutoff=1.4, splitting=2.0, shape=(12, 15, 16), window="bspline5", mixing="lorentz-berthelot", shift=True)


def images(box, reach):
    """Lattice vectors up to a length."""
    matrix = np.diag(box) if np.ndim(box) == 1 else np.asarray(box)
    most = np.ceil(reach * np.linalg.norm(np.linalg.inv(matrix), axis=0)).astype(int) + 1
    return np.array(list(itertools.product(*(range(-m, m + 1) for m in most)))) @ matrix


def plain_sum(x, c, box, reach=50.0):
    """Return energy and forces of -c c / r**6 by a sum over images that fades out smoothly, and its mean beyond."""

    def fade(r):  # from 1 at half the reach to 0 at the reach, with nine continuous derivatives
        t = np.clip(2 * r / reach - 1, 0, 1)
        p = np.polynomial.Polynomial.fromroots([0] * 9 + [1] * 9).integ()
        return 1 - p(t) / p(1)

    shifts = images(box, reach)
    volume = abs(np.linalg.det(np.diag(box) if np.ndim(box) == 1 else box))
    energy, forces = 0.0, np.zeros_like(x)
    h = reach * 1e-6
    for i, j in itertools.product(range(len(x)), repeat=2):
        d = x[j] - x[i] + shifts
        r = np.linalg.norm(d, axis=1)
        keep = (r > 0) & (r < reach)
        d, r = d[keep], r[keep]
        energy -= c[i] * c[j] / 2 * (fade(r) / r**6).sum()
        slope = -6 * fade(r) / r**7 + (fade(r + h) - fade(r - h)) / (2 * h) / r**6
        forces[i] += c[i] * c[j] * -(slope / r) @ d
    tail = quad(lambda r: 4 * np.pi * (1 - fade(r)) / r**4, reach / 2, reach, epsabs=1e-14)[0]
    tail += 4 * np.pi / (3 * reach**3)
    return energy - c.sum() ** 2 / 2 * tail / volume, forces


def particles(count=6, seed=3):
    rng = np.random.default_rng(seed)
    s = (np.array(list(itertools.product(range(2), repeat=3)))[:count] + rng.uniform(0.1, 0.6, (count, 3))) / 2
    return s @ TRICLINIC, rng.uniform(0.5, 1.5, count)


def test_parts_add_up_and_are_a_pair_of_transforms():
    r = np.linspace(0.3, 3, 9)
    for beta in (0.7, 2.0):
        split = SixthPower(beta)
        by_parts = np.exp(-((beta * r) ** 2)) * (1 + (beta * r) ** 2 + (beta * r) ** 4 / 2) / r**6
        np.testing.assert_allclose(by_parts + split.smooth(r**2), r**-6, rtol=1e-12)
        for distance in (0.0, 0.5, 1.5):

            def shell(k, split=split, distance=distance):
                return k**2 * split.transform(np.array(k**2)) * np.sinc(k * distance / np.pi) / (2 * np.pi**2)

            back = quad(shell, 0, 40 * beta, epsabs=1e-12, limit=200)[0]
            np.testing.assert_allclose(back, split.smooth(np.array(distance**2)), rtol=1e-8)
        k2, h = np.array([0.1, 1.0, 20.0]), 1e-4
        difference = (split.transform(k2 + h) - split.transform(k2 - h)) / (2 * h)
        np.testing.assert_allclose(split.transform_slope(k2), difference, rtol=1e-5)


@pytest.mark.parametrize(
    ("name", "cell", "exact"),
    [
        ("sc", [[0, 0, 0]], 8.401923974827540),
        ("bcc", [[0, 0, 0], [0.5, 0.5, 0.5]], 12.25366786729233),
        ("fcc", [[0, 0, 0], [0, 0.5, 0.5], [0.5, 0, 0.5], [0.5, 0.5, 0]], 14.45392104374),
    ],
)
def test_lattice_sums_of_cubic_crystals(name, cell, exact):
    cell = np.array(cell)
    nearest = {"sc": 1.0, "bcc": 0.75**0.5, "fcc": 0.5**0.5}[name]
    result = Dispersion((1.0,) * 3, cutoff=2.0, splitting=3.1, shape=(32,) * 3, window="bspline12")(
        cell + 0.123, np.ones(len(cell))
    )
    np.testing.assert_allclose(-2 * result.energies * nearest**6, exact, rtol=1e-11)
    np.testing.assert_allclose(result.forces, 0, atol=1e-9)


def test_triclinic_energy_and_forces_are_those_of_a_plain_sum():
    x, c = particles(4)
    energy, forces = plain_sum(x, c, TRICLINIC)
    result = Dispersion(TRICLINIC, **FINE)(x, c)
    np.testing.assert_allclose(result.energy, energy, rtol=1e-8)
    np.testing.assert_allclose(result.forces, forces, atol=1e-8 * abs(forces).max())
    np.testing.assert_allclose(result.energies.sum(), result.energy, rtol=1e-13)


@pytest.mark.parametrize("mixing", ["geometric", "lorentz-berthelot"])
def test_virial_is_the_derivative_by_strain(mixing):
    x, c = particles()
    sigma, epsilon = 0.8 * c, c**2
    exclusions = [[0, 1], [4, 2]]
    strain = np.array([[0.3, 0.5, -0.2], [0.5, -0.7, 0.1], [-0.2, 0.1, 0.4]])
    h = 1e-4

    def result(step):
        map_ = np.eye(3) + step * strain
        call = Dispersion(TRICLINIC @ map_.T, **FINE, mixing=mixing)
        return call(x @ map_.T, sigma=sigma, epsilon=epsilon, exclusions=exclusions)

    slope = (result(h).energy - result(-h).energy) / (2 * h)
    np.testing.assert_allclose((result(0).virial * strain).sum(), slope, rtol=1e-6)
    plain = Dispersion(TRICLINIC, **FINE)(x, c)  # of degree -6 in all lengths
    np.testing.assert_allclose(np.trace(plain.virial), -6 * plain.energy, rtol=1e-8)


@pytest.mark.parametrize("mixing", ["geometric", "lorentz-berthelot"])
@pytest.mark.parametrize("shift", [False, True])
def test_lennard_jones_is_the_plain_sum_of_pairs_and_the_lattice(mixing, shift):
    x, _ = particles()
    rng = np.random.default_rng(8)
    sigma, epsilon = rng.uniform(0.7, 1.2, len(x)), rng.uniform(0.5, 2, len(x))
    root = 2 * epsilon**0.5 * sigma**3
    lattice, _ = plain_sum(x, root, TRICLINIC)
    exclusions = np.array([[0, 3], [5, 1]])
    energy, rc = lattice, FINE["cutoff"]
    shifts = images(TRICLINIC, rc)

    def pair(i, j, r, cut):
        size = (sigma[i] * sigma[j]) ** 0.5 if mixing == "geometric" else (sigma[i] + sigma[j]) / 2
        s6 = (size / r) ** 6
        well = (epsilon[i] * epsilon[j]) ** 0.5
        plain, at_cut = 4 * well * (s6**2 - s6), (size / cut) ** 6
        removed = SixthPower(FINE["splitting"]).smooth(np.array(cut**2)) - cut**-6
        # The mesh goes on beyond the cutoff: the pair's energy there is that of both parts within.
        constant = 4 * well * (at_cut**2 - at_cut) + root[i] * root[j] * (removed + cut**-6)
        return plain, root[i] * root[j] / r**6, constant * shift

    for i, j in itertools.product(range(len(x)), repeat=2):
        r = np.linalg.norm(x[j] - x[i] + shifts, axis=1)
        r = r[(r > 0) & (r <= rc)]
        plain, counted, constant = pair(i, j, r, rc)
        energy += (plain + counted - constant).sum() / 2
    call = Dispersion(TRICLINIC, **FINE, mixing=mixing, shift=shift)
    whole = call(x, sigma=sigma, epsilon=epsilon)
    np.testing.assert_allclose(whole.energy, energy, rtol=1e-8)
    for i, j in exclusions:
        r = np.linalg.norm(x[j] - x[i] + shifts, axis=1).min()
        plain, _, constant = pair(i, j, r, rc)
        energy -= plain - constant
    without = call(x, sigma=sigma, epsilon=epsilon, exclusions=exclusions)
    np.testing.assert_allclose(without.energy, energy, rtol=1e-8)
    np.testing.assert_allclose(without.forces.sum(0), 0, atol=1e-6)  # of forces of about 1e3 on the mesh
    h = 1e-5
    for step in np.eye(3) * h:  # forces are minus the slopes; exclusions move with the particles
        up, down = x.copy(), x.copy()
        up[3] += step
        down[3] -= step
        ends = [call(y, sigma=sigma, epsilon=epsilon, exclusions=exclusions).energy for y in (up, down)]
        np.testing.assert_allclose(without.forces[3] @ step / h, (ends[1] - ends[0]) / (2 * h), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("accuracy", "dtype"), [(1e-4, "float64"), (1e-7, "float64"), (1e-5, "float32")])
def test_accuracy_alone_chooses_parameters_that_reach_it(accuracy, dtype):
    rng = np.random.default_rng(5)
    grid = np.stack(np.meshgrid(*[np.arange(8)] * 3), -1).reshape(-1, 3)
    x, c = (grid + rng.uniform(0, 0.4, grid.shape)), rng.uniform(0.5, 1.5, len(grid))
    call = Dispersion((8.0, 8.0, 8.0), accuracy)
    forces = call(x.astype(dtype), c.astype(dtype)).forces
    assert forces.dtype == dtype
    exact = Dispersion((8.0, 8.0, 8.0), cutoff=4.0, splitting=1.6, shape=(64,) * 3, window="bspline12")(x, c).forces
    error = np.sqrt(((forces - exact) ** 2).sum(1).mean()) / 6
    assert error < 2 * accuracy
    assert "cutoff" in call.explain()


def test_the_error_formula_is_that_of_random_particles():
    rng = np.random.default_rng(6)
    x, c = rng.random((400, 3)) * 7, np.ones(400)
    keep = np.ones(400, bool)  # no two particles close to each other, whose forces would round
    for i in range(400):
        d = (x[i] - x[:i] + 3.5) % 7 - 3.5
        keep[i] = not ((d**2).sum(1)[keep[:i]] < 0.3).any()
    x, c = x[keep], c[keep]
    far, near = (
        Dispersion((7.0,) * 3, cutoff=rc, splitting=1.9, shape=(64,) * 3, window="bspline12")(x, c).forces
        for rc in (3.5, 1.6)
    )
    distance = 7 / len(x) ** (1 / 3)
    error = np.sqrt(((near - far) ** 2).sum(1).mean()) / 6 * distance**7
    assert 0.3 < error / SixthPower(1.9).real_error(1.6, distance) < 3


def test_bad_arguments_are_explained():
    x, c = particles()
    call = Dispersion(TRICLINIC, **FINE)
    good = call(x, c).energy
    for error, words, arguments in [
        (TypeError, "either coefficients", (x,)),
        (ValueError, r"coefficients has shape \(5,\)", (x, c[:5])),
        (ValueError, "exclusions", (x, c, None, None, [[0, 9]])),
        (ValueError, "particle [01] lies where another one lies", (x[[0, 0]], c[:2])),
    ]:
        names = ("positions", "coefficients", "sigma", "epsilon", "exclusions")
        with pytest.raises(error, match=words):
            call(**dict(zip(names, arguments, strict=False)))
    with pytest.raises(ValueError, match="negative"):
        call(x, sigma=-c, epsilon=c)
    with pytest.raises(ValueError, match="mixing"):
        Dispersion(TRICLINIC, mixing="arithmetic")
    with pytest.warns(UserWarning, match="was asked for, and these parameters reach"):
        Dispersion(TRICLINIC, 1e-8, cutoff=1.0, shape=(8, 8, 8))(x, c)
    assert call(x, c).energy == good


def numbers(dtype="float64", count=50):
    x, _ = random_charges(count)
    rng = np.random.default_rng(2)
    return [a.astype(dtype) for a in (x, rng.uniform(0.2, 0.35, count), rng.uniform(0.5, 2, count))]


@pytest.mark.parametrize("shift", [False, True])
def test_pairs_lose_what_they_have_within_the_cutoff_and_beyond(shift):
    x, sigma, epsilon = numbers()
    options = dict(COARSE, shift=shift)
    call = Dispersion(TRICLINIC, **options)
    whole = call(x, sigma=sigma, epsilon=epsilon)
    r = np.array([[np.linalg.norm(image(b - a, TRICLINIC)) for b in x] for a in x])
    r[range(50), range(50)] = 1.0
    near, far = np.unravel_index([r.argmin(), r.argmax()], r.shape)
    for (i, j), factor in zip((near, far), (0.25, 0.0), strict=True):
        pair = call(x, sigma=sigma, epsilon=epsilon, exclusions=[(i, j)], factors=factor)
        root = 2 * np.sqrt(epsilon) * sigma**3
        energy = -root[i] * root[j] / r[i, j] ** 6
        if r[i, j] < options["cutoff"]:
            s6 = ((sigma[i] + sigma[j]) / 2 / r[i, j]) ** 6
            well = 4 * np.sqrt(epsilon[i] * epsilon[j])
            energy = well * (s6**2 - s6)
        if not shift or r[i, j] > options["cutoff"]:
            np.testing.assert_allclose(pair.energy - whole.energy, (factor - 1) * energy, rtol=1e-9)
        h = 1e-6
        for a in range(3):
            ends = []
            for step in (h, -h):
                moved = x.copy()
                moved[i, a] += step
                ends.append(
                    call(moved, sigma=sigma, epsilon=epsilon, exclusions=[(i, j)], factors=factor).energy
                    - call(moved, sigma=sigma, epsilon=epsilon).energy
                )
            change = pair.forces[i, a] - whole.forces[i, a]
            np.testing.assert_allclose(change, -(ends[0] - ends[1]) / (2 * h), rtol=1e-5, atol=1e-6)


def test_an_excluded_pair_may_lie_in_one_place():
    x, sigma, epsilon = numbers()
    x[1] = x[0]
    call, of_roots = Dispersion(TRICLINIC, **COARSE), Dispersion(TRICLINIC, **COARSE | {"mixing": "geometric"})

    def energy(*left_out, **pairs):
        keep = np.delete(np.arange(50), left_out)
        return call(x[keep], sigma=sigma[keep], epsilon=epsilon[keep], **pairs).energy

    # Energies are sums over pairs. Of the excluded one images remain: those of a particle and itself.
    root = 2 * np.sqrt(epsilon[:2]) * sigma[:2] ** 3
    images = 2 * of_roots(x[:1], root[:1]).energy / root[0] ** 2 * root.prod()
    expected = energy(0) + energy(1) - energy(0, 1) + images
    np.testing.assert_allclose(energy(exclusions=[(0, 1)]), expected, rtol=1e-10)
    for pairs in ({}, {"exclusions": [(0, 1)], "factors": 0.5}):
        with pytest.raises(ValueError, match="particle [01] lies where another one lies"):
            call(x, sigma=sigma, epsilon=epsilon, **pairs)
