# SPDX-License-Identifier: BSD-3-Clause
"""The split by a prolate spheroidal function: its two halves, what they leave out, and results against direct sums."""

import pickle

import numpy as np
import pytest
from numpy.polynomial.legendre import leggauss
from test_slab import parry, slab

import particlemesh as pm
from particlemesh.apps.pme import PME, PMEBatch, slab_correction
from particlemesh.apps.pme.split import Gaussian, Prolate, polynomials, with_derivatives
from particlemesh.fourier import ProlateGreen, Solver
from pme_cases import CRYSTALS, TRICLINIC, ewald, random_charges

CUTOFF = 1.3
X, W = leggauss(200)
X, W = (X + 1) / 2, W / 2  # an integral over [0, 1]
BANDWIDTHS = pytest.mark.parametrize("bandwidth", [2.0, 6.5, 12.0, 21.0, 33.0])


def leaked(bandwidth, beyond):
    """The integral of the squared transform of psi from there on, by k cutoff."""
    psi = ProlateGreen(bandwidth, 1.0).psi(X) * W
    k = beyond + np.arange(0, 600, 0.02)
    values = np.concatenate([np.cos(np.outer(part, X)) @ psi for part in np.array_split(k, 50)]) / psi.sum()
    return np.trapezoid(values**2, k) + values[-200:].std() ** 2 * k[-1]


@BANDWIDTHS
def test_both_parts_are_the_interaction_and_pairs_end_at_the_cutoff(bandwidth):
    split, r = Prolate(bandwidth, CUTOFF), np.linspace(0.01, 3.0, 300)
    sharp = 1 / r - split.smooth(r**2)
    np.testing.assert_allclose(sharp + split.smooth(r**2), 1 / r, rtol=1e-14)
    assert (sharp[r >= CUTOFF] == 0).all()
    psi = ProlateGreen(bandwidth, CUTOFF).psi
    shares = np.array([s * (psi(s * X) @ W) for s in r[r < CUTOFF] / CUTOFF]) / (psi(X) @ W)
    np.testing.assert_allclose(sharp[r < CUTOFF], (1 - shares) / r[r < CUTOFF], rtol=0, atol=4e-14)
    assert split.smooth(0.0) == pytest.approx(1 / (psi(X) @ W) / CUTOFF, rel=1e-14)


@BANDWIDTHS
def test_the_transform_is_that_of_the_smooth_part(bandwidth):
    """``1 / r`` less the pairs' part, whose transform is an integral over the sphere within the cutoff."""
    split = Prolate(bandwidth, CUTOFF)
    edge = split.highest
    k = np.linspace(0.02, 0.999, 40) * edge
    r = X * CUTOFF
    sharp = 4 * np.pi * CUTOFF * (np.sinc(np.outer(k, r) / np.pi) @ (W * r**2 * (1 / r - split.smooth(r**2))))
    np.testing.assert_allclose(split.transform(k**2), 4 * np.pi / k**2 - sharp, rtol=0, atol=2e-13 * CUTOFF**2 * 30)
    assert bandwidth / CUTOFF <= edge <= (bandwidth + 2.3) / CUTOFF
    assert (split.transform(np.array([1.0, 1.5, 1e6]) * edge**2) == 0).all()
    assert split.transform(np.array((edge * (1 - 1e-9)) ** 2)) == pytest.approx(
        0, abs=1e-7 * np.exp(-bandwidth) + 1e-14
    )
    # The limits at k = 0 and, of what the mesh has, at r = 0.
    green = ProlateGreen(bandwidth, CUTOFF)
    # Of 1 / r less the pairs' part: minus the integral of this over space, over 4 pi.
    assert green.zero == pytest.approx(-CUTOFF * (W @ (r**2 * (1 / r - split.smooth(r**2)))), rel=1e-12)
    k = X * edge
    of_mesh = (split.transform(k**2) * k**2 * W).sum() * edge / (2 * np.pi**2)
    assert split.itself == pytest.approx(of_mesh, rel=1e-13)
    assert split.itself == pytest.approx(split.smooth(0.0), rel=2 * np.exp(-bandwidth) + 1e-14)
    of_dipole = (split.transform(k**2) * k**4 * W).sum() * edge / (6 * np.pi**2)
    assert split.at_zero(1) == pytest.approx(of_dipole, rel=1e-13)
    slope = (green.smoothing(k**2 * 1.00001) - green.smoothing(k**2 / 1.00001)) / (k**2 * (1.00001 - 1 / 1.00001))
    within = (k > 0.1 * edge) & (k < 0.9999 * edge)  # else the difference rounds, or one of its ends is outside
    np.testing.assert_allclose(green.smoothing_slope(k**2)[within], slope[within], rtol=0, atol=1e-8 * CUTOFF**2)


def test_many_wavenumbers_have_the_factors_of_few():
    green = ProlateGreen(12.0, 2.0)
    k2 = np.linspace(0.1, 1.2 * green.edge**2, (1 << 20) + 1)
    for function in (green.smoothing, green.smoothing_slope, green.slope):
        np.testing.assert_allclose(function(k2)[1::999], function(k2[1::999]), rtol=1e-13, atol=1e-16)


@pytest.mark.parametrize("bandwidth", [4.0, 7.0, 12.0, 17.0])
def test_the_error_is_that_of_what_the_transform_leaves_out(bandwidth):
    split = Prolate(bandwidth, CUTOFF)
    exact = np.sqrt(8 * 0.2 / CUTOFF * leaked(bandwidth, split.highest * CUTOFF))
    assert split.real_error(CUTOFF, 0.2) == pytest.approx(exact, rel=0.04)
    assert Prolate.of(CUTOFF, 0.2, exact).bandwidth == pytest.approx(bandwidth, abs=0.17)


@pytest.mark.parametrize("one", [True, False], ids=["one polynomial", "intervals"])
@pytest.mark.parametrize("bandwidth", [5.0, 9.0, 13.0, 17.0])
def test_polynomials_of_single_precision_have_its_accuracy(bandwidth, one):
    split = Prolate(bandwidth, CUTOFF)
    r = np.linspace(0.02, 1, 400) * CUTOFF
    smooth = polynomials(split, CUTOFF, True, one)
    assert (len(smooth.coefficients) == 1) == one
    value, slope = smooth(r**2)
    assert abs(value - split.smooth(r**2)).max() <= 1e-7 / CUTOFF
    psi = ProlateGreen(bandwidth, CUTOFF).psi
    exact = (psi(r / CUTOFF) / (psi(X) @ W) / CUTOFF - split.smooth(r**2)) / r
    assert abs(2 * r * slope - exact).max() <= 1e-7 / CUTOFF**2  # of the force at the cutoff


@pytest.mark.parametrize("single", [True, False])
@pytest.mark.parametrize("split", [Gaussian(2.5), Gaussian(4.5), Prolate(12.0, CUTOFF), Prolate(30.0, CUTOFF)], ids=str)
def test_polynomials_of_dipoles_have_three_derivatives(split, single):
    r2 = np.linspace(0.01, 0.99, 300) * CUTOFF**2
    smooth, values = with_derivatives(split, CUTOFF, single), []
    for order in range(4):
        values.append(split.bent(r2, order))
        k = (r2 * smooth.scale).astype(int)
        powers = [np.polynomial.Polynomial(row).deriv(order) for row in smooth.coefficients]
        fit = [powers[n](s) * smooth.scale**order for n, s in zip(k, r2 * smooth.scale - k - 0.5, strict=True)]
        np.testing.assert_allclose(fit, values[-1], rtol=0, atol=(3e-8 if single else 1e-11) * abs(values[-1]).max())
    np.testing.assert_allclose(values[0], split.smooth(r2), rtol=1e-13)
    h = 1e-5 * r2
    for order, above in enumerate(values[1:]):  # each is the slope of the one before
        slope = (split.bent(r2 + h, order) - split.bent(r2 - h, order)) / (2 * h)
        np.testing.assert_allclose(slope, above, rtol=0, atol=1e-7 * abs(above).max())


@pytest.mark.parametrize("name", ["rock salt", "wurtzite", "jellium bcc"])
def test_madelung_constants(name):
    crystal = CRYSTALS[name].repeated(2, 2, 2)
    pme = PME(crystal.matrix, 1e-13, splitting="prolate")
    energy = pme(crystal.positions + (0.1, 0.2, 0.3), crystal.charges).energy
    assert abs(energy / crystal.energy - 1) <= 1e-12
    assert pme.parameters.splitting == "prolate"


@pytest.mark.parametrize("neutral", [True, False])
@pytest.mark.parametrize("box", [3.0 * np.eye(3), TRICLINIC], ids=["cube", "triclinic"])
def test_energy_and_forces_are_those_of_direct_sums(box, neutral):
    x, q = random_charges(24, neutral=neutral)
    energy, forces = ewald(box, x, q)
    results = {
        split: PME(box, 1e-11, splitting=split, exclusions=[(0, 1), (3, 2)], factors=[0, 0.5])(x, q)
        for split in ("prolate", "gaussian")
    }
    whole = PME(box, 1e-11, splitting="prolate")(x, q)
    assert abs(whole.energy - energy) <= 1e-9 * abs(energy)
    np.testing.assert_allclose(whole.forces, forces, rtol=0, atol=1e-9 * abs(forces).max())
    for name in ("energy", "energies", "forces", "virial"):
        expected = getattr(results["gaussian"], name)
        np.testing.assert_allclose(getattr(results["prolate"], name), expected, rtol=0, atol=1e-9 * abs(expected).max())


def test_slabs_are_two_dimensional_sums():
    x, q = slab(0.4)
    box = (1.0, 1.2, 5.0)
    result, more = PME(box, 1e-11, splitting="prolate")(x, q), slab_correction(x, q, box)
    np.testing.assert_allclose(result.energy + more.energy, parry(x, q, np.diag(box[:2])), rtol=1e-8)


def test_free_space_is_that_of_the_smooth_part():
    """Along open axes the mesh has the smooth part between charges, and of each charge itself."""
    green = ProlateGreen(14.0, 1.1)
    solver = Solver(pm.Mesh((40, 36, 44), pm.Box((2.0, 1.8, 2.2), periodic=False)), "bspline12", green=green)
    x = np.array([[0.3, 0.4, 0.5], [1.1, 0.5, 0.6], [1.9, 1.7, 2.1]])
    potential = 4 * np.pi * solver.set_positions(x).potential([1.0, 0.0, 0.0])
    distances = np.linalg.norm(x - x[0], axis=1)
    np.testing.assert_allclose(potential, green.potential(distances**2), rtol=0, atol=4e-6)


def test_the_split_is_named_and_its_bandwidth_kept():
    x, q = random_charges(20)
    assert PME(TRICLINIC, 1e-4)(x, q).energy == PME(TRICLINIC, 1e-4, splitting="prolate")(x, q).energy
    pme = PME(TRICLINIC, 1e-4, bandwidth=13.0)
    pme(x, q)
    p = pme.parameters
    assert (p.bandwidth, p.splitting, p.split.cutoff) == (13.0, "prolate", p.cutoff)
    assert "prolate split of bandwidth 13" in repr(pme)
    assert "prolate split of bandwidth 13" in pme.explain()
    assert "given: bandwidth" in pme.explain()
    same = PME(TRICLINIC, cutoff=p.cutoff, splitting=p.splitting, bandwidth=p.bandwidth, shape=p.shape, window=p.window)
    assert same(x, q).energy == pickle.loads(pickle.dumps(pme))(x, q).energy == pme(x, q).energy
    gaussian = PME(TRICLINIC, 1e-4, splitting="gaussian")
    gaussian(x, q)
    alpha = gaussian.parameters.splitting
    assert gaussian.parameters.bandwidth is None
    assert PME(TRICLINIC, 1e-4, splitting=alpha, cutoff=gaussian.parameters.cutoff)(x, q).energy == pytest.approx(
        gaussian(x, q).energy, rel=1e-12
    )


@pytest.mark.parametrize(("given", "words"), [
    (dict(splitting="prolat"), "splitting is 'prolat'.*prolate.*gaussian"),
    (dict(splitting="gaussian", bandwidth=12.0), "only the prolate split has a bandwidth"),
    (dict(splitting=3.0, bandwidth=12.0), "only the prolate split has a bandwidth"),
    (dict(bandwidth=0.5), "bandwidth is 0.5; give a number from 1 to 40"), (dict(bandwidth=41), "from 1 to 40"),
    (dict(splitting=-1.0), "splitting is -1.0"),
], ids=str)  # fmt: skip
def test_bad_splits_are_refused(given, words):
    for make in (PME, lambda box, **given: PMEBatch(box, 2, **given)):
        with pytest.raises(ValueError, match=words):
            make((1.0, 1.0, 1.0), **given)


def test_dipoles_take_gaussians_unless_the_split_is_given():
    x, q = random_charges(20)
    mu = np.random.default_rng(1).normal(size=(20, 3)) * 0.1
    results = {}
    for given in (None, "gaussian", "prolate"):
        pme = PME(TRICLINIC, 1e-9, splitting=given)
        charges_first = pme(x, q).energy
        results[given] = pme(x, q, dipoles=mu)
        assert pme.parameters.split.power == 3
        assert (pme.parameters.splitting == "prolate") == (given == "prolate")
        assert pme(x, q).energy == pytest.approx(charges_first, rel=1e-8)
    reserved = PME(TRICLINIC, 1e-9, dtype="float64", backend="cpu").reserve(20, dipoles=True)
    assert (
        reserved.parameters
        == PME(TRICLINIC, 1e-9, splitting="gaussian", dtype="float64", backend="cpu").reserve(20).parameters
    )
    for name in ("energy", "forces", "fields", "torques", "virial"):
        expected = getattr(results["gaussian"], name)
        assert np.array_equal(getattr(results[None], name), expected)
        np.testing.assert_allclose(getattr(results["prolate"], name), expected, rtol=0, atol=1e-6 * abs(expected).max())


@pytest.mark.backends("opencl", "cuda")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_devices_give_what_the_cpu_gives(backend, dtype):
    x, q = (a.astype(dtype) for a in random_charges(30))
    mu = (np.random.default_rng(1).normal(size=(30, 3)) * 0.1).astype(dtype)
    given = dict(cutoff=1.4, bandwidth=9.0, shape=(12, 15, 16), window="bspline5", exclusions=[(0, 1), (5, 7)])
    tolerance = 1e-5 if dtype == "float32" else 1e-11
    for moments in ({}, {"dipoles": mu}):
        expected = PME(TRICLINIC, **given)(
            *(a.astype("f8") for a in (x, q)), **{k: v.astype("f8") for k, v in moments.items()}
        )
        pme = PME(TRICLINIC, **given, backend=backend.name)
        result = pme(*map(backend.array, (x, q)), **{k: backend.array(v) for k, v in moments.items()})
        for name in ("energy", "energies", "forces", "virial"):
            exact = getattr(expected, name)
            value = backend.host(getattr(result, name))
            np.testing.assert_allclose(value, exact, rtol=0, atol=tolerance * abs(exact).max(), err_msg=name)


def test_a_split_needs_fewer_nodes_than_gaussians():
    """For the same error, pairs and window; the table is that of benchmarks/apps/pme_errors.py."""
    nodes = {}
    x, q = np.random.default_rng(1).random((2000, 3)) * 3, np.tile([1.0, -1.0], 1000)
    for split in ("prolate", "gaussian"):
        pme = PME((3.0, 3.0, 3.0), 1e-4, cutoff=0.9, window="bspline8", splitting=split)
        pme(x, q)
        nodes[split] = np.prod(pme.parameters.shape)
    assert nodes["gaussian"] >= 1.8 * nodes["prolate"]
