# SPDX-License-Identifier: BSD-3-Clause
"""Spectra of surveys: against those of boxes, sums over all objects, Poisson points and a field that is known."""

import itertools

import numpy as np
import pytest
from numpy.polynomial import legendre

import particlemesh as pm
import survey_cases
from particlemesh.fourier import power_spectrum, survey_spectrum
from particlemesh.fourier.survey import harmonic

ORDERS = (0, 2, 4)


def lattice(nodes, edge):
    """Return places (nodes**3, 3) in the cells of a lattice, whose modes are 0."""
    return edge * (np.stack(np.meshgrid(*[np.arange(nodes)] * 3, indexing="ij"), -1).reshape(-1, 3) + 0.5) / nodes


@pytest.mark.parametrize("interlaced", [True, False])
@pytest.mark.parametrize("compensation", ["window", "aliases"])
def test_a_box_of_constant_density_has_the_spectrum_of_a_box(interlaced, compensation):
    edge, sight, rng = 50.0, (1.0, 2.0, -0.5), np.random.default_rng(1)
    mesh = pm.Mesh((12, 12, 12), (edge,) * 3)
    x, w = rng.uniform(0, edge, (500, 3)), rng.uniform(0.5, 1.5, 500)
    given = dict(interlaced=interlaced, compensation=compensation, multipoles=ORDERS, line_of_sight=sight)
    box = power_spectrum(x, w, mesh, **given)
    # The density of galaxies times their weights.
    density = w.sum() / edge**3
    survey = survey_spectrum((x, w, density), (lattice(24, edge), None, density), mesh, **given)
    np.testing.assert_allclose(survey.power, box.power, rtol=1e-9)
    np.testing.assert_array_equal(survey.modes, box.modes)
    for order in ORDERS:
        np.testing.assert_allclose(survey.multipoles[order], box.multipoles[order], rtol=1e-9, atol=1e-9)
    extra = edge**3 / 24**3  # the noise of random points
    np.testing.assert_allclose(
        survey.shot_noise - box.shot_noise, extra * box.shot_noise / box.shot_noise[0], rtol=0.02
    )
    # Weights of FKP at one density change nothing but the noise of rounding.
    fkp = survey_spectrum((x, w, density), (lattice(24, edge), None, density), mesh, power=1e4, **given)
    np.testing.assert_allclose(fkp.power, survey.power, rtol=1e-9)


def objects(rng, observer):
    """Return galaxies and randoms in a part of a box: positions, weights, densities."""
    sets = []
    for count in (60, 200):
        x = observer + rng.uniform(0.2, 1, (count, 3)) * [3.0, 2.5, 2.0]
        sets.append((x, rng.uniform(0.5, 1.5, count), rng.uniform(5.0, 20.0, count)))
    return sets


@pytest.mark.parametrize("observer", [(0.0, 0.0, 0.0), (-4.0, 1.0, 2.0)])
def test_multipoles_are_sums_over_all_objects(observer):
    """The Yamamoto estimator, mode by mode, with Legendre polynomials of each object's angle."""
    galaxies, randoms = objects(np.random.default_rng(2), np.zeros(3))
    edge, power = 4.0, 0.07
    mesh = pm.Mesh((24, 24, 24), pm.Box((edge,) * 3, origin=(-0.5, -0.5, -0.5)))
    edges = np.array([0.5, 2.1, 3.5, 5.5]) * 2 * np.pi / edge
    survey = survey_spectrum(
        galaxies, randoms, mesh, power=power, multipoles=ORDERS, observer=observer, edges=edges, window="bspline8"
    )
    fkp = [w / (1 + n * power) for _, w, n in (galaxies, randoms)]
    ratio = fkp[0].sum() / fkp[1].sum()
    norm = ratio * (fkp[1] ** 2 / randoms[1] * randoms[2]).sum()
    x, w = np.concatenate([galaxies[0], randoms[0]]), np.concatenate([fkp[0], -ratio * fkp[1]])
    sight = (x - observer) / np.linalg.norm(x - observer, axis=1, keepdims=True)
    n = np.arange(-6, 7)
    k = np.stack(np.meshgrid(n, n, n, indexing="ij"), -1).reshape(-1, 3) * 2 * np.pi / edge
    length = np.linalg.norm(k, axis=1)
    phases = np.exp(-1j * k @ x.T)
    bins = [(length >= a) & (length < b) for a, b in itertools.pairwise(edges)]
    assert survey.modes.tolist() == [b.sum() for b in bins]
    cosines = k @ sight.T / np.where(length > 0, length, 1)[:, None]
    for order in ORDERS:
        factor = legendre.legval(cosines, [0] * order + [1])
        of_modes = ((phases @ w) * (phases.conj() * factor @ w)).real / norm
        noise = factor @ w**2 / norm
        for measured, law in ((survey.multipoles, of_modes), (survey.multipole_noise, noise)):
            expected = np.array([(2 * order + 1) * law[b].mean() for b in bins])
            np.testing.assert_allclose(measured[order], expected, atol=1e-4 * survey.power.max())
    np.testing.assert_allclose(survey.power, survey.multipoles[0], rtol=1e-12)


@pytest.mark.parametrize("order", [0, 2, 4, 6])
def test_harmonics_add_up_to_legendre_polynomials(order):
    u, v = np.random.default_rng(3).normal(size=(2, 3, 50))
    u, v = (vectors / np.linalg.norm(vectors, axis=0) for vectors in (u, v))
    total = sum(harmonic(order, n, u) * harmonic(order, n, v) for n in range(2 * order + 1))
    np.testing.assert_allclose(total, legendre.legval((u * v).sum(0), [0] * order + [1]), atol=1e-12)


def test_poisson_points_have_shot_noise_only():
    # A shell whose density falls: power less its noise is 0 within the errors of FKP.
    rng, deviations = np.random.default_rng(4), []
    mesh = pm.Mesh((32, 32, 32), pm.Box((3.0,) * 3, origin=(-1.5,) * 3))
    edges = np.linspace(6, 30, 4)  # wider than 2 pi over the size of the survey, for which errors are right
    for _ in range(4):
        points = rng.uniform(-1, 1, (150_000, 3))
        radius = np.linalg.norm(points, axis=1)
        points = points[(radius > 0.4) & (radius < 1) & (rng.random(150_000) < np.exp(-2 * (radius - 0.4)))]
        few = rng.random(len(points)) < 0.05
        density = 0.05 * 150_000 / 8 * np.exp(-2 * (np.linalg.norm(points, axis=1) - 0.4))
        sets = [(points[chosen], None, density[chosen]) for chosen in (few, ~few)]
        survey = survey_spectrum(*sets, mesh, power=1e-3, edges=edges, compensation="aliases")
        deviations.append((survey.power - survey.shot_noise) / survey.error)
        quadrupole = (survey.multipoles[2] - survey.multipole_noise[2]) / (np.sqrt(5) * survey.error)
        deviations.append(quadrupole)
    deviations = np.array(deviations)
    assert 0.7 < np.sqrt((deviations**2).mean()) < 1.35 and abs(deviations.mean()) < 0.6


def test_clusters_that_point_at_the_observer_have_known_multipoles():
    # Five points a cluster, with standard deviations across and along the line of sight:
    # P(k, mu) = V / N (1 + 4 exp(-k^2 (across^2 (1 - mu^2) + along^2 mu^2))).
    rng, across, along, clusters = np.random.default_rng(5), 0.01, 0.04, 6000
    observer = np.array([20.0, -15.0, 10.0])  # far away, so that its sights are nearly one
    centres = rng.random((clusters, 1, 3))
    sight = (centres - observer) / np.linalg.norm(centres - observer, axis=2, keepdims=True)
    moved = across * rng.normal(size=(clusters, 5, 3))
    moved += (along * rng.normal(size=(clusters, 5, 1)) - (moved * sight).sum(2, keepdims=True)) * sight
    x = ((centres + moved) % 1).reshape(-1, 3)
    mesh = pm.Mesh((32, 32, 32), (1.0, 1.0, 1.0))
    edges = np.linspace(20, 100, 9)
    survey = survey_spectrum((x, None, len(x)), (lattice(32, 1.0), None, len(x)), mesh, observer=observer, edges=edges)
    mu, weight = legendre.leggauss(40)
    squared = survey.k[:, None] ** 2 * (across**2 * (1 - mu**2) + along**2 * mu**2)
    law = 4 * np.exp(-squared) / len(x)
    total = law + 1 / len(x)
    for order in ORDERS:
        polynomial = legendre.legval(mu, [0] * order + [1])
        expected = (2 * order + 1) / 2 * (law * polynomial) @ weight
        noise = survey.multipole_noise[order] - (order == 0) / 32**3  # a lattice has none
        error = (2 * order + 1) * np.sqrt((total**2 * polynomial**2) @ weight / survey.modes)
        deviations = (survey.multipoles[order] - noise - expected) / error
        assert np.sqrt((deviations**2).mean()) < 1.7, order
        assert order == 4 or abs(expected / error)[1:4].min() > 5  # there is something to find


@pytest.mark.parametrize("power", [0.0, 1e-3])
def test_errors_know_weights_but_not_their_unit(power):
    rng, mesh, count = np.random.default_rng(8), pm.Mesh((16,) * 3, (1.0,) * 3), 1000
    edges = np.linspace(10.0, 45.0, 6)

    def errors(galaxies, randoms, mean):
        density = galaxies * mean * count
        return survey_spectrum(
            (x, galaxies * w, density), (lattice(16, 1.0), randoms * np.ones(16**3), density), mesh,
            power=power / galaxies, edges=edges, multipoles=(),
        )  # fmt: skip

    deviations = []
    for _ in range(60):
        x, w = rng.random((count, 3)), rng.lognormal(0.0, 0.8, count)
        first = errors(1.0, 1.0, w.mean())
        deviations.append((first.power - first.shot_noise) / first.error)
    np.testing.assert_allclose(errors(1.0, 0.01, w.mean()).error, first.error, rtol=1e-9)
    np.testing.assert_allclose(errors(3.0, 1.0, w.mean()).error, first.error, rtol=1e-9)
    assert 0.85 < np.std(deviations) < 1.15


def test_multipoles_are_those_of_jax_power():
    """Its figures are in a file, which ``tests/peers/test_survey_jax_power.py`` writes."""
    galaxies, randoms, mesh = survey_cases.survey()
    ours = survey_spectrum(
        galaxies, randoms, mesh, power=survey_cases.POWER, multipoles=ORDERS, observer=(0, 0, 0),
        edges=survey_cases.EDGES,
    )  # fmt: skip
    survey_cases.agree(ours, survey_cases.theirs())


X = np.random.default_rng(6).uniform(0.1, 0.9, (20, 3))
MESH = pm.Mesh((8, 8, 8), (1.0, 1.0, 1.0))


@pytest.mark.parametrize(
    ("changed", "error", "said"),
    [
        ({"galaxies": X}, TypeError, "galaxies is no tuple"),
        ({"galaxies": (X, None)}, TypeError, "galaxies is no tuple"),
        ({"galaxies": (X[:, :2], None, 20.0)}, ValueError, "(N, 3)"),
        ({"randoms": (X + 0.2, None, 20.0)}, ValueError, "randoms are outside of the box, the first is number"),
        ({"randoms": (X, np.ones(3), 20.0)}, ValueError, "weights (3,)"),
        ({"randoms": (X, None, np.ones(3))}, ValueError, "density (3,)"),
        ({"randoms": (X, None, -1.0)}, ValueError, "positive"),
        ({"galaxies": (X, np.zeros(20), 20.0)}, ValueError, "weights of galaxies have the sum 0"),
        ({"power": -1.0}, ValueError, "power"),
        ({"multipoles": (1,)}, ValueError, "even"),
        ({"multipoles": (0, 86)}, ValueError, "84 is the highest"),
        ({"observer": X[3]}, ValueError, "object 3"),
        ({"observer": (0.0, 0.0, 1e200)}, ValueError, "too far away"),
        ({"observer": (0.0, 1.0)}, ValueError, "three numbers"),
        ({"observer": (0.0, 0.0, 0.0), "line_of_sight": (0, 0, 1.0)}, ValueError, "give one of them"),
        ({"observer": (0.0, 0.0, 0.0), "multipoles": ()}, ValueError, "observer is for multipoles"),
        ({"mesh": pm.Mesh((8, 8), (1.0, 1.0))}, ValueError, "needs three"),
        ({"mesh": pm.Mesh((8,) * 3, (1.0,) * 3, periodic=False)}, ValueError, "periodic"),
    ],
)
def test_wrong_surveys(changed, error, said):
    arguments = {"galaxies": (X, None, 20.0), "randoms": (X, None, 20.0), "mesh": MESH} | changed
    with pytest.raises(error) as caught:
        survey_spectrum(**arguments)
    assert said in str(caught.value)
